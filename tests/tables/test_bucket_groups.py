"""Several file groups in a bucket (RFC-29, pattern 2): lookups, growth, conversion."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, IndexStateError
from bucketlake.index.bucket_hash import ordinal_of_file_id
from tests.inside import values_of

SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "v": pa.int64()})
SIZE = 12_000
INDEX = bl.SimpleBucket(2, max_file_size=SIZE)


def rows(numbers: range | list[int], value: int = 0) -> pa.Table:
    columns = [[f"k{n:06d}" for n in numbers], ["x"] * len(numbers), [n + value for n in numbers]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA)


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(tmp_path: Path, table_type: str) -> bl.Table:
    return bl.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        index=INDEX,
        table_type=table_type,
    )


def groups_of(table: bl.Table) -> Counter[int | None]:
    return Counter(one.bucket_id for one in table.buckets())


def test_a_bucket_grows_by_file_groups_and_every_key_stays_in_its_group(table: bl.Table) -> None:
    expected: dict[str, int] = {}
    homes: dict[str, str] = {}
    source = random.Random(1)
    for step in range(6):
        numbers = source.sample(range(6000), 1500)
        table.upsert(rows(numbers, step))
        expected |= {f"k{n:06d}": n + step for n in numbers}
        assert values_of(table) == expected
        for key in source.sample(sorted(expected), 5):
            (place,) = table.locate(key)
            assert homes.setdefault(key, place.file_id) == place.file_id
    groups = groups_of(table)
    assert groups.keys() == {0, 1}
    assert min(groups.values()) > 2
    ordinals = sorted(ordinal_of_file_id(b.file_id) for b in table.buckets() if b.bucket_id == 0)
    assert ordinals == [*range(groups[0])]


def test_new_keys_fill_the_newest_group_before_the_next_is_opened(tmp_path: Path) -> None:
    index = bl.SimpleBucket(1, max_file_size=SIZE)
    table = bl.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="p", index=index
    )
    for start in range(0, 8000, 400):
        table.upsert(rows(range(start, start + 400)))
    sizes = [one.size_bytes for one in sorted(table.buckets(), key=lambda b: b.file_id)]
    assert len(sizes) > 2
    assert all(0.7 * SIZE <= size <= 1.3 * SIZE for size in sizes[:-1]), sizes


def test_a_group_of_few_rows_does_not_make_the_next_ones_small(tmp_path: Path) -> None:
    """A file of three rows is nearly all footer: it tells nothing of the bytes of a row."""
    index = bl.SimpleBucket(1, max_file_size=SIZE)
    table = bl.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", index=index)
    full = 0
    while groups_of(table)[0] < 2:
        sizes = [one.size_bytes for one in table.buckets()]
        room = SIZE * full // sizes[0] - full if sizes else 800
        number = max(1, room // 2)  # One by one in the end.
        table.upsert(rows(range(full, full + number)))
        full += number
    assert number == 1
    table.upsert(rows(range(10_000, 12_000)))
    assert groups_of(table)[0] == 2
    assert values_of(table).keys() == {f"k{n:06d}" for n in (*range(full), *range(10_000, 12_000))}


def test_point_reads_and_locate_read_one_group_of_the_bucket(table: bl.Table) -> None:
    table.upsert(rows(range(6000)))
    assert groups_of(table)[0] > 2
    report = table.explain(where="p = 'x' AND id = 'k000123'")
    assert report.file_groups_kept == 1
    assert values_of(table, where="id = 'k000123'") == {"k000123": 123}
    assert values_of(table, where="id IN ('k000001', 'k005999', 'k999999')").keys() == {
        "k000001",
        "k005999",
    }
    assert table.locate({"id": "k999999"}) == []


def test_deletes_find_their_keys_and_leave_the_others(table: bl.Table) -> None:
    table.upsert(rows(range(3000)))
    table.delete(rows([*range(0, 3000, 7), 9999]).select(["id", "p"]))
    assert values_of(table) == {f"k{n:06d}": n for n in range(3000) if n % 7}
    table.upsert(rows(range(0, 3000, 7), 5))
    expected = {f"k{n:06d}": n + (0 if n % 7 else 5) for n in range(3000)}
    assert values_of(table) == expected
    if table.config().table_type.name == "MERGE_ON_READ":
        table.compact()
        assert values_of(table) == expected
    table.upsert(rows([1, 2, 3], 50))
    assert values_of(table) == expected | {f"k{n:06d}": n + 50 for n in (1, 2, 3)}
    assert table.doctor(check_keys=True, check_files=True) == []


def test_a_repeated_load_makes_no_second_group_of_a_key(table: bl.Table) -> None:
    for value in range(3):
        table.upsert(rows(range(2500), value))
    assert values_of(table) == {f"k{n:06d}": n + 2 for n in range(2500)}


def test_a_key_in_two_groups_is_reported_and_repaired(table: bl.Table) -> None:
    table.upsert(rows(range(3000)))
    one, other = [b for b in table.buckets() if b.bucket_id == 0][:2]
    assert one.path is not None
    assert other.path is not None
    # The newest version of one group becomes a copy of the other group's rows.
    (Path(table.path) / one.path).write_bytes((Path(table.path) / other.path).read_bytes())
    with pytest.raises(IndexStateError, match="is in two file groups: "):
        table.upsert(rows(range(3000), 1))
    assert "keys_twice" in {
        finding.kind.value for finding in table.doctor(check_keys=True, check_files=True)
    }


def test_a_table_converts_without_a_rewrite_and_back_with_a_planned_one(
    tmp_path: Path, table_type: str
) -> None:
    path = str(tmp_path / "t")
    table = bl.create_table(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        index=bl.SimpleBucket(2),
        table_type=table_type,
    )
    table.upsert(rows(range(3000)))
    table.upsert(rows(range(2900, 3300), 7))
    expected = values_of(table)
    before = {one.path for one in table.buckets()}
    assert table.convert(INDEX, dry_run=True).partitions == ()
    converted = bl.convert(path, INDEX)
    assert converted.index == INDEX == bl.open_table(path).index
    assert {one.path for one in converted.buckets()} == before
    # A handle from before writes under the setting of now.
    table.upsert(rows(range(9000), 1))
    expected |= {f"k{n:06d}": n + 1 for n in range(9000)}
    assert values_of(converted) == expected
    assert groups_of(converted)[0] > 1
    plan = converted.convert(bl.SimpleBucket(2), dry_run=True)
    assert (plan.partitions, plan.instant) == (("x",), None)
    assert plan.file_groups == sum(groups_of(converted).values())
    back = bl.convert(path, bl.SimpleBucket(2))
    assert values_of(back) == expected
    assert groups_of(back) == {0: 1, 1: 1}
    converted.upsert(rows(range(10), 3))
    assert values_of(back) == expected | {f"k{n:06d}": n + 3 for n in range(10)}
    assert bl.open_table(path).index == bl.SimpleBucket(2)


def test_a_conversion_changes_the_file_size_alone(table: bl.Table) -> None:
    with pytest.raises(ConfigError, match="changes only max_file_size"):
        table.convert(bl.SimpleBucket(4, max_file_size=SIZE), dry_run=False)
    with pytest.raises(IndexStateError, match=r"use table\.convert\(\.\.\.\)"):
        bl.open_table(table.path, bl.SimpleBucket(2))
    assert table.convert(INDEX, dry_run=False).instant is None


def test_a_conversion_is_rolled_back_with_the_writes_that_used_it(table: bl.Table) -> None:
    back = bl.convert(table.path, bl.SimpleBucket(2))
    back.upsert(rows(range(100)))
    expected = values_of(back)
    conversion = back.convert(INDEX, dry_run=False).instant
    assert conversion is not None
    back.upsert(rows(range(4000), 1))
    assert max(groups_of(back).values()) > 1
    back.rollback(conversion, cascade=True)
    assert bl.open_table(table.path).index == bl.SimpleBucket(2)
    assert values_of(back) == expected
    back.upsert(rows(range(50), 9))
    assert groups_of(back) == {0: 1, 1: 1}


def test_a_rescale_keeps_the_file_size(table: bl.Table) -> None:
    table.upsert(rows(range(4000)))
    expected = values_of(table)
    table.rescale({"x": 4}, dry_run=False)
    assert values_of(table) == expected
    index = bl.open_table(table.path).index
    assert index == bl.PartitionBucket({"x": 4}, 2, max_file_size=SIZE)
    assert groups_of(table).keys() == {0, 1, 2, 3}
    table.upsert(rows(range(3000, 9000), 1))
    assert values_of(table) == expected | {f"k{n:06d}": n + 1 for n in range(3000, 9000)}


@pytest.mark.parametrize("size", [0, -1, 1.5, "10", True])
def test_a_file_size_is_a_number_of_bytes(size: object) -> None:
    with pytest.raises(ConfigError, match="max_file_size"):
        bl.SimpleBucket(2, max_file_size=size)  # type: ignore[arg-type]


def test_options_name_the_file_size_in_both_directions() -> None:
    index = bl.SimpleBucket(3, ["a"], max_file_size=1000)
    assert bl.SimpleBucket.from_options(index.to_options()) == index
    by_rules = bl.PartitionBucket({"a": 3}, 2, max_file_size=1000)
    assert bl.PartitionBucket.from_options(by_rules.to_options()) == by_rules
    with pytest.raises(ConfigError, match=r"max\.file\.size"):
        bl.SimpleBucket.from_options(
            bl.SimpleBucket(3).to_options() | {"hoodie.bucket.index.ext.max.file.size": "1MB"}
        )
