"""Which writers count as being at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline import heartbeat
from bucketlake.timeline.heartbeat import (
    EXPIRES_AFTER_MS,
    HUDI_EXPIRES_AFTER_MS,
    appended_by,
    beating,
    is_alive,
    is_of_this_thread,
)
from bucketlake.timeline.instant import system_now_ms
from tests.bounds import set_bounds
from tests.waiting import wait_until

T = InstantTime("20260101000000000")
PATH = f".hoodie/.heartbeat/{T}"


def process_of(storage: Storage) -> dict[str, Any]:
    with beating(storage, T):
        found: dict[str, Any] = json.loads(storage.read(PATH))
    return found


def leave(storage: Storage, **changes: Any) -> None:
    """Leave the heartbeat of another process behind."""
    storage.put(PATH, json.dumps({**process_of(storage), **changes}).encode())


def test_a_writer_is_at_work_until_it_ends(storage: Storage) -> None:
    assert not is_alive(storage, T, system_now_ms)
    with beating(storage, T):
        assert is_alive(storage, T, system_now_ms)
        assert not is_alive(storage, InstantTime("20260101000000001"), system_now_ms)
    assert not is_alive(storage, T, system_now_ms)
    assert storage.stat(PATH) is None


def test_a_write_of_this_process_that_was_given_up_is_dead_at_once(storage: Storage) -> None:
    leave(storage)
    assert not is_alive(storage, T, system_now_ms)


def test_a_write_is_at_work_by_whatever_spelling_of_the_path_it_began(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link = (LocalStorage(str(tmp_path / name)) for name in ("real", "link"))
    with beating(real, T):
        assert is_alive(link, T, system_now_ms)
        content = link.read(PATH)
    link.put(PATH, content)
    assert not is_alive(link, T, system_now_ms)


def test_of_two_attempts_at_one_instant_the_later_one_beats_on(storage: Storage) -> None:
    """Threads that carry out one plan both put the file; the one that ends takes it away."""
    with beating(storage, T):
        with beating(storage, T, is_new=False):
            content = storage.read(PATH)
            assert is_alive(storage, T, system_now_ms)
        storage.put(PATH, content)
        assert not is_alive(storage, T, system_now_ms)
        assert is_of_this_thread(T)
    assert not is_of_this_thread(T)


def test_a_thread_knows_its_own_write(storage: Storage) -> None:
    with beating(storage, T), ThreadPoolExecutor(1) as pool:
        assert is_of_this_thread(T)
        assert not is_of_this_thread(InstantTime("20260101000000001"))
        assert not pool.submit(is_of_this_thread, T).result()
    assert not is_of_this_thread(T)


def test_a_heartbeat_that_does_not_name_its_write_counts(storage: Storage) -> None:
    told = {**process_of(storage), "process": "another", "machine": "elsewhere"}
    del told["write"]
    storage.put(PATH, json.dumps(told).encode())
    assert is_alive(storage, T, system_now_ms)
    assert not is_alive(storage, T, lambda: system_now_ms() + EXPIRES_AFTER_MS + 1)


def test_a_heartbeat_that_says_nothing_sensible_counts(storage: Storage) -> None:
    storage.put(PATH, b"[" * 100_000)
    assert is_alive(storage, T, system_now_ms)


def test_the_heartbeat_is_renewed(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, heartbeat, INTERVAL_SECONDS=0.01)
    with beating(storage, T):
        storage.delete(PATH)
        wait_until(lambda: is_alive(storage, T, system_now_ms))


def test_a_renewal_puts_the_heartbeat_again(storage: Storage) -> None:
    heartbeat._renew(storage, T, b"content")
    assert storage.read(PATH) == b"content"


def test_a_heartbeat_has_the_slots_to_which_its_write_appends(storage: Storage) -> None:
    slots = {("x", "00000001"), ("x", "00000007"), ("", "00000001")}
    assert appended_by(storage, T) == set()
    with beating(storage, T, appended=slots):
        assert appended_by(storage, T) == slots
        assert is_alive(storage, T, system_now_ms)
    with beating(storage, T):
        assert appended_by(storage, T) == set()


@pytest.mark.parametrize("content", [b"", b"[", b'{"appends": [1]}', b'{"appends": {"x": 1}}'])
def test_a_heartbeat_that_says_nothing_sensible_appends_to_nothing(
    storage: Storage, content: bytes
) -> None:
    storage.put(PATH, content)
    assert appended_by(storage, T) == set()


def test_a_process_that_is_gone_from_this_machine_is_dead_at_once(storage: Storage) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    leave(storage, process="another", pid=ended.pid)
    assert not is_alive(storage, T, system_now_ms)


def test_a_process_whose_facts_are_hidden_from_this_user_lives(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /proc mounted with hidepid does it."""
    leave(storage, process="another", pid=os.getppid())
    told = json.loads(storage.read(PATH))
    monkeypatch.setattr(heartbeat, "_started", lambda _: None)
    assert is_alive(storage, T, system_now_ms)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    storage.put(PATH, json.dumps({**told, "pid": ended.pid}).encode())
    assert not is_alive(storage, T, system_now_ms)


def test_a_number_that_another_process_has_by_now_is_no_sign_of_life(
    storage: Storage,
) -> None:
    leave(storage, process="another", pid=os.getppid(), started="1")
    assert not is_alive(storage, T, system_now_ms)


@pytest.mark.parametrize(
    "changes",
    [{"machine": "elsewhere"}, {"machine": ""}, {"machine": None}, {"pid": "none"}],
    ids=str,
)
def test_a_process_that_cannot_be_seen_from_here_is_waited_for(
    storage: Storage, changes: dict[str, Any]
) -> None:
    leave(storage, process="another", **changes)
    assert is_alive(storage, T, system_now_ms)
    assert is_alive(storage, T, lambda: system_now_ms() + EXPIRES_AFTER_MS - 5_000)
    assert not is_alive(storage, T, lambda: system_now_ms() + EXPIRES_AFTER_MS + 1)


def test_a_heartbeat_of_hudi_is_empty_and_counts(storage: Storage) -> None:
    storage.put(PATH, b"")
    assert is_alive(storage, T, lambda: system_now_ms() + HUDI_EXPIRES_AFTER_MS - 5_000)
    assert not is_alive(storage, T, lambda: system_now_ms() + HUDI_EXPIRES_AFTER_MS + 1)
