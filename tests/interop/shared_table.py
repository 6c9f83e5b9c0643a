"""A table that Hudi and bucketlake both write to, and what it must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path

import bucketlake as bl
from tests.interop.model import Model, Row, in_order, rows_of
from tests.interop.peer.client import HudiPeer, PeerError, read_with_hudi_rs
from tests.interop.table_kind import METADATA_ENABLE, OPERATION, TableKind

WITH_METADATA = {METADATA_ENABLE: "true"}
WITHOUT_METADATA = {METADATA_ENABLE: "false"}

# Hudi makes this check after it wrote the data and before it commits; new rows fail it.
FAILING_CHECK = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQueryEqualityPreCommitValidator"
    ),
    "hoodie.precommit.validators.equality.sql.queries": "SELECT count(*) FROM <TABLE_NAME>",
}


class Writer(Enum):
    """Who writes."""

    BUCKETLAKE = "bucketlake"
    HUDI = "hudi"


BUCKETLAKE, HUDI = Writer.BUCKETLAKE, Writer.HUDI


def rows(numbers: range, ts: int, regions: tuple[str, ...] = ("eu", "us")) -> list[Row]:
    """Make events; their region follows from their number."""
    return [
        {"id": f"k{n}", "region": regions[n % len(regions)], "ts": ts, "v": n, "note": f"at {ts}"}
        for n in numbers
    ]


class SharedTable:
    """One table, written by either, the model following along.

    Parameters
    ----------
    shown_by_hudi : callable, optional
        What Hudi's Spark reader makes of a row, where that differs.
    with_hudi_rs : bool
        Whether hudi-rs reads the table, too.
    """

    def __init__(
        self,
        hudi: HudiPeer,
        path: Path,
        kind: TableKind | None = None,
        shown_by_hudi: Callable[[Row], Row] = dict,
        *,
        with_hudi_rs: bool = True,
    ) -> None:
        self.kind = kind or TableKind()
        self.hudi, self.path, self.model = hudi, path, Model(self.kind)
        self.options = self.kind.write_options(path)
        self._shown_by_hudi, self._with_hudi_rs = shown_by_hudi, with_hudi_rs

    @property
    def ours(self) -> bl.Table:
        """The table as bucketlake opens it."""
        return self.kind.open(self.path)

    def begin(self) -> None:
        """Have bucketlake make the table; otherwise Hudi's first write does."""
        self.kind.create(self.path)

    def upsert(
        self, writer: Writer, batch: list[Row], options: Mapping[str, str] | None = None
    ) -> None:
        self.model.upsert(batch)
        self.write(writer, batch, options)

    def write(
        self, writer: Writer, batch: list[Row], options: Mapping[str, str] | None = None
    ) -> None:
        """Upsert without a word to the model."""
        if writer is HUDI:
            self.hudi_runs("upsert", batch, options)
        else:
            self.ours.upsert(self.kind.rows(batch))

    def delete(
        self, writer: Writer, keys: list[Row], options: Mapping[str, str] | None = None
    ) -> None:
        self.model.delete(keys)
        if writer is HUDI:
            self.hudi_runs("delete", keys, options)
        else:
            fields = dict.fromkeys([*self.kind.record_key, *self.kind.partition_by])
            self.ours.delete(self.kind.rows(keys).select(list(fields)))

    def overwrite(self, writer: Writer, batch: list[Row], *, whole_table: bool = False) -> None:
        self.model.overwrite(batch, whole_table=whole_table)
        if writer is HUDI:
            suffix = "_table" if whole_table else ""
            self.hudi_runs(f"insert_overwrite{suffix}", batch)
        else:
            self.ours.insert_overwrite(self.kind.rows(batch), whole_table=whole_table)

    def delete_partitions(self, writer: Writer, regions: Sequence[str]) -> None:
        self.model.delete_partitions([(region,) for region in regions])
        if writer is HUDI:
            chosen = {"hoodie.datasource.write.partitions.to.delete": ",".join(regions)}
            self.hudi_runs("delete_partition", [], chosen)
        else:
            self.ours.delete_partitions(regions)

    def hudi_runs(
        self, operation: str, batch: list[Row], options: Mapping[str, str] | None = None
    ) -> None:
        """Have Hudi carry out an operation; the model does not hear of it."""
        given = {**self.options, OPERATION: operation, **(options or {})}
        rows = self.kind.rows(batch)
        try:
            self.hudi.write(self.path, rows, given)
        except PeerError as error:
            # Tasks of Hudi 1.2.0 share a plain HashMap of rules (PartitionBucketIndexCalculator's
            # INSTANCES) without a lock, and now and then one fails on it; the job is run again.
            if not self.kind.rules or "ConcurrentModificationException" not in str(error):
                raise
            self.hudi.write(self.path, rows, given)

    def file_groups(self) -> set[tuple[str, str]]:
        """Return the live file groups: one a bucket at most, where the kind has no file size."""
        buckets = self.ours.buckets()
        found = Counter((bucket.partition_path, bucket.bucket_id) for bucket in buckets)
        if self.kind.max_file_size is None and self.kind.partitioned_index is None:
            assert max(found.values(), default=1) == 1, found
        return {(bucket.partition_path, bucket.file_id) for bucket in buckets}

    def assert_read_by_all(self, *options: dict[str, str], with_hudi_rs: bool = True) -> None:
        """Compare every reader with the model; Hudi reads once with each of the options.

        In version 6, hudi-rs does not put the slice of a pending compaction together.
        """
        schema, held = self.kind.schema, list(self.model.rows.values())
        shown = in_order(map(self._shown_by_hudi, held), schema)
        self.file_groups()
        assert rows_of(self.ours.to_arrow(), schema) == in_order(held, schema)
        if self._with_hudi_rs and with_hudi_rs:
            assert rows_of(read_with_hudi_rs(self.path), schema) == in_order(held, schema)
        for given in options or [{}]:
            assert rows_of(self.hudi.read(self.path, given), schema) == shown, given
