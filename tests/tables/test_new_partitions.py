"""How many shards and buckets a new partition of dynamic buckets begins with, by its first rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError, ConfigError, IndexStateError, TimelineError
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.index.groups_for_new_keys import bucket_of_group
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.record_index import new_partitions
from bucketlake.write.target import open_target
from tests.indexed_tables import ROWS_OF_LARGE, shards_of
from tests.meanwhile import meanwhile

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])
TYPES = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
NewPath = Callable[[], str]
LARGE = 20


@pytest.fixture(autouse=True)
def _few_rows_are_large() -> Iterator[None]:
    with mock.patch(ROWS_OF_LARGE, LARGE):
        yield


def make(path: str, index: bl.DynamicBucket | None = None, **given: Any) -> bl.Table:
    defaults: dict[str, Any] = {"record_key": ["id"], "partition_by": ["day"], "ordering": "at"}
    return bl.create_table(path, schema=SCHEMA, index=index, **defaults | given)


def rows(day: str, *numbers: int, at: int = 1) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{n}", "day": day, "at": at} for n in numbers], SCHEMA)


def both(*batches: pa.Table) -> pa.Table:
    return pa.concat_tables(batches)


def keys_of_shard(shard: int, count: int) -> list[int]:
    """Return numbers whose keys a partition of four shards has in this shard."""
    wanted = (n for n in range(10_000) if shards_of_keys(pa.array([f"k{n}"]), 4)[0] == shard)
    return [next(wanted) for _ in range(count)]


def write_once(table: bl.Table, batch: pa.Table, operation: Operation = Operation.UPSERT) -> None:
    """Write without a retry after a conflict."""
    storage = open_storage(table.path)
    write_records(open_target(table_at(storage), None), operation, ArrowSource(batch))


def held(table: bl.Table) -> dict[tuple[str, str], int]:
    """Return the rows, after a check that each key is there once and that the doctor is content."""
    found = table.to_arrow().to_pylist()
    keys = [(row["day"], row["id"]) for row in found]
    assert len({*keys}) == len(keys), "no key is stored twice"
    assert table.doctor(check_keys=True) == []
    return {key: row["at"] for key, row in zip(keys, found, strict=True)}


def of_batches(*batches: pa.Table) -> dict[tuple[str, str], int]:
    found = [row for batch in batches for row in batch.to_pylist()]
    return {(row["day"], row["id"]): row["at"] for row in found}


# ---- The rule -----------------------------------------------------------------------------------


@TYPES
def test_a_small_partition_has_one_file_and_a_large_one_has_a_file_for_each_assigner(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    batch = both(rows("few", *range(LARGE - 1)), rows("many", *range(LARGE)))
    table.upsert(batch)
    assert shards_of(table.path) == {"few": 1, "many": 4}
    files = [(b.partition_path, b.bucket_id) for b in table.buckets()]
    assert sorted(files) == [("few", 0), *(("many", number) for number in range(4))]
    assert held(table) == of_batches(batch)


def test_a_table_without_partitions_is_one_partition(new_path: NewPath) -> None:
    table = make(new_path(), partition_by=[])
    table.upsert(rows("a", *range(5)))
    assert len(table.buckets()) == 1
    assert shards_of(table.path) == {"": 1}


@TYPES
def test_a_partition_keeps_its_number_whatever_is_written_to_it_later(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=5), table_type=table_type)
    table.upsert(both(rows("few", *range(3)), rows("many", *range(60))))
    began = {"few": 1, "many": 4}
    assert shards_of(table.path) == began
    table.upsert(both(rows("few", *range(80), at=2), rows("many", *range(55, 65), at=2)))
    assert shards_of(table.path) == began
    table.delete(rows("few", *range(10)).drop_columns(["at"]))
    table.insert_overwrite(both(rows("few", *range(70), at=3), rows("many", 1, at=3)))
    assert shards_of(table.path) == began
    table.delete_partitions(["few"])
    table.upsert(rows("few", *range(90), at=4))
    assert shards_of(table.path) == began
    assert held(table) == of_batches(rows("few", *range(90), at=4), rows("many", 1, at=3))


@pytest.mark.parametrize("method", ["insert", "bulk_insert", "insert_overwrite", "upsert"])
def test_every_operation_opens_partitions_by_the_rule(new_path: NewPath, method: str) -> None:
    table = make(new_path())
    batch = both(rows("few", 1, 2), rows("many", *range(LARGE)))
    getattr(table, method)(batch)
    assert shards_of(table.path) == {"few": 1, "many": 4}
    assert held(table) == of_batches(batch)


def test_a_merge_statement_opens_partitions_by_the_rule(new_path: NewPath) -> None:
    table = make(new_path())
    batch = both(rows("few", 1, 2), rows("many", *range(LARGE)))
    table.merge(batch, "t.id = s.id AND t.day = s.day").when_not_matched_insert_all().execute()
    assert shards_of(table.path) == {"few": 1, "many": 4}
    assert held(table) == of_batches(batch)


def test_files_open_partitions_by_the_rule(new_path: NewPath) -> None:
    landing = open_storage(new_path())
    for number, batch in enumerate([rows("few", 1, 2), rows("many", *range(LARGE))]):
        sink = pa.BufferOutputStream()
        pq.write_table(batch, sink)
        landing.put(f"{number}.parquet", bytes(sink.getvalue()))
    table = make(new_path())
    assert table.upsert(bl.files(f"{landing.root}/*.parquet")).inserted == 2 + LARGE
    assert shards_of(table.path) == {"few": 1, "many": 4}
    held(table)


def test_a_given_number_holds_whatever_the_rows(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(assigners=3))
    table.upsert(both(rows("few", 1), rows("many", *range(LARGE))))
    assert shards_of(table.path) == {"few": 3, "many": 3}


def test_a_rebuild_follows_the_rule(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=8))
    table.upsert(both(rows("few", *range(LARGE - 1)), rows("many", *range(60))))
    table.rebuild_metadata_table(["record_index"])
    assert shards_of(table.path) == {"few": 1, "many": 4}
    table.upsert(both(rows("few", *range(30), at=2), rows("many", *range(70), at=2)))
    assert held(table) == of_batches(rows("few", *range(30), at=2), rows("many", *range(70), at=2))


def test_a_partition_that_grew_takes_a_rebuilt_index_with_more_shards(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=8))
    for at in range(1, 5):
        table.upsert(rows("a", *range(10 * at), at=at))
    assert shards_of(table.path) == {"a": 1}
    table.rebuild_metadata_table(["record_index"])
    assert shards_of(table.path) == {"a": 4}
    table.upsert(rows("a", *range(60), at=9))
    assert held(table) == of_batches(rows("a", *range(60), at=9))


def test_a_conversion_follows_the_rule(new_path: NewPath) -> None:
    table = make(new_path(), bl.SimpleBucket(2))  # type: ignore[arg-type]
    table.upsert(both(rows("few", 1, 2), rows("many", *range(LARGE))))
    table = bl.convert(table.path, bl.DynamicBucket())
    assert shards_of(table.path) == {"few": 1, "many": 4}
    batch = both(rows("few", *range(30), at=2), rows("many", *range(LARGE), at=2))
    table.upsert(batch)
    assert held(table) == of_batches(batch)


# ---- What the newest commits wrote --------------------------------------------------------------


@TYPES
def test_a_stream_opens_a_new_day_with_few_rows_as_the_day_before(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    table.upsert(rows("monday", *range(100)))
    table.upsert(rows("monday", 1, 2, at=2))
    table.upsert(rows("tuesday", 1))
    assert shards_of(table.path) == {"monday": 4, "tuesday": 4}


def test_rows_that_a_commit_rewrote_count_and_old_commits_do_not(new_path: NewPath) -> None:
    table = make(new_path())
    for at in range(1, 4):  # One file, which each commit writes again.
        table.upsert(rows("grown", *range(10 * at), at=at))
    assert shards_of(table.path) == {"grown": 1}
    table.upsert(rows("beside", 1))
    for at in range(new_partitions.COMMITS_MAX):
        table.upsert(rows("beside", 1, at=2 + at))
    table.upsert(rows("later", 1))
    assert shards_of(table.path) == {"grown": 1, "beside": 4, "later": 1}


def test_a_compaction_tells_that_a_partition_is_large(new_path: NewPath) -> None:
    table = make(new_path(), table_type="merge_on_read")
    for at in range(1, 4):
        table.upsert(rows("a", *range(10 * at - 10, 10 * at), at=at))
    table.upsert(rows("before", 1))
    table.compact()
    table.upsert(rows("after", 1))
    assert shards_of(table.path) == {"a": 1, "before": 1, "after": 4}


def test_a_commit_that_was_rolled_back_meanwhile_tells_nothing(new_path: NewPath) -> None:
    table = make(new_path())
    result = table.upsert(rows("a", *range(LARGE)))
    storage = open_storage(table.path)
    timeline = load_timeline(table_at(storage))
    assert new_partitions.rows_of_another_partition(storage, timeline) == LARGE
    assert result.instant is not None
    stale = load_timeline(table_at(storage))
    table.rollback(result.instant)
    assert new_partitions.rows_of_another_partition(storage, stale) == 0


# ---- Two writers --------------------------------------------------------------------------------

FEW = rows("new", *keys_of_shard(0, 2), at=1)
MANY = rows("new", *keys_of_shard(1, 7), *keys_of_shard(2, 7), *keys_of_shard(3, 7), at=2)
"""No key of it is in a shard in which ``FEW`` has one."""


@TYPES
@pytest.mark.parametrize(("first", "second", "count"), [(MANY, FEW, 4), (FEW, MANY, 1)])
def test_of_two_writers_that_open_a_partition_with_different_numbers_one_begins_again(
    new_path: NewPath,
    monkeypatch: pytest.MonkeyPatch,
    table_type: str,
    first: pa.Table,
    second: pa.Table,
    count: int,
) -> None:
    table = make(new_path(), table_type=table_type)
    table.upsert(rows("old", 1))
    meanwhile(monkeypatch, lambda: table.upsert(first))
    with pytest.raises(CommitConflictError, match=r"'new' another number of index shards"):
        write_once(table, second)
    assert shards_of(table.path) == {"old": 1, "new": count}
    assert held(table) == of_batches(rows("old", 1), first)
    table.upsert(second)
    assert shards_of(table.path) == {"old": 1, "new": count}
    assert held(table) == of_batches(rows("old", 1), first, second)


def test_a_writer_that_begins_again_succeeds(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    meanwhile(monkeypatch, lambda: table.upsert(MANY))
    table.upsert(both(FEW, rows("other", 1)))
    assert shards_of(table.path)["new"] == 4
    assert held(table) == of_batches(MANY, FEW, rows("other", 1))


def test_a_delete_in_a_partition_that_another_writer_opens_sees_its_keys(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete looks for the key in shard 0 of 1; the other writer has it in shard 1 of 4."""
    table = make(new_path())
    table.upsert(rows("old", 1))
    key = MANY["id"][0].as_py()
    assert shards_of_keys(pa.array([key]), 4)[0] == 1
    gone = MANY.slice(0, 1).drop_columns(["at"])
    old = rows("old", 1).drop_columns(["at"])
    meanwhile(monkeypatch, lambda: table.upsert(MANY))
    with pytest.raises(CommitConflictError):
        write_once(table, pa.concat_tables([gone, old]), Operation.DELETE)
    table.delete(gone)
    assert held(table) == of_batches(rows("old", 1), MANY.slice(1))


