"""What feeds a write: the seam between the driver's steps and the engine that holds the records.

An Arrow table in this process is one source (``write/arrow_source.py``), a Spark DataFrame another
(``spark/source.py``). Both count the records of each file group first and then write the groups
of a plan; everything else of a write is the same for both (``write/ingest.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import IndexStateError, InputError
from bucketlake.merge.records import (
    IncomingRecords,
    collapse_duplicates,
    commit_time_deletes,
    comparable,
    delete_flags,
)
from bucketlake.model.cast import require_valid
from bucketlake.model.schema import cast_table
from bucketlake.model.write_stat import WriteStat
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.plan import UNCOUNTED, GroupPlan, WritePlan
from bucketlake.write.tag import Tagger

GroupCounts = Mapping[tuple[str, int], int]
"""Incoming records by (partition path, bucket id)."""

INPUT_CHANGED = "the input changed between two evaluations of it"
STABLE_INPUT = "write from a stable input, or cache it to storage first"


class GroupSource(Protocol):
    """Records on their way into file groups."""

    @property
    def tasks_wanted(self) -> int:
        """Tasks over which the engine likes to spread a write."""
        ...

    def count_groups(self, tagger: Tagger) -> GroupCounts:
        """Count the records of each file group; InputError where one has no usable key."""
        ...

    def write_groups(self, plan: WritePlan, task: WriteTask) -> list[WriteStat]:
        """Have every group of the plan written; return the statistics of the files."""
        ...

    def close(self) -> None:
        """Drop what was kept for the write."""
        ...


class RecordSource(GroupSource, Protocol):
    """Records as they are handed in, whose columns are yet to be looked at."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Schema of the records as handed in, in Arrow's types; InputError where one has none."""
        ...

    def keep(self, columns: list[str]) -> None:
        """Leave all columns out but these, each of which is there once."""
        ...


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What tasks do with the rows of a write; a picklable value that all of them share.

    Attributes
    ----------
    tagger : Tagger
        Gives rows their file group.
    writer : GroupWriter
        Writes a group.
    deletes_by_key : bool
        Whether every row deletes its key, so that only key columns are there.
    delete_marker : (field, value) or None
        The table's own sign of a delete, beside ``_hoodie_is_deleted``.
    """

    tagger: Tagger
    writer: GroupWriter
    deletes_by_key: bool
    delete_marker: tuple[str, str] | None = None

    def write(
        self, groups: list[GroupPlan], rows: pa.Table, positions: npt.NDArray[np.int64] | None
    ) -> list[WriteStat]:
        """Write the groups of one task from all of its rows.

        Parameters
        ----------
        groups : list of GroupPlan
            The task's part of the plan.
        rows : pa.Table
            The records of those groups, in any order.
        positions : ndarray of int64 or None
            Where the rows stood in an input that has an order, see ``collapse_duplicates``.
        """
        tagged = self.tagger.tag(rows)
        stats = []
        for group in groups:
            mask = tagged.bucket_ids == group.bucket_id
            code = _position_of(group.partition_path, tagged.partitions)
            chosen = np.flatnonzero(mask & (tagged.partition_codes == code))
            _require_count(group, len(chosen))
            if len(chosen) == rows.num_rows:
                incoming = self._incoming(rows, tagged.keys)
            else:
                indices = pa.array(chosen)
                incoming = self._incoming(rows.take(indices), tagged.keys.take(indices))
            own = None if positions is None else positions[chosen]
            stat = self.writer.write(group, collapse_duplicates(incoming, own))
            if stat is not None:
                stats.append(stat)
        return stats

    def _incoming(self, rows: pa.Table, keys: pa.Array) -> IncomingRecords:
        if self.deletes_by_key:
            every = np.ones(rows.num_rows, np.bool_)
            return IncomingRecords(keys, rows.select([]), (), every, every)
        require_valid(rows, where=f"write to {self.writer.storage.root}")
        columns = cast_table(rows, self.writer.schema).combine_chunks()
        rule = self.writer.rule
        fields = rule.ordering_fields if rule.compares else ()
        deleted = delete_flags(rows, self.delete_marker)
        return IncomingRecords(
            keys,
            columns,
            tuple(comparable(columns[field]) for field in fields),
            deleted,
            commit_time_deletes(deleted, columns, fields),
        )


def require_columns(source: RecordSource, names: tuple[str, ...], table: str, role: str) -> None:
    """Refuse a batch that lacks columns it must have, or has one of them several times."""
    where = f"write to {table}"
    for name in names:
        if name not in source.names:
            raise InputError(
                where,
                f"the {role} column {name!r} is missing; the batch has {source.names}",
                "add the column to the batch",
            )
        # Spark ignores case, and so could not tell which of them is meant.
        if sum(other.lower() == name.lower() for other in source.names) > 1:
            raise InputError(
                where,
                f"the {role} column {name!r} is there more than once; the batch has {source.names}",
                "drop or rename the others",
            )


def _position_of(partition_path: str, partitions: list[str]) -> int:
    return partitions.index(partition_path) if partition_path in partitions else -1


def _require_count(group: GroupPlan, found: int) -> None:
    if group.records not in (found, UNCOUNTED):
        raise IndexStateError(
            f"bucket {group.bucket_id} of partition {group.partition_path!r} was counted to get "
            f"{group.records} records",
            f"{found} arrived: {INPUT_CHANGED}",
            STABLE_INPUT,
        )
