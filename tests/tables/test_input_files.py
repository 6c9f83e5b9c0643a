"""Files as the records of a write, in memory and on disk, without Spark."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError
from bucketlake.flow.threads import Threads
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.table import handle_of
from bucketlake.write import merge_write
from bucketlake.write.ingest import write_records
from bucketlake.write.input_files import file_source, heads, piece_reader
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.input_files.files import listed
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.faulty_storage import FaultyStorage
from tests.spies import forbid, spy

SCHEMA = pa.schema({"id": pa.string(), "day": pa.string(), "n": pa.int64(), "x": pa.float64()})
NewPath = Callable[[], str]


def rows(*numbers: int, n: int = 0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{i}", "day": f"d{i % 2}", "n": n or i, "x": i / 2} for i in numbers], SCHEMA
    )


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def csv(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def json_lines(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


FORMATS = {"parquet": parquet, "csv": csv, "jsonl": json_lines}


@pytest.fixture
def landing(new_path: NewPath) -> str:
    return new_path()


@pytest.fixture
def table(new_path: NewPath) -> bl.Table:
    return bl.create_table(
        new_path(), schema=SCHEMA, record_key="id", partition_by="day", ordering="n"
    )


def held(table: bl.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_arrow().sort_by("id").to_pylist()
    return found


def put(landing: str, **files: bytes) -> None:
    storage = open_storage(landing)
    for name, data in files.items():
        storage.put(name.replace("__", "/").replace("_dot_", "."), data)


@pytest.mark.parametrize("name", FORMATS)
def test_each_write_takes_files_of_each_format(name: str, table: bl.Table, landing: str) -> None:
    data = FORMATS[name]
    put(landing, **{f"1_dot_{name}": data(rows(0, 1, 2)), f"2_dot_{name}": data(rows(3, 4, 5))})
    every = bl.files(f"{landing}/*.{name}")
    assert table.bulk_insert(every).inserted == 6
    assert held(table) == rows(*range(6)).to_pylist()
    result = table.upsert(every)
    assert (result.inserted, result.updated) == (0, 6)
    assert table.insert(bl.files(f"{landing}/1.{name}")).instant is not None
    assert table.delete(bl.files([f"{landing}/2.{name}"])).deleted == 3
    assert table.insert_overwrite(every).written == 6
    assert held(table) == rows(*range(6)).to_pylist()


@pytest.mark.parametrize("name", FORMATS)
def test_files_are_merged_as_their_rows_are(name: str, table: bl.Table, landing: str) -> None:
    data = FORMATS[name]
    put(landing, **{f"1_dot_{name}": data(rows(2, 3, n=9)), f"2_dot_{name}": data(rows(4, n=9))})
    news = bl.files(f"{landing}/*.{name}")
    table.upsert(rows(0, 1, 2, 3))
    merge = table.merge(news, "t.x = s.x").when_matched_update({"n": "s.n - t.n"}, "s.id <> 'k2'")
    result = merge.when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated) == (1, 1)
    assert [row["n"] for row in held(table)] == [0, 1, 2, 6, 9]
    with pytest.raises(InputError, match=r"two rows of the source change the row with key 'k0'"):
        table.merge(news, "t.n < s.x").when_matched_update({"n": "s.n"}).execute()


def test_a_merge_of_files_by_key_is_an_upsert_of_them(
    table: bl.Table, landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = rows(1, 2, n=9).append_column("op", pa.array(["u", "c"]))
    put(landing, a_dot_parquet=parquet(more))
    table.upsert(rows(0, 1))
    news = bl.files(f"{landing}/a.parquet")
    on = "t.id = s.id AND t.day = s.day"
    forbid(monkeypatch, merge_write, "rows_in_files")
    merge = table.merge(news, on).when_matched_update_all().when_not_matched_insert_all()
    result = merge.execute()
    assert (result.inserted, result.updated) == (1, 1)
    assert merge.execute().updated == 2  # The files are read again, with all their columns.
    assert held(table) == [*rows(0).to_pylist(), *rows(1, 2, n=9).to_pylist()]


@pytest.mark.parametrize("name", FORMATS)
def test_a_job_saves_files_and_makes_the_table(name: str, landing: str, new_path: NewPath) -> None:
    put(landing, **{f"x__1_dot_{name}": FORMATS[name](rows(0, 1))})
    options = {
        "hoodie.table.name": "landed",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }
    path = new_path()
    for _ in range(2):
        assert bl.save(bl.files(f"{landing}/x"), path, options=options).written == 2
    assert held(bl.open_table(path)) == rows(0, 1).to_pylist()


def test_the_last_row_of_the_last_file_wins_among_equals(table: bl.Table, landing: str) -> None:
    first, last = rows(0, 1, n=5), rows(0, 1, n=5).set_column(3, "x", pa.array([8.0, 9.0]))
    put(landing, b_dot_parquet=parquet(last, row_group_size=1), a_dot_parquet=parquet(first))
    table.upsert(bl.files([f"{landing}/b.parquet", f"{landing}/a.parquet"]))
    assert [row["x"] for row in held(table)] == [8.0, 9.0]


def test_columns_of_a_table_are_read_with_its_types(new_path: NewPath, landing: str) -> None:
    schema = pa.schema({"id": pa.string(), "code": pa.string(), "price": pa.decimal128(9, 2)})
    table = bl.create_table(new_path(), schema=schema, record_key="id")
    put(landing, a_dot_csv=b"id,code,price\n007,01,1.50\n008,,2\n")
    table.upsert(bl.files(f"{landing}/a.csv"))
    found = table.to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["code"], str(row["price"])) for row in found] == [
        ("007", "01", "1.50"),
        ("008", None, "2.00"),
    ]


def test_compressed_text_and_arrays_of_objects_are_read(table: bl.Table, landing: str) -> None:
    objects = json.dumps(rows(2, 3).to_pylist(), indent=1).encode()
    put(
        landing,
        a_dot_csv_dot_gz=gzip.compress(csv(rows(0, 1))),
        b_dot_json=b"\xef\xbb\xbf" + objects,  # Some programs of Windows begin texts so.
        c_dot_jsonl_dot_gz=gzip.compress(json_lines(rows(4))),
    )
    assert table.upsert(bl.files(landing)).inserted == 5
    assert held(table) == rows(*range(5)).to_pylist()


def test_patterns_and_folders_name_files(landing: str) -> None:
    data = parquet(rows(0))
    names = ["a", "b1", "b2", "x__c", "x__y__d", "_hidden", "x___hidden__e"]
    put(landing, **{f"{name}_dot_parquet": data for name in names})

    def found(*patterns: str) -> list[str]:
        given = bl.files([f"{landing}/{pattern}" for pattern in patterns])
        return [file.stored.path.removesuffix(".parquet") for file in listed(given)]

    assert found("b?.parquet", "a.parquet", "b1.parquet") == ["a", "b1", "b2"]
    assert found("*.parquet") == ["a", "b1", "b2"]
    assert found("[!b]*.parquet") == ["a"]
    assert found("**/*.parquet") == ["a", "b1", "b2", "x/c", "x/y/d"]
    assert found("x/*/*.parquet") == ["y/d"]
    assert found("x") == ["c", "y/d"]
    assert found("_hidden.parquet") == ["_hidden"]


def test_a_file_or_folder_of_the_very_name_wins_over_the_pattern(landing: str) -> None:
    storage = open_storage(landing)
    for name in ("q1.csv", "q[1].csv", "r[9-1].csv", "f1/a.csv", "f[1]/b.csv", "f[1]/_c.csv"):
        storage.put(name, csv(rows(0)))

    def found(pattern: str) -> list[str]:
        return [file.stored.path for file in listed(bl.files(f"{landing}/{pattern}"))]

    assert found("q[1].csv") == ["q[1].csv"]
    assert found("q[[]1].csv") == ["q[1].csv"]
    assert found("q[12].csv") == ["q1.csv"]
    assert found("r[9-1].csv") == ["r[9-1].csv"]
    assert found("f[1]") == ["f[1]/b.csv"]
    assert found("f[1]/b.csv") == ["f[1]/b.csv"]
    assert found("f[1]/*.csv") == ["f1/a.csv"]
    with pytest.raises(InputError, match="no file matches it as a pattern"):
        found("s[9-1].csv")


def test_a_file_without_a_format_is_refused_with_the_argument_of_python(landing: str) -> None:
    put(landing, noext=csv(rows(0)))
    with pytest.raises(InputError, match=r"format with format= \(--format\): parquet"):
        listed(bl.files(f"{landing}/noext"))


@pytest.mark.parametrize("name", ["csv", "jsonl"])
@given(data=st.data())
def test_every_line_is_in_one_piece_wherever_a_text_is_cut(name: str, data: st.DataObject) -> None:
    texts = st.text(st.characters(codec="utf-8", exclude_characters='\n\r"\0'), max_size=30)
    held = data.draw(st.lists(texts, min_size=1, max_size=12))
    table = pa.table({"id": [f"{i}" for i in range(len(held))], "text": [f"t{t}" for t in held]})
    storage = MemoryStorage.fresh()
    storage.put(f"a.{name}", FORMATS[name](table)[: -1 if data.draw(st.booleans()) else None])
    with pytest.MonkeyPatch.context() as patch:
        set_bounds(patch, heads, PIECE_BYTES=data.draw(st.integers(1, 60)))
        source = FileSource(bl.files(f"{storage.root}/a.{name}"), Threads(1), lambda: None)
        reader, pieces = source.reading()
        found = pa.concat_tables([rows for piece in pieces for rows in reader.read(piece)])
    assert found.cast(table.schema).to_pylist() == table.to_pylist()


def test_a_large_text_is_cut_at_no_line_break_in_quotes(
    table: bl.Table, landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, a_dot_csv=b'id,day,n,x\n"k\n1",d1,1,1.0\nk2,d2,2,2.0\n')
    set_bounds(monkeypatch, heads, PIECE_BYTES=13)
    assert table.upsert(bl.files(f"{landing}/a.csv")).inserted == 2


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("a.parquet", b"no parquet", "cannot be read as parquet"),
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"id,day,n,x\nk1,d1,one,1.0\n", "one"),
        ("a.csv", b"id,id\n1,2\n", "column 'id' occurs twice"),
        ("a.jsonl", b'{"id": "k1", "day": "d", "n": 1, "x": 1.0\n', "cannot be read as jsonl"),
        ("a.jsonl", b" null\n", "row 1 is no object: null"),  # Arrow's reader would crash.
        ("a.jsonl", b'{"id": "k1"}\nnull\n', "row 2 is no object: null"),
        ("a.jsonl", b'{"id": 5, "day": "d", "n": 1, "x": 1.0}\n', "give the values .* one type"),
        ("a.csv", b"id,day,n,x,new\nk1,d1,1,1.0,12345678901234567891\n", "12345678901234567891"),
        ("a.txt", b"x", "does not name a format"),
        ("a.parquet", parquet(pa.table({"id": ["k1"], "day": [None], "n": [1]})), "column 'x'"),
        ("a.parquet", parquet(rows(0).set_column(0, "id", pa.array([None], pa.string()))), "id"),
    ],
)
def test_bad_files_are_refused_before_anything_is_written(
    file: str, data: bytes, words: str, table: bl.Table, landing: str
) -> None:
    put(landing, b_dot_parquet=parquet(rows(1)))
    open_storage(landing).put(file, data)
    with pytest.raises(InputError, match=words):
        table.upsert(bl.files([f"{landing}/b.parquet", f"{landing}/{file}"]))
    assert table.timeline() == []


@pytest.mark.parametrize("is_array", [False, True])
def test_an_object_that_lacks_a_name_replaces_no_stored_value(
    is_array: bool, table: bl.Table, landing: str
) -> None:
    table.upsert(rows(1, 2))
    given = [{"id": "k1", "day": "d1", "n": 5, "x": None}, {"id": "k2", "day": "d0", "n": 6}]
    lines = [
        json.dumps(given).encode(),
        b"".join(json.dumps(row).encode() + b"\n" for row in given),
    ]
    put(landing, a_dot_json=lines[not is_array])
    some = bl.files(f"{landing}/a.json")
    with pytest.raises(InputError, match=r"an object lacks 'x'.* \{\"id\": \"k2\".*nulls='keep'"):
        table.upsert(some, missing="keep")
    assert held(table) == rows(1, 2).to_pylist()
    table.upsert(some, missing="keep", nulls="keep")
    assert [(row["n"], row["x"]) for row in held(table)] == [(5, 0.5), (6, 1.0)]
    put(landing, a_dot_json=json.dumps(given[0]).encode())
    table.upsert(some, missing="keep")  # This null is given.
    assert [row["x"] for row in held(table)] == [None, 1.0]


def test_a_path_without_files_is_refused(table: bl.Table, landing: str) -> None:
    for path in (f"{landing}/a.parquet", f"{landing}/*.parquet", f"{landing}/x"):
        with pytest.raises(InputError, match="there is no such file"):
            table.upsert(bl.files(path))


def test_a_file_that_changes_while_it_is_read_is_refused(table: bl.Table, landing: str) -> None:
    put(landing, a_dot_parquet=parquet(rows(0)))
    source = FileSource(bl.files(f"{landing}/a.parquet"), Threads(1), lambda: None)
    assert source.names == SCHEMA.names
    put(landing, a_dot_parquet=parquet(rows(0, 1)))
    (piece,) = source._heads[0].pieces
    reader = piece_reader.PieceReader(source.schema, None, source._given.reading)
    with pytest.raises(InputError, match="changed or deleted"):
        list(reader.read(piece))


def test_a_json_name_that_comes_late_is_known_or_given(table: bl.Table, landing: str) -> None:
    early = b"".join(json_lines(rows(i).drop_columns("x")) for i in range(30_000))
    put(landing, a_dot_jsonl=early + json_lines(rows(30_000)))
    assert table.upsert(bl.files(f"{landing}/a.jsonl")).inserted == 30_001
    late = b'{"id": "z", "day": "d1", "n": 1, "x": 1.0, "new": 1}\n'
    put(landing, a_dot_jsonl=early + late)
    with pytest.raises(InputError, match="column 'new' is not in the first MiB"):
        table.upsert(bl.files(f"{landing}/a.jsonl"))
    typed = bl.files(f"{landing}/a.jsonl", schema=pa.schema({"new": pa.int32()}))
    table.upsert(typed, merge_schema=True)
    assert table.schema().field("new").type == pa.int32()
    put(landing, a_dot_jsonl=early + b'{"id": "z", "day": "d1", "n": 1, "s": {"x": "x"}}\n')
    with pytest.raises(InputError, match="column x: the table has it as double, the batch lacks"):
        table.upsert(
            bl.files(f"{landing}/a.jsonl", schema=pa.schema({"s": pa.struct({"x": "string"})}))
        )


def test_a_value_that_comes_late_has_the_type_of_its_column(table: bl.Table, landing: str) -> None:
    lines = b"id,day,n,x,new\n" + b"k1,d1,1,1.0,7\n" * 90_000 + b"k1,d1,1,1.0,late\n"
    put(landing, a_dot_csv=lines)
    with pytest.raises(InputError, match=r"row 90001, column new: 'late' is .* name its type"):
        table.upsert(bl.files(f"{landing}/a.csv"), merge_schema=True)
    typed = bl.files(f"{landing}/a.csv", schema=pa.schema({"new": pa.string()}))
    assert table.upsert(typed, merge_schema=True).inserted == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), "give the path"),
        (("",), "give the path"),
        ((["a", 1],), "give a text"),
        (("a", "orc"), "format"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bl.files(arguments[0], format=arguments[1] if len(arguments) > 1 else None)


def test_only_the_key_columns_of_parquet_are_read_for_a_delete(tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="day")
    table.upsert(rows(0, 1))
    pq.write_table(rows(0), tmp_path / "a.parquet")
    source = FileSource(bl.files(str(tmp_path / "a.parquet")), Threads(1), lambda: None)
    source.keep(["id", "day"])
    assert source.schema.names == ["id", "day"]
    assert table.delete(bl.files(str(tmp_path / "a.parquet"))).deleted == 1


def test_a_file_that_changes_between_two_batches_is_refused(
    landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before belongs to another file, so the task fails as a whole."""
    set_bounds(monkeypatch, piece_reader, _BATCH_ROWS=2)
    put(landing, a_dot_parquet=parquet(rows(0, 1, 2, 3)))
    source = FileSource(bl.files(f"{landing}/a.parquet"), Threads(1), lambda: None)
    assert source.names == SCHEMA.names
    (piece,) = source._heads[0].pieces
    reading = piece_reader.PieceReader(source.schema, None, source._given.reading).read(piece)
    assert next(reading).num_rows == 2
    put(landing, a_dot_parquet=parquet(rows(4, 5, 6, 7)))
    with pytest.raises(InputError, match="changed or deleted"):
        list(reading)


