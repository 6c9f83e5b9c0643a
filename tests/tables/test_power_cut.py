"""Power cuts on a local disk: what a completed commit names was flushed before it completed.

A recorder notes the order of writes, names and flushes of real writes. A file survives a power cut
if its bytes, its name and the names of its folders were flushed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.metadata.metadata_table import load_metadata_table
from bucketlake.storage import system_calls
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.table_properties import table_at

PARTITIONS = 40


class Disk:
    """What a local disk would still have after a power cut, while writes go on.

    Attributes
    ----------
    flushes : int
        How often something was flushed.
    at_completion : dict of str to (set of str, set of str)
        By the path of each instant on a timeline: the files whose bytes, and the names, that a
        power cut would have taken when it got its name.
    """

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.flushes = 0
        self._root = str(root)
        self._unflushed_bytes: set[int] = set()  # By inode.
        self._unflushed_names: set[str] = set()
        self.at_completion: dict[str, tuple[set[str], set[str]]] = {}
        self._wrap(patch, system_calls, "write_new_file", self._written)
        self._wrap(patch, system_calls, "flush", self._flushed)
        self._wrap(patch, os, "mkdir", lambda path, *_: self._named(path))
        self._wrap(patch, os, "link", lambda _, path, **__: self._named(path))
        self._wrap(patch, os, "replace", lambda _, path: self._named(path))

    def _wrap(self, patch: pytest.MonkeyPatch, owner: Any, name: str, note: Any) -> None:
        plain = getattr(owner, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            path = str(arguments[1] if name in ("link", "replace") else arguments[0])
            if "/timeline/" in path and name == "link":
                self.at_completion[path] = {*self._unflushed_paths()}, {*self._unflushed_names}
            result = plain(*arguments, **options)
            note(*arguments, **options)
            return result

        patch.setattr(owner, name, noted)

    def _written(self, path: str, data: Any, *, fsync: bool) -> None:
        self.flushes += fsync
        if len(data) and not fsync:
            self._unflushed_bytes.add(os.stat(path).st_ino)  # noqa: PTH116 -- os is patched.
        self._unflushed_names.add(path)

    def _named(self, path: str | Path) -> None:
        if str(path).startswith(self._root):
            self._unflushed_names.add(str(path))

    def _flushed(self, paths: list[str]) -> None:
        if len(paths) >= system_calls._MANY and system_calls._flush_file_system(paths[0]):
            self.flushes += 1
            self._unflushed_bytes.clear()
            self._unflushed_names.clear()
            return
        for path in paths:
            self.flushes += 1
            self._unflushed_bytes.discard(os.stat(path).st_ino)  # noqa: PTH116
            names = [*self._unflushed_names]  # Other threads add to them.
            inside = {name for name in names if str(Path(name).parent) == path}
            self._unflushed_names -= inside

    def _unflushed_paths(self) -> Iterator[str]:
        for path in Path(self._root).rglob("*") if self._unflushed_bytes else ():
            if path.is_file() and path.stat().st_ino in self._unflushed_bytes:
                yield str(path)

    def require_kept(self, root: Path, completed: str, needed: list[str]) -> None:
        """Raise an error if a power cut at the completion would have lost what it needs."""
        bytes_lost, names_lost = self.at_completion[str(root / completed)]
        for path in (root / name for name in needed):
            assert str(path) not in bytes_lost, f"bytes of {path}"
            for named in (path, *path.parents):
                assert str(named) not in names_lost, f"name of {named} for {path}"


def rows(partitions: int, count: int, first: int = 0) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": [f"k{i}" for i in ids], "p": [f"p{i % partitions}" for i in ids]})


def require_kept(disk: Disk, root: Path) -> int:
    """Check all commits of a table and its metadata table; return how many files they name."""
    table = table_at(LocalStorage(str(root)))
    data = load_timeline(table)
    metadata = load_metadata_table(table, data)
    return _of(disk, root, data, table.storage) + _of(
        disk, root / metadata.storage.folder, metadata.timeline, metadata.storage
    )


def _of(disk: Disk, root: Path, timeline: Timeline, storage: Any) -> int:
    count = 0
    for instant, commit in timeline.read_commits(storage, timeline.completed_commits()):
        needed = [stat.path for stat in commit.stats]
        folders = {Path(path).parent for path in needed}
        needed += [str(folder / ".hoodie_partition_metadata") for folder in folders]
        disk.require_kept(root, timeline.path_of(instant), needed)
        count += len(needed)
    return count


@pytest.mark.parametrize("at_once", [True, False], ids=["file system", "file by file"])
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("index", [bl.SimpleBucket(1), None], ids=["simple", "default"])
def test_what_a_commit_names_survives_a_power_cut_after_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    index: bl.SimpleBucket | None,
    table_type: str,
    at_once: bool,
) -> None:
    if not at_once:
        monkeypatch.setattr(system_calls, "_flush_file_system", lambda _: False)
    root = tmp_path / "t"
    disk = Disk(monkeypatch, root)
    table = bl.create_table(
        str(root),
        schema=rows(1, 1).schema,
        record_key="id",
        partition_by="p",
        index=index,
        table_type=table_type,
    )
    table.upsert(rows(PARTITIONS, 4 * PARTITIONS))
    table.upsert(rows(PARTITIONS, 3 * PARTITIONS, first=2 * PARTITIONS))
    table.upsert(rows(PARTITIONS + 5, 20, first=90))
    assert require_kept(disk, root) > 4 * PARTITIONS


@pytest.mark.parametrize("index", [bl.SimpleBucket(1), None], ids=["simple", "default"])
def test_flushes_of_a_load_do_not_follow_the_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: bl.SimpleBucket | None
) -> None:
    if not system_calls._flush_file_system(str(tmp_path)):
        pytest.skip("this file system is flushed file by file")
    found = []
    for partitions in (320, 640):  # Each of a few tasks has enough files.
        root = tmp_path / str(partitions)
        with monkeypatch.context() as patch:
            disk = Disk(patch, root)
            table = bl.create_table(
                str(root),
                schema=rows(1, 1).schema,
                record_key="id",
                partition_by="p",
                index=index,
            )
            table.upsert(rows(partitions, partitions))
        found.append(disk.flushes)
    assert found[1] <= found[0] + 10
