"""Merging statistics: of two records with one key, and of files to statistics of a partition.

Statistics are *united*: the bounds hold the values of all parts, counts and sizes are summed. If a
column was widened, its bounds have several value types; the united bounds have the widest. If the
bounds of a part are not known, those of the whole are not known, so that no reader skips its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.table_version import NEWEST_STATISTICS, OLDEST_STATISTICS
from bucketlake.format.avro.wrappers import BRANCHES
from bucketlake.format.hfile.reader import Entries
from bucketlake.format.metadata_record.bounds import (
    StoredType,
    ValueType,
    read_bounds,
    stored_types,
    without_value_types,
    wrap_bounds,
)
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    ColumnStats,
    RecordKind,
    WrappedValues,
    column_stats_keys,
    decode_column_stats,
    encode_column_stats,
    encode_several_column_stats,
    keys_of_statistics,
    partition_stats_key,
)
from bucketlake.metadata.entry_reader import SliceEntries, read_keys
from bucketlake.metadata.file_listing import FileNames
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.statistics.of_file import (
    FileStatistics,
    NamedStatistics,
    column_stats_of,
    unite_files,
)
from bucketlake.model.arrays import Ints
from bucketlake.model.file_slice import DataFile
from bucketlake.model.grouping import grouped

_Piece: TypeAlias = tuple[int, Ints, pa.Array]  # A branch, rows, and their values.

_NONE = -1


def merge_layers(codes: Ints, stats: ColumnStats, path: str) -> tuple[Ints, ColumnStats]:
    """Merge all records of each key.

    A record replaces the older ones if its bounds are tight, or if it is a removal. Otherwise they
    are united.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_rows,)
        A number for the key of each record.
    stats : ColumnStats
        The records in order of age.
    path : str
        The file, for messages.

    Returns
    -------
    codes : ndarray of int64
        The keys that are not removed, ascending.
    stats : ColumnStats
        The record of each of them.
    """
    is_deleted = stats.is_deleted.to_numpy(zero_copy_only=False)
    is_tight = stats.is_tight_bound.to_numpy(zero_copy_only=False)
    rows = np.arange(len(codes))
    count = int(codes.max(initial=-1)) + 1
    tight = _last_rows(np.flatnonzero(is_tight & ~is_deleted), codes, count)
    deleted = _last_rows(np.flatnonzero(is_deleted), codes, count)
    counting = np.flatnonzero((rows >= tight[codes]) & (rows > deleted[codes]))
    found, groups, sizes = np.unique(codes[counting], return_inverse=True, return_counts=True)
    is_alone = sizes[groups] == 1
    alone, several = counting[is_alone], counting[~is_alone]
    keys, merged = codes[alone], stats.take(alone)  # These keep their tight bounds.
    if len(several):
        united_keys, own = np.unique(codes[several], return_inverse=True)
        united = unite_statistics(stats.take(several), own, len(united_keys), path)
        keys = np.concatenate([keys, united_keys])
        merged = ColumnStats.concat([merged, united])
    return found, merged.take(np.argsort(keys))


def unite_statistics(stats: ColumnStats, groups: Ints, count: int, path: str) -> ColumnStats:
    """Unite the statistics of each group of rows.

    Parameters
    ----------
    stats : ColumnStats
        Statistics. The rows of a group are about one column and in order of age.
    groups : ndarray of int64, shape (n_rows,)
        The group of each row. Every group has a row.
    count : int
        Number of groups.
    path : str
        The file, for messages.

    Returns
    -------
    ColumnStats
        A row for each group, with the names of its newest row. The bounds are not tight.
    """
    kinds = _Kinds.of(stats)
    newest = _last_rows(np.arange(len(groups)), groups, count)
    typed = _last_rows(np.flatnonzero(kinds.have_types[kinds.codes]), groups, count)
    typed = np.where(typed == _NONE, newest, typed)
    minima: list[_Piece] = []
    maxima: list[_Piece] = []
    for target, rows in _by_target(_bounded_rows(stats, groups, count), groups, kinds):
        kind = kinds.kinds[target]
        own = _last_rows(rows[kinds.codes[rows] == target], groups, count)
        typed = np.where(own == _NONE, typed, own)
        lows = kinds.read(stats.minima, rows, kind, path, is_minimum=True)
        highs = kinds.read(stats.maxima, rows, kind, path, is_minimum=False)
        minima += kind.wrap(*_extremes(lows, groups[rows], lowest=True), kind.minimum)
        maxima += kind.wrap(*_extremes(highs, groups[rows], lowest=False), kind.maximum)
    no = pa.array(np.zeros(count, np.bool_))
    return ColumnStats(
        stats.names.take(pa.array(newest)),
        stats.columns.take(pa.array(newest)),
        WrappedValues.gather(count, minima),
        WrappedValues.gather(count, maxima),
        _sums(stats.value_counts, groups, count),
        _sums(stats.null_counts, groups, count),
        _sums(stats.stored_bytes, groups, count),
        _sums(stats.uncompressed_bytes, groups, count),
        is_deleted=no,
        is_tight_bound=no,
        value_types=stats.value_types.take(pa.array(typed)),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """How bounds are stored: the value type, and the branches of minimum and maximum."""

    stored_as: StoredType
    minimum: int
    maximum: int

    def widens_to(self, wider: _Kind) -> bool:
        if self.stored_as == wider.stored_as:
            return self == wider
        return self.stored_as.widens_to(wider.stored_as)

    def wrap(self, rows: Ints, bounds: pa.Array, branch: int) -> list[_Piece]:
        """Return bounds as pieces of wrapped values; undoes :meth:`_Kinds.read`."""
        if self.stored_as.arrow is None:
            return [(branch, rows, bounds)]
        parts = wrap_bounds(bounds).parts.items()
        return [(branch, rows[at], values) for branch, (at, values) in parts]


@dataclass(frozen=True, slots=True, eq=False)
class _Kinds:
    """The distinct kinds of some statistics, and the code of each row: its place among them."""

    codes: Ints
    kinds: tuple[_Kind, ...]

    @classmethod
    def of(cls, stats: ColumnStats) -> _Kinds:
        places, types = stored_types(stats.value_types)
        facts = np.stack([places, stats.minima.branches, stats.maxima.branches])
        distinct, codes = np.unique(facts, axis=1, return_inverse=True)
        kinds = tuple(_Kind(types[place], low, high) for place, low, high in distinct.T.tolist())
        return cls(codes.reshape(-1), kinds)

    @property
    def have_types(self) -> npt.NDArray[np.bool_]:
        """Whether each kind says the type of its column; Hudi's statistics of no rows do not."""
        return np.array([kind.stored_as.value_type != ValueType.NULL for kind in self.kinds])

    def widest(self, codes: list[int]) -> int:
        """Return the code of a kind to which all others can be widened; ``_NONE`` without such."""
        for code in codes:
            if all(self.kinds[other].widens_to(self.kinds[code]) for other in codes):
                return code
        return _NONE

    def read(
        self, wrapped: WrappedValues, rows: Ints, target: _Kind, path: str, *, is_minimum: bool
    ) -> pa.Array:
        """Return the bounds of some rows as values of one type, which can be compared."""
        arrow = target.stored_as.arrow
        pieces, places = [], []
        for code in np.unique(self.codes[rows]).tolist():
            at = np.flatnonzero(self.codes[rows] == code)
            values: pa.Array | None = wrapped.stored(rows[at])
            if arrow is not None:
                stored_as = self.kinds[code].stored_as
                values = read_bounds(values, stored_as, arrow, path, is_minimum=is_minimum)
            pieces.append(pa.nulls(len(at), arrow) if values is None else values)
            places.append(at)
        return pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(places))))