class Elsewhere(Threads):
    """Threads as an engine whose rows leave this process between two stages."""

    @property
    def in_memory(self) -> bool:
        return False


def test_rows_that_are_read_again_are_those_that_were_counted(
    table: bl.Table, landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, "bucketlake.flow.threads", HERE_BYTES_MAX=-1)  # Tasks read the file.
    reader = piece_reader.PieceReader
    read = spy(monkeypatch, reader, "read", lambda reader, _: reader.schema.names)
    put(landing, a_dot_parquet=parquet(rows(0, 1, 2, 3), row_group_size=1))
    for _ in range(2):
        source = FileSource(bl.files(f"{landing}/a.parquet"), Elsewhere(), table.schema)
        target = open_target(handle_of(table).open(), None)
        result = write_records(target, Operation.UPSERT, source)
        source.close()
    assert (result.inserted, result.updated) == (0, 4)
    assert held(table) == rows(0, 1, 2, 3).to_pylist()
    assert read == [["id", "day"], SCHEMA.names] * 2


@pytest.mark.parametrize("ending", FORMATS)
def test_small_file_is_read_once_however_many_there_are(ending: str, landing: str) -> None:
    def steps(count: int) -> Counter[str]:
        content = {f"{i}.{ending}": FORMATS[ending](rows(i)) for i in range(count)}
        for name, data in content.items():
            open_storage(landing).put(name, data)
        source = FileSource(bl.files(f"{landing}/*.{ending}"), Threads(1), lambda: None)
        counting = FaultyStorage(open_storage(landing))
        source._files = [replace(file, storage=counting) for file in source._files]
        reader, pieces = source.reading()
        assert sum(map(len, chain.from_iterable(map(reader.read, pieces)))) == count
        return Counter(step.operation for step in counting.trace)

    for count in (4, 16):  # The last look at a file tells whether it was changed meanwhile.
        assert steps(count) == {"read": count, "stat": count}


