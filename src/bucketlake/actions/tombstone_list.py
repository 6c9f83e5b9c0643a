"""Which files have the tombstones of a table: each commit names them, as of the commit.

A tombstone is a delete that a later write must remember: key, ordering value and time
(``write/tombstones.py``). A commit with such deletes adds a file of them. The list of files is
copied from commit to commit, so a rollback or a restore brings back the list of the commit before,
and a reader of the newest commit needs no listing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from bucketlake.format.json_fields import parsing
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.write_stat import CommitMetadata, TombstoneFile
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import archived_commit, read_archive
from bucketlake.timeline.open_table import OpenTable

TOMBSTONES = "bucketlake.tombstones"
"""Key of the extra metadata: a JSON object with the files, and the one that the commit added."""


@dataclass(frozen=True, slots=True)
class NewTombstones:
    """What a commit changes in the list.

    Attributes
    ----------
    added : TombstoneFile or None
        The deletes of the commit.
    merged : TombstoneFile or None
        The tombstones of ``covered`` in one file.
    covered : set of str
        Names of files that leave the list.
    """

    added: TombstoneFile | None = None
    merged: TombstoneFile | None = None
    covered: frozenset[str] = frozenset()


NO_TOMBSTONES = NewTombstones()
"""A commit without deletes to remember."""


def tombstone_files(table: OpenTable, timeline: Timeline) -> tuple[TombstoneFile, ...]:
    """Return the files of tombstones that are not older than the table keeps them."""
    keep_ms = table.config.keep_deletes_ms
    if keep_ms == 0:
        return ()
    since = table.clock.now_ms() - keep_ms
    return tuple(sorted(file for file in _listed(table, timeline) if file.newest_ms >= since))


def carried_tombstones(
    table: OpenTable, timeline: Timeline, change: NewTombstones
) -> dict[str, str]:
    """Return the entry for the metadata of a commit; none if the table keeps no deletes."""
    if table.config.keep_deletes_ms == 0:
        return {}
    files = [file for file in tombstone_files(table, timeline) if file.name not in change.covered]
    files += [file for file in (change.merged, change.added) if file is not None]
    entry: dict[str, object] = {
        "files": [
            {"name": file.name, "rows": file.rows, "newest": file.newest_ms} for file in files
        ]
    }
    if change.added is not None:
        entry["added"] = change.added.name
    return {TOMBSTONES: json.dumps(entry)}


def added_by(commit: CommitMetadata, where: str) -> TombstoneFile | None:
    """Return the file of deletes that a commit added; None if it added none."""
    text = commit.extra.get(TOMBSTONES)
    return None if text is None else _parsed(CarriedEntry(TOMBSTONES, text, where, True))[1]


def named_by(commits: Iterable[CommitMetadata], where: str) -> frozenset[str]:
    """Return the names of all files that some commits name."""
    texts = [text for commit in commits if (text := commit.extra.get(TOMBSTONES)) is not None]
    entries = [CarriedEntry(TOMBSTONES, text, where, True) for text in texts]
    return frozenset(file.name for entry in entries for file in _parsed(entry)[0])


def _listed(table: OpenTable, timeline: Timeline) -> set[TombstoneFile]:
    found: set[TombstoneFile] = set()
    has_entries = False
    for entry in active_entries(table, timeline, TOMBSTONES):
        has_entries = True
        found.update(_parsed(entry)[0])
        if entry.is_complete or entry.text == _NOTHING:  # Those before it are forgotten.
            return found
    if not has_entries:
        for entry in archived_entries(table, TOMBSTONES):
            return {*_parsed(entry)[0]}
    return found


def _parsed(entry: CarriedEntry) -> tuple[list[TombstoneFile], TombstoneFile | None]:
    def parse(found: dict[str, list[dict[str, object]]]) -> tuple[list[TombstoneFile], object]:
        files = [
            TombstoneFile(str(file["name"]), int(str(file["rows"])), int(str(file["newest"])))
            for file in found.get("files", ())
        ]
        return files, found.get("added")

    files, added = entry.parsed("a list of files of tombstones", parse)
    return files, next((file for file in files if file.name == added), None)


# ---- Extra metadata that each commit copies from the commit before it, so that the newest one has
# all ----
#
# Hudi's commits have no such entries and are skipped. If no commit of the active timeline has one,
# the archive has. A commit of ours that lacks an entry says that there is nothing.

_T = TypeVar("_T")

BATCHES = "bucketlake.batches"
"""Key of the entry that every commit of ours has: a JSON object with batch id and instant by query.

``actions/stream_batches.py`` reads it.
"""

_NOTHING = "{}"


@dataclass(frozen=True, slots=True)
class CarriedEntry:
    """An entry of a commit.

    Attributes
    ----------
    key : str
        Its name in the extra metadata.
    text : str
        JSON.
    where : str
        The commit, for messages.
    is_complete : bool
        Whether all that commits completed before it said is in it. A commit of a layout without
        completion times, also before a change of version, may lack entries of commits that began
        before it.
    """

    key: str
    text: str
    where: str
    is_complete: bool

    def parsed(self, what: str, parse: Callable[[Any], _T]) -> _T:
        """Parse the entry; raise FormatError if it is not ``what``."""
        with parsing(self.where, f"{what} in {self.key}", self.text):
            return parse(parse_json(self.text))


def active_entries(table: OpenTable, timeline: Timeline, key: str) -> Iterator[CarriedEntry]:
    """Yield the entries of active commits, newest commit first."""
    by_completion = sorted(
        timeline.completed_commits(),
        key=lambda commit: timeline.completion_time(commit.requested_at) or "",
        reverse=True,
    )
    for instant in by_completion:
        text = _text_in(timeline.read_commit(table.storage, instant), key)
        if text is not None:
            is_complete = instant.completed_at != instant.requested_at
            yield CarriedEntry(key, text, f"commit {instant.requested_at}", is_complete)


def archived_entries(
    table: OpenTable, key: str, until: str | None = None
) -> Iterator[CarriedEntry]:
    """Yield the entries of archived commits, up to a requested time, newest commit first."""
    archived = read_archive(table, until=until)
    for entry in sorted(archived, key=lambda entry: entry.completed_at, reverse=True):
        commit = archived_commit(entry)
        text = None if commit is None else _text_in(commit, key)
        if text is not None:
            where = f"archived commit {entry.requested_at}"
            yield CarriedEntry(key, text, where, entry.completed_at != entry.requested_at)


def _text_in(commit: CommitMetadata, key: str) -> str | None:
    return commit.extra.get(key, _NOTHING if BATCHES in commit.extra else None)
