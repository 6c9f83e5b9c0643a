"""A landing zone in a bucket, whose times of change are whole seconds."""

from __future__ import annotations

import bucketlake as bl
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import forget


def test_a_file_that_is_written_again_at_once_is_taken_by_its_etag(storage: Storage) -> None:
    """Both versions have one size, and perhaps one time."""
    folder, table = f"{storage.root}/landing", "memory://landed"
    found = []
    for city in ("Rome", "Oslo", "Oslo"):
        if found[-1:] != [[city]]:
            storage.put("landing/1.jsonl", f'{{"id": "a", "city": "{city}"}}\n'.encode())
        bl.ingest(folder, table, record_key="id", max_files=1)
        found.append(bl.open_table(table).to_arrow()["city"].to_pylist())
    assert found == [["Rome"], ["Oslo"], ["Oslo"]]
    position = bl.open_table(table).position("files")
    assert position is not None
    assert dict(position.last) == {"batch": 1}
    assert storage.stat("landing/1.jsonl") == next(iter(storage.list("landing")))
    forget("landed")
