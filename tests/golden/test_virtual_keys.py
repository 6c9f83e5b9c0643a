"""Tables without meta columns that real Hudi wrote: read as Hudi reads them, keys made anew."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format.log_block import BlockKind, HeaderKey, read_log_blocks
from bucketlake.model.file_name import LogFileName
from bucketlake.model.keys import record_keys
from bucketlake.model.schema import META_NAMES
from bucketlake.read import slice_reader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.table_properties import table_at
from tests.bounds import set_bounds
from tests.golden.objects import VIRTUAL_TABLES_FOLDER, objects_of_table, table_names
from tests.golden.rows import plain_rows
from tests.golden.virtual_tables import VIRTUAL_TABLES
from tests.storages import memory_of

NAMES = table_names(VIRTUAL_TABLES_FOLDER)
TWO_BUCKETS = bl.SimpleBucket(2)
WITHOUT_BUCKETS = "virtual_mor_positions"

# Hudi's reader makes the keys of rows otherwise than its writer made the keys of deletes: without
# the field's name, and a date in days. So it shows these events although they were deleted.
LOST_DELETES = {
    "virtual_mor_complex_key": {"e1", "e2"},
    "virtual_mor_date_key": {"e2", "e3", "e4"},
}
DOUBLED = "virtual_cow_complex_key"  # For the same reason Hudi's writer found no stored row.
HISTORIES = [name for name in NAMES if (VIRTUAL_TABLES_FOLDER / f"{name}.history.parquet").exists()]


@cache
def storage_of(name: str) -> MemoryStorage:
    return memory_of(objects_of_table(name))


def open_golden(name: str) -> bl.Table:
    index = None if name == WITHOUT_BUCKETS else TWO_BUCKETS
    return bl.open_table(storage_of(name).root, index=index)


def snapshot_of(name: str) -> Snapshot:
    storage = storage_of(name)
    return load_snapshot(table_at(storage))


def expected(name: str) -> pa.Table:
    return pq.read_table(VIRTUAL_TABLES_FOLDER / f"{name}.expected.parquet")


def test_golden_tables_are_all_there() -> None:
    assert sorted(wanted.name for wanted in VIRTUAL_TABLES) == NAMES
    assert HISTORIES == ["virtual_mor", "virtual_mor_v6", "virtual_mor_v8"]
    versions = {name: snapshot_of(name).config.version for name in HISTORIES}
    assert sorted(versions.values()) == [6, 8, 9]


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_a_golden_table_stores_a_key(name: str) -> None:
    for path, data in objects_of_table(name).items():
        if path.endswith(".parquet") and not path.startswith(".hoodie/"):
            stored = pq.read_table(io.BytesIO(data), columns=["_hoodie_record_key"])
            assert set(stored["_hoodie_record_key"].to_pylist()) <= {None, ""}, path


def test_golden_tables_have_deletes_with_positions_and_logs_after_compactions() -> None:
    kinds: dict[str, set[BlockKind]] = {}
    positions = []
    for name in NAMES:
        storage = storage_of(name)
        logs = [p for p in objects_of_table(name) if LogFileName.from_file_name(p.split("/")[-1])]
        blocks = [block for path in logs for block in read_log_blocks(storage, path)]
        kinds[name] = {block.kind for block in blocks}
        positions += [b.kind for b in blocks if HeaderKey.RECORD_POSITIONS in b.headers]
    assert {BlockKind.AVRO_DATA, BlockKind.DELETE} <= kinds["virtual_mor_v6_logs"]
    assert {BlockKind.PARQUET_DATA, BlockKind.DELETE} == kinds["virtual_mor_parquet_logs"]
    assert {BlockKind.AVRO_DATA, BlockKind.DELETE} == set(positions)
    for name in HISTORIES:
        actions = [i.action.value for i in open_golden(name).timeline()]
        assert actions.count("commit") == 2, name
        assert any(file_slice.log_files for file_slice in snapshot_of(name).all_slices())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in LOST_DELETES])
def test_a_table_without_meta_columns_gives_hudis_own_rows(name: str) -> None:
    rows, got = expected(name), open_golden(name).to_arrow()
    assert plain_rows(got, rows.column_names) == plain_rows(rows, rows.column_names)
    assert sorted(got.column_names) == sorted(rows.column_names)
    assert got.num_rows > 0


@pytest.mark.parametrize("name", sorted(LOST_DELETES))
def test_deletes_that_hudis_reader_loses_delete(name: str) -> None:
    rows = expected(name)
    lost = pc.is_in(rows["id"], pa.array(sorted(LOST_DELETES[name])))
    assert pc.sum(lost).as_py() == len(LOST_DELETES[name])
    kept = rows.filter(pc.invert(lost))
    got = open_golden(name).to_arrow()
    assert plain_rows(got, rows.column_names) == plain_rows(kept, rows.column_names)


@pytest.mark.parametrize("name", HISTORIES)
def test_time_travel_to_each_commit_gives_hudis_own_rows(name: str) -> None:
    history = pq.read_table(VIRTUAL_TABLES_FOLDER / f"{name}.history.parquet")
    columns = [c for c in history.column_names if c != "as_of"]
    table = open_golden(name)
    for instant in pc.unique(history["as_of"]).to_pylist():
        rows = history.filter(pc.field("as_of") == instant)
        assert plain_rows(table.to_arrow(as_of=instant), columns) == plain_rows(rows, columns)


@pytest.mark.parametrize(
    "name", ["virtual_mor_v6", "virtual_mor_two_keys", "virtual_mor_bare_keys"]
)
def test_log_files_too_large_for_memory_give_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = open_golden(name)
    rows = table.to_arrow()
    set_bounds(monkeypatch, slice_reader, LOG_BYTES_PER_PASS=500)
    assert plain_rows(table.to_arrow(), rows.column_names) == plain_rows(rows, rows.column_names)


@pytest.mark.parametrize("name", [n for n in NAMES if n != DOUBLED])
def test_a_condition_on_the_key_reads_one_bucket_and_finds_the_row(name: str) -> None:
    table, rows = open_golden(name), open_golden(name).to_arrow()
    for row in rows.to_pylist():
        where = f"id = '{row['id']}'"
        if "part" in row:
            where += f" AND part <=> {'NULL' if row['part'] is None else repr(row['part'])}"
        if "day" in row:
            where += f" AND day = DATE '{row['day']}'"
        found = table.to_arrow(where=where)
        assert plain_rows(found, rows.column_names) == [tuple(row.values())]
        buckets = table.explain(where=where).bucket_ids
        # Version 8 does not tell whether the writer hashed the key with the field's name.
        if name not in (WITHOUT_BUCKETS, "virtual_mor_bare_keys"):
            assert len(buckets or ()) == 1


@pytest.mark.parametrize("name", [n for n in NAMES if n != DOUBLED])
def test_locate_finds_each_row_by_its_key_and_no_deleted_one(name: str) -> None:
    table, snapshot = open_golden(name), snapshot_of(name)
    rows, spec = table.to_arrow(), snapshot.config.key_spec
    keys = record_keys(rows, spec).to_pylist()
    for key, region in zip(keys, rows["region"].to_pylist(), strict=True):
        (location,) = table.locate(key)
        assert location.record_key == key
        assert location.partition_path == (region if spec.partition_fields else "")
        in_log = ".log." in location.path
        assert (location.committed_at is not None) == in_log
    if name.endswith("_logs"):
        assert table.locate("e1") == []
        [moved], [stored] = table.locate("e3"), table.locate("e0")
        assert ".log." in moved.path
        assert stored.path.endswith(".parquet")
        commits = [i.requested_at for i in table.timeline() if i.action.writes_data]
        assert moved.committed_at == max(commits)


def test_locate_takes_either_spelling_of_a_key_that_no_property_tells() -> None:
    table = open_golden("virtual_mor_bare_keys")
    (by_values,) = table.locate({"id": "e5"})
    assert table.locate("e5") == table.locate("id:e5") == [by_values]
    assert by_values.record_key == "id:e5"


@pytest.mark.parametrize("name", ["virtual_cow", "virtual_cow_bulk_insert", "virtual_mor"])
def test_keys_of_stored_groups_are_made_of_their_columns(name: str) -> None:
    snapshot = snapshot_of(name)
    reader = pickle.loads(pickle.dumps(snapshot.stored_keys))
    rows = open_golden(name).to_arrow()
    keys: set[str] = set()
    for file_slice in snapshot.all_slices():
        with reader.open_base(file_slice) as (base, chunks):
            held = [key for chunk in chunks for key in chunk.to_pylist()]
            assert len(held) == (0 if base is None else base.row_count)
        logged = [key for keys in reader.log_keys(file_slice) for key in keys.to_pylist()]
        assert bool(logged) == bool(file_slice.log_files)
        keys |= {*held, *logged}
    assert set(rows["id"].to_pylist()) <= keys


@pytest.mark.parametrize("name", ["virtual_cow_v6", "virtual_mor"])
@pytest.mark.parametrize("column", META_NAMES)
def test_a_meta_column_is_no_column_of_the_table_as_in_hudi(name: str, column: str) -> None:
    table = open_golden(name)
    with pytest.raises(InputError, match=f"{column}.*no meta columns.*populate.meta.fields"):
        table.to_arrow(columns=["id", column])
    with pytest.raises(InputError, match=f"there is no column {column}"):
        table.to_arrow(where=f"{column} = 'x'")
    assert table.to_arrow(where=f"note = '{column}'").num_rows == 0


@pytest.mark.parametrize("name", ["virtual_cow_v8", "virtual_mor_v6", "virtual_mor"])
@pytest.mark.parametrize("given", [{"since": "000"}, {"until": "2099-01-01"}])
def test_an_incremental_read_without_meta_columns_is_refused_as_in_hudi(
    name: str, given: dict[str, str]
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"incremental read .* without meta columns"):
        open_golden(name).to_arrow(**given)


@pytest.mark.parametrize("name", ["virtual_cow", "virtual_mor_logs"])
def test_a_table_without_meta_columns_is_not_written(
    golden_table: Callable[[str], Path], name: str
) -> None:
    path = golden_table(name)
    table = bl.open_table(str(path), index=TWO_BUCKETS)
    rows, before = table.to_arrow(), sorted(path.rglob("*"))
    writes: list[Callable[[], object]] = [
        lambda: table.upsert(rows),
        lambda: table.bulk_insert(rows),
        lambda: table.insert_overwrite(rows),
        lambda: table.delete(rows.select(["id", "region"])),
        lambda: table.delete_partitions(["eu"]),
        lambda: table.rescale({"eu": 4}, dry_run=False),
        lambda: table.clean(dry_run=False),
        lambda: table.archive(dry_run=False),
        lambda: table.savepoint(),
        lambda: bl.convert(str(path), TWO_BUCKETS),
    ]
    if name == "virtual_mor_logs":
        writes.append(table.compact)
    for write in writes:
        with pytest.raises(UnsupportedFeatureError, match="writing a table without meta columns"):
            write()
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("name", NAMES)
def test_the_doctor_finds_keys_that_hudi_doubled_and_else_nothing(name: str) -> None:
    table = open_golden(name)
    found = [one.kind for one in table.doctor(check_keys=True, check_files=True)]
    expected = {FindingKind.KEYS_TWICE} if name == DOUBLED else set()
    assert set(found) == expected


def test_a_row_of_a_log_without_its_key_is_an_error_that_names_the_file() -> None:
    """As if a column of the key had another name when the log was written."""
    storage = MemoryStorage("virtual-without-key")
    for path, data in objects_of_table("virtual_mor_logs").items():
        if path == ".hoodie/hoodie.properties":
            data = data.replace(b"recordkey.fields=id", b"recordkey.fields=note")
        storage.put(path, data)
    table = bl.open_table(storage.root, index=TWO_BUCKETS)
    with pytest.raises(FormatError, match=r"\.(log|parquet).*rows with a record key.*'note'"):
        table.to_arrow()
