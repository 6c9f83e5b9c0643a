"""What differs between table versions: the only place that knows a version by its number.

Everything else asks a :class:`TableVersion` for a fact, for example whether the table states its
merge mode. To add a version, add a value here, and fixtures of it to the conformance tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.errors import ConfigError
from bucketlake.model.file_name import InstantTime


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """How the files of a timeline, and files in the order of a timeline, are named.

    Attributes
    ----------
    number : int
        1 up to table version 7, 2 since table version 8.
    has_timeline_folder : bool
        Whether the timeline has a folder of its own below ``.hoodie``.
    has_completion_times : bool
        Whether completed files have the completion time in their names. Otherwise commits are
        ordered by their requested times, which stand for the completion times.
    has_json_commits : bool
        Whether the metadata of commits is JSON. Otherwise it is an Avro container.
    logs_name_slices : bool
        Whether the name of a log file has the instant of its slice, and its blocks have those of
        their writers. Otherwise the name has the instant of the writer.
    names_clusterings : bool
        Whether a pending clustering has an action of its own. Otherwise it is named as any other
        pending replace commit.
    has_tree_archive : bool
        Whether the archive is a tree of Parquet files. Otherwise it is a sequence of log files.
    archive_folder : str
        Folder of the archive of a new table.
    first_build : int
        The first number that stands for the time of a build in a metadata table.
    """

    number: int
    has_timeline_folder: bool
    has_completion_times: bool
    has_json_commits: bool
    logs_name_slices: bool
    names_clusterings: bool
    has_tree_archive: bool
    archive_folder: str
    first_build: int

    def completion_time(self, requested_at: InstantTime, ended_at: InstantTime) -> InstantTime:
        """Return the completion time of an instant that was requested, and ended, at two times."""
        return ended_at if self.has_completion_times else requested_at


COMPLETION_TIMES = "completion_times"
DROPPABLE = (COMPLETION_TIMES,)
"""What a downgrade may lose if the caller names it."""

LAYOUT_1 = TimelineLayout(
    1,
    has_timeline_folder=False,
    has_completion_times=False,
    has_json_commits=True,
    logs_name_slices=True,
    names_clusterings=False,
    has_tree_archive=False,
    archive_folder="archived",
    first_build=10,
)
LAYOUT_2 = TimelineLayout(
    2,
    has_timeline_folder=True,
    has_completion_times=True,
    has_json_commits=False,
    logs_name_slices=False,
    names_clusterings=True,
    has_tree_archive=True,
    archive_folder="history",
    first_build=0,
)

LAYOUTS = {layout.number: layout for layout in (LAYOUT_1, LAYOUT_2)}


NEWEST_STATISTICS = "V2"
"""Index version of statistics whose bounds have a value type."""

OLDEST_STATISTICS = "V1"
"""Index version of statistics whose bounds tell their type by their wrapper alone."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table version of Hudi.

    Attributes
    ----------
    number : int
        The version, as in ``hoodie.table.version``.
    releases : str
        The releases of Hudi that write it, for messages.
    layout : TimelineLayout
        Layout of the timeline.
    is_written : bool
        Whether bucketlake writes such tables.
    has_names_of_hudi_1 : bool
        Whether properties have the entries of Hudi 1: the merge mode, the type of the key
        generator, and the version at creation. Before, they name Java classes, and the merge
        strategy has another key and the same value for every payload class.
    names_single_keys : bool
        Whether the key generator COMPLEX gives a key of one field the name of the field, in all
        releases that write the version.
    names_payloads : bool
        Whether a table names a payload class and a merge strategy beside its merge mode.
    stores_merge_rules : bool
        Whether a table stores delete markers and partial update modes. Otherwise they are known
        only to the jobs that write.
    has_formats : bool
        Whether a table names a table format.
    has_several_ordering_fields : bool
        Whether a table may have more than one ordering field.
    has_newer_types : bool
        Whether writers know timestamps without a time zone, and vectors.
    has_partitioned_index : bool
        Whether the record-level index may be unique in each partition only.
    has_value_types : bool
        Whether records of the metadata table have a field for the type of a bound.
    statistics_version : str
        Index version of new statistics of columns.
    has_partition_statistics : bool
        Whether a metadata table may have statistics of partitions.
    builds_statistics : bool
        Whether a new metadata table gets statistics if nobody chooses. Otherwise Hudi's writers
        delete those that their options do not ask for.
    """

    number: int
    releases: str
    layout: TimelineLayout
    is_written: bool = True
    has_names_of_hudi_1: bool = True
    names_single_keys: bool = False
    names_payloads: bool = True
    stores_merge_rules: bool = False
    has_formats: bool = False
    has_several_ordering_fields: bool = False
    has_newer_types: bool = False
    has_partitioned_index: bool = False
    has_value_types: bool = False
    statistics_version: str = OLDEST_STATISTICS
    has_partition_statistics: bool = True
    builds_statistics: bool = True


_VERSIONS = {
    version.number: version
    for version in (
        TableVersion(
            6,
            "Hudi 0.14 and 0.15",
            LAYOUT_1,
            has_names_of_hudi_1=False,
            has_partition_statistics=False,
            builds_statistics=False,
        ),
        TableVersion(7, "Hudi 0.16", LAYOUT_1, is_written=False, has_names_of_hudi_1=False),
        TableVersion(8, "Hudi 1.0", LAYOUT_2),
        TableVersion(
            9,
            "Hudi 1.1 and newer",
            LAYOUT_2,
            names_single_keys=True,
            names_payloads=False,
            stores_merge_rules=True,
            has_formats=True,
            has_several_ordering_fields=True,
            has_newer_types=True,
            has_partitioned_index=True,
            has_value_types=True,
            statistics_version=NEWEST_STATISTICS,
        ),
    )
}

PARTITIONED_INDEX_VERSION = 9
"""The first version whose record-level index may be unique in each partition only."""

PARTITION_RULES_VERSION = 9
"""The first version whose writers know the partition-level bucket index."""

NEWEST_VERSION = max(_VERSIONS)
OLDEST_VERSION = min(_VERSIONS)
WRITTEN_VERSIONS = tuple(number for number, found in _VERSIONS.items() if found.is_written)
"""The versions that bucketlake writes, ascending."""


def check_version(number: object, argument: str = "version") -> None:
    """Raise ConfigError for a version that bucketlake does not write."""
    if type(number) is not int or number not in WRITTEN_VERSIONS:
        written = [_VERSIONS[known] for known in WRITTEN_VERSIONS]
        allowed = " or ".join(f"{known.number} ({known.releases})" for known in written)
        raise ConfigError(
            argument,
            number,
            f"it must be {allowed}; docs/how-to/who-reads-what.md says which engines read which",
        )


def table_version(number: int) -> TableVersion:
    """Return a version; the nearest known one for a number that bucketlake does not know.

    ``config/support.py`` rejects tables of unknown versions.
    """
    return _VERSIONS[min(max(number, OLDEST_VERSION), NEWEST_VERSION)]


def version_of_other_layout(layout: TimelineLayout) -> int:
    """Return a version whose timeline has another layout."""
    return next(number for number in WRITTEN_VERSIONS if _VERSIONS[number].layout != layout)