def test_footer_of_a_large_file_is_read_once_for_all_its_pieces(
    landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, heads, PIECE_BYTES=1)
    set_bounds(monkeypatch, file_source, _SMALL_BYTES=0)
    put(landing, a_dot_parquet=parquet(rows(*range(8)), row_group_size=1))
    source = FileSource(bl.files(f"{landing}/a.parquet"), Threads(1), lambda: None)
    _, pieces = source.reading()
    assert len(pieces) == 8
    assert len({id(piece.footer) for piece in pieces} - {id(None)}) == 1
    elsewhere = FileSource(bl.files(f"{landing}/a.parquet"), Elsewhere(), lambda: None)
    assert {piece.footer for piece in elsewhere.reading()[1]} == {None}


def test_rows_of_small_files_are_packed_together_in_their_order(
    table: bl.Table, landing: str
) -> None:
    for i in range(40):  # Each file has the same key: the last one counts.
        open_storage(landing).put(f"{i:02}.parquet", parquet(rows(0, n=i + 1)))
    table.upsert(bl.files(f"{landing}/*.parquet"))
    assert [row["n"] for row in held(table)] == [40]


ZONES = {
    "csv": lambda text: f"id,at\n1,{text}\n".encode(),
    "jsonl": lambda text: json.dumps({"id": "1", "at": text}).encode(),
}


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("2026-11-02T08:00:00+02:00", None, r"row 1, column at: '2026.*' has a time zone.*remove"),
        ("2026-11-02T08:00:00+02:00", "UTC", datetime(2026, 11, 2, 6, tzinfo=UTC)),
        ("2026-11-02 08:00:00", None, datetime(2026, 11, 2, 8)),
        ("2026-11-02 08:00:00", "UTC", r"row 1, column at: '2026.*' does not have a.*time_zone="),
    ],
)
def test_a_time_in_text_has_a_zone_where_its_column_has_one(
    name: str, text: str, zone: str | None, found: object, new_path: NewPath, landing: str
) -> None:
    open_storage(landing).put(f"a.{name}", ZONES[name](text))
    schema = pa.schema({"id": pa.string(), "at": pa.timestamp("us", zone)})
    table = bl.create_table(new_path(), schema=schema, record_key="id")
    some = bl.files(f"{landing}/a.{name}")
    if isinstance(found, str):
        with pytest.raises(InputError, match=found):
            table.upsert(some)
        assert table.timeline() == []
        some = bl.files(f"{landing}/a.{name}", time_zone="Europe/Berlin")
        found = datetime(2026, 11, 2, 7, tzinfo=None if zone is None else UTC)
    table.upsert(some)
    assert table.to_arrow()["at"].to_pylist() == [found]
    open_storage(landing).put(f"a.{name}", ZONES[name]("2026-10-25 02:30:00"))
    if zone is not None:
        with pytest.raises(InputError, match=r"no time '2026.*' in Europe.*, or there are two"):
            table.upsert(bl.files(f"{landing}/a.{name}", time_zone="Europe/Berlin"))


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2026-11-02T08:00:00Z", pa.timestamp("us", "UTC")),
        ("2026-11-02T08:00:00", pa.timestamp("us")),
        ("2026-11-02", pa.date32()),
    ],
)
def test_a_new_column_of_times_has_a_zone_if_the_texts_have_one(
    name: str, text: str, kind: pa.DataType, new_path: NewPath, landing: str
) -> None:
    open_storage(landing).put(f"a.{name}", ZONES[name](text))
    table = bl.create_table(new_path(), schema=pa.schema({"id": pa.string()}), record_key="id")
    table.upsert(bl.files(f"{landing}/a.{name}"), merge_schema=True)
    assert table.schema().field("at").type == kind


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
@pytest.mark.parametrize("name", FORMATS)
def test_files_of_different_columns_are_written_as_their_union(
    name: str, order: tuple[str, str], table: bl.Table, landing: str
) -> None:
    more = rows(1).append_column("channel", pa.array(["web"]))
    for number, own in zip(order, (rows(0), more), strict=True):
        open_storage(landing).put(f"{number}.{name}", FORMATS[name](own))
    every = bl.files(f"{landing}/*.{name}")
    assert table.upsert(every, merge_schema="add_columns").inserted == 2
    assert [row["channel"] for row in held(table)] == [None, "web"]
    open_storage(landing).put(f"{order[0]}.{name}", FORMATS[name](rows(1, n=5)))
    open_storage(landing).put(f"{order[1]}.{name}", FORMATS[name](more.slice(0, 0)))
    if name != "jsonl":  # Objects of JSON name their columns one by one.
        with pytest.raises(InputError, match=r"not have column 'channel'.*fill_missing.*keep"):
            table.upsert(every, merge_schema="add_columns")
    table.upsert(every, missing="keep")
    assert [(row["n"], row["channel"]) for row in held(table)] == [(0, None), (5, "web")]
    table.upsert(every, merge_schema=True)
    assert [row["channel"] for row in held(table)] == [None, None]


