"""For each damage: the doctor finds it, and a repair removes it if it is repairable."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import pytest

import bucketlake as bl
from bucketlake.errors import BucketLakeError
from bucketlake.services.check.findings import FindingKind
from tests.bounds import set_bounds
from tests.conformance.cases import Case, Checked, objects
from tests.conformance.damages import GLOBAL, Damage
from tests.conformance.kinds import KINDS

ALL_CHECKS = {"check_keys": True, "check_files": True, "min_age_seconds": 0}


@pytest.fixture
def table(case: Case, damage: Damage, new_path: Callable[[], str]) -> Checked:
    """A table with keys 0 to 11; with base files if the damage needs one."""
    return case.filled(new_path(), with_base_files=damage.needs_base_file)


def test_a_damage_is_found_and_repaired_or_left_as_it_is(
    table: Checked, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, "bucketlake.timeline.table_properties", _READ_SECONDS_MAX=0)
    is_indexed = isinstance(table.table.index, bl.RecordIndex | bl.DynamicBucket)
    damage.do(table.table)
    before = objects(table.table)
    found = table.table.doctor(**ALL_CHECKS)
    in_index = damage.in_index if is_indexed else frozenset()
    assert {one.kind for one in found} - in_index == damage.found
    if not damage.is_repaired:
        done = table.table.repair(dry_run=False, **ALL_CHECKS)
        assert {one.kind for one in done.repaired} <= in_index
        assert {one.kind for one in done.left} - in_index == damage.found
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


def test_a_repair_gives_a_table_its_index_back_whatever_else_is_damaged(
    table: Checked,
    damage: Damage,
    index_state: Callable[[bl.Table], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_bounds(monkeypatch, "bucketlake.timeline.table_properties", _READ_SECONDS_MAX=0)
    spoils_properties = damage.found & {
        FindingKind.PROPERTIES_BROKEN,
        FindingKind.PROPERTIES_BACKUP,
    }
    steps = [damage.do, index_state]
    for step in reversed(steps) if spoils_properties else steps:
        step(table.table)
    done = table.table.repair(dry_run=False, **ALL_CHECKS)
    assert done.left == ()
    assert table.table.doctor(**ALL_CHECKS) == []
    table.check_rows()
    table.check_next_write_finds_all()


_CALL = re.compile(r"table\.(\w+)\(([^)]*)\)")


@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
def test_each_call_that_an_error_names_leads_to_a_table_that_can_be_written(
    case: Case,
    index_state: Callable[[bl.Table], None],
    is_twice: bool,
    new_path: Callable[[], str],
) -> None:
    def broken() -> Checked:
        made = case.filled(new_path(), with_base_files=True)
        if is_twice:
            GLOBAL[-1 if case.kind.keys_are_global else 1].do(made.table)
        index_state(made.table)
        return made

    def follow(calls: tuple[str, ...]) -> None:
        """Make calls on a new table and write to it; follow each call that an error names."""
        made, told = broken(), None
        for call in (*calls, None):
            try:
                _do(made.table, call) if call else made.upsert([*made.rows.values()][:1])
                told = None
            except BucketLakeError as error:
                told = str(error)
            if told is not None and call in (None, *calls[-1:]):
                break
        if told is None:
            if not is_twice or any("repair" in call for call in calls):
                made.check_rows()
            return
        named = [found[0] for found in _CALL.finditer(told)]
        assert named, told
        for call in named:
            assert call not in calls, f"after {calls}: {told}"
            follow((*calls, call))

    follow(())


def _do(table: bl.Table, call: str) -> None:
    """Make a call that a message names."""
    found = _CALL.fullmatch(call)
    assert found is not None
    given = ast.parse(f"f({found[2]})", mode="eval").body
    assert isinstance(given, ast.Call)
    named = {str(one.arg): ast.literal_eval(one.value) for one in given.keywords}
    getattr(table, found[1])(*map(ast.literal_eval, given.args), **named)


def test_every_finding_of_the_doctor_has_a_damage_that_causes_it() -> None:
    special = {damage for kind in KINDS for damage in kind.damages}
    caused = {kind for damage in special for kind in damage.found}
    # Damage of metadata tables: tests/tables/test_metadata_damages.py and test_metadata_listing.py.
    elsewhere = {kind for kind in FindingKind if kind.name.startswith(("METADATA_", "INDEX_"))}
    elsewhere.add(FindingKind.KEYS_AMBIGUOUS)  # Of composite keys: tests/unit/test_alike_keys.py.
    elsewhere.add(FindingKind.CLOCK_AHEAD)  # No damage of files: tests/tables/test_read_times.py.
    elsewhere.add(FindingKind.DELETES_LOST)  # tests/tables/test_remembered_deletes.py.
    # tests/tables/test_sync.py.
    elsewhere |= {FindingKind.CATALOG_BEHIND, FindingKind.CATALOG_NOT_COMPARED}
    # Only Hudi causes them: tests/golden/test_doctor.py.
    elsewhere |= {FindingKind.KEYS_UNLIKE_COLUMNS, FindingKind.LOG_OF_OTHER_COMMIT}
    assert caused == {*FindingKind} - elsewhere