@TYPES
@pytest.mark.parametrize("shard", [0, 3])
def test_the_commit_that_opened_the_shards_is_rolled_back_with_those_that_used_them(
    new_path: NewPath, table_type: str, shard: int
) -> None:
    """Else the file groups that stay would be counted as all shards of the partition."""
    table = make(new_path(), bl.DynamicBucket(assigners=4), table_type=table_type)
    table.upsert(rows("old", 1))
    opened = table.upsert(rows("new", *keys_of_shard(1, 1))).instant
    used = table.upsert(rows("new", *keys_of_shard(shard, 1))).instant
    assert opened is not None
    with pytest.raises(TimelineError, match=str(used)):
        table.rollback(opened)
    table.rollback(opened, cascade=True)
    assert shards_of(table.path) == {"old": 4}
    assert held(table) == of_batches(rows("old", 1))
    table.upsert(rows("new", *range(30)))
    assert held(table) == of_batches(rows("old", 1), rows("new", *range(30)))


# ---- The setting --------------------------------------------------------------------------------


def test_a_table_keeps_its_setting_if_no_number_is_asked_for(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(assigners=2))
    opened = bl.open_table(table.path, bl.DynamicBucket(max_records=3))
    assert opened.index == bl.DynamicBucket(max_records=3, assigners=2)
    opened.upsert(rows("a", 1))
    assert shards_of(table.path) == {"a": 2}
    assert opened.convert(bl.DynamicBucket(), dry_run=False).index == bl.DynamicBucket(assigners=2)


