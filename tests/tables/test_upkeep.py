"""Tables that keep themselves up: services run after a commit when they are due."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError, ConfigError, ServiceWarning, StorageError
from bucketlake.model.file_name import InstantTime
from bucketlake.services import compaction, upkeep
from bucketlake.timeline.instant import Action
from tests.bounds import set_bounds
from tests.spies import breaks

SCHEMA = pa.schema({"id": pa.string(), "part": pa.string(), "n": pa.int64()})


def made(path: Path, **options: Any) -> bl.Table:
    options = {"index": bl.SimpleBucket(1), "upkeep": "auto", **options}
    return bl.create_table(
        str(path / "t"), schema=SCHEMA, record_key="id", partition_by="part", **options
    )


def write(table: bl.Table, number: int, *, ids: Callable[[int], str] = str) -> bl.WriteResult:
    return table.upsert(pa.table({"id": [ids(number % 3)], "part": ["a"], "n": [number]}))


def services(result: bl.WriteResult) -> list[str]:
    return [step.service for step in result.upkeep]


def test_log_files_are_compacted_after_five_delta_commits(tmp_path: Path) -> None:
    table = made(tmp_path, table_type="merge_on_read")
    done = [services(write(table, number)) for number in range(10)]
    assert done[4] == done[9] == ["compact"]
    assert not any(done[:4] + done[5:9])
    assert table.to_arrow().num_rows == 3
    assert [b.log_files for b in table.buckets()] == [0]


def test_old_files_are_deleted_and_old_instants_archived(tmp_path: Path) -> None:
    table = made(tmp_path)
    done = [services(write(table, number)) for number in range(45)]
    assert sum("clean" in each for each in done) == 3  # The first ten commits are all retained.
    assert sum("archive" in each for each in done) >= 1
    commits = [i for i in table.timeline() if i.action is Action.COMMIT]
    assert len(commits) <= 31
    assert len(list((tmp_path / "t" / "a").glob("*.parquet"))) <= 21
    assert table.to_arrow().num_rows == 3
    assert not table.doctor()


def test_buckets_of_a_hash_ring_are_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, upkeep, RESIZE_EVERY=3)
    monkeypatch.setattr(upkeep, "ResizeLimits", lambda: bl_limits())
    table = made(tmp_path, index=bl.ConsistentBucket(2, max=8))
    done = [services(write(table, number, ids="key{}".format)) for number in range(3)]
    assert done == [[], [], ["resize"]]
    assert len(table.buckets()) > 1
    assert table.to_arrow().num_rows == 3


def bl_limits() -> Any:
    from bucketlake.services.resize.service import ResizeLimits

    return ResizeLimits(max_file_size=1)


def test_a_table_without_upkeep_is_left_alone(tmp_path: Path) -> None:
    table = made(tmp_path, table_type="merge_on_read", upkeep="off")
    assert not any(write(table, number).upkeep for number in range(6))
    table.set_upkeep("auto")
    assert bl.open_table(table.path).config().upkeep == "auto"
    assert any(write(table, number).upkeep for number in range(6, 12))
    table.set_upkeep("off")
    assert "bucketlake.upkeep" not in (tmp_path / "t/.hoodie/hoodie.properties").read_text()
    assert not any(write(table, number).upkeep for number in range(12, 24))


@pytest.mark.parametrize("error", [StorageError("s3://b", "put", "gone"), MemoryError("full")])
def test_a_service_that_fails_does_not_fail_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = made(tmp_path, table_type="merge_on_read")
    for number in range(4):
        write(table, number)
    with monkeypatch.context() as broken:
        breaks(broken, compaction, "compact", error)
        with pytest.warns(ServiceWarning, match="rows are committed"):
            result = write(table, 4)
    assert result.instant is not None
    assert [(step.service, step.error) for step in result.upkeep] == [("compact", str(error))]
    assert table.to_arrow(where="id = '1'")["n"].to_pylist() == [4]


def test_a_service_that_another_process_runs_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = CommitConflictError(InstantTime("20260101000000000"), "another process executes it")
    breaks(monkeypatch, compaction, "compact", busy)
    table = made(tmp_path, table_type="merge_on_read")
    result = [write(table, number) for number in range(5)][-1]
    assert [(s.service, s.done, s.error) for s in result.upkeep] == [
        ("compact", "another process does it", None)
    ]


def test_no_service_begins_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, upkeep, SECONDS_MAX=-1.0)
    table = made(tmp_path, table_type="merge_on_read")
    assert not any(write(table, number).upkeep for number in range(10))


def test_every_way_to_write_keeps_the_table_up(tmp_path: Path) -> None:
    table = made(tmp_path, table_type="merge_on_read")
    batch = pa.table({"id": ["x"], "part": ["a"], "n": [1]})
    writes = [
        lambda: table.upsert(batch),
        lambda: table.delete(batch),
        lambda: table.upsert_batch("stream")(batch, 0),
        lambda: table.update({"n": "n + 1"}, where="n > 0"),
        lambda: (
            table.merge(batch, on="t.id = s.id AND t.part = s.part")
            .when_matched_update_all()
            .execute()
        ),
    ]
    assert [services(run()) for run in writes] == [[], [], [], [], ["compact"]]
    assert table.index is not None
    options = {**table.index.to_options(), "hoodie.compact.inline": "false"}
    saved = [bl.save(batch, table.path, options=options) for _ in range(5)]
    assert [services(result) for result in saved] == [[], [], [], [], ["compact"]]


def test_an_unknown_mode_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="auto"):
        made(tmp_path, upkeep="always")
    assert not (tmp_path / "t").exists()
    with pytest.raises(ConfigError, match="auto"):
        made(tmp_path).set_upkeep("on")
