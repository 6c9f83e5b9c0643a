"""Partitions rescaled by one side, written and read by the other (RFC-89)."""

from __future__ import annotations

from pathlib import Path

import pytest

import bucketlake as bl
from tests.interop.layouts import BY_RULES
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer, rows
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

NAME = "rescaled"


def rescale(writer: Writer, table: SharedTable, rules: dict[str, int], default: int) -> None:
    if writer is BUCKETLAKE:
        table.ours.rescale(rules, default=default, dry_run=False)
        return
    expressions = ";".join(f"{pattern},{count}" for pattern, count in rules.items())
    table.hudi.sql("SET hoodie.metadata.enable=false")
    table.hudi.sql(f"CREATE TABLE IF NOT EXISTS {NAME} USING hudi LOCATION '{table.path}'")
    [said] = table.hudi.sql(
        f"CALL partition_bucket_index_manager(table => '{NAME}', overwrite => '{expressions}', "
        f"bucket_number => {default}, dry_run => false, "
        "options => 'hoodie.metadata.enable=false')"
    )
    assert said["result"] == "SUCCESS", said


def assert_in_their_buckets(table: SharedTable) -> None:
    index = table.ours.index
    assert isinstance(index, bl.PartitionBucket)
    for bucket in table.ours.buckets():
        assert bucket.bucket_id is not None
        assert bucket.bucket_id < index.count_of(bucket.partition_path), bucket
    for row in table.model.rows.values():
        assert len(table.ours.locate(str(row["id"]))) == 1, row


@pytest.mark.every_case
@pytest.mark.parametrize("first", list(Writer), ids=lambda writer: f"{writer.value} first")
def test_hudi_and_bucketlake_take_turns_across_rescales(
    hudi: HudiPeer, tmp_path: Path, first: Writer
) -> None:
    """Each rescales, and then the other is the first to write."""
    other = HUDI if first is BUCKETLAKE else BUCKETLAKE
    table = SharedTable(hudi, tmp_path / NAME, BY_RULES.kind)
    table.begin()
    table.upsert(first, rows(range(40), 1))
    for step, (writer, rules, default) in enumerate(
        [(first, {"eu": 2, "us": 7}, 3), (other, {"eu": 4}, 2), (first, {"us": 1, "e": 6}, 2)]
    ):
        rescale(writer, table, rules, default)
        table.assert_read_by_all()
        assert_in_their_buckets(table)
        next_one = HUDI if writer is BUCKETLAKE else BUCKETLAKE
        for turn in (next_one, writer):
            start = 10 * step
            table.upsert(turn, rows(range(start, start + 30), 2 + step))
            table.delete(turn, rows(range(start, start + 2), 0))
            table.assert_read_by_all()
            assert_in_their_buckets(table)


def test_a_simple_bucket_table_that_we_rescaled_is_written_by_hudi(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """Hudi's job goes on with its old options; the rules in the table outweigh them."""
    table = SharedTable(hudi, tmp_path / NAME, TableKind(rules=()))
    table.upsert(HUDI, rows(range(40), 1))
    table.ours.rescale({"eu": 5}, dry_run=False)
    held = SharedTable(hudi, table.path, BY_RULES.kind)
    held.model, held.options = table.model, table.options
    for turn in (HUDI, BUCKETLAKE, HUDI):
        held.upsert(turn, rows(range(20, 60), 2))
        held.assert_read_by_all()
        assert_in_their_buckets(held)
