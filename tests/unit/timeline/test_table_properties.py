"""The table's properties on storage, and their update step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest

from bucketlake.config.paths_of_table import PROPERTIES_BACKUP_FILE, PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig, is_whole
from bucketlake.config.table_keys import CHECKSUM
from bucketlake.errors import AlreadyExistsError, FormatError, StorageError, TableNotFoundError
from bucketlake.format.properties import parse_properties
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Buffer, Storage, StoredObject
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.table_properties import (
    create_properties,
    read_properties,
    read_table_config,
    update_table_properties,
)
from tests.fake_time import FakeTime
from tests.faulty_storage import Effect, Fault, FaultyStorage, SimulatedCrash, crash_points
from tests.storages import failing, memory_of, objects_of

SPEC = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
CONFIG = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)
UPDATE_CHANGES = 3  # The backup, the new content, the backup away.
CLOCK = FakeTime()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    CLOCK.__init__()  # type: ignore[misc]
    CLOCK.installed(monkeypatch)


def _table() -> MemoryStorage:
    storage = memory_of()
    create_properties(storage, CONFIG.to_properties())
    return storage


def _update(
    storage: Storage,
    set_: Mapping[str, str],
    remove: Collection[str] = (),
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Set and remove entries; ``meanwhile`` happens at each wait for another process."""

    def change(entries: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in entries.items() if key not in remove} | {**set_}

    CLOCK.then = meanwhile
    return update_table_properties(storage, change)


def _at_once(storage: Storage) -> TableConfig:
    """Read the properties; the reader must not wait."""
    naps = len(CLOCK.naps)
    config = read_table_config(storage)
    assert len(CLOCK.naps) == naps, "waited"
    return config


def test_created_table_is_read_as_it_was() -> None:
    assert _at_once(_table()) == CONFIG


def test_created_properties_bear_the_time_on_top() -> None:
    storage = memory_of()
    create_properties(storage, CONFIG.to_properties(), now_ms=lambda: 1_795_219_140_781)
    lines = storage.read(PROPERTIES_FILE).decode().splitlines()
    assert lines[:2] == [
        "#Properties saved on 2026-11-20T23:59:00.781Z",
        "#Fri Nov 20 23:59:00 UTC 2026",
    ]


def test_table_is_created_once() -> None:
    storage = _table()
    with pytest.raises(AlreadyExistsError):
        create_properties(storage, CONFIG.to_properties())


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ((), "there is nothing"),
        (("a.csv",), "it holds a.csv"),
        (("x/1.parquet", "y/2", "z.csv", "w.csv"), "it holds x/, y/, w.csv and more"),
        (("_delta_log/0.json", "a.parquet"), "a Delta Lake table"),
        (("metadata/v1.metadata.json", "data/a.parquet"), "an Iceberg table"),
        (("metadata/x.json",), "it holds metadata/"),
        ((".hoodie/timeline/1.commit",), "its .hoodie folder has no hoodie.properties"),
    ],
)
def test_path_without_a_table_says_what_is_there(paths: tuple[str, ...], found: str) -> None:
    storage = memory_of(dict.fromkeys(paths, b""))
    with pytest.raises(TableNotFoundError, match=f"^memory://.* is not a Hudi table: .*{found}"):
        _at_once(storage)


def test_entry_that_no_table_can_have_names_the_file_and_the_key() -> None:
    data = b"hoodie.table.name=t\nhoodie.table.checksum=498511606\n"
    storage = memory_of({PROPERTIES_FILE: data})
    match = (
        r"hoodie\.properties: expected hoodie\.timeline\.layout\.version: .* found no such entry"
    )
    with pytest.raises(FormatError, match=match):
        read_table_config(storage)


def test_reader_takes_the_backup_while_the_file_is_away() -> None:
    storage = _table()
    storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
    storage.delete(PROPERTIES_FILE)
    assert _at_once(storage) == CONFIG


