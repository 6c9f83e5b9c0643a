"""Files of any text have the rows of Python's own parsers, or are refused; each type comes back."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.cli.data_files import write_file
from bucketlake.errors import InputError
from bucketlake.flow.threads import Threads
from bucketlake.storage.memory import MemoryStorage
from bucketlake.write.input_files import heads, piece_reader, pieces
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.merge_write import rows_in_files
from tests.bounds import set_bounds
from tests.property.arrow_values import fields, scalar_types, schemas, tables

TEXTS = pa.schema({"a": pa.string(), "b": pa.string()})
OBJECTS = pa.schema(
    {
        "a": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "l": pa.list_(pa.field("element", pa.int32())),
        "s": pa.struct({"p": pa.bool_(), "q": pa.string()}),
    }
)


@contextmanager
def small_blocks(piece: int, block: int, head: int) -> Iterator[None]:
    """Cut texts often, as large files are cut."""
    with pytest.MonkeyPatch.context() as patch:
        set_bounds(patch, heads, PIECE_BYTES=piece, HEAD_BYTES=head)
        set_bounds(patch, piece_reader, CSV_BLOCK_BYTES=block)
        set_bounds(patch, pieces, CSV_BLOCK_BYTES=block)
        yield


def read(name: str, data: bytes, schema: pa.Schema, **how: Any) -> pa.Table:
    storage = MemoryStorage.fresh()
    storage.put(name, data)
    source = FileSource(bl.files(f"{storage.root}/{name}", **how), Threads(1), lambda: schema)
    return rows_in_files(source)


def csv_text(rows: list[list[str]], line_end: str) -> str:
    held = io.StringIO()
    csv.writer(held, lineterminator=line_end).writerows(rows)
    return held.getvalue()


CELLS = st.text(st.sampled_from('ab,"\n\r é'), max_size=8)
CSV_TEXTS = st.text(st.sampled_from('ab,"\n\r é'), max_size=40) | st.builds(
    csv_text,
    st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
)


@given(
    text=CSV_TEXTS,
    end=st.none() | st.integers(0, 80),
    piece=st.integers(1, 50),
    block=st.integers(30, 90),
    head=st.integers(4, 60),
)
@example('1,2\n"x\ny",z\n', None, 5, 40, 8)
@example('5" pipe,"x\ny"\n' * 3, None, 5, 60, 40)
@example(',"""\r\n""ba"\r\n"a""",","\r\n""""""",","""\raé"\r\n', None, 21, 80, 12)
@example('"\n""","ba\ré""\n "\r\n ,"\r"\r\n"é \r\na é","\n,\na"\r\n', None, 48, 35, 11)
def test_csv_cut_anywhere_has_the_rows_of_pythons_reader(
    text: str, end: int | None, piece: int, block: int, head: int
) -> None:
    text = text[:end]
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    with small_blocks(piece, block, head):
        try:
            found = read("x.csv", b"a,b\n" + text.encode(), TEXTS, null_values=())
        except InputError:
            return
    assert [[row["a"], row["b"]] for row in found.to_pylist()] == rows


def test_csv_that_is_cut_is_not_refused() -> None:
    rows = [[f"{i}", f'"{i}\r\n,"'] for i in range(40)]
    with small_blocks(17, 40, 20):
        found = read("x.csv", b"a,b\n" + csv_text(rows, "\r\n").encode(), TEXTS)
    assert [[*row.values()] for row in found.to_pylist()] == rows


JSON_OBJECTS = st.fixed_dictionaries(
    {"a": st.none() | st.text(st.sampled_from('ab"\\{}[]:,é\n\u2028'), max_size=5)},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "s": st.none()
        | st.fixed_dictionaries({}, optional={"p": st.booleans(), "q": st.text("xy", max_size=2)}),
    },
)


@given(
    rows=st.lists(JSON_OBJECTS, min_size=1, max_size=8),
    end=st.none() | st.integers(0, 200),
    is_array=st.booleans(),
    piece=st.integers(1, 90),
    block=st.integers(1, 120),
    head=st.integers(1, 120),
)
def test_json_cut_anywhere_has_the_objects_of_pythons_reader(
    rows: list[dict[str, Any]],
    end: int | None,
    is_array: bool,
    piece: int,
    block: int,
    head: int,
) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=end is None) + "\n" for row in rows)
    text = (json.dumps(rows) if is_array else lines)[:end]
    with small_blocks(piece, block, head):
        try:
            found = read("x.json", text.encode(), OBJECTS)
        except InputError:
            assert text != lines
            return
    objects = json.loads(text) if is_array and text else []
    if not is_array:
        objects = [json.loads(line) for line in text.split("\n") if line]
    expected = pa.Table.from_pylist(objects, OBJECTS)
    lacking = [name for name in OBJECTS.names if name not in found.column_names]
    assert all(expected[name].null_count == len(expected) for name in lacking)
    assert found.to_pylist() == expected.select(found.column_names).to_pylist()


SQUEEZED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


def flat_schemas() -> st.SearchStrategy[pa.Schema]:
    return st.lists(fields(scalar_types(), st.just(True)), min_size=2, max_size=5).map(
        lambda kinds: pa.schema([(f"f{i}", kind) for i, (kind, _) in enumerate(kinds)])
    )


@given(
    case=st.tuples(st.just("csv"), tables(flat_schemas))
    | st.tuples(st.just("jsonl"), tables(schemas)),
    ending=st.sampled_from([*SQUEEZED]),
)
def test_what_the_command_line_exports_comes_back(case: tuple[str, pa.Table], ending: str) -> None:
    file_format, rows = case
    with TemporaryDirectory() as folder:
        path = Path(folder, f"x.{file_format}")
        write_file(rows, path, None)
        data = SQUEEZED[ending](path.read_bytes())
    found = read(f"x.{file_format}{ending}", data, rows.schema)
    kept = rows.select(found.column_names)
    assert str(found.to_pylist()) == str(kept.to_pylist())
    assert all(field.type == rows.schema.field(field.name).type for field in found.schema)
