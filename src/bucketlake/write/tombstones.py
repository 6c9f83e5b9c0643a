"""Deletes that are remembered: a later row of the key with a smaller ordering value stays out.

A delete that carries an ordering value leaves a tombstone. Each record of a write meets the
tombstones of its partition before anything else happens to it (``write/pack.py``), so index kind,
table type and compaction play no part. A record passes if its ordering value is greater; at equal
values the delete wins, also over a row that comes later.

A file of tombstones is Parquet in the extension folder, sorted by partition and key. A write reads
the row groups of its partitions alone. The driver writes the deletes of a commit to a file before
the commit, and merges small files, so that there are few: each is at least twice as large as the
smaller ones together. Hudi's readers and writers see none of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.config.paths_of_table import TOMBSTONE_FOLDER
from bucketlake.errors import (
    CommitConflictError,
    FormatError,
    ObjectNotFoundError,
    ServiceWarning,
)
from bucketlake.format.object_file import open_object
from bucketlake.hashing.texts import TextTable
from bucketlake.index.layout import Layout
from bucketlake.merge.incoming import (
    BoolArray,
    IntArray,
    at_least,
    commit_time_deletes,
    comparable,
    delete_flags,
    sort_nulls_first,
)
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import columns_at, field_at
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import IS_DELETED, cast_batch
from bucketlake.model.write_stat import TombstoneFile
from bucketlake.storage.base import Storage
from bucketlake.write.merge_statement import Effect
from bucketlake.write.tag import EFFECT, TaggedRecords

if TYPE_CHECKING:  # Tasks do not commit.
    from bucketlake.actions.commit import CommitView
    from bucketlake.actions.tombstone_list import NewTombstones

_PARTITION, _KEY, _TIME = "partition", "key", "time"
_GROUP_ROWS = 1 << 15
_FILES_MAX = 8
_LOOKED_UP_ROWS = 1 << 20
TOMBSTONES_MAX = 10_000_000
"""Tombstones that a table keeps: the oldest files beyond it go, with a warning."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The tombstones of a table as a write sees them; a small picklable value.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    files : tuple of TombstoneFile
        The files.
    ordering : pa.Schema
        The ordering fields by their paths, with the types of the table.
    delete_marker : (field, text) or None
        The column and text that make a row a delete, beside ``_hoodie_is_deleted``.
    has_global_keys : bool
        Whether a key is one row in all partitions.
    meets : bool
        Whether late records stay out; not if the records are changed rows of the table.
    groups : pa.Schema
        Ordering columns of groups of columns.
    """

    storage: Storage
    files: tuple[TombstoneFile, ...]
    ordering: pa.Schema
    delete_marker: tuple[str, str] | None
    has_global_keys: bool
    meets: bool = True
    groups: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def looked_at(self, names: Collection[str]) -> list[str]:
        """Return the paths of the fields that :meth:`sift` reads of records with some columns."""
        marks = [IS_DELETED, *(self.delete_marker or ())[:1]]
        if not self.files and not any(path.partition(".")[0] in names for path in marks):
            return []
        return [*self.ordering.names, *marks]

    def sift(
        self, rows: pa.Table, tagged: TaggedRecords
    ) -> tuple[pa.Table, IntArray | None, pa.Table | None]:
        """Compare records with the tombstones.

        Parameters
        ----------
        rows : pa.Table
            Records of the caller, not cast yet.
        tagged : TaggedRecords
            Their keys and partitions.

        Returns
        -------
        pa.Table
            The records, with nulls in place of orderings of groups that a delete covers.
        ndarray of int64, or None
            Positions of the records that pass; None if all do.
        pa.Table or None
            New tombstones, without times: the deletes that pass and have an ordering value.
        """
        deleted = delete_flags(rows, self.delete_marker)
        if not (self.meets and self.files) and not deleted.any():
            return rows, None, None
        ordering = _fields_of(rows, self.ordering)
        resets = commit_time_deletes(deleted, ordering, self.ordering.names)
        # Those delete whatever came before.
        met, rows = self._met(tagged, ordering, deleted, rows)
        passes = resets | met
        if EFFECT in rows.column_names:  # A matched row is stored: another program wrote it.
            passes |= rows[EFFECT].to_numpy() != Effect.INSERT
        remembered = np.flatnonzero(deleted & ~resets & passes)
        own = None
        if len(remembered):
            at = pa.array(remembered)
            columns = [self._paths(tagged).take(at).cast(pa.string()), tagged.keys.take(at)]
            columns += ordering.take(at).columns
            own = pa.table(columns, names=_columns(self.ordering).names[:-1])
        return rows, None if passes.all() else np.flatnonzero(passes), own

    def _paths(self, tagged: TaggedRecords) -> pa.DictionaryArray:
        """Return the partition of each record; one for all in a table of global keys."""
        codes, paths = tagged.partition_codes, tagged.partitions
        if self.has_global_keys:
            codes, paths = np.zeros_like(codes), [""]
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(paths, pa.string()))

    def _met(
        self, tagged: TaggedRecords, ordering: pa.Table, deleted: BoolArray, records: pa.Table
    ) -> tuple[BoolArray, pa.Table]:
        """Return which records pass all files, and the records without groups that do not."""
        passes = np.ones(len(tagged.keys), np.bool_)
        own = [comparable(values) for values in _fields_of(records, self.groups).columns]
        covered = [np.zeros(len(passes), np.bool_) for _ in own]
        paths = self._paths(tagged)
        partitions = tuple(sorted(paths.dictionary.to_pylist()))
        for file in self.files if self.meets else ():
            known = _known(replace(self, files=(file,)), partitions)
            if known is None:
                continue
            table, stored = known
            for first in range(0, len(paths), _LOOKED_UP_ROWS):  # Their texts are one array.
                some = slice(first, first + _LOOKED_UP_ROWS)
                rows, places = table.places_of(_texts(paths[some], tagged.keys[some]))
                rows += first
                at = pa.array(rows)
                new = tuple(comparable(column.take(at)) for column in ordering.columns)
                old = tuple(values.take(pa.array(places)) for values in stored)
                # A delete at an equal value changes nothing, but its row may be there: Hudi's.
                loses = at_least(old, new) & ~(deleted[rows] & at_least(new, old))
                passes[rows[loses]] = False
                for values, flags in zip(own, covered, strict=True):
                    flags[rows] |= at_least(old, (values.take(at),))
        for name, flags in zip(self.groups.names, covered, strict=True):
            number = records.schema.get_field_index(name)
            if flags.any() and number >= 0:
                kind, null = records.schema.field(number), pa.scalar(None, records[name].type)
                values = pc.if_else(pa.array(flags), null, records[name])
                records = records.set_column(number, kind, values)
        return passes, records

    def written(
        self, new: Sequence[pa.Table], instant: InstantTime, now_ms: int, keep_ms: int
    ) -> NewTombstones:
        """Write the deletes of a commit to a file, and merge small files into one."""
        from bucketlake.actions.tombstone_list import NewTombstones

        if not new:
            return NewTombstones()
        rows = pa.concat_tables(new).combine_chunks()
        rows = rows.append_column(_TIME, pa.array(np.full(len(rows), now_ms)))
        added = self._put(f"{instant}.parquet", _newest(rows))
        chosen, dropped = self._to_merge(added.rows)
        merged = None
        if chosen:
            held = pa.concat_tables(
                read_tombstones(self.storage, file, self.ordering, None) for file in chosen
            )
            held = held.filter(pc.greater_equal(held[_TIME], now_ms - keep_ms))
            if len(held):
                merged = self._put(f"{instant}-merged.parquet", _newest(held.combine_chunks()))
        covered = frozenset(file.name for file in (*chosen, *dropped))
        return NewTombstones(added, merged, covered)

    def _to_merge(self, added: int) -> tuple[list[TombstoneFile], list[TombstoneFile]]:
        """Choose the files to merge, and those that are beyond the bound."""
        held: list[TombstoneFile] = []
        dropped: list[TombstoneFile] = []
        total = added
        for file in sorted(self.files, key=lambda file: -file.newest_ms):
            total += file.rows
            (held if total <= TOMBSTONES_MAX else dropped).append(file)
        if dropped:
            warnings.warn(
                f"table {self.storage.root}: more than {TOMBSTONES_MAX:,} deletes are remembered; "
                f"the oldest {sum(file.rows for file in dropped):,} are forgotten, so late rows of "
                "their keys can come back: set a shorter keep_deletes",
                ServiceWarning,
                stacklevel=2,
            )
        held.sort(key=lambda file: file.rows)
        chosen: list[TombstoneFile] = []
        size = 0
        for file in held:
            if len(held) - len(chosen) < _FILES_MAX and file.rows > 2 * size:
                break
            chosen.append(file)
            size += file.rows
        return (chosen if len(chosen) > 1 else []), dropped

    def _put(self, name: str, rows: pa.Table) -> TombstoneFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd", row_group_size=_GROUP_ROWS)
        file = TombstoneFile(name, len(rows), pc.max(rows[_TIME]).as_py())
        self.storage.put(f"{TOMBSTONE_FOLDER}/{name}", sink.getvalue())
        return file

    def require_unseen(
        self, layout: Layout, slots: Mapping[str, Collection[int]], view: CommitView
    ) -> None:
        """Raise CommitConflictError if a commit meanwhile remembers deletes in slots of the write.

        Its records have not met them.
        """
        from bucketlake.actions.tombstone_list import added_by

        for instant, commit in view.since:
            file = added_by(commit, f"commit {instant}")
            if file is None:
                continue
            where = None if self.has_global_keys else slots.keys()
            rows = read_tombstones(self.storage, file, self.ordering, where)
            touched = bool(len(rows))
            if not self.has_global_keys:
                keys, paths = one_array(rows[_KEY]), one_array(rows[_PARTITION].dictionary_encode())
                place = paths.dictionary.to_pylist(), paths.indices.to_numpy()
                found = TaggedRecords(keys, *place, layout.slots_of_keys(keys, *place)).groups()
                touched = any(slot in slots.get(path, ()) for path, slot in found.counts())
            if touched:
                raise CommitConflictError(
                    view.write.instant,
                    f"instant {instant} deleted keys in the same slots meanwhile; retry the write",
                )


@lru_cache(maxsize=2 * _FILES_MAX)
def _known(
    of_file: Tombstones, partitions: tuple[str, ...]
) -> tuple[TextTable, tuple[pa.Array, ...]] | None:
    """Return the tombstones of some partitions in one file: their texts, and ordering values.

    None if there are none.
    """
    (file,) = of_file.files
    rows = read_tombstones(of_file.storage, file, of_file.ordering, {*partitions})
    rows = rows.filter(pc.is_in(rows[_PARTITION], pa.array(partitions, pa.string())))
    if not len(rows):
        return None
    texts = _texts(one_array(rows[_PARTITION].dictionary_encode()), one_array(rows[_KEY]))
    values = rows.columns[2 : 2 + len(of_file.ordering)]
    return TextTable.of_array(texts), tuple(map(comparable, values))


def _texts(paths: pa.DictionaryArray, keys: pa.Array) -> pa.Array:
    """Return a text for each partition and key; different ones for different pairs."""
    prefixes = pa.array([f"{len(path)}:{path}" for path in paths.dictionary.to_pylist()])
    return pc.binary_join_element_wise(prefixes.take(paths.indices), keys, "")


def read_tombstones(
    storage: Storage,
    file: TombstoneFile,
    ordering: pa.Schema,
    partitions: Collection[str] | None,
) -> pa.Table:
    """Return tombstones of some partitions and perhaps others, or all, in the table's types.

    Raises
    ------
    ObjectNotFoundError
        If the file is gone.
    FormatError
        If it cannot be read.
    """
    path = f"{TOMBSTONE_FOLDER}/{file.name}"
    try:
        with open_object(storage, path) as source, pq.ParquetFile(source) as held:
            groups = [
                number
                for number in range(held.num_row_groups)
                if partitions is None or _may_have(held.metadata.row_group(number), partitions)
            ]
            rows = held.read_row_groups(groups)
    except ObjectNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise FormatError(path, "a file of tombstones", str(error)) from error
    target = _columns(ordering)
    if rows.column_names != target.names:
        raise FormatError(path, f"columns {target.names}", f"{rows.column_names}")
    return cast_table(rows, target, where=f"table {storage.root}, {path}")


def forget_tombstones(storage: Storage, path: str, ordering: pa.Schema) -> None:
    """Put a file without tombstones in the place of one that is lost, so that writes go on."""
    sink = pa.BufferOutputStream()
    pq.write_table(_columns(ordering).empty_table(), sink)
    storage.put(path, sink.getvalue())


def _newest(rows: pa.Table) -> pa.Table:
    """Return the tombstone of each key with the greatest ordering value, sorted."""
    names = [name for name in rows.column_names if name not in (_PARTITION, _KEY, _TIME)]
    ordering = [comparable(rows[name]) for name in names]
    order = sort_nulls_first([rows[_PARTITION], rows[_KEY], *ordering, rows[_TIME]])
    rows = rows.take(pa.array(order))
    is_last = np.ones(len(rows), np.bool_)
    if len(rows) > 1:
        same = pc.and_(*(pc.equal(rows[n][1:], rows[n][:-1]) for n in (_PARTITION, _KEY)))
        is_last[:-1] = ~one_array(same).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(is_last))


def _fields_of(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return fields of records in some types; a field that they lack is null."""
    given = [name for name in wanted.names if field_at(rows.schema, name) is not None]
    types = pa.schema([field for field in wanted if field.name in given])
    held = cast_batch(columns_at(rows, given), types)
    columns = [
        one_array(held[field.name]) if field.name in given else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.table(columns, schema=wanted)


def _may_have(group: Any, partitions: Iterable[str]) -> bool:
    held = group.column(0).statistics
    if held is None or not held.has_min_max:
        return True
    return any(held.min <= path <= held.max for path in partitions)


def _columns(ordering: pa.Schema) -> pa.Schema:
    """Return the columns of a file of tombstones."""
    held = [(f"ordering_{number}", found) for number, found in enumerate(ordering.types)]
    return pa.schema([(_PARTITION, pa.string()), (_KEY, pa.string()), *held, (_TIME, pa.int64())])
