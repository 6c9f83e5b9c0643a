"""Writing one file group: a new base file, merged from its newest one, or a log file.

Runs in a task, which may run twice, late, or after the write was rolled back. So the file's whole
name follows from (instant, partition, file group); the same rows come out in the same order; the
file is published by put-if-absent, and who finds it there takes its statistics from its footer.
Nothing is published once the instant is not pending any more: a file of a commit that was cleaned
and archived since must not come back. The marker comes before the file, so that a rollback knows
of it, and an attempt that finds its instant rolled back after publishing takes its own file away
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from bucketlake.errors import FormatError
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.index.kinds import BucketIndex
from bucketlake.merge.group_merge import STORED_META, GroupMerge, MergeCounts, MergeRule, Stamp
from bucketlake.merge.records import IncomingRecords
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName, file_path
from bucketlake.model.schema import RECORD_KEY, cast_table
from bucketlake.model.table_type import LogFormat
from bucketlake.model.write_stat import NO_PREVIOUS_COMMIT, WriteStat
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.storage.base import Storage
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.write.adopt import require_keys_of_bucket
from bucketlake.write.data_file import put_data_file
from bucketlake.write.log_file import encode_log_file
from bucketlake.write.plan import GroupPlan

WRITE_TOKEN = "1-0-1"  # One for all attempts: the name must not tell them apart.

STATS_KEY = "bucketlake.write.stats"

CHUNK_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """What all tasks of one write share; a small picklable value.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    instant : InstantTime
        Instant of the write.
    schema : pa.Schema
        Data schema of the new files, without meta columns.
    rule : MergeRule
        Which record wins.
    index : BucketIndex
        How keys find their bucket, to check files of other programs by.
    schema_text : str
        The data schema as Avro JSON, for the blocks of log files.
    inflight : str
        Path of the inflight file, which says that the write is pending.
    log_format : LogFormat
        The kind of block that records of log files are written in.
    """

    storage: Storage
    instant: InstantTime
    schema: pa.Schema
    rule: MergeRule
    index: BucketIndex
    schema_text: str
    inflight: str
    log_format: LogFormat = LogFormat.PARQUET

    def write(self, plan: GroupPlan, incoming: IncomingRecords) -> WriteStat | None:
        """Write the new base file of a group, or its log file.

        Parameters
        ----------
        plan : GroupPlan
            The group, and its newest base file.
        incoming : IncomingRecords
            Records of the group with distinct keys.

        Returns
        -------
        WriteStat or None
            None where a new group would come out empty.
        """
        if plan.appends:
            return self._append(plan, incoming)
        name = BaseFileName(plan.file_id, WRITE_TOKEN, self.instant).to_file_name()
        path = file_path(plan.partition_path, name)
        if self.storage.stat(path) is not None:
            return self._stat_of_published(plan, path)
        merge = GroupMerge(
            incoming,
            self.rule,
            Stamp(self.instant, plan.number, plan.partition_path, name),
            self.schema,
        )
        data = self._encode(merge, plan)
        if plan.base_path is None and merge.counts.written == 0:
            return None
        self._put(plan, path, data)
        return self._stat(plan, path, merge.counts, len(data))

    def _append(self, plan: GroupPlan, incoming: IncomingRecords) -> WriteStat:
        name = LogFileName(plan.file_id, self.instant, 1, WRITE_TOKEN).to_file_name()
        path = file_path(plan.partition_path, name)
        stored = self.storage.stat(path)
        if stored is None:
            stamp = Stamp(self.instant, plan.number, plan.partition_path, plan.file_id)
            data = encode_log_file(
                incoming, self.rule, stamp, self.schema, self.schema_text, self.log_format
            )
            self._put(plan, path, memoryview(data))
        size_bytes = len(data) if stored is None else stored.size_bytes
        deletes = int(incoming.deleted.sum())
        return WriteStat(
            file_id=plan.file_id,
            path=path,
            partition_path=plan.partition_path,
            previous_commit=self.instant,
            record_count=len(incoming) - deletes,
            update_count=len(incoming) - deletes,
            delete_count=deletes,
            file_size_bytes=size_bytes,
        )

    def _encode(self, merge: GroupMerge, plan: GroupPlan) -> memoryview:
        return encode_base_file(
            merge.run(self._stored(plan)),
            self.schema,
            footer=lambda: {STATS_KEY: json.dumps(asdict(merge.counts))},
        )

    def _stored(self, plan: GroupPlan) -> Iterator[pa.Table]:
        if plan.base_path is None:
            return
        columns = [*STORED_META, *self.schema.names]
        target = pa.schema([*((name, pa.string()) for name in STORED_META), *self.schema])
        with (
            telling_what_is_gone(),
            BaseFileReader(self.storage, plan.base_path, plan.base_size_bytes) as reader,
        ):
            rows = max(CHUNK_ROWS, plan.records)  # A lookup table of the records per chunk.
            foreign = STATS_KEY not in reader.key_values
            for chunk in reader.iter_chunks(columns, rows_max=rows):
                if foreign:  # Its writer may have been told another bucket count.
                    keys = chunk[RECORD_KEY]
                    require_keys_of_bucket(
                        keys, plan.partition_path, plan.bucket_id, self.index, plan.base_path
                    )
                yield cast_table(chunk, target)

    def _put(self, plan: GroupPlan, path: str, data: memoryview) -> None:
        kind = MarkerType.CREATE if plan.base_path is None else MarkerType.MERGE  # Logs: CREATE.
        marker = Marker(plan.partition_path, path.rpartition("/")[2], kind)
        put_data_file(self.storage, self.instant, self.inflight, marker, data)

    def _stat_of_published(self, plan: GroupPlan, path: str) -> WriteStat:
        with BaseFileReader(self.storage, path) as reader:
            text = reader.key_values.get(STATS_KEY)
            size_bytes = reader.size_bytes
        if text is None:
            raise FormatError(path, f"footer key {STATS_KEY}", "none; another program wrote it")
        return self._stat(plan, path, MergeCounts(**json.loads(text)), size_bytes)

    def _stat(self, plan: GroupPlan, path: str, counts: MergeCounts, size_bytes: int) -> WriteStat:
        base = plan.base_path.rpartition("/")[2] if plan.base_path else None
        base_name = BaseFileName.from_file_name(base) if base else None
        return WriteStat(
            file_id=plan.file_id,
            path=path,
            partition_path=plan.partition_path,
            previous_commit=base_name.instant if base_name else NO_PREVIOUS_COMMIT,
            previous_base_file=base,
            record_count=counts.written,
            insert_count=counts.inserted,
            update_count=counts.updated,
            delete_count=counts.deleted,
            file_size_bytes=size_bytes,
        )