def test_a_number_for_a_table_without_one_is_refused(new_path: NewPath) -> None:
    table = make(new_path())
    with pytest.raises(IndexStateError, match="assigners=4"):
        bl.open_table(table.path, bl.DynamicBucket(assigners=4))
    with pytest.raises(ConfigError, match="keeps its number of assigners"):
        table.convert(bl.DynamicBucket(assigners=4))


def test_hudi_is_told_both_numbers() -> None:
    options = bl.DynamicBucket().to_options()
    least, most = (
        f"hoodie.metadata.record.level.index.{name}.filegroup.count" for name in ("min", "max")
    )
    assert (options[least], options[most]) == ("1", "4")
    assert bl.DynamicBucket.from_options(options) == bl.DynamicBucket()


def test_buckets_of_a_small_partition_are_numbered_without_gaps(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=4))
    for start in range(0, 18, 6):
        table.upsert(rows("a", *range(start, start + 6)))
    numbers = sorted(bucket_of_group(bucket.file_id) or 0 for bucket in table.buckets())
    assert numbers == [0, 1, 2, 3, 4]


def index_files(table: bl.Table, end: str) -> dict[str, set[str]]:
    """Return the shards that have files with an ending, by the instants in their names."""
    folder = Path(table.path, ".hoodie/metadata/record_index")
    found: dict[str, set[str]] = {}
    for path in folder.glob(f"*{end}"):
        file_id, _, instant = path.stem.split("_")[-3:]
        found.setdefault(instant, set()).add(file_id)
    return found


