"""For each damage: the doctor finds it, and a repair removes it if it is repairable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import bucketlake as bl
from bucketlake.services.findings import FindingKind
from tests.conformance.cases import Case, Checked, objects
from tests.conformance.damages import Damage
from tests.conformance.kinds import KINDS

ALL_CHECKS = {"check_keys": True, "check_files": True, "min_age_seconds": 0}


@pytest.fixture
def table(case: Case, damage: Damage, new_path: Callable[[], str]) -> Checked:
    """A table with keys 0 to 11; with base files if the damage needs one."""
    return case.filled(new_path(), with_base_files=damage.needs_base_file)


def test_a_damage_is_found_and_repaired_or_left_as_it_is(
    table: Checked, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketlake.timeline.table_properties._READ_PAUSE_S", 0)
    is_indexed = isinstance(table.table.index, bl.RecordIndex | bl.DynamicBucket)
    damage.do(table.table)
    before = objects(table.table)
    found = table.table.doctor(**ALL_CHECKS)
    in_index = damage.in_index if is_indexed else frozenset()
    assert {one.kind for one in found} - in_index == damage.found
    if not damage.is_repaired:
        done = table.table.repair(dry_run=False, **ALL_CHECKS)
        assert {one.kind for one in done.repaired} <= in_index
        assert {one.kind for one in done.left} == damage.found
        assert objects(table.table) == before or done.repaired
        return
    planned = table.table.repair(dry_run=True, **ALL_CHECKS)
    assert set(planned.repaired) == set(found)
    assert objects(table.table) == before, "the doctor or the dry run changed something"
    done = table.table.repair(dry_run=False, **ALL_CHECKS)
    assert planned.left == done.left == ()
    assert table.table.doctor(**ALL_CHECKS) == []
    table.check_rows()
    table.check_next_write_finds_all()


def test_every_finding_of_the_doctor_has_a_damage_that_causes_it() -> None:
    special = {damage for kind in KINDS for damage in kind.damages}
    caused = {kind for damage in special for kind in damage.found}
    # Damage of metadata tables: tests/unit/test_metadata_damages.py and test_metadata_listing.py.
    elsewhere = {kind for kind in FindingKind if kind.name.startswith(("METADATA_", "INDEX_"))}
    elsewhere.add(FindingKind.KEYS_AMBIGUOUS)  # Of composite keys: tests/unit/test_alike_keys.py.
    assert caused == {*FindingKind} - elsewhere
