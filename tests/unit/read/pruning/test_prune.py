"""Pruning file slices, and the report of it."""

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.recorded_entries import RECORDED
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_keys import KEY_GENERATOR_TYPE, PARTITION_FIELDS
from bucketlake.errors import ConfigError
from bucketlake.index.bucket_hash import assign_buckets, file_id_prefix
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.pruning.prune import PruningReport, prune
from bucketlake.storage.location import open_storage
from bucketlake.where.parser import parse_where
from tests.inside import let_commits_forget
from tests.storages import set_properties
from tests.table_index import of_table

SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "v": pa.int64()})
EIGHT = SimpleBucket(8)
SPEC = KeySpec(("id",), ("p",), KeyGenerator.SIMPLE)
UNIQUE = "29f6ac4b-8140-4eac-898c-84d0e5fece73"
BUCKET_OF_A = int(assign_buckets(["a"], 8)[0])


def a_slice(partition: str, bucket: int) -> FileSlice:
    file_id = FileId(f"{file_id_prefix(bucket, UNIQUE)}-0")
    return FileSlice(partition, file_id, InstantTime("20240101000000000"), None)


SLICES = [a_slice(partition, bucket) for partition in ("x", "y") for bucket in range(8)]


def config(spec: KeySpec) -> TableConfig:
    return TableConfig("t", TableType.COPY_ON_WRITE, spec, MergeMode.COMMIT_TIME)


def pruned(
    where: str,
    slices: list[FileSlice] = SLICES,
    index: SimpleBucket | None = EIGHT,
    spec: KeySpec = SPEC,
) -> tuple[list[FileSlice], PruningReport]:
    found = None if index is None else of_table(index, *spec.record_key_fields)
    return prune(parse_where(where, SCHEMA), slices, config(spec), found, SCHEMA)


def test_partition_and_bucket_leave_one_file_group() -> None:
    kept, report = pruned("p = 'x' AND id = 'a'")
    assert kept == [a_slice("x", BUCKET_OF_A)]
    assert report == PruningReport(
        partitions_total=2,
        partitions_kept=1,
        file_groups_total=16,
        file_groups_kept=1,
        bucket_ids=(BUCKET_OF_A,),
        partition_reason=None,
        bucket_reason=None,
    )
    assert pickle.loads(pickle.dumps(report)) == report


def test_bucket_alone_leaves_one_file_group_in_each_partition() -> None:
    kept, report = pruned("id = 'a'")
    assert kept == [a_slice("x", BUCKET_OF_A), a_slice("y", BUCKET_OF_A)]
    assert (report.partitions_kept, report.partition_reason) == (2, "no condition on p")


def test_partition_alone_leaves_all_of_its_buckets() -> None:
    kept, report = pruned("p = 'x' AND v > 5")
    assert kept == SLICES[:8]
    assert report.bucket_ids is None
    assert report.bucket_reason == "no = or IN on id that holds for every row"


def test_contradiction_leaves_nothing() -> None:
    kept, report = pruned("id = 'a' AND id = 'b'")
    assert kept == []
    assert (report.bucket_ids, report.bucket_reason, report.file_groups_kept) == ((), None, 0)


@pytest.mark.parametrize(
    ("where", "index", "reason"),
    [
        ("id = 'a'", None, "open it with index="),
        ("id = 5", EIGHT, "'id = 5' is left to Spark"),
        # A wrong count would lose rows without a word.
        ("id = 'a'", SimpleBucket(7), "there is a bucket 7, but the bucket count is 7"),
        ("id IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')", EIGHT, "8 keys fall into all"),
    ],
)
def test_uncertain_buckets_are_all_read(
    where: str, index: SimpleBucket | None, reason: str
) -> None:
    kept, report = pruned(where, index=index)
    assert kept == SLICES
    assert report.bucket_ids is None
    assert reason in str(report.bucket_reason)


def test_file_group_without_bucket_is_always_read() -> None:
    stray = FileSlice("x", FileId(f"{UNIQUE}-0"), InstantTime("20240101000000000"), None)
    kept, _ = pruned("id = 'a'", [*SLICES, stray])
    assert stray in kept


