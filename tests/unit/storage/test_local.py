"""Local disk: publication in steps that can be interrupted, and what lies beside the objects."""

from __future__ import annotations

import ctypes
import errno
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.storage import system_calls
from bucketlake.storage.base import put_all_if_absent
from bucketlake.storage.local import STAGING_FOLDER, LocalStorage
from tests.spies import spy
from tests.unit.storage.names import CONTROL_NAMES

Write = Callable[[LocalStorage, str, bytes], None]
WRITES = pytest.mark.parametrize(
    "write", [LocalStorage.put, LocalStorage.put_if_absent], ids=["put", "put if absent"]
)


def _files(storage: LocalStorage) -> list[str]:
    """All files on disk, staged ones too."""
    root = Path(storage.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def _instead(monkeypatch: pytest.MonkeyPatch, call: str, does: Callable[..., object]) -> None:
    """Let the system do something else at one of its calls."""
    monkeypatch.setattr(system_calls.os, call, does)


def _fails(monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    """Let a call of the system fail."""
    _instead(monkeypatch, call, _raises(code))


def _raises(code: int) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


def _came_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the look before a link see nothing, as if another writer's object came after it."""
    monkeypatch.setattr(os.path, "lexists", lambda _: False)


@WRITES
def test_write_leaves_nothing_in_staging(local: LocalStorage, write: Write) -> None:
    write(local, "p/a", b"1")
    assert _files(local) == ["p/a"]


def test_loser_of_a_race_that_staged_its_bytes_leaves_nothing_behind(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a", b"first")
    _came_just_now(monkeypatch)  # As if the winner came just now.
    with pytest.raises(AlreadyExistsError):
        local.put_if_absent("a", b"second")
    assert _files(local) == ["a"]
    assert local.read("a") == b"first"


@WRITES
@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("open", errno.EACCES, "no permission"),
        ("open", errno.EROFS, "read-only"),
        ("open", errno.ENOSPC, "disk is full"),
        ("write", errno.ENOSPC, "disk is full"),
        ("write", errno.EDQUOT, "quota"),
        ("fsync", errno.EIO, "Input/output error"),
    ],
)
def test_failed_write_names_path_and_operation_and_leaves_nothing(
    local: LocalStorage,
    monkeypatch: pytest.MonkeyPatch,
    write: Write,
    call: str,
    code: int,
    words: str,
) -> None:
    local.put("before", b"1")
    with monkeypatch.context() as patch:
        _fails(patch, call, code)
        with pytest.raises(StorageError, match=words) as caught:
            write(local, "p/a", b"123")
    assert caught.value.path == f"{local.root}/p/a"
    assert caught.value.operation.startswith("put")
    assert _files(local) == ["before"]


@WRITES
def test_disk_that_fills_up_half_way_leaves_no_partial_object(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    plain, written = os.write, []

    def write_a_little(descriptor: int, data: memoryview) -> int:
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "full")
        written.append(plain(descriptor, data[:2]))
        return written[-1]

    local.put("before", b"1")
    _instead(monkeypatch, "write", write_a_little)
    with pytest.raises(StorageError, match="disk is full"):
        write(local, "a", b"123456789")
    assert written == [2, 2, 2]
    assert _files(local) == ["before"]


@WRITES
def test_write_that_the_system_takes_in_small_pieces_is_whole(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    plain = os.write
    _instead(monkeypatch, "write", lambda fd, data: plain(fd, data[:2]))
    write(local, "a", b"123456789")
    assert local.read("a") == b"123456789"


def test_read_that_the_system_answers_in_small_pieces_is_whole(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a", b"123456789")
    plain = os.pread
    _instead(monkeypatch, "pread", lambda fd, n, at: plain(fd, min(n, 2), at))
    assert local.read("a") == b"123456789"
    assert local.read_range("a", 2, 5) == b"34567"


def test_failed_read_is_a_storage_error_that_is_not_not_found(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a", b"1")
    _fails(monkeypatch, "open", errno.EACCES)
    with pytest.raises(StorageError, match=r"read .*/a: this user has no permission") as caught:
        local.read("a")
    assert not isinstance(caught.value, ObjectNotFoundError)


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.EPERM, "does not support hard links"), (errno.EXDEV, "another file system")],
)
def test_disk_without_hard_links_is_refused_in_clear_words(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    _fails(monkeypatch, "link", code)
    with pytest.raises(StorageError, match=words):
        local.put_if_absent("a", b"1")
    assert _files(local) == []
    local.put_if_absent("empty", b"")  # Needs no link: its name is all there is.
    assert _files(local) == ["empty"]


def test_link_that_took_effect_although_it_said_exists_has_won(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.link

    def link_twice(source: str, target: str) -> None:
        plain(source, target)
        plain(source, target)  # What NFS does when the first answer is lost.

    _instead(monkeypatch, "link", link_twice)
    local.put_if_absent("a", b"1")
    assert local.read("a") == b"1"


def test_a_second_name_that_a_backup_gave_to_a_staged_file_wins_nothing(
    local: LocalStorage, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, backup = os.link, tmp_path_factory.mktemp("backup") / "staged"

    def link(source: str, target: str) -> None:
        plain(source, backup)  # As "cp -al" of the folder does.
        Path(target).write_bytes(b"theirs")
        plain(source, target)

    _instead(monkeypatch, "link", link)
    with pytest.raises(AlreadyExistsError):
        local.put_if_absent("a", b"mine")
    assert local.read("a") == b"theirs"


def test_duplicate_is_a_second_name_of_the_file(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("p/a", b"1")
    _fails(monkeypatch, "pread", errno.EIO)
    _fails(monkeypatch, "write", errno.EIO)
    assert local.duplicate("p/a", "q/b")
    assert Path(local.root, "p/a").samefile(Path(local.root, "q/b"))
    assert _files(local) == ["p/a", "q/b"]


@pytest.mark.parametrize(
    "code",
    [errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK],
    ids=errno.errorcode.get,
)
def test_duplicate_on_a_disk_without_hard_links_is_a_second_file(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    local.put("p/a", b"123")
    _fails(monkeypatch, "link", code)
    assert not local.duplicate("p/a", "q/b")
    assert local.duplicate("p/a", "q/b")  # The file of the first attempt is there.
    assert local.read("q/b") == b"123"
    assert not Path(local.root, "p/a").samefile(Path(local.root, "q/b"))
    local.delete("p/a")
    assert local.read("q/b") == b"123"
    with pytest.raises(ObjectNotFoundError, match="p/a"):
        local.duplicate("p/a", "q/c")
    assert _files(local) == ["q/b"]


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("link", errno.EACCES, "no permission"),
        ("link", errno.EROFS, "read-only"),
        ("link", errno.ENOSPC, "disk is full"),
        ("link", errno.EDQUOT, "quota"),
        ("link", errno.ENAMETOOLONG, "name is too long"),
    ],
)
def test_failed_duplicate_names_the_new_path_and_leaves_nothing(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, call: str, code: int, words: str
) -> None:
    local.put("a", b"123")
    _fails(monkeypatch, call, code)
    with pytest.raises(StorageError, match=words) as caught:
        local.duplicate("a", "p/b")
    assert (caught.value.path, caught.value.operation) == (f"{local.root}/p/b", "duplicate")
    assert _files(local) == ["a"]


@pytest.mark.parametrize("call", ["pread", "open", "write", "fsync", "replace"])
def test_failed_copy_of_a_duplicate_leaves_nothing_and_can_be_repeated(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    local.put("p/a", b"123")
    _fails(monkeypatch, "link", errno.EPERM)
    with monkeypatch.context() as patch:
        _fails(patch, call, errno.EIO)
        with pytest.raises(StorageError):
            local.duplicate("p/a", "p/b")
    assert _files(local) == ["p/a"]
    assert not local.duplicate("p/a", "p/b")
    assert local.read("p/b") == b"123"


def test_duplicate_whose_folder_was_not_flushed_is_flushed_by_the_next_attempt(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("p/a", b"1")
    local.put("q/b", b"1")
    with monkeypatch.context() as patch:
        _fails(patch, "fsync", errno.EIO)
        for _ in range(2):
            with pytest.raises(StorageError, match="Input/output error"):
                local.duplicate("p/a", "q/c")
    flushed: list[str] = []
    plain = system_calls.flush
    monkeypatch.setattr(
        system_calls, "flush", lambda folders: (flushed.extend(folders), plain(folders))
    )
    assert local.duplicate("p/a", "q/c")
    assert flushed == [f"{local.root}/q"]


@pytest.mark.parametrize(("theirs", "wins"), [(b"1", True), (b"22", False)])
def test_duplicate_that_another_attempt_made_just_now_is_taken_by_its_size(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, theirs: bytes, *, wins: bool
) -> None:
    local.put("a", b"1")
    local.put("b", theirs)
    _came_just_now(monkeypatch)  # As if the other came just now.
    if wins:
        assert local.duplicate("a", "b")
    else:
        with pytest.raises(AlreadyExistsError, match=r"has 2 bytes, but .*/a has 1 bytes"):
            local.duplicate("a", "b")
    assert _files(local) == ["a", "b"]
    assert local.read("b") == theirs


def test_duplicate_whose_source_is_deleted_meanwhile_is_not_found(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a", b"1")
    plain = os.link

    def link(source: str, target: str) -> None:
        Path(source).unlink()
        plain(source, target)

    _instead(monkeypatch, "link", link)
    with pytest.raises(ObjectNotFoundError, match=r"duplicate .*/a: there is no object"):
        local.duplicate("a", "b")


def test_put_if_absent_wins_and_loses_beside_duplicated_files_as_ever(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put_if_absent("a", b"1")
    local.duplicate("a", "b")
    _came_just_now(monkeypatch)  # The link has to decide.
    for path in ("a", "b"):
        with pytest.raises(AlreadyExistsError):
            local.put_if_absent(path, b"1")
    local.delete("b")
    local.put_if_absent("b", b"2")
    assert (local.read("a"), local.read("b")) == (b"1", b"2")


def test_duplicate_of_a_link_has_the_bytes_and_not_the_link(local: LocalStorage) -> None:
    local.put("p/a", b"1")
    Path(local.root, "p/link").symlink_to("a")
    assert local.duplicate("p/link", "q/b")
    local.delete("p/a")
    assert local.read("q/b") == b"1"


def test_duplicate_from_or_to_a_place_out_of_the_root_is_refused(local: LocalStorage) -> None:
    outside = Path(local.root).parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"1")
    local.put("a", b"1")
    Path(local.root, "folder").symlink_to(outside)
    Path(local.root, "file").symlink_to(outside / "secret")
    for source, target in (("folder/secret", "b"), ("file", "b"), ("a", "folder/b"), ("a", "file")):
        with pytest.raises(StorageError, match=r"symbolic link leads to .*outside"):
            local.duplicate(source, target)
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert _files(local) == ["a", "file"]


def test_duplicate_over_a_folder_is_refused(local: LocalStorage) -> None:
    local.put("a", b"1")
    local.put("p/b", b"1")
    with pytest.raises(StorageError, match="the path is a folder"):
        local.duplicate("a", "p")


@WRITES
def test_object_is_flushed_before_it_has_its_name_and_its_folder_after(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    write(local, "p/before", b"1")  # Makes the folders, which are flushed, too.
    events: list[str] = []
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        flushed = Path(f"/proc/self/fd/{descriptor}").resolve()
        events.append(f"{flushed.parent.name if flushed.is_file() else flushed.name}")
        events.append("named" if (Path(local.root) / "p/a").exists() else "not named")
        plain(descriptor)

    _instead(monkeypatch, "fsync", fsync)
    write(local, "p/a", b"1")
    assert events == ["staging", "not named", "p", "named"]


def test_objects_that_are_written_together_are_flushed_before_any_has_its_name(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("p/before", b"1")
    events: list[tuple[str, int]] = []
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        flushed = Path(f"/proc/self/fd/{descriptor}").resolve()
        named = sum((Path(local.root) / path).exists() for path in ("p/a", "q/r/b"))
        name = "staged" if flushed.is_file() else str(flushed.relative_to(local.root))
        events.append((name, named))
        plain(descriptor)

    _instead(monkeypatch, "fsync", fsync)
    found = put_all_if_absent(local, [("p/a", b"1"), ("q/r/b", b"2"), ("p/before", b"3")])
    assert found == {"p/before"}
    assert events[:2] == [("staged", 0), ("staged", 0)]
    assert sorted(events[2:]) == [(".", 2), ("p", 2), ("q", 2), ("q/r", 2)]
    assert local.read("p/before") == b"1"
    assert _files(local) == ["p/a", "p/before", "q/r/b"]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_failed_write_of_many_leaves_nothing_in_staging(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    local.put("before", b"1")
    with monkeypatch.context() as patch:
        _fails(patch, call, errno.ENOSPC)
        with pytest.raises(StorageError, match="disk is full"):
            put_all_if_absent(local, [("p/a", b"1"), ("p/b", b"2")])
    assert _files(local) == ["before"]


def test_flushes_of_many_objects_do_not_grow_with_their_number(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("before", b"1")
    if not system_calls._flush_file_system(local.root):
        pytest.skip("this file system is flushed file by file")
    flushed: list[int] = []
    _instead(monkeypatch, "fsync", flushed.append)
    for count in (32, 128):
        objects = [(f"{count}-{number}/a", b"1") for number in range(count)]
        assert put_all_if_absent(local, objects) == set()
    assert flushed == []


def test_a_folder_is_resolved_once_for_all_objects_that_are_written_into_it(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spy(monkeypatch, system_calls, "real_path", str)
    for count in (8, 32):
        asked.clear()
        objects = [(f"p/{count}-{number}", b"1") for number in range(count)]
        assert put_all_if_absent(local, objects) == set()
        assert sorted(asked) == sorted({*asked})
        assert len(asked) == 2  # The other one is the folder of staged files.


def test_an_error_of_many_objects_names_the_one_that_failed(local: LocalStorage) -> None:
    local.put("p/taken/inner", b"1")
    with pytest.raises(StorageError, match="p/taken"):
        put_all_if_absent(local, [("p/a", b"1"), ("p/taken", b"2")])
    assert _files(local) == ["p/taken/inner"]


def test_a_disk_that_fails_while_many_are_flushed_is_an_error(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not system_calls._flush_file_system(local.parent().root):  # type: ignore[union-attr]
        pytest.skip("this file system is flushed file by file")

    class Broken:
        fstatfs = staticmethod(system_calls._libc().fstatfs)  # type: ignore[union-attr]

        @staticmethod
        def syncfs(_: int) -> int:
            ctypes.set_errno(errno.EIO)
            return -1

    monkeypatch.setattr(system_calls, "_libc", Broken)
    objects = [(f"p/{number}", b"1") for number in range(40)]
    with pytest.raises(StorageError, match="Input/output error"):
        put_all_if_absent(local, objects)
    assert _files(local) == []


def test_storage_without_fsync_flushes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails(monkeypatch, "fsync", errno.EIO)
    storage = LocalStorage(str(tmp_path / "t"), fsync=False)
    storage.put("a/b", b"1")
    storage.put_if_absent("c", b"1")
    storage.duplicate("c", "d")
    assert storage.read("a/b") == storage.read("c") == b"1"


def _killed_while(storage: LocalStorage) -> int:
    """Write in another process that is killed when the bytes are staged; return its status."""
    with warnings.catch_warnings(action="ignore"):  # Later Pythons warn of threads, unused here.
        process_id = os.fork()
    if process_id == 0:
        system_calls.os.fsync = lambda _: os._exit(9)  # type: ignore[assignment]
        try:
            storage.put_if_absent("a", b"1" * 100_000)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])


def test_killed_writer_leaves_only_a_temporary_that_no_listing_shows(local: LocalStorage) -> None:
    Path(local.root, STAGING_FOLDER).mkdir(parents=True)
    assert _killed_while(local) == 9
    (staged,) = _files(local)
    assert staged.startswith(f"{STAGING_FOLDER}/")
    for folder in ("", STAGING_FOLDER, ".hoodie/.bucket_index"):
        assert list(local.list(folder)) == []
    assert local.list_folders(".hoodie/.bucket_index/ext") == []
    hour_ago_ms = int((time.time() - 3600) * 1000)
    assert local.clear_staging(written_before_ms=hour_ago_ms) == 0
    assert local.clear_staging(written_before_ms=hour_ago_ms + 7_200_000) == 1
    assert _files(local) == []


def test_staging_folder_of_a_table_within_the_table_is_not_listed(local: LocalStorage) -> None:
    inner = LocalStorage(f"{local.root}/.hoodie/metadata")
    inner.put("a", b"1")
    Path(inner.root, STAGING_FOLDER, "left").write_bytes(b"1")
    assert [stored.path for stored in local.list("")] == [".hoodie/metadata/a"]


@pytest.mark.parametrize("operation", ["put", "put_if_absent", "duplicate", "delete"])
def test_stale_checksum_of_hadoop_goes_before_its_file_changes(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    checksum = Path(local.root, "p/.a.crc")
    local.put("p/b", b"1")
    if operation in ("put", "delete"):
        local.put("p/a", b"1")
    checksum.write_bytes(b"stale")
    seen: list[bool] = []
    for call in ("replace", "link", "unlink"):
        plain = getattr(os, call)

        def watched(*paths: str, plain: Callable[..., None] = plain) -> None:
            if paths[-1].endswith("/a"):
                seen.append(checksum.exists())
            plain(*paths)

        _instead(monkeypatch, call, watched)
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: local.put("p/a", b"2"),
        "put_if_absent": lambda: local.put_if_absent("p/a", b"2"),
        "duplicate": lambda: local.duplicate("p/b", "p/a"),
        "delete": lambda: local.delete("p/a"),
    }
    changes[operation]()
    assert seen == [False]
    assert not checksum.exists()


def test_lost_put_if_absent_leaves_the_winners_checksum(local: LocalStorage) -> None:
    local.put("p/a", b"1")
    Path(local.root, "p/.a.crc").write_bytes(b"fresh")
    with pytest.raises(AlreadyExistsError):
        local.put_if_absent("p/a", b"2")
    local.duplicate("p/a", "p/a")
    assert Path(local.root, "p/.a.crc").exists()


def test_mode_of_an_object_is_what_the_umask_leaves(local: LocalStorage) -> None:
    before = os.umask(0o027)
    try:
        local.put("a", b"1")
        local.put_if_absent("b", b"1")
        local.put_if_absent("c", b"")
    finally:
        os.umask(before)
    assert [Path(local.root, name).stat().st_mode & 0o777 for name in "abc"] == [0o640] * 3


def test_control_characters_in_names_are_taken_literally(local: LocalStorage) -> None:
    for name in CONTROL_NAMES:
        local.put(f"f/{name}", name.encode())
    assert [stored.path for stored in local.list("f")] == sorted(f"f/{n}" for n in CONTROL_NAMES)
    assert all(Path(local.root, "f", name).read_bytes() == name.encode() for name in CONTROL_NAMES)


@pytest.mark.parametrize("target", ["../outside", "../outside/kept"])
def test_link_that_leads_out_of_the_root_is_refused(local: LocalStorage, target: str) -> None:
    outside = Path(local.root).parent / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"1")
    local.put("a", b"1")
    Path(local.root, "link").symlink_to(target)
    for operation in (
        lambda: list(local.list("")),
        lambda: local.list_briefly(""),
        lambda: local.list_folders(""),
    ):
        with pytest.raises(StorageError, match=r"symbolic link leads to .*outside"):
            operation()
    if target == "../outside":
        for change in (
            lambda: local.put("link/x", b"2"),
            lambda: local.put_if_absent("link/x", b"2"),
            lambda: local.delete("link/kept"),
            lambda: local.delete_folder("link/x"),
        ):
            with pytest.raises(StorageError, match=r"symbolic link leads to .*outside"):
                change()
    local.delete_folder("link")
    local.delete("link")
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert not Path(local.root, "link").is_symlink()


def test_link_within_the_root_is_followed(local: LocalStorage) -> None:
    local.put("p/a", b"1")
    Path(local.root, "q").symlink_to("p")
    Path(local.root, "broken").symlink_to("nothing")
    assert [stored.path for stored in local.list("")] == ["p/a", "q/a"]
    Path(local.root, "link").symlink_to("p/a")
    assert [*local.list_briefly("")] == ["link"]
    assert [*local.list_briefly("q")] == ["a"]


@pytest.mark.parametrize("link", ["link", "link.parquet"])
def test_object_behind_a_link_out_of_the_root_is_not_read(local: LocalStorage, link: str) -> None:
    outside = Path(local.root).parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"not ours")
    local.put("a", b"1")
    is_folder = link == "link"
    Path(local.root, link).symlink_to(outside if is_folder else outside / "secret")
    path = f"{link}/secret" if is_folder else link
    for look in (
        lambda: local.read(path),
        lambda: local.read_range(path, 0, 3),
        lambda: local.stat(path),
        lambda: local.local_path(path),
    ):
        with pytest.raises(
            StorageError, match=r"symbolic link leads to .*outside/secret"
        ) as caught:
            look()
        assert not isinstance(caught.value, ObjectNotFoundError)
        assert caught.value.path == f"{local.root}/{path}"


def test_folder_that_is_a_link_out_of_the_root_is_not_listed(local: LocalStorage) -> None:
    outside = Path(local.root).parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"not ours")
    local.put("p/a", b"1")
    Path(local.root, "p/link").symlink_to(outside)
    for look in (
        lambda: list(local.list("p/link")),
        lambda: local.list_briefly("p/link"),
        lambda: local.list_folders("p/link"),
    ):
        with pytest.raises(StorageError, match=r"symbolic link leads to .*outside"):
            look()


def test_staging_folder_that_is_a_link_out_of_the_root_gets_no_bytes(local: LocalStorage) -> None:
    outside = Path(local.root).parent / "outside"
    outside.mkdir()
    staging = Path(local.root, STAGING_FOLDER)
    staging.parent.mkdir(parents=True)
    staging.symlink_to(outside)
    for write in (local.put, local.put_if_absent):
        with pytest.raises(StorageError, match=r"symbolic link leads to .*outside"):
            write("a", b"1")
    with pytest.raises(StorageError, match=r"symbolic link leads to .*outside"):
        local.clear_staging(written_before_ms=2**52)
    assert list(outside.iterdir()) == []


def test_link_within_the_root_is_read(local: LocalStorage) -> None:
    local.put("p/a", b"1")
    Path(local.root, "q").symlink_to("p")
    assert local.read("q/a") == b"1"
    assert local.stat("q/a") is not None
    assert local.local_path("q/a").read_bytes() == b"1"


def test_object_of_a_root_that_is_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    storage = LocalStorage(str(tmp_path / "link"))
    storage.put("p/a", b"1")
    assert storage.read("p/a") == b"1"
    assert storage.stat("p/a") is not None


def test_system_that_does_not_tell_by_descriptor_is_asked_by_path(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a", b"1")
    outside = Path(local.root).parent / "outside"
    outside.write_bytes(b"not ours")
    Path(local.root, "link").symlink_to(outside)
    plain = os.readlink

    def readlink(path: str) -> str:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(path)
        return plain(path)

    _instead(monkeypatch, "readlink", readlink)
    assert local.read("a") == b"1"
    with pytest.raises(StorageError, match="symbolic link leads to"):
        local.read("link")


def test_pipe_in_place_of_an_object_is_refused_and_not_waited_for(local: LocalStorage) -> None:
    local.put("a", b"1")
    os.mkfifo(f"{local.root}/pipe")
    with pytest.raises(StorageError, match="a pipe or a device"):
        local.read("pipe")


def test_folder_removed_with_links_keeps_what_they_lead_to(local: LocalStorage) -> None:
    outside = Path(local.root).parent / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"1")
    local.put("p/a", b"1")
    Path(local.root, "p/link").symlink_to(outside)
    local.delete_folder("p")
    assert (outside / "kept").exists()
    assert not Path(local.root, "p").exists()


def test_root_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    storage = LocalStorage(str(tmp_path / "link"))
    storage.put("p/a", b"1")
    assert [stored.path for stored in storage.list("")] == ["p/a"]
    assert (tmp_path / "real/p/a").exists()


def test_folder_where_an_object_should_go_is_refused(local: LocalStorage) -> None:
    local.put("p/a", b"1")
    for operation in (local.put, local.put_if_absent):
        with pytest.raises(StorageError, match="the path is a folder") as caught:
            operation("p", b"2")
        assert not isinstance(caught.value, AlreadyExistsError)
        with pytest.raises(StorageError, match="a part of the path is a file"):
            operation("p/a/b", b"2")
    assert _files(local) == ["p/a"]


def test_folder_into_which_others_write_is_removed_in_the_end(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("p/a", b"1")
    plain, late = os.rmdir, ["p/late"]

    def rmdir(folder: str) -> None:
        if late:
            Path(local.root, late.pop()).write_bytes(b"1")
        plain(folder)

    _instead(monkeypatch, "rmdir", rmdir)
    local.delete_folder("p")
    assert not Path(local.root, "p").exists()


def test_object_that_vanishes_during_a_listing_is_left_out(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("p/a", b"1")
    local.put("p/b", b"1")
    listing = local.list("p")
    first = next(listing)
    local.delete("p/b")
    assert [first.path, *[stored.path for stored in listing]] == ["p/a"]


def test_empty_folder_is_a_folder_without_objects(local: LocalStorage) -> None:
    Path(local.root, "t/empty").mkdir(parents=True)
    assert local.list_folders("t") == ["t/empty"]
    assert list(local.list("t")) == []


def test_link_to_itself_is_a_storage_error_of_each_listing(local: LocalStorage) -> None:
    local.put("a", b"1")
    Path(local.root, "b").symlink_to("b")
    for look in (lambda: list(local.list("")), lambda: local.list_folders("")):
        with pytest.raises(StorageError, match="symbolic links form a loop"):
            look()
