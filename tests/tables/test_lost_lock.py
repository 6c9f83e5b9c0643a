"""Who has lost the table lock finds out before anything is decided: writes and services alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import LockError
from bucketlake.storage.base import Storage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


class LostLock:
    """A lock that ran out while its owner slept."""

    @contextmanager
    def held(self, storage: Storage) -> Iterator[Callable[[], None]]:
        def check() -> None:
            raise LockError(storage.root, "nobody: its lease expired", None)

        yield check


def batch(v: int) -> pa.Table:
    return pa.table({"id": ["a", "b", "c"], "v": [v] * 3}, schema=SCHEMA)


DEEDS: dict[str, Callable[[bl.Table, str], object]] = {
    "upsert": lambda table, _: table.upsert(batch(9)),
    "compact": lambda table, _: table.compact(),
    "clean": lambda table, _: table.clean(retain_versions=1),
    "archive": lambda table, _: table.archive(keep_min=1, keep_max=2),
    "rollback": lambda table, instant: table.rollback(instant),
    "savepoint": lambda table, _: table.savepoint(),
    "restore": lambda table, _: table.restore(table.timeline()[0].requested_at),
}


@pytest.mark.parametrize("name", DEEDS)
def test_nothing_is_done_under_a_lock_that_was_lost(new_path: Callable[[], str], name: str) -> None:
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1),
        table_type="merge_on_read",
    )  # fmt: skip
    table.upsert(batch(0))
    if name == "restore":
        table.savepoint()
    for v in (1, 2, 3):
        table.upsert(batch(v))
        if name == "clean":
            table.compact()
    last = [one for one in table.timeline() if one.action.writes_data][-1].requested_at
    before = table.to_arrow().to_pylist()
    known = table.timeline()
    with pytest.raises(LockError):
        DEEDS[name](bl.Table(table.path, lock=LostLock()), last)
    assert table.to_arrow().to_pylist() == before
    table.upsert(batch(4).slice(0, 0))
    completed = [one for one in table.timeline() if one.completed_at]
    assert completed == list(known), "something was completed all the same"
    assert table.to_arrow().to_pylist() == before