def _bounded_rows(stats: ColumnStats, groups: Ints, count: int) -> Ints:
    """Return the rows with values, of the groups in which all such rows have bounds."""
    # Where all values are null there are no bounds, although Hudi may write zeros.
    all_null = pc.fill_null(pc.equal(stats.value_counts, stats.null_counts), False)
    has_values = ~all_null.to_numpy(zero_copy_only=False)
    lacks = has_values & ((stats.minima.branches == 0) | (stats.maxima.branches == 0))
    is_unknown = np.zeros(count, np.bool_)
    is_unknown[groups[lacks]] = True
    return np.flatnonzero(has_values & ~is_unknown[groups])


def _by_target(rows: Ints, groups: Ints, kinds: _Kinds) -> Iterator[tuple[int, Ints]]:
    """Yield the code of each kind of united bounds, with the rows of the groups that get it."""
    pairs = np.unique(np.stack([groups[rows], kinds.codes[rows]]), axis=1)
    held, starts, sizes = np.unique(pairs[0], return_index=True, return_counts=True)
    targets = pairs[1, starts]
    for place in np.flatnonzero(sizes > 1).tolist():  # Columns that were widened.
        codes = pairs[1, starts[place] : starts[place] + sizes[place]]
        targets[place] = kinds.widest(codes.tolist())
    of_row = targets[np.searchsorted(held, groups[rows])]
    for target in np.unique(targets[targets != _NONE]).tolist():
        yield target, rows[of_row == target]


