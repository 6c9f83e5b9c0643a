"""Tables whose key, partition, ordering and hash fields are inside a struct."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.index.setting import TableIndex
from bucketlake.metadata.record_index.definition_file import update_index_definitions
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.table_properties import table_at
from tests.choices import combinations
from tests.storages import objects_of

HEADER = pa.struct([("eid", pa.int64()), ("day", pa.string()), ("ts", pa.int64())])
PATH = "memory://nested-keys"
WRITE = "hoodie.datasource.write."


def rows(*given: tuple[int | None, str | None, int | None, int]) -> pa.Table:
    """Return rows of eid, day, ts and v; ``other`` follows from the eid."""
    headers = [{"eid": eid, "day": day, "ts": ts} for eid, day, ts, _ in given]
    others = [f"x{(eid or 0) % 3}" for eid, *_ in given]
    columns = [pa.array(headers, HEADER), pa.array(others), pa.array([v for *_, v in given])]
    return pa.table(columns, ["header", "other", "v"])


FIRST = rows((1, "a", 5, 1), (2, "b", 5, 2), (3, None, None, 3), (4, "a", 5, 4))
SECOND = rows((1, "a", 4, 11), (2, "b", 6, 12), (5, "a", 1, 15))  # Late, newer, new.


@pytest.fixture(autouse=True)
def no_table() -> Iterator[None]:
    forget("nested-keys")
    yield
    forget("nested-keys")


def new_table(
    index: TableIndex,
    table_type: str = "copy_on_write",
    record_key: tuple[str, ...] = ("header.eid", "other"),
    partition_by: tuple[str, ...] = ("header.day",),
    *,
    hive_style: bool = False,
) -> bl.Table:
    return bl.create_table(
        PATH,
        schema=FIRST.schema,
        record_key=record_key,
        partition_by=partition_by,
        ordering="header.ts",
        index=index,
        table_type=table_type,
        hive_style=hive_style,
    )


def values(table: pa.Table) -> list[int]:
    return sorted(table["v"].to_pylist())


INDEXES = [
    bl.SimpleBucket(4),
    bl.SimpleBucket(4, hash_fields=["header.eid"]),
    bl.ConsistentBucket(4, hash_fields=["header.eid"]),
    bl.DynamicBucket(max_records=2),
    bl.RecordIndex(partitioned=False),
]


@pytest.mark.parametrize(
    ("index", "table_type"),
    combinations(INDEXES, ["copy_on_write", "merge_on_read"]),
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_call_takes_keys_inside_a_struct(index: TableIndex, table_type: str) -> None:
    table = new_table(index, table_type)
    table.upsert(FIRST)
    table.upsert(SECOND)
    assert values(table.to_arrow()) == [1, 3, 4, 12, 15]
    found = table.locate({"header.eid": 2, "other": "x2"})
    assert [location.record_key for location in found] == ["header.eid:2,other:x2"]
    assert table.locate({"header": {"eid": 2}, "other": "x2"}) == found
    assert values(table.to_arrow(where="header.eid in (1, 2) and header.day <=> 'a'")) == [1]
    table.delete(pa.table({"header": [{"eid": 1, "day": "a"}], "other": ["x1"]}))
    table.delete(pa.table({"header.eid": [2], "header.day": ["b"], "other": ["x2"]}))
    assert values(table.to_arrow()) == [3, 4, 15]
    table.insert_overwrite(rows((9, "a", 1, 9)))
    assert values(table.to_arrow()) == [3, 9]
    assert table.doctor(check_keys=True) == []


def test_log_files_keep_the_ordering_value_of_a_delete_inside_a_struct() -> None:
    table = bl.create_table(
        PATH,
        schema=FIRST.schema,
        record_key="header.eid",
        ordering="header.ts",
        index=bl.SimpleBucket(1),
        table_type="merge_on_read",
    )
    table.upsert(FIRST)
    flags = rows((1, "a", 4, 0), (2, "b", 6, 0)).append_column(
        "_hoodie_is_deleted", pa.array([True, True])
    )
    table.upsert(flags)
    table.upsert(rows((2, "b", 5, 22)))
    assert values(table.to_arrow()) == [1, 3, 4]  # The first delete and the last row come late.
    table.compact()
    assert values(table.to_arrow()) == [1, 3, 4]


def test_condition_on_inner_fields_prunes_partitions_and_buckets() -> None:
    table = new_table(bl.SimpleBucket(4), record_key=("header.eid",), hive_style=True)
    table.upsert(FIRST)
    report = table.explain(where="Header.EID = 1 AND header.day = 'a'")
    assert {bucket.partition_path for bucket in table.buckets()} == {
        "header.day=a",
        "header.day=b",
        "header.day=__HIVE_DEFAULT_PARTITION__",
    }
    assert (report.partition_reason, report.file_groups_kept) == (None, 1)
    assert report.bucket_reason is None
    assert table.explain(where="header.day = 'b'").partitions_kept < 3


def test_columns_of_a_read_may_be_inner_fields() -> None:
    table = new_table(bl.SimpleBucket(2))
    table.upsert(FIRST)
    read = table.to_arrow(columns=["Header.eid", "v"], where="header.ts = 5")
    assert sorted(read.to_pylist(), key=lambda row: row["v"]) == [
        {"header.eid": eid, "v": eid} for eid in (1, 2, 4)
    ]
    with pytest.raises(InputError, match=r"no field 'eld' in column 'header'.*mean 'header\.eid'"):
        table.to_arrow(columns=["header.eld"])


def test_null_struct_counts_as_null_fields() -> None:
    table = new_table(bl.SimpleBucket(2), record_key=("other",))
    nulls = pa.table({"header": pa.nulls(1, HEADER), "other": ["y"], "v": [7]})
    table.upsert(pa.concat_tables([FIRST.slice(0, 1), nulls]))
    assert values(table.to_arrow(where="header.day IS NULL")) == [7]
    assert {bucket.partition_path for bucket in table.buckets()} == {
        "a",
        "__HIVE_DEFAULT_PARTITION__",
    }


def test_record_whose_struct_is_null_has_no_key_and_is_refused() -> None:
    table = new_table(bl.SimpleBucket(2), record_key=("header.eid",))
    nulls = pa.table({"header": pa.nulls(1, HEADER), "other": ["y"], "v": [7]})
    with pytest.raises(InputError, match=r"'header\.eid': 1 of 1 rows have a null or empty key"):
        table.upsert(nulls)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"record_key": ("header.id",)}, r"no field 'id' in column 'header'; its fields are 'eid'"),
        ({"record_key": ("haeder.eid",)}, r"no column 'haeder'.*did you mean 'header'\?"),
        ({"record_key": ("header",)}, r"or a field of it: header\.eid, header\.day, header\.ts"),
        ({"partition_by": ("v.day",)}, r"column 'v' as int64, not as a struct"),
    ],
)
def test_path_that_leads_to_no_value_is_refused_before_anything_exists(
    changed: dict[str, tuple[str, ...]], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        new_table(bl.SimpleBucket(2), **changed)  # type: ignore[arg-type]
    assert objects_of(MemoryStorage("nested-keys")) == {}


def test_partitioned_record_index_with_dots_in_all_folders_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="partition with a dot"):
        new_table(bl.DynamicBucket(), hive_style=True)
    assert new_table(bl.DynamicBucket()).upsert(FIRST).inserted == 4


@pytest.mark.parametrize("merge_schema", [False, True])
def test_batch_without_the_key_field_inside_its_struct_is_refused(merge_schema: bool) -> None:
    table = new_table(bl.SimpleBucket(2))
    batch = pa.table({"header": [{"day": "a", "ts": 1}], "other": ["x"], "v": [1]})
    with pytest.raises(InputError, match=r"field 'header\.eid' is missing.*fields are 'day', 'ts'"):
        table.upsert(batch, merge_schema=merge_schema)
    with pytest.raises(InputError, match=r"field 'header\.eid' is missing"):
        table.delete(batch)


def test_delete_takes_keys_of_the_same_kind_and_refuses_others() -> None:
    table = new_table(bl.SimpleBucket(2), record_key=("header.eid",), partition_by=())
    table.upsert(FIRST)
    narrow = pa.array([{"eid": 1}], pa.struct([("eid", pa.int32())]))
    assert table.delete(pa.table({"header": narrow})).deleted == 1
    with pytest.raises(InputError, match="eid: the table holds bigint, the batch string"):
        table.delete(pa.table({"header": [{"eid": "2"}]}))


def test_new_field_in_the_struct_of_the_key_keeps_the_keys() -> None:
    table = new_table(bl.SimpleBucket(2))
    table.upsert(FIRST)
    header = {"eid": 1, "day": "a", "ts": 9, "extra": "e"}
    table.upsert(pa.table({"header": [header], "other": ["x1"], "v": [10]}), merge_schema=True)
    assert values(table.to_arrow()) == [2, 3, 4, 10]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_statistics_of_inner_fields_that_hudi_lists_are_kept_and_used(table_type: str) -> None:
    table = new_table(bl.SimpleBucket(1), table_type, record_key=("header.eid",))
    storage = MemoryStorage("nested-keys")
    listed = IndexDefinition.of_column_stats(
        ("_hoodie_record_key", "header.ts", "header.day"), "V2"
    )
    update_index_definitions(table_at(storage), [listed])
    table.upsert(FIRST)
    table.upsert(rows((1, "a", 9, 10), (7, "b", 7, 17)))
    report = table.explain(where="header.ts > 8")
    assert (report.statistics_skipped, report.statistics_reason) == (2, None)
    assert values(table.to_arrow(where="header.ts > 8")) == [10]
    assert values(table.to_arrow(where="header.ts IS NULL")) == [3]
    assert values(table.to_arrow(where="header.ts = 7")) == [17]
    assert table.doctor(check_keys=True) == []


def test_job_options_make_a_table_with_keys_inside_a_struct() -> None:
    options = {
        "hoodie.table.name": "t",
        f"{WRITE}recordkey.field": "header.eid",
        f"{WRITE}partitionpath.field": "header.day:TIMESTAMP",
        f"{WRITE}keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        f"{WRITE}precombine.field": "header.ts",
        "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.bucket.index.hash.field": "header.eid",
    }
    assert bl.save(rows((1, "2020-01-02", 5, 1)), PATH, options=options).inserted == 1
    bl.save(rows((1, "2020-01-03", 6, 2)), PATH, options=options)
    table = bl.open_table(PATH)
    assert values(table.to_arrow(where="header.eid = 1")) == [2]
    assert {bucket.partition_path for bucket in table.buckets()} == {"2020/01"}
