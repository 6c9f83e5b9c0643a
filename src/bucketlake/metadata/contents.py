"""What the metadata table of a table consists of, for people and monitors.

Partitions, file groups, base files, log files, and how far the next compaction is. The files of
each valid partition are those that a reader uses. Entries are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.metadata.log_files import is_birth_log
from bucketlake.metadata.metadata_table import MetadataTable, list_files_of, load_metadata_table
from bucketlake.model.file_name import BaseFileName, InstantTime
from bucketlake.model.result import Shown
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, is_initial
from bucketlake.timeline.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class MetadataPartitionFacts(Shown):
    """A partition of the metadata table.

    Attributes
    ----------
    name : str
        ``files``, ``column_stats``, ``partition_stats``, ``record_index``, or the name of an index
        that bucketlake does not maintain.
    is_valid : bool
        Whether readers use it; False while it is being built.
    file_groups, base_files, log_files : int
        Number of file groups, and of their files. A log file that only opens a file group does not
        count.
    size_bytes : int
        Size of these files.
    """

    name: str
    is_valid: bool
    file_groups: int
    base_files: int
    log_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MetadataTableFacts(Shown):
    """The metadata table of a table.

    Attributes
    ----------
    partitions : tuple of MetadataPartitionFacts
        Its partitions, sorted by name; none if the table has no metadata table.
    commits_since_compaction : int
        Delta commits since its last compaction; ten make the next one due.
    last_compaction : str or None
        Instant of the last compaction on its active timeline.
    """

    partitions: tuple[MetadataPartitionFacts, ...] = ()
    commits_since_compaction: int = 0
    last_compaction: InstantTime | None = None


def metadata_table_facts(table: OpenTable) -> MetadataTableFacts:
    """Return what the metadata table of a table consists of.

    Parameters
    ----------
    table : OpenTable
        The data table; its properties as they are now.

    Raises
    ------
    MetadataTableError
        If the properties list a metadata table that is missing, or that lacks file groups.
    FormatError
        If its properties cannot be read.
    """
    names = sorted(table.config.written_metadata_partitions)
    if not names:
        return MetadataTableFacts()
    inner = load_metadata_table(table, load_timeline(table))
    return MetadataTableFacts(
        tuple(_partition(inner, name) for name in names),
        len(updates_since_compaction(inner.timeline)),
        last_compaction(inner.timeline),
    )


def last_compaction(known: Timeline) -> InstantTime | None:
    """Return the last completed compaction on the timeline of a metadata table."""
    compactions = (i.requested_at for i in known.completed() if i.action is Action.COMMIT)
    return max(compactions, default=None)


def updates_since_compaction(known: Timeline) -> list[Instant]:
    """Return the delta commits of a metadata table that its base files do not include."""
    last = last_compaction(known) or ""
    return [
        instant
        for instant in known.completed()
        if instant.action is Action.DELTA_COMMIT
        and (instant.completed_at or "") > last
        and not is_initial(instant.requested_at)
    ]


def _partition(table: MetadataTable, name: str) -> MetadataPartitionFacts:
    is_valid = name in table.partitions
    if is_valid:
        files = [file for held in table.slices(name) for file in held.files]
    else:
        files = list_files_of(table.storage, name)
    counted = [file for file in files if not is_birth_log(file.name)]
    base_count = sum(isinstance(file.name, BaseFileName) for file in counted)
    return MetadataPartitionFacts(
        name=name,
        is_valid=is_valid,
        file_groups=len({file.name.file_id for file in files}),
        base_files=base_count,
        log_files=len(counted) - base_count,
        size_bytes=sum(file.size_bytes for file in counted),
    )