@pytest.mark.parametrize(
    ("where", "spec", "reason"),
    [
        ("v = 5", SPEC, "no condition on p"),
        ("p <> 'z'", SPEC, "every partition may hold matching rows"),
        ("v = 5", KeySpec(("id",), (), KeyGenerator.NON_PARTITION), "the table has no partitions"),
        (
            "p = 'x'",
            KeySpec(("id",), ("p",), KeyGenerator.TIMESTAMP),
            "of p cannot be read from paths",
        ),
    ],
)
def test_report_says_why_no_partition_was_left_out(where: str, spec: KeySpec, reason: str) -> None:
    assert reason in str(pruned(where, spec=spec)[1].partition_reason)


def test_second_key_field_that_is_the_partition_is_known_from_the_paths() -> None:
    spec = KeySpec(("id", "p"), ("p",), KeyGenerator.COMPLEX)
    by_id = SimpleBucket(8, ("id",))
    kept, _ = pruned("id = 'a'", index=by_id, spec=spec)
    bucket = int(assign_buckets(["id:a,p:x"], 8, ("id",))[0])
    assert kept == [a_slice("x", bucket), a_slice("y", bucket)]
    odd = [*SLICES, a_slice("q,id:b", 1)]
    assert pruned("id = 'a'", odd, by_id, spec)[0] == odd


def test_table_without_file_groups_gives_none() -> None:
    kept, report = pruned("id = 'a'", [])
    assert (kept, report.partitions_total, report.partitions_kept) == ([], 0, 0)


@pytest.fixture
def formatted(new_path: Callable[[], str]) -> bl.Table:
    """A table with one row, whose partition path is its time as a date.

    Its commits do not record the properties, as those of Hudi.
    """
    made = bl.create_table(
        new_path(), schema=pa.schema({"id": pa.string(), "ts": pa.int64()}), record_key=["id"],
        partition_by=["ts"], index=bl.SimpleBucket(8),
        timestamp_partition=bl.TimestampPartition("UNIX_TIMESTAMP", "yyyyMMdd"),
    )  # fmt: skip
    made.upsert(pa.table({"id": ["a"], "ts": [1_700_000_000]}))
    let_commits_forget(made, RECORDED)
    return made


@pytest.mark.parametrize("generator", ["CUSTOM", "USER_PROVIDED", "com.example.OwnKeyGenerator"])
def test_paths_that_the_properties_do_not_tell_do_not_prune(
    formatted: bl.Table, generator: str
) -> None:
    """Custom generators store no kinds before table version 8, so a time looks like plain text."""
    storage = open_storage(formatted.path)
    set_properties(storage, {KEY_GENERATOR_TYPE: generator, PARTITION_FIELDS: "ts"})
    table = bl.open_table(formatted.path)
    assert table.to_arrow(where="ts >= 1700000000").num_rows == 1
    assert "do not say how" in str(table.explain("ts >= 1700000000").partition_reason)


def test_keys_of_a_foreign_generator_are_found_by_the_key_itself_alone(
    formatted: bl.Table,
) -> None:
    storage = open_storage(formatted.path)
    set_properties(storage, {KEY_GENERATOR_TYPE: "com.example.OwnKeyGenerator"})
    table = bl.open_table(formatted.path, index=bl.SimpleBucket(8))
    by_value, by_key = table.explain("id = 'a'"), table.explain("_hoodie_record_key = 'a'")
    assert by_value.bucket_ids is None
    assert "only com.example.OwnKeyGenerator can make keys" in str(by_value.bucket_reason)
    assert by_key.bucket_ids == (BUCKET_OF_A,)
    assert len(table.locate("a")) == 1
    with pytest.raises(ConfigError, match="give the key as it is stored"):
        table.locate({"id": "a"})


def test_second_key_field_counts_as_unknown_where_paths_do_not_tell_it() -> None:
    spec = KeySpec(("id", "p"), ("p",), KeyGenerator.CUSTOM)
    by_id = of_table(SimpleBucket(8, ("id",)))
    predicate = parse_where("id = 'a'", SCHEMA)
    assert prune(predicate, SLICES, config(spec), by_id, SCHEMA)[0] == SLICES