def test_a_null_beside_a_file_without_its_column_is_refused_where_stored_values_stay(
    table: bl.Table, landing: str
) -> None:
    table.upsert(rows(0, 1))
    put(landing, a_dot_csv=b"id,day,n\nk0,d0,7\n", b_dot_csv=b"id,day,n,x\nk1,d1,8,\n")
    every = bl.files(f"{landing}/*.csv")
    with pytest.raises(InputError, match=r"b\.csv, column x: it has a null.*nulls='keep'"):
        table.upsert(every, missing="keep")
    table.upsert(every, missing="keep", nulls="keep")
    assert [(row["n"], row["x"]) for row in held(table)] == [(7, 0.0), (8, 0.5)]


def test_files_of_keys_may_have_different_columns(table: bl.Table, landing: str) -> None:
    table.upsert(rows(0, 1, 2))
    put(landing, a_dot_csv=b"id,day\nk0,d0\n", b_dot_csv=b"id,day,why\nk1,d1,gone\n")
    assert table.delete(bl.files(f"{landing}/*.csv")).deleted == 2


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("k1,d1,1,1.5\n", {"header": False, "columns": SCHEMA.names}),
        ("a,b,c,d\nk1,d1,1,1.5\n", {"columns": SCHEMA.names}),
        ("x,day,key,n\n1.5,d1,k1,1\n", {"columns": {"key": "id"}}),
        ("id;day;n;x\nk1;d1;1;1,5\n", {"separator": ";", "decimal": ","}),
        ("id\tday\tn\tx\nk1\td1\t1\t1.5\n", {"separator": "\t"}),
        ("\n\nid,day,n,x\n\nk1, d1,1, 1.5\n", {"columns": ["id", "day", "n", "x"]}),
        *(
            pytest.param(
                f"id,day,n,x,{name}\nk1,d1,1,1.5,\n",
                {},
                marks=pytest.mark.filterwarnings("ignore:.*column .*is ignored"),
            )
            for name in ("new", "")  # Columns without values.
        ),
    ],
)
def test_csv_of_each_form_is_read(
    text: str, options: dict[str, Any], table: bl.Table, landing: str
) -> None:
    put(landing, a_dot_csv=text.encode())
    table.upsert(bl.files(f"{landing}/a.csv", **options))
    (row,) = held(table)
    assert (row["id"], row["day"].strip(), row["n"], row["x"]) == ("k1", "d1", 1, 1.5)


