"""The table handle: an address and options; each verb calls one room.

``create_table`` and ``open_table`` (``opening.py``) give a :class:`Table`. It can be pickled and
holds no session, lock or cache: every call looks at storage anew. Which engine works, Spark or
Arrow in this process, is chosen in ``engine.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bucketlake.config.support import check_readable
from bucketlake.config.table_config import TableConfig
from bucketlake.engine import (
    active_session,
    compaction_runner,
    read_frame,
    rehash_runner,
    require_session,
    source_of,
    stored_rows,
)
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.index.hashing_config import HashingConfig, committed_configs
from bucketlake.index.partition_rules import RuleCompiler
from bucketlake.index.recorded_counts import RecordedCount, recorded_counts
from bucketlake.index.rescaled import Rules, rescaled_index
from bucketlake.index.settings import TableIndex, require_index, resolve_index
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import Names, names_of
from bucketlake.model.result import WriteResult
from bucketlake.model.retention import Retention
from bucketlake.model.table_type import LogFormat, Operation
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.buckets import Bucket, RecordLocation, list_buckets, locate_key
from bucketlake.read.plan import plan_read, plan_slices
from bucketlake.read.pruning.prune import PruningReport
from bucketlake.read.request import PinnedRead, ReadRequest, pin_read
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.archival import ArchivalLimits, ArchiveReport, archive
from bucketlake.services.cleaning import CleanReport, clean
from bucketlake.services.compaction import (
    CompactionLimits,
    CompactionReport,
    compact,
)
from bucketlake.services.conversion import ConversionReport, plan_conversion, run_conversion
from bucketlake.services.doctor import MIN_AGE_SECONDS, diagnose
from bucketlake.services.findings import Finding
from bucketlake.services.repair import RepairReport, drop_metadata_table, repair
from bucketlake.services.rescale import (
    RescaleReport,
    plan_rescale,
    run_rescale,
)
from bucketlake.services.restore_service import RestoreReport, restore
from bucketlake.services.rollback_service import RollbackReport, roll_back
from bucketlake.services.savepoints import delete_savepoint, make_savepoint
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.store_options import GivenOptions
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Instant
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write.batches import Batch
from bucketlake.write.conflict import retried
from bucketlake.write.ingest import Target, delete_partitions, open_target, write_records
from bucketlake.write.source import RecordSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Table:
    """A Hudi table: where it lies, and how to reach it.

    Made by ``create_table`` or ``open_table``.

    Attributes
    ----------
    path : str
        Folder of the table, as it was given.
    index : SimpleBucket, PartitionBucket or None
        How keys found their file group when the table was opened; None where it is not known, and
        so not written to.
    storage_options : mapping of str to str
        As handed in. No text shows their values, and a pickle does not in readable form.
    log_format : LogFormat
        The kind of block that this handle writes records of log files in.
    lock : TableLock
        What this handle shares with writers of Hudi's.
    """

    path: str
    index: TableIndex | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_format: LogFormat = field(default=LogFormat.PARQUET, repr=False)
    lock: TableLock = field(default=NO_LOCK, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", GivenOptions(self.storage_options))

    # Writes.

    def upsert(self, data: DataFrame | pa.Table) -> WriteResult:
        """Insert new records, update known ones.

        Parameters
        ----------
        data : DataFrame or pa.Table
            Records, with all columns of the table; further ones are added to it. Of several with
            one key the greatest ordering value stays; of equal ones the later row of an Arrow
            table, or one that its contents decide on in a DataFrame, which has no order. Against
            a stored record the incoming one stays unless its ordering value is less. A record
            whose ``_hoodie_is_deleted`` is true deletes its key; where its ordering value is null,
            whatever is stored.

        Returns
        -------
        WriteResult
            Without an instant where ``data`` has no rows.

        Raises
        ------
        InputError
            If a key is missing, a column is missing, or a type does not fit.
        ConfigError
            If the table stores no bucket setting and was opened without ``index``.
        UnsupportedFeatureError
            If the table has a feature that a writer must know and bucketlake does not.
        IndexStateError
            If the files of the table contradict the index.
        CommitConflictError
            If another writer changed the same buckets meanwhile; retry.
        CommitOutcomeUnknownError
            If storage failed at the decisive step; look at the timeline before any retry.

        Examples
        --------
        >>> import bucketlake as bl
        >>> orders = bl.create_table(
        ...     "memory://docs/orders", schema=pa.schema({"id": pa.string(), "at": pa.int64()}),
        ...     record_key=["id"], ordering="at", index=bl.SimpleBucket(2))
        >>> orders.upsert(pa.table({"id": ["a", "b"], "at": [5, 5]})).inserted
        2
        >>> orders.upsert(pa.table({"id": ["a", "b"], "at": [7, 3]})).updated
        1
        """
        return self._write(Operation.UPSERT, data)

    def upsert_batch(self, query_name: str) -> BatchUpsert:
        """Return what upserts the batches of a stream, each once: a function for ``foreachBatch``.

        Parameters
        ----------
        query_name : str
            Names the stream, and stays the same when it restarts from its checkpoint.

        Returns
        -------
        callable
            Takes a batch and its id, and returns a :class:`WriteResult`. A batch that was committed
            already is passed over, whatever came in between; one before that is an InputError,
            since then a checkpoint was reset or is another query's.

        Notes
        -----
        Examples: ``docs/how-to/recover.md``.
        """
        return BatchUpsert(self, query_name)

    def insert(self, data: DataFrame | pa.Table) -> WriteResult:
        """Write records as :meth:`upsert` does: a bucket index keeps keys unique (RFC-29).

        Only the operation in the commit's metadata differs.

        Parameters
        ----------
        data : DataFrame or pa.Table
            As for :meth:`upsert`, and with its errors.

        Returns
        -------
        WriteResult
        """
        return self._write(Operation.INSERT, data)

    def bulk_insert(self, data: DataFrame | pa.Table) -> WriteResult:
        """Write records into partitions that hold none yet.

        Parameters
        ----------
        data : DataFrame or pa.Table
            As for :meth:`upsert`. Of several records with one key one stays.

        Returns
        -------
        WriteResult

        Raises
        ------
        InputError
            If one of the partitions holds records; further as :meth:`upsert`.
        """
        return self._write(Operation.BULK_INSERT, data)

    def insert_overwrite(
        self, data: DataFrame | pa.Table, *, whole_table: bool = False
    ) -> WriteResult:
        """Replace the partitions that the records fall into, or the whole table.

        Parameters
        ----------
        data : DataFrame or pa.Table
            As for :meth:`upsert`, and with its errors.
        whole_table : bool
            Whether partitions without a record in ``data`` are emptied, too.

        Returns
        -------
        WriteResult
            ``file_groups`` counts those written and those replaced.
        """
        operation = Operation.INSERT_OVERWRITE_TABLE if whole_table else Operation.INSERT_OVERWRITE
        return self._write(operation, data)

    def delete(self, keys: DataFrame | pa.Table) -> WriteResult:
        """Delete records by key.

        Parameters
        ----------
        keys : DataFrame or pa.Table
            Record key and partition columns; others are not looked at. Keys that the table does
            not hold are passed over. No ordering value is compared: whatever is stored goes.

        Returns
        -------
        WriteResult

        Raises
        ------
        InputError
            If a key or partition column is missing; further as :meth:`upsert`.

        Examples
        --------
        >>> import bucketlake as bl
        >>> names = bl.create_table(
        ...     "memory://docs/names", schema=pa.schema({"id": pa.string()}),
        ...     record_key=["id"], index=bl.SimpleBucket(2))
        >>> names.upsert(pa.table({"id": ["a", "b"]})).inserted
        2
        >>> names.delete(pa.table({"id": ["b", "c"]})).deleted
        1
        """
        return self._write(Operation.DELETE, keys)

    def delete_partitions(self, partitions: Names) -> WriteResult:
        """Delete whole partitions.

        Parameters
        ----------
        partitions : str or sequence of str
            Partition paths, as :meth:`buckets` shows them.

        Returns
        -------
        WriteResult
            ``file_groups`` counts the file groups that went; rows are not counted. Without an
            instant where no partition was named.

        Raises
        ------
        InputError
            If one of the partitions holds no records.
        """
        storage, config = self._open()
        paths = names_of(partitions)
        return retried(lambda: delete_partitions(self._target(storage, config), paths))

    # Reads.

    def read(
        self,
        spark: SparkSession | None = None,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: str | None = None,
        since: str | None = None,
        until: str | None = None,
        read_optimized: bool = False,
    ) -> DataFrame:
        """Return the table as a DataFrame.

        Parameters
        ----------
        spark : SparkSession, optional
            The session; by default the active one.
        where : str, optional
            SQL condition. Partitions and buckets that cannot match are not read; a ``.filter()``
            on the result is right too, but prunes no buckets.
        columns : str or sequence of str, optional
            Columns to return; meta columns only by name.
        as_of : str, optional
            Time travel: ``yyyyMMddHHmmss[SSS]``, ``yyyy-MM-dd`` or ``yyyy-MM-dd HH:mm:ss[.SSS]``,
            on the clock of the table's timeline; a date alone is its first moment. Reaches back
            as far as no clean took the files.
        since : str, optional
            Incremental read: records that were changed by commits completed after this time, in
            the forms of ``as_of``. Deleted records do not show up.
        until : str, optional
            Incremental read: no later than this time, and records as they were then.
        read_optimized : bool
            Leave the log files of a merge-on-read table out: quicker, and as old as the last
            compaction of each file group.

        Returns
        -------
        DataFrame

        Raises
        ------
        InputError
            If the table has no such column, ``columns`` is empty, or ``where`` is no condition.
        ConfigError
            If a time has none of the forms, or ``as_of`` comes with ``since`` or ``until``.
        TimelineError
            If a clean took files that the table of that time needs.
        CommitConflictError
            If a clean or a rollback took files while they were read; read again. Where Spark reads
            them itself, the error is its own of a missing file.
        """
        session = require_session(spark)
        names = None if columns is None else names_of(columns)
        pinned = self._pin(ReadRequest(where, names, as_of, since, until, read_optimized))
        return read_frame(session, self.path, pinned, self._index_of(pinned.snapshot))

    def to_arrow(
        self,
        *,
        where: str | None = None,
        columns: Names | None = None,
        as_of: str | None = None,
        since: str | None = None,
        until: str | None = None,
        read_optimized: bool = False,
    ) -> pa.Table:
        """Return the table as an Arrow table, without Spark.

        Parameters
        ----------
        where : str, optional
            SQL condition, of comparisons of a column with literals (``IN``, ``BETWEEN``, ``LIKE``
            and ``IS NULL`` among them), ``AND``, ``OR`` and ``NOT``. Another one is refused, for
            only Spark can answer it.
        columns : str or sequence of str, optional
            Columns to return; meta columns only by name.
        as_of : str, optional
            Time travel, as in :meth:`read`.
        since : str, optional
            Incremental read, as in :meth:`read`.
        until : str, optional
            Incremental read, as in :meth:`read`.
        read_optimized : bool
            Leave log files out, as in :meth:`read`.

        Returns
        -------
        pa.Table

        Raises
        ------
        InputError
            If the table has no such column, ``columns`` is empty, or ``where`` is no condition.
        ConfigError
            If a time has none of the forms, or ``as_of`` comes with ``since`` or ``until``.
        TimelineError
            If a clean took files that the table of that time needs.
        CommitConflictError
            If a clean or a rollback took files while they were read; read again.
        UnsupportedFeatureError
            If ``where`` needs Spark.

        Examples
        --------
        >>> import bucketlake as bl
        >>> fares = bl.create_table(
        ...     "memory://docs/fares", schema=pa.schema({"id": pa.string(), "fare": pa.int64()}),
        ...     record_key=["id"], index=bl.SimpleBucket(4))
        >>> fares.upsert(pa.table({"id": ["a", "b"], "fare": [3, 9]})).inserted
        2
        >>> fares.to_arrow(where="id = 'b'", columns=["fare"]).to_pylist()
        [{'fare': 9}]
        """
        names = None if columns is None else names_of(columns)
        pinned = self._pin(ReadRequest(where, names, as_of, since, until, read_optimized))
        plan = plan_read(pinned, self._index_of(pinned.snapshot))
        return read_arrow(pinned.snapshot.storage, plan)

    def explain(self, where: str | None = None) -> PruningReport:
        """Tell which partitions and buckets a read with this condition would look at, and why.

        Parameters
        ----------
        where : str, optional
            SQL condition, as in :meth:`read`.

        Returns
        -------
        PruningReport
        """
        pinned = self._pin(ReadRequest(where))
        return plan_read(pinned, self._index_of(pinned.snapshot), counts_all=True).report

    def locate(
        self, key: str | Mapping[str, Any], partition: str | None = None
    ) -> list[RecordLocation]:
        """Find where a record lies.

        Parameters
        ----------
        key : str or mapping
            The record key as stored, or its columns' values.
        partition : str, optional
            Partition path to look in; by default all.

        Returns
        -------
        list of RecordLocation
            One entry for each partition that holds the key; empty where none does.
        """
        snapshot = self._snapshot()
        return locate_key(snapshot, self._index_of(snapshot), key, partition)

    def buckets(self) -> list[Bucket]:
        """Return the live file groups with their sizes, by partition and bucket.

        Returns
        -------
        list of Bucket
        """
        snapshot = self._snapshot()
        return list_buckets(snapshot, self._index_of(snapshot))

    def timeline(self) -> list[Instant]:
        """Return the instants of the active timeline, oldest first.

        Returns
        -------
        list of Instant
            Pending ones among them; archived ones are not.
        """
        storage, config = self._open()
        return list(load_timeline(storage, config).instants)

    def rule_versions(self) -> list[HashingConfig]:
        """Return the versions of a partition-level table's rules that count (RFC-89).

        Returns
        -------
        list of HashingConfig
            Oldest first, archived ones among them; empty where the table has one count for all.
        """
        storage, config = self._open()
        return committed_configs(storage, load_timeline(storage, config))

    def recorded_counts(self) -> dict[str, RecordedCount]:
        """Return the bucket counts that partitions of a partition-level table got (RFC-89).

        Returns
        -------
        dict
            Count and the commit that gave it, by partition path. A recorded count stays when the
            rules change without a rescale; a later rescale, of Hudi's too, outweighs it.
        """
        storage, config = self._open()
        return recorded_counts(storage, load_timeline(storage, config))

    def schema(self) -> pa.Schema:
        """Return the table's columns, without meta columns."""
        return self._snapshot().schema

    def config(self) -> TableConfig:
        """Return the table's properties."""
        return self._open()[1]

    # Upkeep.

    def rescale(
        self,
        rules: Rules | None = None,
        *,
        add: Rules | None = None,
        default: int | None = None,
        rule: str | RuleCompiler | None = None,
        spark: SparkSession | None = None,
        dry_run: bool = True,
    ) -> RescaleReport:
        """Give partitions other bucket counts, by writing those anew whose count changes (RFC-89).

        A table with a simple bucket index becomes a partition-level one. Rules, rows and the file
        groups that leave are one commit.

        Parameters
        ----------
        rules : mapping of str to int, or pairs, optional
            All rules that the table gets, as in :class:`PartitionBucket`.
        add : mapping of str to int, or pairs, optional
            Rules to put before those that the table has.
        default : int, optional
            Count of partitions that no rule fits; by default the one that the table has. Another
            one may change many partitions.
        rule : str or callable, optional
            Kind of the rules; by default the one that the table has.
        spark : SparkSession, optional
            Session that rewrites the rows; by default the active one, and this process where
            there is none.
        dry_run : bool
            Tell what would be done, and do nothing.

        Returns
        -------
        RescaleReport
            The partitions that change, with their files and bytes.

        Raises
        ------
        ConfigError
            If not exactly one of ``rules`` and ``add`` is given, or they are none.
        CommitConflictError
            If one of the partitions, or the rules, changed meanwhile.

        Notes
        -----
        Examples: ``docs/how-to/choose-a-bucket-count.md``.
        """
        if dry_run:
            snapshot = self._snapshot()
            held = require_index(snapshot.storage, snapshot.timeline, self.index)
            index = rescaled_index(held, rules, add, default, rule)
            return RescaleReport(index, plan_rescale(snapshot, held, index), None)
        target = self._target(*self._open())
        index = rescaled_index(target.index, rules, add, default, rule)
        changes = plan_rescale(target.snapshot, target.index, index)
        session = spark or active_session()
        rows_of = partial(self._rows_of, target.snapshot, session)
        return run_rescale(target, index, changes, rows_of, rehash_runner(session))

    def convert(
        self,
        index: TableIndex,
        *,
        spark: SparkSession | None = None,
        dry_run: bool = True,
    ) -> ConversionReport:
        """Let buckets have several file groups, or one again (RFC-29, patterns 1 and 2).

        Parameters
        ----------
        index : SimpleBucket or PartitionBucket
            The table's own index with another ``max_file_size``. With a size no file is written;
            with None, partitions that have buckets of several file groups are written anew.
        spark : SparkSession, optional
            Session that rewrites the rows; by default the active one, and this process where
            there is none.
        dry_run : bool
            Tell what would be done, and do nothing.

        Returns
        -------
        ConversionReport
            The partitions that are written anew, with their file groups and bytes.

        Raises
        ------
        ConfigError
            If the index differs from the table's in more than its ``max_file_size``.
        CommitConflictError
            If another writer committed to one of the partitions meanwhile.

        Notes
        -----
        Examples: ``docs/how-to/choose-a-bucket-count.md``. :meth:`rescale` changes bucket counts.
        """
        if dry_run:
            snapshot = self._snapshot()
            held = require_index(snapshot.storage, snapshot.timeline, self.index)
            return plan_conversion(snapshot, held, index)
        storage, config = self._open()
        session = spark or active_session()

        def convert_once() -> ConversionReport:
            target = self._target(storage, config)
            rows_of = partial(self._rows_of, target.snapshot, session)
            return run_conversion(target, index, rows_of, rehash_runner(session))

        return retried(convert_once)

    def compact(
        self,
        *,
        min_log_files: int = 1,
        min_log_bytes: int = 0,
        max_bytes: int | None = None,
        after_delta_commits: int = 0,
        after_seconds: int = 0,
        schedule_only: bool = False,
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Merge log files into base files; plans that are pending are carried out first.

        Writers go on meanwhile, and no row changes. Hudi carries out a plan of ours, too, and the
        other way round.

        Parameters
        ----------
        min_log_files : int
            Log files that a slice has at least, to be compacted.
        min_log_bytes : int
            Bytes of log files that it has at least.
        max_bytes : int, optional
            Bytes to read in all; slices with most log bytes come first.
        after_delta_commits : int
            Plan nothing before so many delta commits since the last plan.
        after_seconds : int
            Plan nothing before so much time since the last plan, in seconds.
        schedule_only : bool
            Put a plan on the timeline, and leave it to somebody else.
        spark : SparkSession, optional
            Session that does it; by default the active one, and this process where there is none.
        dry_run : bool
            Tell what would be planned, and do nothing.

        Returns
        -------
        CompactionReport

        Raises
        ------
        ConfigError
            If the table is not merge-on-read.
        CommitConflictError
            If another process carries out the same plan.

        Notes
        -----
        Examples: ``docs/how-to/merge-on-read.md``.
        """
        limits = CompactionLimits(
            min_log_files, min_log_bytes, max_bytes, after_delta_commits, after_seconds
        )
        return compact(
            *self._open(),
            limits,
            compaction_runner(spark or active_session()),
            schedule_only=schedule_only,
            dry_run=dry_run,
            lock=self.lock,
        )

    def archive(
        self, *, keep_min: int = 20, keep_max: int = 30, dry_run: bool = False
    ) -> ArchiveReport:
        """Move old instants from the active timeline to the archive, in Hudi's form.

        Whoever opens the table lists the active timeline, so a short one is quick to load. No row
        changes. Reads of what changed since some time find archived commits, too; a rollback does
        not. Several processes may do it at once, and writers and readers go on meanwhile; not so
        beside an archival of Hudi's, unless the table was opened with the lock that Hudi uses.

        Parameters
        ----------
        keep_min : int
            Commits that stay in the active timeline: more than a cleaner retains, and more than
            the delta commits between two compactions.
        keep_max : int
            Commits up to which nothing is archived.
        dry_run : bool
            Tell what would be moved, and do nothing.

        Returns
        -------
        ArchiveReport
            The instants that leave the active timeline, and what holds others back: a pending
            instant, a savepoint, files of replaced file groups that are not cleaned yet.

        Raises
        ------
        ConfigError
            If ``keep_max`` is not more than ``keep_min``, or one of them is no count.

        Notes
        -----
        Examples: ``docs/how-to/archive.md``.
        """
        limits = ArchivalLimits(keep_min, keep_max)
        return archive(*self._open(), limits, dry_run=dry_run, lock=self.lock)

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
        dry_run: bool = False,
    ) -> CleanReport:
        """Delete old versions of files; a clean that is pending is carried out first.

        Time travel goes back as far as something is retained, and to savepoints. Writers may go on
        meanwhile; a reader or writer that still needs a deleted version gets an error, and a
        writer tries again. Hudi carries out a plan of ours, too, and the other way round.

        Parameters
        ----------
        retain_commits : int, optional
            Newest commits that can still be read as they were; ten, if nothing is said.
        retain_hours : int, optional
            Or all times of so many hours.
        retain_versions : int, optional
            Or so many versions of each file group, whenever they were written. File groups that
            were overwritten go at once.
        dry_run : bool
            Tell what would be deleted, and do nothing.

        Returns
        -------
        CleanReport

        Raises
        ------
        ConfigError
            If more than one of the three is given, or less than 1.
        CommitOutcomeUnknownError
            If storage failed while files were deleted; the next clean carries it on then.

        Notes
        -----
        Examples: ``docs/how-to/clean-and-restore.md``.
        """
        retention = Retention.of(
            commits=retain_commits, hours=retain_hours, versions=retain_versions
        )
        return retried(lambda: clean(*self._open(), retention, dry_run=dry_run, lock=self.lock))

    def rollback(
        self, instant: str, *, cascade: bool = False, dry_run: bool = False
    ) -> RollbackReport:
        """Roll a commit back: its files, its rules and the commit itself go, as if it never was.

        Parameters
        ----------
        instant : str
            Requested time of the commit, as :meth:`timeline` shows it.
        cascade : bool
            Roll back the later commits that build on it, too, and lose what they wrote. A commit
            builds on another one where it touched the same file groups, or, after a rescale,
            changed the rules or counted by them (RFC-89).
        dry_run : bool
            Tell what would be done, and do nothing.

        Returns
        -------
        RollbackReport
            The commits that go, newest first.

        Raises
        ------
        TimelineError
            If there is no such commit, a savepoint holds it, or later ones build on it.
        IndexStateError
            If files of before were cleaned meanwhile.
        CommitOutcomeUnknownError
            If storage failed after it may have begun; the next write carries it on then.

        Notes
        -----
        Examples: ``docs/how-to/recover.md``.
        """
        undone = InstantTime(instant)
        return roll_back(
            *self._open(), self.index, undone, cascade=cascade, dry_run=dry_run, lock=self.lock
        )

    def savepoint(self, instant: str | None = None, *, comment: str = "") -> InstantTime:
        """Make a savepoint: no clean deletes what a commit needs, and it can be restored.

        Parameters
        ----------
        instant : str, optional
            Requested time of the commit, as :meth:`timeline` shows it; by default the newest.
        comment : str
            What it is for; Hudi shows it.

        Returns
        -------
        InstantTime
            That of the commit.

        Raises
        ------
        TimelineError
            If there is no such commit, or a clean took files of its.

        Notes
        -----
        Examples: ``docs/how-to/clean-and-restore.md``.
        """
        chosen = None if instant is None else InstantTime(instant)
        return retried(
            lambda: make_savepoint(*self._open(), chosen, comment=comment, lock=self.lock)
        )

    def delete_savepoint(self, instant: str) -> None:
        """Give the files of a savepoint free, for the next clean to delete.

        Parameters
        ----------
        instant : str
            Requested time of its commit.

        Raises
        ------
        TimelineError
            If there is no such savepoint.
        """
        delete_savepoint(*self._open(), InstantTime(instant), lock=self.lock)

    def restore(self, instant: str, *, dry_run: bool = False) -> RestoreReport:
        """Restore the table to a savepoint: all that was written later goes.

        Rules and recorded bucket counts go back, too; compactions and rescales go, planned
        compactions as well. A write that is under way begins anew on the restored table.

        Parameters
        ----------
        instant : str
            Requested time of the savepoint's commit.
        dry_run : bool
            Tell what would go, and do nothing.

        Returns
        -------
        RestoreReport
            The commits that go, newest first.

        Raises
        ------
        TimelineError
            If there is no such savepoint, or a later one is in the way.
        CommitConflictError
            If others committed meanwhile; restore again.
        CommitOutcomeUnknownError
            If storage failed after it may have begun; the next write carries it on then.
        """
        return restore(*self._open(), InstantTime(instant), dry_run=dry_run, lock=self.lock)

    def drop_metadata_table(self) -> None:
        """Take Hudi's metadata table off, so that bucketlake can write.

        A commit that skips an existing metadata table is invisible to its readers, so the table is
        taken off the list in ``hoodie.properties`` first and its files go after. The next write of
        Hudi builds it anew.
        """
        storage, _ = self._open()
        drop_metadata_table(storage, self.lock)

    def doctor(
        self,
        *,
        check_keys: bool = False,
        check_files: bool = False,
        min_age_seconds: int = MIN_AGE_SECONDS,
    ) -> list[Finding]:
        """Look the table over: what is wrong, what was left behind, what may become wrong.

        Nothing is changed. The cost is one listing of the table, and its commits' metadata.

        Parameters
        ----------
        check_keys : bool
            Read all keys, too: are they in their buckets, and there once?
        check_files : bool
            Read all live files, too: do they decode, and fit the schema?
        min_age_seconds : int
            Age from which on something counts as left behind. What is younger may be of a writer
            that is at work.

        Returns
        -------
        list of Finding
            The worst first; empty where all is well.

        Raises
        ------
        TableNotFoundError
            If there is no table.
        UnsupportedFeatureError
            If the table cannot be read.

        Notes
        -----
        Examples: ``docs/how-to/doctor.md``.
        """
        return diagnose(
            open_storage(self.path, self.storage_options),
            self.index,
            keys=check_keys,
            files=check_files,
            min_age_seconds=min_age_seconds,
        )

    def repair(
        self,
        *,
        dry_run: bool = True,
        check_keys: bool = False,
        check_files: bool = False,
        min_age_seconds: int = MIN_AGE_SECONDS,
    ) -> RepairReport:
        """Repair what :meth:`doctor` finds, as far as no committed row is lost by it.

        No data file is deleted: those of no commit are moved to quarantine, below ``.hoodie``.
        Partitions whose keys are in wrong buckets, or there twice, are written anew in this
        process, with one row a key by the table's merge rule.

        Parameters
        ----------
        dry_run : bool
            Tell what would be done, and do nothing.
        check_keys : bool
            As for :meth:`doctor`; what it is not asked to look for is not repaired.
        check_files : bool
            As for :meth:`doctor`.
        min_age_seconds : int
            Age from which on something counts as left behind. What is younger is left alone.

        Returns
        -------
        RepairReport
            What is repaired, and what is left to a person.

        Raises
        ------
        UnsupportedFeatureError
            If the table cannot be read, or written where that is needed.
        CommitConflictError
            If another writer came in between, several times.

        Notes
        -----
        Examples: ``docs/how-to/doctor.md``.
        """
        return repair(
            open_storage(self.path, self.storage_options),
            self.index,
            keys=check_keys,
            files=check_files,
            min_age_seconds=min_age_seconds,
            dry_run=dry_run,
            lock=self.lock,
        )

    def _open(self) -> tuple[Storage, TableConfig]:
        storage = open_storage(self.path, self.storage_options)
        config = read_table_config(storage)
        check_readable(config, self.path)
        return storage, config

    def _rows_of(
        self, snapshot: Snapshot, session: SparkSession | None, partitions: Sequence[str]
    ) -> RecordSource:
        """Return all rows of some partitions as the records of a write."""
        plan = plan_slices(snapshot, snapshot.partition_slices(partitions))
        return stored_rows(plan, snapshot.storage, self.path, session)

    def _target(self, storage: Storage, config: TableConfig) -> Target:
        return open_target(storage, config, self.index, log_format=self.log_format, lock=self.lock)

    def _snapshot(self) -> Snapshot:
        return load_snapshot(*self._open())

    def _pin(self, request: ReadRequest) -> PinnedRead:
        return pin_read(*self._open(), request)

    def _index_of(self, snapshot: Snapshot) -> TableIndex | None:
        try:
            return resolve_index(snapshot.storage, snapshot.timeline, self.index)
        except UnsupportedFeatureError:  # Rules that cannot be followed prune nothing.
            return None

    def _write(
        self, operation: Operation, data: DataFrame | pa.Table, batch: Batch | None = None
    ) -> WriteResult:
        storage, config = self._open()
        source = source_of(data, storage, self.path)
        try:
            return retried(
                lambda: write_records(self._target(storage, config), operation, source, batch=batch)
            )
        finally:
            source.close()


@dataclass(frozen=True, slots=True)
class BatchUpsert:
    """Upserts the batches of one stream into a table; see :meth:`Table.upsert_batch`."""

    table: Table
    query_name: str

    def __call__(self, data: DataFrame | pa.Table, batch_id: int) -> WriteResult:
        """Upsert a batch unless it was committed before."""
        return self.table._write(Operation.UPSERT, data, Batch(self.query_name, batch_id))