def _extremes(values: pa.Array, groups: Ints, *, lowest: bool) -> tuple[Ints, pa.Array]:
    """Return the groups without a null, ascending, and the lowest or highest value of each.

    NaN is greater than every number, as in Spark.
    """
    table = pa.table({"group": groups, "value": values})
    keys = [("group", "ascending"), ("value", "ascending")]
    order = pc.sort_indices(table, sort_keys=keys).to_numpy()  # NaN and then nulls come last.
    ordered = groups[order]
    is_edge = np.append(ordered[1:] != ordered[:-1], True)
    places = order[np.roll(is_edge, 1) if lowest else is_edge]
    unknown = groups[values.is_null().to_numpy(zero_copy_only=False)]
    places = places[~np.isin(groups[places], unknown)]
    return groups[places], values.take(pa.array(places))


def _last_rows(rows: Ints, groups: Ints, count: int) -> Ints:
    """Return the last of some rows in each group; ``_NONE`` if it has none of them."""
    last = np.full(count, _NONE, np.int64)
    last[groups[rows]] = rows  # For repeated groups the last assignment stays.
    return last


def _sums(numbers: pa.Array, groups: Ints, count: int) -> pa.Array:
    """Return the sum of each group; null if it has a null."""
    sums, is_null = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    np.add.at(sums, groups, pc.fill_null(numbers, 0).to_numpy())
    is_null[groups[numbers.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(sums, mask=is_null)


def merge_statistics(entries: SliceEntries) -> Entries:
    """Return one entry for each key; a key with one entry keeps its value as it is stored."""
    keyed = entries.keys.dictionary_encode()
    codes = keyed.indices.to_numpy()
    is_alone = np.bincount(codes, minlength=len(keyed.dictionary))[codes] == 1
    alone, several = pa.array(np.flatnonzero(is_alone)), pa.array(np.flatnonzero(~is_alone))
    keys, values = [entries.keys.take(alone)], [entries.values.take(alone)]
    if len(several):
        kinds, stats = decode_column_stats(entries.values.take(several), entries.where)
        (kind,) = set(kinds.tolist())  # A partition of the metadata table has one kind.
        found, merged = merge_layers(codes[~is_alone].astype(np.int64), stats, entries.where)
        keys.append(keyed.dictionary.take(pa.array(found)))
        values.append(encode_column_stats(RecordKind(kind), merged))
    return Entries(pa.concat_arrays(keys), pa.concat_arrays(values))


# ---- Entries of ``column_stats`` and ``partition_stats`` that an action brings -------------------
#
# A file has an entry for each column with statistics; a clean removes them. The statistics of a
# partition are *loose*: an action writes bounds of its own files, and older bounds stay united with
# them. So two writers at once leave no bounds that are too tight. Hudi writes tight bounds, which
# replace older bounds; bucketlake does this only for a partition that an action overwrites as a
# whole. A deletion makes no bounds tighter.

StatisticsOfFiles: TypeAlias = Mapping[str, Sequence[NamedStatistics]]
"""Statistics of files by data partition."""

_WHERE = "statistics of written files"


def entries_of_statistics(
    statistics: StatisticsOfFiles,
    deleted: FileNames = MappingProxyType({}),
    columns: Sequence[str] = (),
    overwritten: Collection[str] = (),
    *,
    version: str = NEWEST_STATISTICS,
) -> dict[MetadataPartition, GroupEntries]:
    """Return the entries of both partitions with statistics.

    Log files that only delete say nothing about a data partition.

    Parameters
    ----------
    statistics : mapping of data partition to sequence of NamedStatistics
        Statistics of written files.
    deleted : mapping of data partition to file names
        Files whose statistics are removed.
    columns : sequence of str
        Columns that may have statistics of these files.
    overwritten : collection of str
        Data partitions that have no other files; the bounds of these partitions are tight.
    version : str
        Index version of the entries.
    """
    files = [file for held in statistics.values() for file in held]
    united: list[NamedStatistics] = []
    widened = []
    for path, held in statistics.items():
        found, differing = unite_files([own for _, own in held])
        united.append((path, found))
        if differing:
            widened.append(_unite_widened(path, held, differing))
    # All rows are encoded together, because the cost of a call is far above that of a row.
    stats = column_stats_of([*files, *united])
    if widened:
        stats = ColumnStats.concat([stats, *widened])
    if version == OLDEST_STATISTICS:
        stats = without_value_types(stats)
    count = sum(len(own.columns) for _, own in files)
    paths = stats.names[count:].to_pylist()
    kinds = [(RecordKind.COLUMN_STATS, count), (RecordKind.PARTITION_STATS, len(paths))]
    is_tight = pa.array([*([True] * count), *(path in overwritten for path in paths)], pa.bool_())
    values = encode_several_column_stats(kinds, replace(stats, is_tight_bound=is_tight))
    file_keys = _keys_of_files(statistics, stats.columns[:count], stats.names[:count])
    pairs = zip(stats.columns[count:].to_pylist(), paths, strict=True)
    partition_keys = pa.array([partition_stats_key(*pair) for pair in pairs], pa.binary())
    removed = [
        column_stats_keys(column, path, names)
        for path, names in deleted.items()
        for column in columns
    ]
    gone = pa.concat_arrays([pa.nulls(0, pa.binary()), *removed])
    return {
        MetadataPartition.COLUMN_STATS: GroupEntries.of(file_keys, values[:count], gone),
        MetadataPartition.PARTITION_STATS: GroupEntries.of(partition_keys, values[count:]),
    }


def _keys_of_files(statistics: StatisticsOfFiles, columns: pa.Array, names: pa.Array) -> pa.Array:
    counts = [sum(len(found.columns) for _, found in files) for files in statistics.values()]
    places = np.repeat(np.arange(len(counts)), counts)
    return keys_of_statistics(columns, list(statistics), places, names)


def _unite_widened(
    path: str, files: Sequence[NamedStatistics], columns: Collection[str]
) -> ColumnStats:
    """Return the statistics of a partition, of columns that have several types in its files."""
    parts = [
        (name, FileStatistics({column: held.columns[column]}))
        for column in sorted(columns)
        for name, held in files
        if column in held.columns and held.columns[column][0].value_type != ValueType.NULL
    ]
    stats = column_stats_of(parts)
    groups = stats.columns.dictionary_encode().indices.to_numpy().astype(np.int64)
    united = unite_statistics(stats, groups, len(columns), _WHERE)
    return replace(united, names=pa.array([path] * len(united), pa.string()))


# ---- Looking up statistics in the metadata table: of columns in some files, and in partitions ----
#
# Not all that is stored can be believed (:func:`credible_statistics`). Hudi 1.2.0 takes statistics
# of base files from the footers of Parquet. If a footer has none of a column, Hudi writes something
# else:
#
# - A floating column with a NaN has the bounds 0 and 0, or those of other row groups and 0.
# - A text column with long values, and a column of type INT96, seem to have only nulls. If another
#   row group of the file has bounds, the file has these, and the values seem to be nulls.
#
# Hudi itself loses rows by such statistics. bucketlake's statistics of files have none of this;
# their bounds are tight, and Hudi's never are. Statistics of partitions come from both, and both
# may say that they are tight.

_FLOATING = (BRANCHES[pa.float32()], BRANCHES[pa.float64()])
_TEXT = BRANCHES[pa.string()]


@dataclass(frozen=True, slots=True, eq=False)
class FoundStatistics:
    """The statistics that the metadata table has of wanted columns in wanted files or partitions.

    Parameters
    ----------
    units : ndarray of int64, shape (n_found,)
        Position of the file or partition among the wanted ones.
    columns : ndarray of int64, shape (n_found,)
        Position of the column among the wanted ones.
    stats : ColumnStats
        A row for each of them.
    """

    units: Ints
    columns: Ints
    stats: ColumnStats


def find_column_stats(
    table: MetadataTable, columns: Sequence[str], files: Sequence[DataFile]
) -> FoundStatistics | None:
    """Look up the statistics of columns in files; None if there are none.

    Parameters
    ----------
    table : MetadataTable
        A metadata table with the partition ``column_stats``.
    columns : sequence of str
        Names of columns.
    files : sequence of DataFile
        Base files and log files.
    """
    by_partition = grouped((file.partition_path, place) for place, file in enumerate(files))
    order = np.array([place for places in by_partition.values() for place in places], np.int64)
    keys = [
        column_stats_keys(column, path, [files[place].name.to_file_name() for place in places])
        for column in columns
        for path, places in by_partition.items()
    ]
    return _find(table, MetadataPartition.COLUMN_STATS, keys, order)


def find_partition_stats(
    table: MetadataTable, columns: Sequence[str], partitions: Sequence[str]
) -> FoundStatistics | None:
    """Look up the statistics of columns in data partitions; None if there are none.

    Parameters
    ----------
    table : MetadataTable
        A metadata table with the partition ``partition_stats``.
    columns : sequence of str
        Names of columns.
    partitions : sequence of str
        Data partitions.
    """
    keys = [
        pa.array([partition_stats_key(column, path) for path in partitions], pa.binary())
        for column in columns
    ]
    return _find(table, MetadataPartition.PARTITION_STATS, keys, np.arange(len(partitions)))


def _find(
    table: MetadataTable, partition: MetadataPartition, parts: Sequence[pa.BinaryArray], units: Ints
) -> FoundStatistics | None:
    """Look up keys, which go through the units in their order once for each column."""
    if not parts:
        return None
    keys = pa.concat_arrays(parts)
    found = [
        entries
        for entries in read_keys(table, partition, keys.cast(pa.string()))
        if len(entries.keys)
    ]
    codes, stats = [], []
    for entries in found:
        _, records = decode_column_stats(entries.values, entries.where)
        places = pc.index_in(entries.keys, keys).to_numpy().astype(np.int64)
        own, merged = merge_layers(places, records, entries.where)
        codes.append(own)
        stats.append(merged)
    if not codes:
        return None
    at = np.concatenate(codes)
    return FoundStatistics(units[at % len(units)], at // len(units), ColumnStats.concat(stats))


def credible_statistics(stats: ColumnStats, *, of_partitions: bool = False) -> ColumnStats:
    """Return statistics without what may be wrong: it becomes unknown.

    Parameters
    ----------
    stats : ColumnStats
        Statistics of files or partitions.
    of_partitions : bool
        Whether they are of partitions.
    """
    is_ours = stats.is_tight_bound.to_numpy(zero_copy_only=False) & (not of_partitions)
    branches = np.maximum(stats.minima.branches, stats.maxima.branches)
    rows, nulls = (
        pc.fill_null(counts, -1).to_numpy() for counts in (stats.value_counts, stats.null_counts)
    )
    seems_null = (rows == nulls) & (rows > 0) & (branches == 0)
    may_hide_values = (branches == _TEXT) & (nulls != 0)
    counts_differ = ~is_ours & (seems_null | may_hide_values)
    lacks_bounds = counts_differ | (~is_ours & np.isin(branches, _FLOATING) & (rows != nulls))
    kept = np.flatnonzero(~lacks_bounds)
    unknown = pa.array(lacks_bounds)
    return replace(
        stats,
        minima=stats.minima.only(kept),
        maxima=stats.maxima.only(kept),
        value_counts=pc.if_else(unknown, None, stats.value_counts),
        null_counts=pc.if_else(pa.array(counts_differ), None, stats.null_counts),
    )
