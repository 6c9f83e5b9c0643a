"""Advice about real tables and samples: the ten shapes of ``docs/how-to/advise.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.services.advice.advice import Advice, AdviceList
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from tests.spies import forbid, spy

TARGET = 20_000  # Small tables then have files of every size.
SCHEMA = pa.schema(
    {
        "order_id": pa.string(),
        "city": pa.string(),
        "amount": pa.float64(),
        "updated_at": pa.int64(),
    }
)


def orders(numbers: Iterable[int], city: str = "Bonn", at: int = 1) -> pa.Table:
    held = np.fromiter(numbers, np.int64)
    return pa.table(
        {
            "order_id": [f"order-{number:08}" for number in held],
            "city": [city] * len(held),
            "amount": held * 0.618034 % 1000,  # Incompressible, so that a row has some bytes.
            "updated_at": np.full(len(held), at),
        },
        schema=SCHEMA,
    )


def of_cities(shares: dict[str, int]) -> pa.Table:
    """Return rows of cities, so many thousands of each."""
    parts = []
    for place, (city, thousands) in enumerate(shares.items()):
        first = place * 1_000_000
        parts.append(orders(range(first, first + thousands * 1000), city))
    return pa.concat_tables(parts)


def advised(sample: pa.Table, **given: Any) -> dict[str, Advice]:
    given = {"record_key": "order_id", "partition_by": "city", "ordering": "updated_at"} | given
    return by_subject(bl.advise(sample, **given))


def by_subject(found: AdviceList) -> dict[str, Advice]:
    return {own.subject: own for own in found}


@pytest.fixture
def make(new_path: Callable[[], str]) -> Callable[..., bl.Table]:
    def made(index: Any, **given: Any) -> bl.Table:
        return bl.create_table(
            new_path(),
            schema=SCHEMA,
            record_key="order_id",
            partition_by="city",
            ordering="updated_at",
            index=index,
            **given,
        )

    return made


def follow(table: bl.Table, advice: Advice) -> Any:
    """Do what is advised, by its call."""
    assert advice.call is not None
    return eval(advice.call, {"bl": bl, "table": table})


def look(table: bl.Table, target: int = TARGET) -> dict[str, Advice]:
    return by_subject(table.advise(target_file_size=target))


# ---- ten shapes ---------------------------------------------------------------------------------


def test_uniform_partitions_get_one_count() -> None:
    found = advised(of_cities({"Bonn": 5, "Kyiv": 5, "Lima": 5}), rows=600_000_000)
    index = eval(found["index"].advised, {"bl": bl})
    assert isinstance(index, bl.SimpleBucket)
    assert 10 <= index.count <= 60
    assert 50_000_000 < (found["index"].file_bytes or 0) <= 100_000_000
    assert not found["partitions"].changes


def test_a_growing_table_gets_dynamic_buckets(make: Callable[..., bl.Table]) -> None:
    table = make(bl.SimpleBucket(2))
    for day in range(6):
        table.upsert(orders(range(day * 1000, day * 1000 + 2000), at=day))
    found = look(table)
    assert found["index"].advised == f"bl.DynamicBucket(max_file_size={TARGET})"
    assert "grew by 10 % or more" in found["index"].reason
    follow(table, found["index"])
    after = bl.open_table(table.path)
    assert after.index == bl.DynamicBucket(max_file_size=TARGET)
    assert not look(after)["index"].changes
    assert after.count() == 7000


def test_partitions_that_differ_get_rules() -> None:
    found = advised(of_cities({"Bonn": 40, "Kyiv": 1, "Lima": 1}), rows=500_000_000)
    index = eval(found["index"].advised, {"bl": bl})
    assert isinstance(index, bl.PartitionBucket)
    assert index.count_of("Bonn") > 10 * index.count_of("Kyiv")
    assert index.names("Bonn")
    assert not index.names("Kyiv")


def test_hash_fields_with_a_hot_value_are_advised_against() -> None:
    count = 20_000
    devices = [f"d{n % 100}" if n % 2 else "d7" for n in range(count)]
    sample = pa.table({"device": devices, "at": list(range(count)), "value": [1.5] * count})
    given: dict[str, Any] = {"record_key": ["device", "at"], "hash_fields": "device"}
    found = by_subject(bl.advise(sample, **given, rows=1_000_000_000))
    assert "hash_fields" not in found["index"].advised
    assert "device=d7 has 51% of the rows" in found["index"].reason
    even = sample.set_column(0, "device", pa.array([f"d{n % 100}" for n in range(count)]))
    found = by_subject(bl.advise(even, **given, rows=1_000_000_000))
    assert "hash_fields=['device']" in found["index"].advised


def test_a_hot_bucket_of_a_table_gets_several_files(new_path: Callable[[], str]) -> None:
    def rows(numbers: range) -> pa.Table:
        devices = ["d7" if n % 8 else f"d{n}" for n in numbers]
        return pa.table(
            {"device": devices, "at": list(numbers), "n": [n * 0.618034 % 1 for n in numbers]}
        )

    table = bl.create_table(
        new_path(),
        schema=rows(range(9)).schema,
        record_key=["device", "at"],
        index=bl.SimpleBucket(16, ["device"]),
    )
    table.upsert(rows(range(8000)))
    found = look(table)["index"]
    assert "times the mean of 16 buckets: a key field has a hot value" in found.reason
    follow(table, found)
    table.upsert(rows(range(8000, 12_000)))
    after = bl.open_table(table.path)
    groups = Counter(bucket.bucket_id for bucket in after.buckets())
    assert max(groups.values()) > 1
    assert after.count() == 12_000
    assert "hot" not in look(after)["index"].reason


def test_a_tiny_table_gets_one_file(make: Callable[..., bl.Table]) -> None:
    found = advised(of_cities({"Bonn": 1, "Kyiv": 1}), rows=50_000)
    assert found["index"].advised == "bl.SimpleBucket(1)"
    assert not found["partitions"].changes
    table = make(bl.SimpleBucket(16))
    for at in range(3):
        table.upsert(orders(range(300), at=at))
    wanted = by_subject(table.advise())["index"]
    assert wanted.advised == "1 bucket in each partition"
    follow(table, wanted)
    assert len(table.buckets()) == 1
    assert not by_subject(table.advise())["index"].changes


def test_a_huge_table_gets_more_assigners_and_smaller_partitions() -> None:
    found = advised(of_cities({"Bonn": 5, "Kyiv": 5}), rows=50_000_000_000)
    assert found["index"].advised == "bl.DynamicBucket(assigners=16)"
    assert found["partitions"].advised == "by a finer column"
    assert found["partitions"].call is None


def test_many_small_partitions_get_one_file_each_and_a_coarser_column() -> None:
    sample = pa.concat_tables([orders(range(n * 20, n * 20 + 20), f"c{n}") for n in range(200)])
    found = advised(sample, rows=2_000_000)
    assert found["index"].advised == "bl.SimpleBucket(1)"
    assert found["partitions"].advised == "by a coarser column"


def test_late_data_asks_for_log_files(
    make: Callable[..., bl.Table], new_path: Callable[[], str]
) -> None:
    table = make(bl.SimpleBucket(1))
    days = [f"day-{day}" for day in range(5)]
    table.upsert(pa.concat_tables([orders(range(2000), day) for day in days]))
    for at in range(2, 5):
        table.upsert(pa.concat_tables([orders([at], day, at) for day in days]))
    found = look(table, 60_000)
    wanted = found["table type"]
    assert (wanted.now, wanted.advised) == ("copy_on_write", "merge_on_read")
    assert "2000.0 rows were written for each changed row" in wanted.reason
    assert "5 partitions got late data" in wanted.reason
    assert wanted.call is not None
    made = eval(wanted.call, {"bl": bl, "table": table, "path": new_path()})
    made.bulk_insert(table.to_arrow())
    assert made.config().table_type.value == "MERGE_ON_READ"
    assert made.count() == table.count()
    assert not look(made, 60_000)["table type"].changes


def test_a_table_of_appends_lets_full_files_stay(make: Callable[..., bl.Table]) -> None:
    table = make(bl.SimpleBucket(2))
    for day in range(6):
        table.upsert(orders(range(day * 1000, day * 1000 + 1000)))
    found = look(table)["index"]
    assert found.advised == f"bl.SimpleBucket(2, max_file_size={TARGET})"
    assert "100% of the changed rows are new" in found.reason
    follow(table, found)
    files = {bucket.path for bucket in table.buckets()}
    table.upsert(orders(range(6000, 7000)))
    assert len(files & {bucket.path for bucket in table.buckets()}) == 2  # They are not rewritten.
    assert not look(table)["index"].changes


def test_a_table_of_deletes_gets_fewer_buckets(make: Callable[..., bl.Table]) -> None:
    table = make(bl.SimpleBucket(16))
    table.upsert(orders(range(12_000)))
    for step in range(3):
        table.delete(orders(range(step * 3900, step * 3900 + 3900)))
    found = by_subject(table.advise())
    assert found["index"].advised == "1 bucket in each partition"
    assert "deletes, and old versions of files keep the deleted rows" in found["upkeep"].reason
    follow(table, found["index"])
    assert table.count() == 300
    assert not by_subject(table.advise())["index"].changes


# ---- other kinds of tables ----------------------------------------------------------------------


def test_services_are_advised_when_they_are_due(make: Callable[..., bl.Table]) -> None:
    table = make(bl.SimpleBucket(1), table_type="merge_on_read")
    for at in range(6):
        table.upsert(orders(range(100), at=at))
    found = look(table)
    assert found["compact"].command == f"bucketlake compact {table.path} --run"
    follow(table, found["upkeep"])
    assert table.config().upkeep == "auto"
    table.compact()
    assert "compact" not in look(table)


@pytest.mark.parametrize("kind", [bl.ConsistentBucket(1), bl.ExtendibleBucket(1)])
def test_a_bucket_that_is_too_large_is_to_be_split(
    make: Callable[..., bl.Table], kind: Any
) -> None:
    table = make(kind)
    table.upsert(orders(range(6000)))
    found = look(table)["index"]
    assert found.advised == "a resize"
    report = follow(table, found)
    assert report.buckets
    while look(table)["index"].changes:
        follow(table, look(table)["index"])
    assert max(bucket.size_bytes for bucket in table.buckets()) <= 2 * TARGET
    assert table.count() == 6000


def test_a_table_without_rows_and_a_table_without_a_setting_are_left_alone(
    make: Callable[..., bl.Table],
) -> None:
    table = make(bl.SimpleBucket(4))
    assert [own for own in table.advise() if own.changes] == []
    assert "no rows yet" in table.advise()[0].reason
    table.upsert(orders(range(10)))
    for stored in list(open_storage(table.path).list(".hoodie/.bucket_index/ext")):
        open_storage(table.path).delete(stored.path)
    assert bl.open_table(table.path).advise()[0].now == "not known"


@pytest.mark.parametrize("version", [6, 8])
def test_advice_about_an_older_table_keeps_to_its_version(
    make: Callable[..., bl.Table], version: int
) -> None:
    table = make(bl.SimpleBucket(1), version=version, metadata_table=version > 6)
    for at in range(6):
        table.upsert(orders(range(at * 1000, at * 1000 + 1500), at=at))
    found = look(table)["index"]
    assert found.advised == f"bl.SimpleBucket(1, max_file_size={TARGET})"
    follow(table, found)
    table.upsert(orders(range(9000, 9500)))
    assert len(table.buckets()) > 1


def test_growth_of_a_table_with_log_files_is_seen_by_its_compactions(
    make: Callable[..., bl.Table],
) -> None:
    table = make(bl.SimpleBucket(1), table_type="merge_on_read")
    for day in range(8):
        table.upsert(orders(range(day * 700, day * 700 + 1400), at=day))
        if day % 3 == 1:
            table.compact()
    found = table.advise(target_file_size=TARGET)
    assert found.workload.inserts is None
    assert found.workload.partitions[0].grows
    assert found[0].advised == f"bl.DynamicBucket(max_file_size={TARGET})"


def test_a_dynamic_table_is_left_alone(make: Callable[..., bl.Table]) -> None:
    table = make(bl.DynamicBucket(max_file_size=TARGET))
    for day in range(5):
        table.upsert(orders(range(day * 1000, day * 1000 + 2000), at=day))
    assert not look(table)["index"].changes


def test_no_data_file_is_read_and_no_commit_twice(
    make: Callable[..., bl.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(bl.SimpleBucket(4))
    for at in range(12):
        table.upsert(pa.concat_tables([orders(range(50), f"c{n}", at) for n in range(4)]))

    forbid(monkeypatch, BaseFileReader, "__init__")
    reads = spy(monkeypatch, MemoryStorage, "read", lambda _, path: path)
    advice = table.advise()
    assert advice.workload.commits == 10
    commits = [path for path in reads if path.endswith(".commit")]
    assert len(commits) == len({*commits}) == 12


# ---- samples ------------------------------------------------------------------------------------


def test_bytes_of_a_row_are_those_of_a_table_of_the_sample(make: Callable[..., bl.Table]) -> None:
    sample = orders(range(30_000))
    expected = bl.advise(sample, record_key="order_id", partition_by="city").workload
    table = make(bl.SimpleBucket(1))
    table.upsert(sample)
    stored = table.advise().workload
    assert expected.bytes_per_row == pytest.approx(stored.bytes_per_row, rel=0.05)
    assert expected.largest_bytes == pytest.approx(stored.largest_bytes, rel=0.05)


def test_expected_rows_are_those_of_all_partitions() -> None:
    sample = of_cities({"Bonn": 1, "Kyiv": 3})
    given: dict[str, Any] = {"record_key": "order_id", "partition_by": "city"}
    four = bl.advise(sample, **given, rows=4_000_000).workload
    of_eight = bl.advise(sample, **given, rows=4_000_000, partitions=8).workload
    assert [p.path for p in four.partitions] == ["Bonn", "Kyiv"]
    assert four.partitions[1].size_bytes == pytest.approx(3 * four.partitions[0].size_bytes)
    assert of_eight.size_bytes == pytest.approx(four.size_bytes / 4, rel=0.01)


def test_a_key_that_comes_twice_counts_once() -> None:
    sample = pa.concat_tables([orders(range(100)), orders(range(50))])
    found = bl.advise(sample, record_key="order_id")
    assert found.workload.repeated == pytest.approx(1 / 3)
    assert by_subject(found)["ordering"].reason.startswith("33.3% of the rows")


def test_a_sample_may_have_deletes_and_any_form() -> None:
    flags = pa.array([n % 4 == 0 for n in range(100)])
    sample = orders(range(100)).append_column("_hoodie_is_deleted", flags)
    found = bl.advise(sample.to_pylist(), record_key="order_id")
    assert found.workload.deletes == 0.25
    assert found[0].advised == "bl.DynamicBucket()"


@pytest.mark.parametrize(
    ("sample", "given", "error"),
    [
        (orders([]), {}, "it has no rows"),
        (orders([1]).drop_columns(["order_id"]), {}, "order_id"),
        (orders([1]).set_column(0, "order_id", pa.nulls(1, pa.string())), {}, "order_id"),
        ("orders.parquet", {}, "sample"),
        (orders([1]), {"rows": 0}, "rows = 0"),
        (orders([1]), {"hash_fields": "city"}, "city"),
        (orders([1]), {"version": 7}, "version = 7"),
        (orders([1]), {"target_file_size": 0}, "target_file_size = 0"),
    ],
)
def test_what_cannot_be_judged_is_an_error(sample: Any, given: dict[str, Any], error: str) -> None:
    with pytest.raises((ConfigError, InputError), match=error):
        bl.advise(sample, **{"record_key": "order_id"} | given)


def test_advice_prints_its_reasons_and_calls(make: Callable[..., bl.Table]) -> None:
    table = make(bl.SimpleBucket(16))
    for at in range(12):
        table.upsert(orders(range(300), at=at))
    found = table.advise()
    text = str(found)
    assert text.startswith("1 partition, ")
    assert "index: bl.SimpleBucket(16) -> 1 bucket in each partition, files of about " in text
    assert "\n  table.rescale({'.*': 1}, default=1)" in text
    assert "table type: keep copy_on_write" in text
    assert [own.subject for own in found.changes] == ["index", "upkeep", "clean"]
    assert found._repr_html_().startswith("<pre>1 partition, ")
