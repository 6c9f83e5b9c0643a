"""Rehashing in place: which old buckets feed which new ones, and that no row is lost on the way."""

from __future__ import annotations

from itertools import count
from math import gcd

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import IndexStateError
from bucketlake.storage.memory import forget
from bucketlake.write import rehash
from bucketlake.write.pack import PackedRecords
from bucketlake.write.rehash import RehashJob
from tests.between import InterruptedEngine
from tests.bounds import set_bounds
from tests.choices import combinations, some
from tests.inside import storage_of
from tests.spies import spy

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
_NUMBERS = count()


def table_of(buckets: int, rows: int, table_type: str = "copy_on_write") -> bl.Table:
    made = bl.create_table(
        f"memory://rehash-{next(_NUMBERS)}", schema=SCHEMA, record_key=["id"],
        partition_by=["day"], index=bl.SimpleBucket(buckets), table_type=table_type,
    )  # fmt: skip
    for day in "ab":
        made.upsert(
            pa.Table.from_pylist([{"id": f"k{n}", "day": day, "v": n} for n in range(rows)], SCHEMA)
        )
    return made


def noted_jobs(monkeypatch: pytest.MonkeyPatch) -> list[RehashJob]:
    jobs: list[RehashJob] = []
    engine = InterruptedEngine(lambda _, given: jobs.extend(given))
    set_bounds(monkeypatch, "bucketlake.engine", HERE=engine)
    return jobs


@pytest.mark.parametrize(
    ("counts", "table_type"),
    combinations(
        [(4, 8), (8, 4), (6, 4), (4, 6), (3, 5), (1, 7), (7, 1), (2, 64)],
        ["copy_on_write", "merge_on_read"],
    ),
)
def test_every_row_is_in_its_new_bucket_and_each_residue_is_a_job(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int], table_type: str
) -> None:
    old, new = counts
    table = table_of(old, 200, table_type)
    table.upsert(pa.table({"id": ["k7"], "day": ["a"], "v": [-7]}, SCHEMA))
    untouched = [b for b in table.buckets() if b.partition_path == "b"]
    jobs = noted_jobs(monkeypatch)
    table.rescale({"a": new}, dry_run=False)
    assert len(jobs) == gcd(old, new)
    assert all(len(job.slots) == new // gcd(old, new) for job in jobs)
    found = {row["id"]: row["v"] for row in table.to_arrow(where="day = 'a'").to_pylist()}
    assert found == {f"k{n}": -7 if n == 7 else n for n in range(200)}
    assert table.doctor(check_keys=True) == [], "a row is in another bucket than its key"
    for key in some([*found], 10):
        assert len(table.locate(key, "a")) == 1
    assert [b for b in table.buckets() if b.partition_path == "b"] == untouched
    forget(table.path.removeprefix("memory://"))


def test_rows_that_do_not_fit_a_task_go_through_the_shuffle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = table_of(4, 100)
    jobs = noted_jobs(monkeypatch)
    set_bounds(monkeypatch, rehash, JOB_BYTES_MAX=10)
    written = spy(monkeypatch, PackedRecords, "write", lambda *_: 1)
    table.rescale({"a": 8}, dry_run=False)
    assert (jobs, written) == ([], [1])
    assert table.to_arrow().num_rows == 200
    forget(table.path.removeprefix("memory://"))


def test_a_bucket_that_no_row_falls_into_gets_no_file() -> None:
    table = table_of(2, 3)
    table.rescale({"a": 512}, dry_run=False)
    assert 1 <= len([b for b in table.buckets() if b.partition_path == "a"]) <= 3
    assert table.to_arrow().num_rows == 6
    forget(table.path.removeprefix("memory://"))


@pytest.mark.parametrize("column", ["id", "day"])
def test_a_row_that_belongs_elsewhere_is_refused_and_not_lost(column: str) -> None:
    """As another program may leave it: in a wrong bucket, or in a wrong partition."""
    table = table_of(4, 100)
    storage = storage_of(table)
    for path in [stored.path for stored in storage.list("a") if ".parquet" in stored.path]:
        file = pq.read_table(pa.BufferReader(storage.read(path)))
        values = ["elsewhere", *file[column].to_pylist()[1:]]
        place, target = file.column_names.index(column), pa.BufferOutputStream()
        changed = file.set_column(place, column, pa.array(values))
        pq.write_table(changed.replace_schema_metadata(None), target)  # Another program wrote it.
        storage.put(path, target.getvalue())
    with pytest.raises(IndexStateError, match="belong"):
        table.rescale({"a": 8}, dry_run=False)
    assert table.to_arrow().num_rows == 200
    assert bl.open_table(table.path).index == bl.SimpleBucket(4)
    forget(table.path.removeprefix("memory://"))
