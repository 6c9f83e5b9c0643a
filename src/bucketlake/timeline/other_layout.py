"""The timeline of a table in the other layout: writing it, deleting it, and finding one.

The two layouts have different folders, and the properties of a table say which one counts. So a
change of version writes the whole timeline and archive in the other layout beside the old ones,
then changes the properties, and then deletes the old ones (``services/version_change.py``). A mark
in the extension folder names both places until that is done. Without the mark, instants in the
folder of the other layout were left by another program that died.

Only completed instants move: nothing is pending during a change. In layout 1 the requested time of
an instant stands for its completion time, and so it does after the move to layout 2. Hudi takes the
time of change of the file. But then commits may change their order, readers that go on from the
last commit that they saw would see it again, and log files may change their slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from bucketlake.config.paths_of_table import (
    ARCHIVAL_FOLDER,
    HOODIE_FOLDER,
    VERSION_CHANGE_FILE,
    require_inner_path,
)
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import LAYOUTS, TimelineLayout, version_of_other_layout
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.clustering_plan import has_clustering_plan
from bucketlake.format.commit_metadata import recode_commit
from bucketlake.format.json_fields import parse_checked, parsing, render_checked
from bucketlake.storage.base import Storage, StoredObject, at_once, read_if_there
from bucketlake.timeline.active import Timeline, create_timeline
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import OpenTable

if TYPE_CHECKING:
    from bucketlake.format.archive_file import ArchivedInstant, ArchiveFile


@dataclass(frozen=True, slots=True)
class TimelinePlace:
    """Where a layout has the timeline of a table.

    Attributes
    ----------
    layout : TimelineLayout
        The layout.
    folder : str
        Folder of the active timeline.
    archive : str
        Folder of the archive.
    """

    layout: TimelineLayout
    folder: str
    archive: str

    @classmethod
    def of(cls, config: TableConfig) -> Self:
        """Return where a table with these properties has its timeline."""
        return cls(config.layout, config.timeline_folder, config.history_folder)

    def instants(self, storage: Storage) -> list[tuple[Instant, StoredObject]]:
        """Return the files of the active timeline, in order."""
        listed = storage.list(self.folder, recursive=False)
        parsed = [(Instant.from_file_name(stored.name, self.layout), stored) for stored in listed]
        found = [(instant, stored) for instant, stored in parsed if instant is not None]
        return sorted(found, key=lambda pair: pair[0].order)


@dataclass(frozen=True, slots=True)
class Move:
    """A change of version that is not at its end: where the timeline was, and where it goes."""

    source: TimelinePlace
    target: TimelinePlace

    def left_by(self, layout: TimelineLayout) -> TimelinePlace:
        """Return what can be deleted, given the layout that the properties have."""
        return self.target if layout == self.source.layout else self.source


def other_place(config: TableConfig) -> TimelinePlace:
    """Return where a table would have its timeline in the other layout."""
    return TimelinePlace.of(config.in_version(version_of_other_layout(config.layout)))


def mark_move(storage: Storage, move: Move) -> None:
    """Put the mark of a change, before the first file is written."""
    entries = {"from": _rendered(move.source), "to": _rendered(move.target)}
    storage.put(VERSION_CHANGE_FILE, render_checked(entries))


def read_move(storage: Storage) -> Move | None:
    """Return the change that is not at its end; None if there is none.

    Raises
    ------
    FormatError
        If the mark is damaged.
    """
    data = read_if_there(storage, VERSION_CHANGE_FILE)
    if data is None:
        return None
    with parsing(VERSION_CHANGE_FILE, "two timelines as JSON", data):
        entries = parse_checked(data, VERSION_CHANGE_FILE)
        return Move(_parsed(entries["from"]), _parsed(entries["to"]))


def require_one_timeline(table: OpenTable, timeline: Timeline) -> None:
    """Raise an error if instants lie where the other layout has its timeline.

    Hudi moves the files one by one. If its upgrade or downgrade died, either place has a part of
    the timeline.

    Raises
    ------
    UnsupportedFeatureError
        If an instant is completed there, and not in the timeline of the table.
    """
    from bucketlake.timeline.archive_reader import archived_completion_times

    place = other_place(table.config)
    known = {
        (found.requested_at, found.action.completes_as)
        for found in timeline.instants
        if found.state is State.COMPLETED
    }
    for found, stored in place.instants(table.storage):
        at = found.requested_at
        if (
            found.state is State.COMPLETED
            and (at, found.action) not in known
            and at not in archived_completion_times(table, since=at, until=at)
            and read_move(table.storage) is None
        ):
            raise _two_timelines(table, stored.path)


def require_one_archive(table: OpenTable) -> None:
    """Raise an error if the other layout has an archive with instants that the table lacks.

    Hudi leaves the old archive where it was. Its instants are in the new one, too.

    Raises
    ------
    UnsupportedFeatureError
        If an instant is only there.
    """
    from bucketlake.timeline.archive_reader import history_files, read_archive

    if read_move(table.storage) is not None:
        return
    files = history_files(table.storage, other_place(table.config).archive)
    if not files:
        return
    known = {entry.order for entry in read_archive(table, with_metadata=False)}
    known |= {
        (found.requested_at, found.action.completes_as.value)
        for found, _ in TimelinePlace.of(table.config).instants(table.storage)
        if found.state is State.COMPLETED
    }
    place = other_place(table.config).archive
    for file in files:
        for entry in file.read(()):
            if entry.order not in known:
                raise _two_timelines(table, f"{place}: {entry.action} {entry.requested_at}")


def copy_timeline(table: OpenTable, target: OpenTable) -> None:
    """Write the completed instants of a table, and its archive, in another layout.

    Parameters
    ----------
    table : OpenTable
        The table. Nothing is pending.
    target : OpenTable
        The table with its future properties; there is nothing in the folders of its timeline.
    """
    from bucketlake.timeline.archive_writer import instant_files, newest_state

    create_timeline(target)
    completed = [
        files for files in instant_files(table).values() if files[-1][0].state is State.COMPLETED
    ]
    at_once(table.storage, partial(_copy_instant, table.storage, target.config), completed)
    # Last, so that an instant that is archived meanwhile is written twice and not lost.
    newest_state(table)  # Puts the file that an archival has claimed.
    _copy_archive(table, target)


def delete_timeline(storage: Storage, place: TimelinePlace) -> None:
    """Delete the instants and the archive of a place.

    The oldest instants go first. Readers that have listed the others treat these as archived.
    """
    for _, stored in place.instants(storage):
        storage.delete(stored.path)
    storage.delete_folder(place.archive)
    if place.layout.has_timeline_folder:
        storage.delete_folder(place.folder)
    if not place.layout.has_tree_archive:
        storage.delete_folder(ARCHIVAL_FOLDER)  # Claims of files of the archive.


def _copy_instant(
    storage: Storage, target: TableConfig, files: Sequence[tuple[Instant, StoredObject]]
) -> None:
    # Hudi may leave two completed files of one clean; the later one counts.
    by_state = {found.state: (found, stored.path) for found, stored in files}
    content = {state: storage.read(path) for state, (_, path) in by_state.items()}
    requested = content.get(State.REQUESTED, b"")
    completed, path = by_state[State.COMPLETED]
    is_clustering = completed.action is Action.REPLACE_COMMIT and has_clustering_plan(
        requested, path
    )
    for state, (found, path) in by_state.items():
        is_pending = state is not State.COMPLETED
        moved = replace(found, action=Action.CLUSTERING) if is_clustering and is_pending else found
        data = content[state]
        if found.action is Action.CLEAN and state is State.INFLIGHT:
            data = data or requested  # Hudi 0.15 cannot archive an empty one.
        elif found.action.writes_data and state is not State.REQUESTED:
            replaces = found.action is Action.REPLACE_COMMIT and not is_pending
            data = recode_commit(data, path, target.layout, replaces_groups=replaces)
        storage.put(f"{target.timeline_folder}/{moved.to_file_name(target.layout)}", data)


def _copy_archive(table: OpenTable, target: OpenTable) -> None:
    """Write a file for each file of the archive; no file repeats an instant."""
    from bucketlake.format.archive_file import CONTENT, ArchiveFile, encode_manifest
    from bucketlake.timeline.archive_reader import VERSION_FILE, history_files, manifest_path
    from bucketlake.timeline.archive_writer import merge_files

    storage, folder = table.storage, target.config.history_folder
    written: list[ArchiveFile] = []
    known: set[tuple[str, str]] = set()
    files = history_files(storage, table.config.history_folder)
    for file in sorted(files, key=lambda file: file.last):
        entries = [entry for entry in file.read(CONTENT) if entry.order not in known]
        if entries:
            known.update(entry.order for entry in entries)
            name, data = _archived(target.config.layout, entries, len(written) + 1)
            storage.put(f"{folder}/{name}", data)
            written.append(ArchiveFile(name, len(data)))
    if written and target.config.layout.has_tree_archive:
        storage.put(manifest_path(folder, 1), encode_manifest(written))
        storage.put(f"{folder}/{VERSION_FILE}", b"1")
        merge_files(target)


def _archived(
    layout: TimelineLayout, entries: Sequence[ArchivedInstant], number: int
) -> tuple[str, bytes]:
    """Return name and content of a file of an archive."""
    from bucketlake.format.archive_file import (
        ArchiveFile,
        archive_log_name,
        encode_archive_file,
        encode_archive_log,
        states_of,
    )

    if layout.has_tree_archive:
        name = ArchiveFile.name_of(entries[0].requested_at, entries[-1].requested_at, 0)
        return name, encode_archive_file(entries)
    states = [state for entry in entries for state in states_of(entry)]
    return archive_log_name(number), encode_archive_log(states)


def _two_timelines(table: OpenTable, path: str) -> UnsupportedFeatureError:
    config = table.config
    return UnsupportedFeatureError(
        f"a table with two timelines ({path} is not in {config.timeline_folder}, the timeline of "
        f"version {config.version})",
        table.storage.root,
        "an upgrade or downgrade of Hudi died half-way: let the same release of Hudi write once "
        "more, which ends it, and write no more before",
    )


def _rendered(place: TimelinePlace) -> dict[str, object]:
    return {
        "layout": place.layout.number,
        "timeline": place.folder,
        "archive": place.archive,
    }


def _parsed(entries: dict[str, Any]) -> TimelinePlace:
    place = TimelinePlace(LAYOUTS[entries["layout"]], entries["timeline"], entries["archive"])
    for folder in (place.folder, place.archive):
        require_inner_path(folder, VERSION_CHANGE_FILE, "a folder of a timeline")
    owned = f"{HOODIE_FOLDER}/"
    if not f"{place.folder}/".startswith(owned) or not place.archive.startswith(owned):
        raise ValueError(place.folder, place.archive)
    return place