@pytest.mark.parametrize("name", ["parquet", "jsonl"])
def test_columns_of_another_name_are_renamed(name: str, table: bl.Table, landing: str) -> None:
    put(landing, **{f"a_dot_{name}": FORMATS[name](rows(1).rename_columns({"id": "key"}))})
    table.upsert(bl.files(f"{landing}/a.{name}", columns={"key": "id"}))
    assert held(table) == rows(1).to_pylist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("k1,d1,1,1\nk2,d2,2,2\n", r"first line names no columns.*header=False, columns=\['id'"),
        ("key,tag,m,y\nk1,d1,1,1\n", r"say so: columns=\{'key': 'id'\} \(--rename key=id\)"),
        ("id;day;n;x\nk1;d1;1;1,5\n", r"has no ',', but ';'.*separator=';'"),
        ("id,day,n,x\nk1,d1,1,NULL\n", r"row 1, column x: 'NULL' is no double.*null_values="),
        ('id,day,n,x\nk1,d1,1,"1,5"\n', r"row 1, column x: '1,5' is no double.*decimal=','"),
        ("id,day,n,x\nk1,d1,1,1\nk2,d1,1\n", r"row 2: it has 3 values, and the file has 4"),
        ("id,day,n,x\nk1,d1,1,1\nk2,d1,1.5,1\n", r"row 2, column n: '1\.5' is no bigint"),
        ("id,day,n,x\nk1,d1,9007199254740993,9007199254740993\n", "column x: '9007.* no double"),
        ('x,n,id,day\n1,1,k0,d1\n1,1,k1,"d1\n1,1,k2,d2\n', r"a quote is not closed.*'d1'"),
        ('x,n,id,day\n1,1,k0,"d1', r"a quote is not closed"),
        ('x,n,id,day\n1,1,"k0,d1\n1,1,k1,d1\n', r"a quote is not closed.*k0,d1"),
    ],
)
def test_a_message_about_csv_names_row_column_and_option(
    text: str, words: str, table: bl.Table, landing: str
) -> None:
    put(landing, a_dot_csv=text.encode())
    with pytest.raises(InputError, match=words):
        table.upsert(bl.files(f"{landing}/a.csv"))
    assert table.timeline() == []


