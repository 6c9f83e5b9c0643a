"""Sound tables, and ways to break them, each as it happens: for tests of doctor and repair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import pyarrow as pa

import bucketlake as bl
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.json_fields import parse_checked, render_checked
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.index.stored_setting import SETTING_FILE
from bucketlake.metadata.changes import MetadataChange, publish_change, write_change
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import State, shift_instant
from bucketlake.timeline.open_table import opened_table

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("v", pa.int64()), ("at", pa.int64())]
)
INDEX = bl.SimpleBucket(4)
_NUMBERS = count()


@contextmanager
def sound_table(
    table_type: str, *, ordering: str | None = "at", path: str | None = None
) -> Iterator[bl.Table]:
    """Make a table with keys 0 to 39 in the days a and b, half of them written twice."""
    name = f"broken-{next(_NUMBERS)}"
    made = bl.create_table(
        path or f"memory://{name}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering=ordering,
        index=INDEX,
        table_type=table_type,
    )
    made.upsert(rows(range(40)))
    made.upsert(rows(range(20), 1))
    try:
        yield made
    finally:
        forget(name)


def rows(numbers: range, at: int = 0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": "ab"[n % 2], "v": n + 1000 * at, "at": at} for n in numbers], SCHEMA
    )


def storage_of(table: bl.Table) -> Storage:
    return open_storage(table.path, None)


def data_of(table: bl.Table) -> list[dict[str, object]]:
    return table.to_arrow().sort_by([("day", "ascending"), ("id", "ascending")]).to_pylist()


def base_file(table: bl.Table, partition: str = "a", bucket_id: int | None = None) -> str:
    """Return the base file of a bucket of a partition; of the first one by default."""
    found = [
        b.path
        for b in table.buckets()
        if b.partition_path == partition and bucket_id in (None, b.bucket_id)
    ]
    assert found[0] is not None
    return found[0]


def newest(table: bl.Table) -> InstantTime:
    return max(i.requested_at for i in table.timeline() if i.state is State.COMPLETED)


def later(instant: InstantTime, by_ms: int = 1) -> InstantTime:
    return shift_instant(instant, timedelta(milliseconds=by_ms))


def copied(
    table: bl.Table, path: str, *, instant: InstantTime, file_id: str | None = None
) -> tuple[str, WriteStat]:
    """Copy a base file to another instant, perhaps of another file group."""
    storage = storage_of(table)
    partition, _, file_name = path.rpartition("/")
    name = BaseFileName.from_file_name(file_name)
    assert name is not None
    named = BaseFileName(FileId(file_id or name.file_id), name.write_token, instant)
    target = f"{partition}/{named.to_file_name()}"
    data = storage.read(path)
    storage.put(target, data)
    return target, WriteStat(named.file_id, target, partition, file_size_bytes=len(data))


def commit_by_hand(
    table: bl.Table,
    instant: InstantTime,
    *stats: WriteStat,
    extra: Mapping[str, str] = {},
) -> None:
    """Complete an instant as a writer does that cares for the metadata table and nothing else."""
    by_partition = {stat.partition_path: (stat,) for stat in stats}
    is_merged = table.config().table_type.value == "MERGE_ON_READ"
    action = "deltacommit" if is_merged else "commit"
    complete_by_hand(table, instant, action, CommitMetadata("UPSERT", by_partition, dict(extra)))


def complete_by_hand(
    table: bl.Table,
    instant: InstantTime,
    action: str,
    commit: CommitMetadata,
    listed: CommitMetadata | None = None,
) -> None:
    """Put a completed instant on both timelines.

    The metadata table lists the files of the commit, or those of ``listed``.
    """
    storage, config = storage_of(table), table.config()
    metadata = open_metadata_table(
        opened_table(storage, config), load_timeline(opened_table(storage, config))
    )
    content = write_change(metadata, instant, MetadataChange.of_commit(listed or commit, {}))
    publish_change(opened_table(storage, config), instant, later(instant), content)
    path = f".hoodie/timeline/{instant}_{later(instant)}.{action}"
    storage.put(path, encode_commit_metadata(commit))


def double_a_bucket(table: bl.Table) -> tuple[str, str]:
    """Commit a second file group, with the same keys, for a bucket; return both base files."""
    held = base_file(table)
    instant = later(newest(table), 10)
    bucket = held.rpartition("/")[2][:8]
    file_id = f"{bucket}-0000-4000-8000-00000000000a-0"
    path, stat = copied(table, held, instant=instant, file_id=file_id)
    commit_by_hand(table, instant, stat)
    return held, path


def write_with_other_count(table: bl.Table, other: int, *, below: int | None = None) -> None:
    """Write as a job with another bucket count does; ``below`` leaves out further buckets."""
    storage = storage_of(table)
    setting = storage.read(SETTING_FILE)
    held = parse_checked(setting, SETTING_FILE)
    held["index"]["bucketCount"] = other
    storage.put(SETTING_FILE, render_checked(held))
    batch = rows(range(20), 2)
    kept = assign_buckets(batch["id"], other) < (below or other)
    bl.Table(table.path).upsert(batch.filter(pa.array(kept)))
    storage.put(SETTING_FILE, setting)


def objects(table: bl.Table) -> Mapping[str, bytes]:
    storage = storage_of(table)
    return {one.path: storage.read(one.path) for one in storage.list("")}
