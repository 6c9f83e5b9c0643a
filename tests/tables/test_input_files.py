"""Files as the records of a write, in memory and on disk, without Spark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from bucketlake.write.ingest import write_records
from bucketlake.write.input_files import file_merge, file_source
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.input_files.files import listed
from bucketlake.write.target import open_target

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
    monkeypatch.setattr(file_merge, "rows_in_files", lambda files: pytest.fail("rows were read"))
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
        b_dot_json=objects,
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
        patch.setattr(file_source, "_PIECE_BYTES", data.draw(st.integers(1, 60)))
        source = FileSource(bl.files(f"{storage.root}/a.{name}"), Threads(1), lambda: None)
        reader = file_source.PieceReader(source.schema, None, source._given.reading)
        pieces = [piece for head in source._heads for piece in head.pieces]
        found = pa.concat_tables([rows for piece in pieces for rows in reader.read(piece)])
    assert found.cast(table.schema).to_pylist() == table.to_pylist()


def test_text_is_cut_at_no_line_break_in_quotes(
    table: bl.Table, landing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, a_dot_csv=b'id,day,n,x\n"k\n1",d1,1,1.0\nk2,d2,2,2.0\n')
    monkeypatch.setattr(file_source, "_PIECE_BYTES", 13)
    with pytest.raises(InputError, match="line break where the file would be cut"):
        table.upsert(bl.files(f"{landing}/a.csv"))
    assert table.timeline() == []
    monkeypatch.undo()
    assert table.upsert(bl.files(f"{landing}/a.csv")).inserted == 2


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("a.parquet", b"no parquet", "cannot be read as parquet"),
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"id,day,n,x\nk1,d1,one,1.0\n", "one"),
        ("a.csv", b"id,id\n1,2\n", "column 'id' occurs twice"),
        ("a.jsonl", b'{"id": "k1", "day": "d", "n": 1, "x": 1.0\n', "cannot be read as jsonl"),
        ("a.jsonl", b" null\n", "a line is null, not an object"),  # Arrow's reader would crash.
        ("a.jsonl", b'{"id": "k1"}\nnull\n', "a line is null, not an object"),
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
    reader = file_source.PieceReader(source.schema, None, source._given.reading)
    with pytest.raises(InputError, match="changed or deleted"):
        list(reader.read(piece))


def test_a_json_field_that_comes_late_is_named_or_given(table: bl.Table, landing: str) -> None:
    early = b"".join(json_lines(rows(i)) for i in range(20_000))
    late = b'{"id": "z", "day": "d1", "n": 1, "x": 1.0, "new": 1}\n'
    put(landing, a_dot_jsonl=early + late)
    with pytest.raises(InputError, match="column 'new' is not in the first MiB"):
        table.upsert(bl.files(f"{landing}/a.jsonl"))
    typed = bl.files(f"{landing}/a.jsonl", schema=pa.schema({"new": pa.int64()}))
    with pytest.raises(InputError, match="new"):
        table.upsert(typed)


def test_a_value_that_comes_late_has_the_type_of_its_column(table: bl.Table, landing: str) -> None:
    lines = b"id,day,n,x,new\n" + b"k1,d1,1,1.0,7\n" * 90_000 + b"k1,d1,1,1.0,late\n"
    put(landing, a_dot_csv=lines)
    with pytest.raises(InputError, match=r"column new: CSV conversion error .* name its type"):
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
    monkeypatch.setattr(file_source, "_BATCH_ROWS", 2)
    put(landing, a_dot_parquet=parquet(rows(0, 1, 2, 3)))
    source = FileSource(bl.files(f"{landing}/a.parquet"), Threads(1), lambda: None)
    assert source.names == SCHEMA.names
    (piece,) = source._heads[0].pieces
    reading = file_source.PieceReader(source.schema, None, source._given.reading).read(piece)
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
    read: list[list[str]] = []
    inner = file_source.PieceReader.read

    def noted(self: file_source.PieceReader, piece: file_source.Piece) -> Any:
        read.append(self.schema.names)
        return inner(self, piece)

    monkeypatch.setattr(file_source.PieceReader, "read", noted)
    put(landing, a_dot_parquet=parquet(rows(0, 1, 2, 3), row_group_size=1))
    for _ in range(2):
        source = FileSource(bl.files(f"{landing}/a.parquet"), Elsewhere(), table.schema)
        target = open_target(table._open(), None)
        result = write_records(target, Operation.UPSERT, source)
        source.close()
    assert (result.inserted, result.updated) == (0, 4)
    assert held(table) == rows(0, 1, 2, 3).to_pylist()
    assert read == [["id", "day"], SCHEMA.names] * 2