@pytest.mark.parametrize("in_hundredths", [0, 10, 50, 90, 98])
def test_reader_takes_the_backup_where_the_file_is_cut_off(in_hundredths: int) -> None:
    storage = _table()
    whole = storage.read(PROPERTIES_FILE)
    storage.put(PROPERTIES_BACKUP_FILE, whole)
    storage.put(PROPERTIES_FILE, whole[: len(whole) * in_hundredths // 100])
    assert _at_once(storage) == CONFIG
    assert _update(storage, {"a": "1"})["a"] == "1"
    assert set(objects_of(storage)) == {PROPERTIES_FILE}


def test_table_from_before_checksums_is_read_without_one() -> None:
    storage = memory_of({PROPERTIES_FILE: b"hoodie.table.name=t\nhoodie.table.version=3\n"})
    expected = {"hoodie.table.name": "t", "hoodie.table.version": "3"}
    assert read_properties(storage) == expected


@pytest.mark.parametrize("version", [b"", b"hoodie.table.version=6\n", b"hoodie.table.version=9\n"])
def test_table_without_its_checksum_was_cut_off_or_edited(version: bytes) -> None:
    storage = memory_of({PROPERTIES_FILE: b"hoodie.table.name=t\n" + version})
    with pytest.raises(FormatError, match="found no checksum, which every table has: the file was"):
        read_properties(storage)


def test_file_without_a_checksum_is_never_taken_for_whole_wherever_it_was_cut() -> None:
    storage = _table()
    data = storage.read(PROPERTIES_FILE)
    lines = [line for line in data.splitlines(keepends=True) if b"checksum" not in line]
    for count in range(len(lines) + 1):
        storage.put(PROPERTIES_FILE, b"".join(lines[:count]))
        with pytest.raises(FormatError):
            read_properties(storage)


def test_reader_waits_for_invalid_properties_to_become_valid() -> None:
    storage = _table()
    whole = storage.read(PROPERTIES_FILE)
    storage.put(PROPERTIES_FILE, b"")
    CLOCK.then = lambda: CLOCK.seconds > 2 and storage.put(PROPERTIES_FILE, whole)
    assert read_table_config(storage) == CONFIG
    assert 2 < CLOCK.seconds < 3


def test_reader_gives_up_on_properties_that_stay_invalid() -> None:
    storage = memory_of({PROPERTIES_FILE: b"hoodie.table.name=t\nhoodie.table.checksum=1\n"})
    with pytest.raises(FormatError, match="matching checksum"):
        read_properties(storage)
    assert 4 <= CLOCK.seconds < 5


def test_reader_that_comes_between_two_steps_of_an_update_finds_the_table() -> None:
    class Updating(MemoryStorage):
        """An update of Hudi's ends between the reads of the file and of its backup."""

        def read(self, path: str) -> bytes:
            if path == PROPERTIES_BACKUP_FILE:
                self.put(PROPERTIES_FILE, super().read(PROPERTIES_BACKUP_FILE))
                self.delete(PROPERTIES_BACKUP_FILE)
            return super().read(path)

    storage = Updating.fresh()
    storage.put(PROPERTIES_BACKUP_FILE, _table().read(PROPERTIES_FILE))
    assert read_table_config(storage) == CONFIG


def test_update_sets_and_removes_entries_and_keeps_the_others() -> None:
    storage = _table()
    before = read_properties(storage)
    after = _update(
        storage, {"a": "1", "hoodie.table.cdc.enabled": "true"}, ["hoodie.table.format"]
    )
    expected = before | {"a": "1", "hoodie.table.cdc.enabled": "true"}
    del expected["hoodie.table.format"]
    assert after == read_properties(storage) == expected
    assert set(objects_of(storage)) == {PROPERTIES_FILE}
    assert storage.read(PROPERTIES_FILE).startswith(b"#Updated at 20")


def test_update_of_the_name_brings_the_checksum_along() -> None:
    storage = _table()
    _update(storage, {"hoodie.database.name": "lake"})
    assert is_whole(parse_properties(storage.read(PROPERTIES_FILE)))


def test_update_that_changes_nothing_writes_nothing() -> None:
    storage = FaultyStorage(_table(), reads_count=False)
    _update(storage, {}, ["no.such.entry"])
    assert storage.operations == 0


def test_update_where_no_table_is_is_refused() -> None:
    with pytest.raises(TableNotFoundError):
        _update(memory_of(), {"a": "1"})


@pytest.mark.parametrize("fault", list(crash_points(UPDATE_CHANGES)), ids=str)
def test_update_that_dies_at_any_step_leaves_old_or_new_and_the_next_one_succeeds(
    fault: Fault,
) -> None:
    storage = _table()
    old = read_properties(storage)
    with pytest.raises(SimulatedCrash):
        _update(FaultyStorage(storage, [fault], reads_count=False), {"a": "1"})
    found = read_properties(storage)
    assert found in (old, old | {"a": "1"})
    assert _update(storage, {"b": "2"}) == found | {"b": "2"}
    assert set(objects_of(storage)) == {PROPERTIES_FILE}


def test_update_has_as_many_steps_as_are_tested() -> None:
    storage = FaultyStorage(_table(), reads_count=False)
    _update(storage, {"a": "1"})
    assert storage.operations == UPDATE_CHANGES


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("change", range(1, UPDATE_CHANGES + 1))
def test_update_whose_storage_fails_at_any_step_leaves_old_or_new_too(
    change: int, lands: bool
) -> None:
    storage = _table()
    old = read_properties(storage)
    with pytest.raises(StorageError):
        _update(failing(storage, change, lands=lands), {"a": "1"})
    found = read_properties(storage)
    assert found in (old, old | {"a": "1"})
    assert _update(storage, {"b": "2"}) == found | {"b": "2"}


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("change", [1, 2])
def test_recovery_that_dies_at_any_step_is_itself_recovered(change: int, lands: bool) -> None:
    storage = _table()
    old = read_properties(storage)
    storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
    storage.put(PROPERTIES_FILE, b"hoodie.table.na")
    dying = failing(storage, change, lands=lands, effect=Effect.DIE)
    with pytest.raises(SimulatedCrash):
        _update(dying, {"a": "1"})
    assert read_properties(storage) == old
    assert _update(storage, {"b": "2"}) == old | {"b": "2"}


def test_update_waits_for_another_one_and_changes_what_that_one_wrote() -> None:
    storage = _table()
    storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
    writes = memory_of(objects_of(storage))
    theirs = _update(writes, {"theirs": "1"})
    naps = 0

    def meanwhile() -> None:
        nonlocal naps
        naps += 1
        if naps == 3:
            storage.put(PROPERTIES_FILE, writes.read(PROPERTIES_FILE))
            storage.delete(PROPERTIES_BACKUP_FILE)

    after = _update(storage, {"ours": "1"}, meanwhile=meanwhile)
    assert (naps, after["theirs"], after["ours"]) == (3, "1", "1")
    assert read_properties(storage) == theirs | {"ours": "1", CHECKSUM: after[CHECKSUM]}


def test_update_beside_others_that_never_end_is_refused() -> None:
    class Racing(MemoryStorage):
        """Another update begins whenever this one has waited for the last."""

        def read(self, path: str) -> bytes:
            self.put(PROPERTIES_BACKUP_FILE, super().read(PROPERTIES_FILE))
            return super().read(path)

    storage = Racing.fresh()
    create_properties(storage, CONFIG.to_properties())
    with pytest.raises(AlreadyExistsError, match="other processes updated it"):
        _update(storage, {"a": "1"})
    assert read_properties(storage) == CONFIG.to_properties()


@pytest.mark.parametrize("operation", range(1, 12))
def test_update_that_another_one_overtakes_between_two_steps_keeps_both_changes(
    operation: int,
) -> None:
    class Overtaken(MemoryStorage):
        """A whole update by another process runs before one of the operations."""

        left = operation
        is_inside = False

        def _overtake(self) -> None:
            if self.is_inside:
                return
            self.left -= 1
            if self.left == 0:
                self.is_inside = True
                _update(self, {"theirs": "1"})
                self.is_inside = False

        def read(self, path: str) -> bytes:
            self._overtake()
            return super().read(path)

        def stat(self, path: str) -> StoredObject | None:
            self._overtake()
            return super().stat(path)

        def put_if_absent(self, path: str, data: Buffer) -> None:
            self._overtake()
            super().put_if_absent(path, data)

        def delete(self, path: str) -> None:
            self._overtake()
            super().delete(path)

    storage = Overtaken.fresh()
    storage.is_inside = True
    create_properties(storage, CONFIG.to_properties())
    storage.is_inside = False
    _update(storage, {"ours": "1"})
    found = memory_of(objects_of(storage))
    expected = {"ours", "theirs"} if storage.left <= 0 else {"ours"}
    assert expected <= read_properties(found).keys()


def test_update_that_does_not_read_back_fails_and_the_next_one_restores() -> None:
    class Cutting(MemoryStorage):
        """Half of what is written is lost."""

        def put(self, path: str, data: Buffer) -> None:
            super().put(path, bytes(data)[: len(data) // 2])

    storage = Cutting.fresh()
    create_properties(storage, CONFIG.to_properties())
    with pytest.raises(StorageError, match="cannot be read back"):
        _update(storage, {"a": "1"})
    healthy = memory_of(objects_of(storage))
    assert read_properties(healthy) == CONFIG.to_properties()
    assert "a" not in _update(healthy, {"b": "2"})


def test_nothing_valid_is_left_alone_by_an_update() -> None:
    broken = {PROPERTIES_FILE: b"cut", PROPERTIES_BACKUP_FILE: b"cut too"}
    storage = memory_of(broken)
    with pytest.raises(FormatError):
        _update(storage, {"a": "1"})
    assert objects_of(storage) == broken