def test_a_compaction_of_the_metadata_table_rewrites_only_shards_with_later_keys(
    tmp_path: Path,
) -> None:
    for count in (4, 16):
        table = make(str(tmp_path / str(count)))
        days = [f"d{n}" for n in range(count)]
        table.upsert(both(*(rows(day, 1, 2, 3) for day in days)))
        (first,) = index_files(table, ".hfile").values()
        assert len(first) == count, "a shard of three keys begins with a base file"
        for number in range(10, 20):
            table.upsert(rows("d1", number))
        by_instant = index_files(table, ".hfile")
        assert sorted(map(len, by_instant.values())) == [1, count]
        table.upsert(rows("d2", 1, 50, at=2))
        expected = of_batches(*(rows(day, 1, 2, 3) for day in days), rows("d1", *range(10, 20)))
        assert held(table) == expected | of_batches(rows("d2", 1, 50, at=2))


@TYPES
def test_the_first_keys_of_a_partition_go_with_the_rollback_of_their_commit(
    tmp_path: Path, table_type: str
) -> None:
    table = make(str(tmp_path / "t"), table_type=table_type)
    table.upsert(rows("a", 1, 2))
    opened = table.upsert(rows("b", 1, 2))
    table.rollback(opened.instant)
    assert held(table) == of_batches(rows("a", 1, 2))
    table.upsert(both(rows("b", 2, 3), rows("a", 2, at=2)))
    assert held(table) == of_batches(rows("a", 1), rows("a", 2, at=2), rows("b", 2, 3))
