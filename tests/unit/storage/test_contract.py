"""What every backend promises, asked of each in the same words."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.storage.base import Buffer, Storage, VersionedStorage
from tests.faulty_storage import FaultyStorage, SimulatedCrash, crash_points
from tests.unit.storage.names import NAMES


def _paths(storage: Storage, folder: str, *, recursive: bool = True) -> list[str]:
    return [stored.path for stored in storage.list(folder, recursive=recursive)]


def test_backend_satisfies_the_protocol(storage: Storage) -> None:
    assert isinstance(storage, Storage)


def test_object_put_is_read_back(storage: Storage) -> None:
    storage.put("p/a", b"one")
    assert storage.read("p/a") == b"one"


def test_put_replaces_what_is_there(storage: Storage) -> None:
    storage.put("a", b"a longer first content")
    storage.put("a", b"second")
    assert storage.read("a") == b"second"


def test_large_object_comes_back_whole(storage: Storage) -> None:
    data = np.random.default_rng(7).bytes(12_000_000)  # Beyond one part of a multipart upload.
    storage.put("big", data)
    storage.put_if_absent("big too", data)
    assert storage.read("big") == data
    assert storage.read("big too") == data


def test_empty_object_is_an_object(storage: Storage) -> None:
    storage.put("a", b"")
    storage.put_if_absent("b", b"")
    assert (storage.read("a"), storage.read("b")) == (b"", b"")
    assert _paths(storage, "") == ["a", "b"]


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"\x01\x00\x02\x00"),
        memoryview(b"\x01\x00\x02\x00"),
        memoryview(b"\x01_\x00_\x02_\x00_")[::2],
        memoryview(np.array([1, 2], "<i2")),
        memoryview(np.array([[1], [2]], "<i2")),
    ],
    ids=["bytearray", "memoryview", "gaps", "numbers", "two dimensions"],
)
def test_any_buffer_is_written_as_its_bytes(storage: Storage, data: Buffer) -> None:
    storage.put("a", data)
    storage.put_if_absent("b", data)
    assert storage.read("a") == storage.read("b") == b"\x01\x00\x02\x00"


def test_reading_what_is_not_there_is_not_found(storage: Storage) -> None:
    storage.put("folder/a", b"1")
    for path in ("nothing", "no/thing", "folder", "folder/a/b"):
        with pytest.raises(ObjectNotFoundError, match=path):
            storage.read(path)
        for length in (0, 2):
            with pytest.raises(ObjectNotFoundError, match=path):
                storage.read_range(path, 0, length)
        assert storage.stat(path) is None


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 3, b"012"), (4, 3, b"456"), (8, 5, b"89"), (10, 1, b""), (50, 5, b""), (3, 0, b"")],
)
def test_range_is_cut_at_the_end(
    storage: Storage, start: int, length: int, expected: bytes
) -> None:
    storage.put("a", b"0123456789")
    assert storage.read_range("a", start, length) == expected


def test_range_of_an_empty_object_is_empty(storage: Storage) -> None:
    storage.put("a", b"")
    assert storage.read_range("a", 0, 4) == b""


def test_stat_tells_path_size_and_time(storage: Storage) -> None:
    storage.put("p/a", b"12345")
    stored = storage.stat("p/a")
    assert stored is not None
    assert (stored.path, stored.size_bytes) == ("p/a", 5)
    assert 1_600_000_000_000 < stored.modified_at_ms < 4_000_000_000_000
    assert [stored] == list(storage.list("p"))


def test_put_if_absent_keeps_what_is_there(storage: Storage) -> None:
    storage.put_if_absent("a", b"first")
    with pytest.raises(AlreadyExistsError, match="a: the object exists already"):
        storage.put_if_absent("a", b"second")
    assert storage.read("a") == b"first"


def test_put_if_absent_succeeds_after_a_delete(storage: Storage) -> None:
    storage.put_if_absent("a", b"first")
    storage.delete("a")
    storage.put_if_absent("a", b"second")
    assert storage.read("a") == b"second"


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_race_of_put_if_absent_has_exactly_one_winner(storage: Storage, size: int) -> None:
    racers, rounds = 6, 5
    start = threading.Barrier(racers)

    def race(racer: int) -> list[int]:
        won = []
        for round_ in range(rounds):
            start.wait()
            try:
                storage.put_if_absent(f"race/{round_}", bytes([racer]) * size)
                won.append(round_)
            except AlreadyExistsError:
                pass
        return won

    with ThreadPoolExecutor(racers) as pool:
        won = dict(enumerate(pool.map(race, range(racers))))
    assert sorted(round_ for rounds_won in won.values() for round_ in rounds_won) == [
        *range(rounds)
    ]
    for racer, rounds_won in won.items():
        for round_ in rounds_won:
            assert storage.read(f"race/{round_}") == bytes([racer]) * size


def test_reader_of_an_object_under_rewriting_sees_whole_contents(storage: Storage) -> None:
    contents = {bytes([n]) * 200_000 for n in range(4)}
    storage.put("a", bytes(200_000))
    done = threading.Event()

    def read() -> set[bytes]:
        seen = set()
        while not done.is_set():
            seen.add(storage.read("a"))
        return seen

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for content in sorted(contents) * 3:
            storage.put("a", content)
        done.set()
        assert reading.result() <= contents


def test_duplicate_has_the_bytes_of_its_source_and_is_listed(storage: Storage) -> None:
    storage.put("p/a", b"12345")
    assert storage.duplicate("p/a", "q/r/b")
    assert storage.read("p/a") == storage.read("q/r/b") == b"12345"
    stored = storage.stat("q/r/b")
    assert stored is not None
    assert (stored.path, stored.size_bytes) == ("q/r/b", 5)
    assert [*storage.list("q")] == [stored]
    assert _paths(storage, "p") == ["p/a"]


@pytest.mark.parametrize("size", [0, 1, 12_000_000])
def test_duplicate_of_any_size_is_whole(storage: Storage, size: int) -> None:
    data = np.random.default_rng(7).bytes(size)
    storage.put_if_absent("a", data)
    assert storage.duplicate("a", "b")
    assert storage.duplicate("b", "c")
    assert storage.read("b") == storage.read("c") == data


def test_repeated_duplicate_is_a_success_and_writes_nothing(storage: Storage) -> None:
    storage.put("a", b"123")
    assert storage.duplicate("a", "b")
    first = storage.stat("b")
    assert storage.duplicate("a", "b")
    assert storage.duplicate("a", "a")
    assert storage.stat("b") == first
    assert storage.read("a") == storage.read("b") == b"123"


def test_duplicate_over_an_object_of_another_size_is_refused(storage: Storage) -> None:
    storage.put("p/a", b"123")
    storage.put("p/b", b"4567")
    storage.put("p/empty", b"")
    for target, size in (("p/b", 4), ("p/empty", 0)):
        words = f"{target}: the object exists already and has {size} bytes, but .*p/a has 3 bytes"
        with pytest.raises(AlreadyExistsError, match=words):
            storage.duplicate("p/a", target)
    assert storage.read("p/a") == b"123"
    assert storage.read("p/b") == b"4567"
    assert storage.read("p/empty") == b""


@pytest.mark.parametrize("target", ["new", "folder/a"])
def test_duplicate_of_what_is_not_there_is_not_found(storage: Storage, target: str) -> None:
    storage.put("folder/a", b"1")
    for source in ("nothing", "no/thing", "folder", "folder/a/b"):
        with pytest.raises(ObjectNotFoundError, match=f"/{source}: there is no object"):
            storage.duplicate(source, target)
    assert _paths(storage, "") == ["folder/a"]


@pytest.mark.parametrize(("changed", "other"), [("a", "b"), ("b", "a")])
def test_either_name_of_duplicated_bytes_changes_alone(
    storage: Storage, changed: str, other: str
) -> None:
    storage.put("a", b"123")
    storage.duplicate("a", "b")
    storage.put(changed, b"another content")
    assert storage.read(other) == b"123"
    storage.delete(changed)
    assert storage.stat(changed) is None
    assert storage.read(other) == b"123"
    storage.put_if_absent(changed, b"3")
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent(other, b"3")
    assert (storage.read(changed), storage.read(other)) == (b"3", b"123")


def test_folder_of_one_name_is_deleted_without_the_other_name(storage: Storage) -> None:
    storage.put("p/a", b"123")
    storage.duplicate("p/a", "q/a")
    storage.delete_folder("p")
    assert _paths(storage, "") == ["q/a"]
    assert storage.read("q/a") == b"123"


def test_duplicates_of_one_object_at_once_all_succeed(storage: Storage) -> None:
    storage.put("a", bytes(100_000))
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(storage.duplicate, "a", f"p/{n % 2}") for n in range(16)]
        assert all(duplicate.result() for duplicate in done)
    assert storage.read("p/0") == storage.read("p/1") == bytes(100_000)


def test_attempt_after_a_crash_at_any_step_completes_the_duplicate(storage: Storage) -> None:
    def attempt(storage: Storage, run: int) -> None:
        with suppress(AlreadyExistsError):  # As the second attempt of a task does.
            storage.put_if_absent(f"{run}/physical", b"123")
        storage.duplicate(f"{run}/physical", f"{run}/virtual")
        storage.put(f"{run}/committed", b"")

    crashes = [*crash_points(3)]
    for run, fault in enumerate(crashes):
        dying = FaultyStorage(storage, [fault])
        with pytest.raises(SimulatedCrash):
            attempt(dying, run)
        left = storage.stat(f"{run}/virtual")
        assert left is None or storage.read(f"{run}/virtual") == b"123", dying.replay()
        attempt(storage, run)
        assert storage.read(f"{run}/physical") == storage.read(f"{run}/virtual") == b"123"
    assert len(_paths(storage, "")) == 3 * len(crashes)


def test_listing_is_in_order_of_whole_paths(storage: Storage) -> None:
    # Where folders were sorted by name alone, a/x would come before a-b/x and a.c.
    paths = ["a-b/x", "a.c", "a/x", "a/y/z", "a0", "b"]
    for path in reversed(paths):
        storage.put(path, b"1")
    assert paths == sorted(paths)
    assert _paths(storage, "") == paths


def test_listing_of_a_folder_holds_only_what_is_below_it(storage: Storage) -> None:
    for path in ["a/bc", "ab/c", "a/b/c"]:
        storage.put(path, b"1")
    assert _paths(storage, "a") == ["a/b/c", "a/bc"]
    assert _paths(storage, "a/b") == ["a/b/c"]
    assert _paths(storage, "a", recursive=False) == ["a/bc"]
    assert _paths(storage, "", recursive=False) == []


def test_listing_by_prefixes_has_the_named_objects_directly_in_the_folder(storage: Storage) -> None:
    for path in ["a/bc", "a/.b", "a/c", "a/bc-d/bx", "ab", "a/b.crc", "a/.bc.crc"]:
        storage.put(path, b"1")

    def paths(*prefixes: str) -> list[str]:
        return [stored.path for stored in storage.list_named("a", prefixes)]

    assert paths("b", ".b") == ["a/.b", "a/b.crc", "a/bc"]
    assert paths("bc") == paths("bc", "bcd") == ["a/bc"]
    assert paths("x") == paths() == []
    assert [*storage.list_named("nothing", ("b",))] == []


def test_brief_listing_has_the_names_of_one_folder_and_no_wrong_times(storage: Storage) -> None:
    for path in ("a/c", "a/b", "a/.b.crc", "a/d/e", "b"):
        storage.put(path, b"1")
    listed = storage.list_briefly("a")
    assert [*listed] == ["b", "c"]
    for name, at_ms in listed.items():
        stored = storage.stat(f"a/{name}")
        assert stored is not None
        assert at_ms in (None, stored.modified_at_ms)
    assert [*storage.list_briefly("")] == ["b"]
    assert storage.list_briefly("nothing") == {}


def test_listing_of_an_object_or_of_nothing_is_empty(storage: Storage) -> None:
    assert _paths(storage, "") == []
    assert storage.list_folders("") == []
    storage.put("a", b"1")
    assert _paths(storage, "a") == []
    assert _paths(storage, "nothing") == []
    assert storage.list_folders("a") == storage.list_folders("nothing") == []


def test_listing_leaves_out_the_side_files_of_hadoop(storage: Storage) -> None:
    for path in ("p/a", "p/.a.crc", "p/b.crc", "p_$folder$"):
        storage.put(path, b"1")
    assert _paths(storage, "") == _paths(storage, "p") == ["p/a", "p/b.crc"]
    assert _paths(storage, "p", recursive=False) == ["p/a", "p/b.crc"]
    assert storage.read("p/.a.crc") == b"1"


def test_folders_are_listed_by_path_without_their_contents(storage: Storage) -> None:
    for path in ("t/b/x/1", "t/a=1/1", "t/b/2", "t/3", "t/b/y/z/4"):
        storage.put(path, b"1")
    assert "t" in storage.list_folders("")  # Beside .hoodie on local disk.
    assert storage.list_folders("t") == ["t/a=1", "t/b"]
    assert storage.list_folders("t/b") == ["t/b/x", "t/b/y"]


def test_delete_removes_one_object_and_forgives_a_missing_one(storage: Storage) -> None:
    storage.put("p/a", b"1")
    storage.put("p/a2", b"1")
    storage.delete("p/a")
    storage.delete("p/a")
    storage.delete("nowhere/a")
    storage.delete("p")
    assert _paths(storage, "") == ["p/a2"]


def test_delete_folder_removes_all_below_and_nothing_beside(storage: Storage) -> None:
    for path in ("t/p/a", "t/p/b/c", "t/p/b/.c.crc", "t/pq/d", "t/e"):
        storage.put(path, b"1")
    storage.delete_folder("t/p")
    storage.delete_folder("t/p")
    storage.delete_folder("t/e")
    assert _paths(storage, "") == ["t/e", "t/pq/d"]
    assert storage.list_folders("t") == ["t/pq"]
    with pytest.raises(ObjectNotFoundError):
        storage.read("t/p/b/.c.crc")


def test_names_are_taken_literally(storage: Storage) -> None:
    for name in NAMES:  # In one test, since they meet each other in the same folders.
        storage.put(f"f/{name}", name.encode())
        storage.put_if_absent(f"d/{name}/x", name.encode())
        storage.duplicate(f"f/{name}", f"c/{name}/y")
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent(f"f/{name}", b"3")
    for name in NAMES:
        assert storage.read(f"f/{name}") == storage.read(f"d/{name}/x") == name.encode()
        assert storage.read(f"c/{name}/y") == name.encode()
        assert _paths(storage, f"d/{name}") == [f"d/{name}/x"]
    files = sorted(f"f/{name}" for name in NAMES)
    assert _paths(storage, "f") == _paths(storage, "f", recursive=False) == files
    assert storage.list_folders("d") == sorted(f"d/{name}" for name in NAMES)
    for name in NAMES[::4]:
        storage.delete(f"f/{name}")
        storage.delete_folder(f"d/{name}")
    assert _paths(storage, "f") == sorted(set(files) - {f"f/{name}" for name in NAMES[::4]})
    assert len(storage.list_folders("d")) == len(NAMES) - len(NAMES[::4])


_OPERATIONS: list[Callable[[Storage, str], object]] = [
    lambda storage, path: storage.read(path),
    lambda storage, path: storage.read_range(path, 0, 1),
    lambda storage, path: storage.stat(path),
    lambda storage, path: storage.put(path, b"1"),
    lambda storage, path: storage.put_if_absent(path, b"1"),
    lambda storage, path: storage.duplicate(path, "kept"),
    lambda storage, path: storage.duplicate("kept", path),
    lambda storage, path: storage.delete(path),
    lambda storage, path: storage.delete_folder(path),
    lambda storage, path: storage.local_path(path),
]
_FOLDER_OPERATIONS: list[Callable[[Storage, str], object]] = [
    lambda storage, path: list(storage.list(path)),
    lambda storage, path: storage.list_folders(path),
]


def test_path_that_is_not_plainly_below_the_root_is_refused(storage: Storage) -> None:
    outside = ["/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/..", "a/./b", "a\0b"]
    storage.put("kept", b"1")
    for operation in _OPERATIONS:
        for path in ["", *outside]:
            with pytest.raises(StorageError, match="relative to the table"):
                operation(storage, path)
    for operation in _FOLDER_OPERATIONS:
        for path in outside:
            with pytest.raises(StorageError, match="relative to the table"):
                operation(storage, path)


def test_root_itself_is_never_deleted(storage: Storage) -> None:
    storage.put("a", b"1")
    with pytest.raises(StorageError):
        storage.delete_folder("")
    assert storage.read("a") == b"1"


def test_pickled_storage_sees_the_same_objects(storage: Storage) -> None:
    storage.put("p/a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.root == storage.root
    assert copy.read("p/a") == b"1"
    copy.put("p/b", b"2")
    assert _paths(storage, "p") == ["p/a", "p/b"]


def test_local_path_leads_to_the_bytes_where_there_is_one(storage: Storage) -> None:
    storage.put("p/a", b"1")
    path = storage.local_path("p/a")
    assert path is None or (isinstance(path, Path) and path.read_bytes() == b"1")


def test_errors_name_the_place_in_full(storage: Storage) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        storage.read("p/a")
    assert caught.value.path == f"{storage.root}/p/a"
    assert pickle.loads(pickle.dumps(caught.value)).path == caught.value.path


@pytest.fixture
def versioned(storage: Storage) -> VersionedStorage:
    """A storage that can replace an object on condition."""
    if not isinstance(storage, VersionedStorage):
        pytest.skip("it does not replace on condition")
    return storage


def test_object_is_replaced_over_the_version_that_is_there(versioned: VersionedStorage) -> None:
    assert versioned.read_version("a") is None
    put = versioned.put_if_version("a", b"1", None)
    assert versioned.read_version("a") == (b"1", put)
    again = versioned.put_if_version("a", b"2", put)
    assert versioned.read_version("a") == (b"2", again)
    assert again != put


def test_object_is_not_replaced_over_another_version_or_none(versioned: VersionedStorage) -> None:
    old = versioned.put_if_version("a", b"1", None)
    new = versioned.put_if_version("a", b"2", old)
    for version in (old, None):
        with pytest.raises(AlreadyExistsError, match="another version"):
            versioned.put_if_version("a", b"3", version)
    assert versioned.read_version("a") == (b"2", new)
    versioned.delete("a")
    with pytest.raises(AlreadyExistsError, match="or no object"):
        versioned.put_if_version("a", b"3", new)
    assert versioned.read_version("a") is None


def test_one_of_many_replaces_a_version(versioned: VersionedStorage) -> None:
    version = versioned.put_if_version("a", b"0", None)

    def replaced(number: int) -> bool:
        try:
            versioned.put_if_version("a", b"%d" % number, version)
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(replaced, range(1, 17))) == 1
