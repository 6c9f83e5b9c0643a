"""The benchmark of the record-level index, and that its large tables cost a write no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.record_index import BENCHMARK, GROWTH_STEPS, INDEX_KINDS, KEY_KINDS, PLANS, TITLES
from benchmarks.workloads.keys import HEX, UUID, key_table, random_keys
from benchmarks.workloads.large_table import SCHEMA, day, key, make_large_table
from bucketlake.format import object_file
from bucketlake.format.hfile import reader as hfile_reader
from bucketlake.model.table_type import Operation
from bucketlake.storage.base import StoredObject
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.faulty_storage import FaultyStorage
from tests.unit.benchmarks.pages import contender, content, measured, page_of

METADATA = ".hoodie/metadata/"
GROUPS_A_FOLDER = 20


class CountingStorage(FaultyStorage):
    """Counts what the metadata table is asked for."""

    objects = read_bytes = 0

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        return self._counted(folder, super().list(folder, recursive=recursive))

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        return self._counted(folder, super().list_named(folder, prefixes))

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        found = super().list_briefly(folder)
        self.objects += len(found) if folder.startswith(METADATA) else 0
        return found

    def read(self, path: str) -> bytes:
        return self._read(path, super().read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._read(path, super().read_range(path, start, length))

    def _counted(self, folder: str, found: Iterator[StoredObject]) -> Iterator[StoredObject]:
        objects = [*found]
        self.objects += len(objects) if folder.startswith(METADATA) else 0
        return iter(objects)

    def _read(self, path: str, data: bytes) -> bytes:
        self.read_bytes += len(data) if path.startswith(METADATA) else 0
        return data


def upsert_one(kind: str, folders: int) -> CountingStorage:
    """Upsert a stored key into a table with so many partitions."""
    name = f"large-{kind}-{folders}"
    forget(name)
    make_large_table(f"memory://{name}", kind, folders, folders * GROUPS_A_FOLDER)
    storage = CountingStorage(MemoryStorage(name))
    rows = pa.table({"id": [key(1)], "day": [day(folders // 2)], "at": [5]}, schema=SCHEMA)
    target = open_target(table_at(storage), None)
    result = write_records(target, Operation.UPSERT, ArrowSource(rows, threads=1))
    assert (result.file_groups, result.written) == (1, 1)
    forget(name)
    return storage


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_upsert_into_a_large_table_reads_the_metadata_of_its_partitions_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Read files of some hundred kilobytes as files of hundred megabytes are read.
    set_bounds(monkeypatch, object_file, WHOLE_BYTES_MAX=2**14)
    set_bounds(monkeypatch, hfile_reader, _TAIL_BYTES=2**14, _GAP_BYTES=0)
    small, large = (upsert_one(kind, folders) for folders in (100, 300))
    assert small.operations == large.operations
    assert small.objects == large.objects
    assert large.read_bytes < small.read_bytes * 1.25


@pytest.mark.parametrize(("kind", "width"), [(HEX, 20), (UUID, 36)])
def test_random_keys_are_distinct_and_of_their_kind(kind: str, width: int) -> None:
    keys = random_keys(kind, 5_000, np.random.default_rng(1))
    assert pc.count_distinct(keys).as_py() == 5_000
    assert pc.unique(pc.utf8_length(keys)).to_pylist() == [width]
    form = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" if kind == UUID else "^[0-9a-f]*$"
    assert pc.all(pc.match_substring_regex(keys, form)).as_py()


def test_partitions_get_equally_many_keys() -> None:
    rows = key_table(HEX, 1_000, 4, np.random.default_rng(1))
    assert pc.value_counts(rows["region"]).field("counts").to_pylist() == [250] * 4


def _result() -> dict[str, Any]:
    def on_spark(seconds: float, index_bytes: int) -> dict[str, Any]:
        sizes = {f"{kind}-100": measured(1.0, index_bytes=index_bytes) for kind in KEY_KINDS}
        return contender(dict.fromkeys(TITLES, measured(seconds)) | sizes)

    plan = {
        "plan_seconds": 0.5,
        "plan_cpu_seconds": 0.4,
        "plan_groups": 100,
        "taken_bytes": 10**7,
        "peak_bytes": 2 * 10**9,
    }
    growth = {f"{step}-1000": measured(1.0, index_bytes=15_000) for step in GROWTH_STEPS}
    plans = dict.fromkeys(PLANS, measured(1.0, plans=[plan]))
    contenders = {
        "bucketlake-spark4": on_spark(1.0, 1_500),
        "hudi-cow": on_spark(7.0, 1_400),
        "growth": contender(growth, table_type="merge_on_read", partitions=8, keys="random"),
        "scale": contender(plans, **{"file groups": 1000, "partitions": 10}),
    }
    return content(contenders, key_counts=[100], growth=[1_000], groups=1_000, folders=10)


def test_aims_that_are_missed_are_shown_as_missed() -> None:
    text = page_of(BENCHMARK, _result())
    assert "build of the index: at least 5x faster than hudi-cow | 7.00x (7.00 to 7.00)" in text
    found = "7.00x (7.00 to 7.00) | **missed**"
    assert f"upsert: at least 8x faster than hudi-cow | {found} | {found}" in text
    assert "| UUIDs of 36 characters | 100 | 15.0 | 14.0 | **missed** |" in text
    assert "| RecordIndex | 100 in 100 partitions | 0.50 | 0.40 | 10 (2000) | **missed** |" in text
    assert "| 1,000 | 1.0 | 1.0 | 15.0 | 1.00 |" in text


def test_a_question_that_was_not_asked_is_left_out_of_the_page() -> None:
    result = _result()
    for name in ("growth", "scale", "hudi-cow"):
        del result["contenders"][name]
    text = page_of(BENCHMARK, result)
    assert "Growth" not in text
    assert "Aims" not in text
