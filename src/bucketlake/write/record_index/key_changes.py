"""Keys whose entries in the record-level index a write may change, on the way to their shards.

The task of a slot writes records into file groups. A merge with stored rows tells which keys are
new to the group and which rows are deleted. An append to a log file reads no stored row, so it does
not tell that. So each key travels with a :class:`Change`, and the task of its shard looks up what
the task of the slot does not know (``write/record_index/index_writer.py``). A second attempt of a
task sends the same keys with the same changes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import Rows
from bucketlake.merge.group_merge import GroupMerge
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.file_name import FileId
from bucketlake.write.tag import KEY

SHARD = "_bucketlake_shard"
"""Position of a key's shard among the plans of shards."""

GROUP = "_bucketlake_group"
"""The file group into which the record of a key was written, see :func:`group_text`."""

CHANGE = "_bucketlake_change"

CHANGES = "changes"
"""The channel of changed keys."""

KEY_CHANGES = pa.schema(
    [
        (KEY, pa.string()),
        (SHARD, pa.int32()),
        (GROUP, pa.dictionary(pa.int32(), pa.string())),
        (CHANGE, pa.int8()),
    ]
)


class Change(IntEnum):
    """What the task of a slot knows about a key."""

    NEW = 0  # The file group has the key now, and a merge found no stored row of the key.
    WRITTEN = 1  # The file group has the key now, and may have had it before.
    GONE = 2  # A merge deleted the row of the key.
    DELETED = 3  # No row has the key now; a row may have had it before.


ChangeArray = npt.NDArray[np.int8]


def changes_of_merge(merge: GroupMerge) -> tuple[pa.Array, ChangeArray]:
    """Return the keys whose entries a complete merge changes, and their changes."""
    is_new = ~merge.is_stored & ~merge.incoming.deleted
    rows = np.flatnonzero(is_new | merge.is_gone)
    changes = np.where(is_new[rows], Change.NEW, Change.GONE).astype(np.int8)
    return merge.incoming.keys.take(pa.array(rows)), changes


def changes_of_append(
    incoming: IncomingRecords, *, opens_group: bool
) -> tuple[pa.Array, ChangeArray]:
    """Return the keys in a log file whose entries may change, and their changes.

    A delete with an ordering value may lose against a stored row. It changes no entry: an entry
    without a row does no harm, but a row without an entry is not found.
    """
    rows = np.flatnonzero(~incoming.deleted | incoming.is_reset)
    put = Change.NEW if opens_group else Change.WRITTEN
    changes = np.where(incoming.deleted[rows], Change.DELETED, put).astype(np.int8)
    return incoming.keys.take(pa.array(rows)), changes


class ChangedKeys:
    """Collects the changed keys of a task.

    Parameters
    ----------
    numbers : callable
        Finds the shard of each key of a data partition, by its position among the plans.
    """

    def __init__(self, numbers: Callable[[pa.Array, str], npt.NDArray[np.int32]]) -> None:
        self._numbers = numbers
        self._keys: list[pa.Array] = []
        self._shards: list[npt.NDArray[np.int32]] = []
        self._changes: list[ChangeArray] = []
        self._groups: list[str] = []

    def add(
        self, partition_path: str, file_id: FileId, keys: pa.Array, changes: ChangeArray
    ) -> None:
        """Add keys of a file group."""
        if len(keys):
            self._keys.append(keys)
            self._shards.append(self._numbers(keys, partition_path))
            self._changes.append(changes)
            self._groups.append(group_text(partition_path, file_id))

    def rows(self) -> Rows:
        """Return the keys in columns ``KEY_CHANGES``, on their way to the tasks of their shards."""
        if not self._keys:
            return Rows(CHANGES, KEY_CHANGES.empty_table())
        counts = [len(keys) for keys in self._keys]
        codes = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
        groups = pa.DictionaryArray.from_arrays(codes, pa.array(self._groups, pa.string()))
        columns = [
            pa.concat_arrays(self._keys),
            pa.array(np.concatenate(self._shards)),
            groups,
            pa.array(np.concatenate(self._changes)),
        ]
        return Rows(CHANGES, pa.Table.from_arrays(columns, schema=KEY_CHANGES))


def group_text(partition_path: str, file_id: FileId) -> str:
    """Return a file group as text; :func:`parse_group` undoes it."""
    return f"{partition_path}/{file_id}"


def parse_group(text: str) -> tuple[str, FileId]:
    """Return partition path and file id of a group.

    Examples
    --------
    >>> parse_group(group_text("year=2024/month=1", FileId("00000003-0")))
    ('year=2024/month=1', '00000003-0')
    """
    partition_path, _, file_id = text.rpartition("/")
    return partition_path, FileId(file_id)
