"""Slots of a first load that are cut into parts, one task each, where the kind allows it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest

import bucketlake as bl
from bucketlake.errors import BucketLakeError, IndexStateError
from bucketlake.model.table_type import Operation
from bucketlake.timeline.table_properties import table_at
from bucketlake.write import write_plan
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.record_index import indexed_write
from bucketlake.write.record_index.locate import LocateStage
from bucketlake.write.tag import SlotCounts, Tagger
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.conformance.cases import Case, Checked, arrow, rows
from tests.conformance.test_attempts import write_in_attempts
from tests.inside import storage_of
from tests.spies import spy


def many_of(case: Case) -> int:
    """Return a number of records of which each slot gets several parts, or file groups.

    Under a record-level index two or three records fill a group, so less records are many groups.
    """
    return 170 if case.kind.needs_metadata_table else 600


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tasks hold 20 records at most; the list notes into how many parts slots are cut."""
    set_bounds(monkeypatch, write_plan, RECORDS_PER_TASK_MAX=20)
    set_bounds(monkeypatch, indexed_write, BYTES_MAX=1_000)
    written: list[int] = []
    spy(monkeypatch, GroupWriter, "write", lambda _, slot, *__: written.append(slot.part_count))
    spy(
        monkeypatch,
        LocateStage,
        "run",
        lambda _, lookups, *__: written.extend(lookup.part_count for lookup in lookups),
    )
    return written


def require_cut(case: Case, parts: list[int]) -> None:
    """Require that the last write had slots in parts, if and only if the kind allows it."""
    may_be_cut = case.kind.is_cut
    assert any(count > 1 for count in parts) is may_be_cut
    parts.clear()


def test_slots_loaded_in_parts_take_every_later_write_without_loss_or_double(
    table: Checked, parts: list[int]
) -> None:
    many = many_of(table.case)
    table.upsert(rows(range(many), days="c"))
    require_cut(table.case, parts)
    table.check()
    later = rows(range(many // 6, many + many // 6), 1, days="c")
    table.upsert([*later, *rows(range(many // 12), -1, days="c")])
    assert all(count == 1 for count in parts)
    table.delete(rows(range(0, many, 3), days="c"))
    table.check()
    table.upsert(rows(range(0, many, 6), 2, days="c"))
    if table.case.merges_on_read:
        table.table.compact()
    table.check()
    table.check_next_write_finds_all()


def test_a_partition_is_overwritten_in_parts(table: Checked, parts: list[int]) -> None:
    for at in (1, 2):
        table.overwrite(rows(range(many_of(table.case) * at), at))
        require_cut(table.case, parts)
        table.check()
    table.check_next_write_finds_all()
    assert all(count == 1 for count in parts)


def test_attempts_of_a_part_make_the_same_files_with_the_same_bytes(
    table: Checked, parts: list[int]
) -> None:
    many = rows(range(many_of(table.case)), days="c")
    source = write_in_attempts(table, [*rows(range(12), 2), *many])
    require_cut(table.case, parts)
    first, second, third = source.attempts
    assert first
    assert first == second == third
    table.check()
    table.table.rollback(table.table.timeline()[-1].requested_at)
    table.rows = {key: row for key, row in table.rows.items() if key[0] != "c"}
    with suppress(BucketLakeError):  # Nobody waits for an attempt after the rollback.
        source.late()
    assert [one.partition_path for one in table.table.buckets()].count("c") == 0


class Losing(ArrowSource):
    """An input of which the tasks get less than was counted."""

    def pack(self, tagger: Tagger) -> PackedRecords:
        packed, fewer = super().pack(tagger), ArrowSource(self._rows[:-1]).pack(tagger)
        return Miscounted(fewer.flow, fewer.schema, fewer.engine, packed.counts)


@dataclass(frozen=True)
class Miscounted(PackedRecords):
    """Packed records with the counts of others."""

    counts: SlotCounts


def test_an_input_that_changes_before_its_parts_are_written_is_an_error(
    case: Case, new_path: object, parts: list[int]
) -> None:
    table = case.make(new_path()).table  # type: ignore[operator]
    storage = storage_of(table)
    target = open_target(table_at(storage), None)
    with pytest.raises(
        IndexStateError,
        match=r"counted \d+ records.* \d+ arrived: the input",
    ):
        write_records(target, Operation.UPSERT, Losing(arrow(rows(range(many_of(case))))))
    require_cut(case, parts)
    assert bl.open_table(table.path).buckets() == []
    assert bl.open_table(table.path).to_arrow().num_rows == 0