def test_a_row_late_in_a_large_text_is_named_by_its_number(
    table: bl.Table, landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, heads, PIECE_BYTES=50, HEAD_BYTES=60)
    lines = [f'"k\n{i}",d1,{i},1.0\n' for i in range(30)]
    ends = {"k,d1,one,1.0\n": ", row 31, column n: 'one'", 'k,d1,1,"1.0\n': ": a quote is not"}
    for end, words in ends.items():
        put(landing, a_dot_csv=("id,day,n,x\n" + "".join([*lines, end])).encode())
        with pytest.raises(InputError, match=rf"a\.csv{words}"):
            table.upsert(bl.files(f"{landing}/a.csv"))


def test_columns_of_folders_are_filled_beside_a_name_that_comes_late(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, heads, HEAD_BYTES=60)
    folder = new_path()
    lines = [json.dumps({"id": f"k{i}", "n": i}) for i in range(9)] + ['{"id": "z", "x": 0.5}']
    storage = open_storage(folder)
    storage.put("day=d1/a.jsonl", "\n".join(lines).encode())
    storage.put("day=d2/b.csv", b"id,n,x\nc,1,1.0\n")
    table = bl.create_table(new_path(), schema=SCHEMA, record_key="id")
    table.upsert(bl.files(folder, folder_columns=True), merge_schema="fill_missing")
    stored = {row["id"]: (row["day"], row["x"]) for row in table.to_arrow().to_pylist()}
    assert (stored["k0"], stored["z"], stored["c"]) == (("d1", None), ("d1", 0.5), ("d2", 1.0))


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (pa.binary(), '"AP8="', b"\x00\xff"),
        (pa.binary(), '"no base64"', "'no base64' is no binary"),
        (pa.int64(), '"2024-01-01"', '"2024-01-01" is a text, and no bigint'),
        (pa.int64(), '"5"', '"5" is a text'),
        (pa.int64(), "true", "true is a boolean"),
        (pa.int64(), "7.0", 7),
        (pa.bool_(), "1", "1 is a number, and no boolean"),
        (pa.string(), "1", "1 is a number, and no string"),
        (pa.float32(), "0.5", 0.5),
        (pa.float32(), "1e300", 1e300),  # The column becomes wider.
        (pa.float64(), '"-Infinity"', -math.inf),
        (pa.float64(), '"x"', '"x" is a text, and no double'),
        (pa.decimal128(9, 2), "1.005", r"'1.005' is no decimal\(9,2\).*round"),
        (pa.decimal128(9, 2), "123456789", r"does not fit decimal\(9,2\) \(value 123456789"),
        (pa.date32(), "20240101", "20240101 is a number, and no date"),
        (pa.struct({"d": pa.date32()}), '{"d": 5}', r"column v\.d: 5 is a number"),
        (pa.list_(pa.timestamp("us")), '["2024-01-01T00:00:00Z"]', r"column v\[\]: .*time zone"),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (pa.int64(), '1, "v": 2', "the name 'v' occurs twice"),
    ],
)
def test_a_value_of_json_is_of_the_kind_of_its_column(
    kind: pa.DataType, text: str, found: object, new_path: NewPath, landing: str
) -> None:
    schema = pa.schema({"id": pa.string(), "v": kind})
    table = bl.create_table(new_path(), schema=schema, record_key="id")
    put(landing, a_dot_jsonl=f'{{"id": "a", "v": {text}}}\n'.encode())
    some = bl.files(f"{landing}/a.jsonl")
    if isinstance(found, str):
        with pytest.raises(InputError, match=f"row 1.*{found}"):
            table.upsert(some)
    else:
        table.upsert(some, merge_schema="widen_types")
        assert table.to_arrow()["v"].to_pylist() == [found]


