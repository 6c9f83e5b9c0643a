"""Writing one slot: each of its file groups gets a new base file, or a log file.

The code runs in a task, which may run twice, late, or after the write was rolled back. So:

- Instant, partition and file group fix the file's name; the same input gives the same rows in the
  same order.
- The file is published by put-if-absent. An attempt that finds the file reads its statistics from
  the footer.
- A file is published only while the instant is pending. A late attempt must not write a file again
  that a clean has deleted.
- The marker is written before the file, so that a rollback finds the file. An attempt that finds
  its instant rolled back after publishing deletes its file.

The layout chooses the file group of each record (``index/layout.py``). If the table has a
record-level index, the writer also tells which keys are new to their group and which are gone. The
footer of a file does not tell that, so an attempt that finds the file merges again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from bucketlake.config.table_version import LAYOUT_2, TimelineLayout
from bucketlake.errors import FormatError, MissingFileError
from bucketlake.format.base_file import BaseFileReader, encode_base_file, with_dictionaries
from bucketlake.format.json_fields import parsing
from bucketlake.index.layout import GroupChoice, Layout, SlotPlan
from bucketlake.merge.combining import Combining, completed
from bucketlake.merge.group_merge import (
    STORED_META,
    GroupMerge,
    MergeCounts,
    MergeRule,
    Stamp,
    group_in_words,
)
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.metadata.statistics.of_file import (
    FileStatistics,
    short_base_file_statistics,
    short_statistics,
    short_statistics_of_written,
)
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.cast import cast_table
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName, file_path
from bucketlake.model.file_slice import DataFile
from bucketlake.model.schema import RECORD_KEY
from bucketlake.model.table_type import ChangeLogMode, LogFormat
from bucketlake.model.write_stat import NO_PREVIOUS_COMMIT, WriteStat
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.slice_reader import SliceReader
from bucketlake.slices.stored_keys import StoredKeyReader
from bucketlake.storage.base import Storage
from bucketlake.timeline.data_file import DataFiles
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.write.adopt import require_own_keys
from bucketlake.write.change_log import CHANGE_SUFFIX, ChangeLog
from bucketlake.write.log_file import encode_log_file
from bucketlake.write.new_keys import Unstored
from bucketlake.write.record_index.key_changes import (
    ChangedKeys,
    changes_of_append,
    changes_of_merge,
)
from bucketlake.write.write_plan import SlotResult

WRITE_TOKEN = "1-0-1"  # The same for all attempts, so that they write the same file name.

STATS_KEY = "bucketlake.write.stats"

CHUNK_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """The values that all tasks of one write share; small and picklable.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    instant : InstantTime
        Instant of the write.
    schema : pa.Schema
        Data schema of the new files, without meta columns.
    rule : MergeRule
        Rule that decides which record wins.
    layout : Layout
        Chooses file groups, and checks the keys of files that other programs wrote.
    stored_keys : StoredKeyReader
        Reads the keys of stored files for the layout.
    schema_text : str
        The data schema as Avro JSON, for the blocks of log files.
    inflight : str
        Path of the inflight file, which exists while the write is pending.
    slot_count : int
        Number of slots of the whole write; each part of a slot counts.
    appends : bool
        Whether existing groups get log files, as in merge-on-read tables.
    log_format : LogFormat
        The block type of records in log files.
    indexed : pa.Schema or None
        Columns whose statistics the metadata table has
        (``metadata/statistics/of_file.py``).
    combining : Combining or None
        How the columns of a record and of a stored row are combined; None if a record replaces the
        row.
    slices : SliceReader or None
        Reads the stored rows with which records are combined before they go into log files; None
        if readers of the table combine them.
    timeline_layout : TimelineLayout
        How log files are named.
    unstored : callable or None
        Leaves out records whose key is stored; None for a write that updates them.
    change_log : ChangeLogMode or None
        What a file beside a new base file keeps of its changes; None if the table has no such files
        (``write/change_log.py``). Hudi finds the changes of log files without one.
    """

    storage: Storage
    instant: InstantTime
    schema: pa.Schema
    rule: MergeRule
    layout: Layout
    stored_keys: StoredKeyReader
    schema_text: str
    inflight: str
    slot_count: int
    appends: bool = False
    log_format: LogFormat = LogFormat.PARQUET
    indexed: pa.Schema | None = None
    combining: Combining | None = None
    slices: SliceReader | None = None
    change_log: ChangeLogMode | None = None
    unstored: Unstored | None = None
    timeline_layout: TimelineLayout = LAYOUT_2

    def files(self) -> DataFiles:
        """Return what collects the files of a task."""
        return DataFiles(self.storage, self.instant, self.inflight)

    def write(
        self,
        plan: SlotPlan,
        incoming: IncomingRecords,
        count: int,
        files: DataFiles,
        changed: ChangedKeys | None = None,
    ) -> SlotResult:
        """Write the file groups of a slot that incoming records change.

        Parameters
        ----------
        plan : SlotPlan
            The slot or part, and its live slices.
        incoming : IncomingRecords
            Its records, with distinct keys.
        count : int
            Number of records that the task received for it.
        files : DataFiles
            Gets the files; the caller publishes them.
        changed : ChangedKeys, optional
            Gets the keys whose entries in the record-level index the write may change.
        """
        with telling_what_is_gone(self.storage):
            choices = self.layout.choose(
                plan, incoming, self.instant, self.stored_keys, appends=self.appends
            )
        return self.write_choices(plan, choices, incoming, count, files, changed)

    def write_choices(
        self,
        plan: SlotPlan,
        choices: Sequence[GroupChoice],
        incoming: IncomingRecords,
        count: int,
        files: DataFiles,
        changed: ChangedKeys | None = None,
    ) -> SlotResult:
        """Write the chosen file groups of a slot; see :meth:`write`."""
        stats, kept, ignored = [], [], 0
        for place, choice in enumerate(choices):
            own = incoming if choice.rows is None else incoming.take(choice.rows)
            # Sequence numbers of rows contain this number, which is unique among the groups.
            number = plan.number + place * self.slot_count
            if self.unstored is not None and choice.file_slice is not None:
                new = self.unstored(own, choice.file_slice)
                ignored += len(own) - len(new)
                if len(new) == 0:
                    kept.append(choice.file_id)
                    continue
                own = new
            stat, late = self._write_group(plan.partition_path, choice, own, number, files, changed)
            ignored += late
            if stat is not None:
                stats.append(stat)
            elif choice.file_slice is not None:
                kept.append(choice.file_id)
        return SlotResult(plan.number, count, tuple(stats), ignored, tuple(kept))

    def _write_group(
        self,
        partition: str,
        choice: GroupChoice,
        incoming: IncomingRecords,
        number: int,
        files: DataFiles,
        changed: ChangedKeys | None,
    ) -> tuple[WriteStat | None, int]:
        """Write the new base file of a group, or its log file.

        Returns the statistics of the file, and the number of ignored records. There is no file if a
        new group would be empty, or no record changed the group.

        Notes
        -----
        A new group begins with a base file, also under a hash ring, where Hudi begins with a log
        file. hudi-rs 0.5.0 skips groups of log files alone in a table with a metadata table.
        Only log files can be repeated in the new groups of a pending resize.
        """
        begins_group = choice.file_slice is None and choice.log_copy is None
        if self.appends and not begins_group:
            return self._append(partition, choice, incoming, number, files, changed)
        base = None
        if choice.file_slice is not None:
            base = choice.file_slice.base_file
            assert base is not None, "a slice without log files has a base file"
        name = BaseFileName(choice.file_id, WRITE_TOKEN, self.instant).to_file_name()
        path = file_path(partition, name)
        is_published = self.storage.stat(path) is not None
        if is_published and changed is None:
            return self._stat_of_published(partition, choice, base, path)
        stamp = Stamp(self.instant, number, partition, name)
        merge = GroupMerge(incoming, self.rule, stamp, self.schema, self.combining)
        stored = self._stored(base)
        log = None
        change_files: tuple[tuple[str, int], ...] = ()
        if self.change_log is not None and base is not None and not is_published:
            log = ChangeLog(self.change_log, self.instant, self.schema)
            merged = log.watch_merged(merge.run(log.watch_stored(stored, incoming.keys)))
        else:
            merged = merge.run(stored)
        if is_published:
            deque(merged, maxlen=0)
        else:
            written = encode_base_file(
                merged,
                self.schema,
                footer=lambda: {STATS_KEY: json.dumps(asdict(merge.counts))},
                key_filter=self.layout.looks_up,
            )
        if changed is not None:
            changed.add(partition, choice.file_id, *changes_of_merge(merge))
        if is_published:
            return self._stat_of_published(partition, choice, base, path)
        if merge.counts.changed == 0:
            return None, merge.counts.ignored
        if log is not None:  # Before the base file: an attempt that finds that one finds both.
            gone = incoming.keys.take(pa.array(np.flatnonzero(merge.is_gone)))
            log_data = log.encode(self.schema_text, gone)
            log_path = self._change_path(partition, choice.file_id)
            marker = Marker(partition, log_path.rpartition("/")[2], MarkerType.CREATE)
            files.add_before(marker, memoryview(log_data))
            change_files = ((log_path, len(log_data)),)
        kind = MarkerType.CREATE if base is None else MarkerType.MERGE
        _add(files, partition, path, written.data, kind)
        statistics = short_statistics_of_written(written, self.indexed, path)
        counts = merge.counts
        stat = self._stat(partition, choice, base, path, counts, len(written.data), statistics)
        stat = replace(stat, change_files=change_files) if change_files else stat
        return stat, counts.ignored

    def _completed(
        self, partition: str, choice: GroupChoice, incoming: IncomingRecords
    ) -> tuple[IncomingRecords, int, int]:
        """Return the records as they go into a log file, as :func:`completed` does.

        The file group is read at the pinned state of the table. A commit to it meanwhile is a
        conflict, as for a new base file.
        """
        if self.combining is None or self.slices is None:
            if self.combining is not None:
                self.combining.require_inserts(incoming, np.flatnonzero(~incoming.deleted))
            opens_group = choice.file_slice is None
            inserts = len(incoming) - int(incoming.deleted.sum()) if opens_group else 0
            return incoming, inserts, 0
        stored: Iterator[pa.Table] = iter(())
        has_rows = not incoming.deleted.all() or self.combining.groups is not None
        if choice.file_slice is not None and has_rows:
            stored = self.slices.read(choice.file_slice, [RECORD_KEY, *self.schema.names])
        what = group_in_words(partition, choice.file_id)
        return completed(incoming, stored, self.rule.compared, self.combining, what)

    def _append(
        self,
        partition: str,
        choice: GroupChoice,
        incoming: IncomingRecords,
        number: int,
        files: DataFiles,
        changed: ChangedKeys | None,
    ) -> tuple[WriteStat | None, int]:
        """Write the log file of a group; see :meth:`_write_group`."""
        opens_group = choice.file_slice is None
        incoming, inserted, ignored = self._completed(partition, choice, incoming)
        if not len(incoming):
            return None, ignored
        if changed is not None:
            changes = changes_of_append(incoming, opens_group=opens_group)
            changed.add(partition, choice.file_id, *changes)
        name = self._log_name(choice)
        path = file_path(partition, name.to_file_name())
        stored = self.storage.stat(path)
        if stored is None:
            stamp = Stamp(self.instant, number, partition, choice.file_id)
            data, statistics = encode_log_file(
                incoming,
                self.rule,
                stamp,
                self.schema,
                self.schema_text,
                self.log_format,
                self.indexed,
            )
            kind = MarkerType.of_log_file(self.timeline_layout)
            _add(files, partition, path, memoryview(data), kind)
            size_bytes = len(data)
        else:
            size_bytes, statistics = stored.size_bytes, None
            if self.indexed is not None:
                statistics = short_statistics(self.storage.read(path), self.indexed, path)
        deletes = int(incoming.deleted.sum())
        stat = WriteStat(
            file_id=choice.file_id,
            path=path,
            partition_path=partition,
            previous_commit=NO_PREVIOUS_COMMIT if opens_group else name.instant,
            record_count=len(incoming) - deletes,
            insert_count=inserted,
            update_count=len(incoming) - deletes - inserted,
            delete_count=deletes,
            file_size_bytes=size_bytes,
            opens_group=opens_group,
            slice_files=self._slice_files(choice, name),
            log_copy=choice.log_copy,
            statistics=statistics,
        )
        return stat, ignored

    def _log_name(self, choice: GroupChoice) -> LogFileName:
        if not self.timeline_layout.logs_name_slices:
            return LogFileName(choice.file_id, self.instant, choice.log_version, WRITE_TOKEN)
        if choice.file_slice is not None:
            return choice.file_slice.next_log_file(self.instant, choice.log_version)
        instant = self.instant
        return LogFileName.in_slice(choice.file_id, instant, 1, instant, choice.log_version)

    def _slice_files(self, choice: GroupChoice, log: LogFileName) -> tuple[str, ...]:
        names_slices = self.timeline_layout.logs_name_slices
        is_told = names_slices or self.change_log is not None
        if not is_told or choice.file_slice is None:
            return ()
        return tuple(
            file.name.to_file_name()
            for file in choice.file_slice.files
            if file.name.instant == log.instant or not names_slices
        )

    def _stored(self, base: DataFile | None) -> Iterator[pa.Table]:
        if base is None:
            return
        columns = [*STORED_META, *self.schema.names]
        target = pa.schema([*((name, pa.string()) for name in STORED_META), *self.schema])
        with (
            telling_what_is_gone(self.storage),
            BaseFileReader(
                self.storage, base.path, base.size_bytes, dictionaries=self._only_copied
            ) as reader,
        ):
            foreign = STATS_KEY not in reader.key_values

            def checked(chunk: pa.Table) -> pa.Table:
                if foreign:  # Its writer may have used another bucket count.
                    keys, file_id = chunk[RECORD_KEY], base.name.file_id
                    require_own_keys(keys, base.partition_path, file_id, self.layout, base.path)
                return cast_table(chunk, with_dictionaries(target, chunk.schema))

            yield from map(checked, reader.iter_chunks(columns, rows_max=CHUNK_ROWS))

    @property
    def _only_copied(self) -> list[str]:
        """Columns of texts whose stored values the write only copies to the new file."""
        if self.combining is not None or self.change_log is not None:
            return []
        read = {RECORD_KEY, *self.rule.ordering_fields}
        names = [*STORED_META, *(f.name for f in self.schema if f.type == pa.string())]
        return [name for name in names if name not in read]

    def _change_path(self, partition: str, file_id: FileId) -> str:
        name = LogFileName(file_id, self.instant, 1, WRITE_TOKEN, CHANGE_SUFFIX)
        return file_path(partition, name.to_file_name())

    def _change_files(
        self, partition: str, choice: GroupChoice, base: DataFile | None
    ) -> tuple[tuple[str, int], ...]:
        """Return the path and size of the file with the changes of a base file, if there is one."""
        if self.change_log is None or base is None:
            return ()
        path = self._change_path(partition, choice.file_id)
        stored = self.storage.stat(path)
        if stored is None:
            raise MissingFileError(path, "its base file is there, which is written after it")
        return ((path, stored.size_bytes),)

    def _stat_of_published(
        self, partition: str, choice: GroupChoice, base: DataFile | None, path: str
    ) -> tuple[WriteStat, int]:
        with BaseFileReader(self.storage, path) as reader:
            text = reader.key_values.get(STATS_KEY)
            size_bytes = reader.size_bytes
            statistics = short_base_file_statistics(reader, self.indexed)
        if text is None:
            raise FormatError(path, f"footer key {STATS_KEY}", "none; another program wrote it")
        with parsing(path, f"counts of rows in {STATS_KEY}", text):
            counts = MergeCounts(**parse_json(text))
        stat = self._stat(partition, choice, base, path, counts, size_bytes, statistics)
        changes = self._change_files(partition, choice, base)
        return replace(stat, change_files=changes), counts.ignored

    def _stat(
        self,
        partition: str,
        choice: GroupChoice,
        base: DataFile | None,
        path: str,
        counts: MergeCounts,
        size_bytes: int,
        statistics: FileStatistics | None,
    ) -> WriteStat:
        return WriteStat(
            file_id=choice.file_id,
            path=path,
            partition_path=partition,
            previous_commit=base.name.instant if base else NO_PREVIOUS_COMMIT,
            previous_base_file=base.name.to_file_name() if base else None,
            record_count=counts.written,
            insert_count=counts.inserted,
            update_count=counts.updated,
            delete_count=counts.deleted,
            file_size_bytes=size_bytes,
            opens_group=choice.file_slice is None,
            statistics=statistics,
        )


def _add(files: DataFiles, partition: str, path: str, data: memoryview, kind: MarkerType) -> None:
    files.add(Marker(partition, path.rpartition("/")[2], kind), data)