def test_a_type_that_is_given_is_that_of_a_new_column(new_path: NewPath, landing: str) -> None:
    table = bl.create_table(new_path(), schema=pa.schema({"id": pa.string()}), record_key="id")
    put(landing, a_dot_csv=b"id,x,zip\na,0.1,00501\n", b_dot_jsonl=b'{"id": "b", "x": 0.1}\n')
    typed = bl.files(f"{landing}/*", schema=pa.schema({"x": pa.float32()}))
    table.upsert(typed, merge_schema=True)
    assert table.schema().types == [pa.string(), pa.float32(), pa.string()]
    assert table.to_arrow()["zip"].to_pylist() == ["00501", None]


def test_times_with_and_without_a_zone_do_not_mix(new_path: NewPath) -> None:
    schema = pa.schema({"id": pa.string(), "at": pa.timestamp("us", "UTC")})
    table = bl.create_table(new_path(), schema=schema, record_key="id")
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)]
    frame = pd.DataFrame({"id": ["a", "b"], "at": pd.Series(times, dtype=object)})
    for data in (frame, frame.to_dict("records")):
        with pytest.raises(InputError, match="column at: it mixes times of several kinds"):
            table.upsert(data)
    with pytest.raises(InputError, match="the table holds timestamp, the batch timestamp_ntz"):
        table.upsert(pa.table({"id": ["b"], "at": times[1:]}))
