"""Hudi and bucketlake write at the same time; whoever comes second in a conflict tries again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bucketlake.errors import CommitConflictError
from tests.interop.peer.client import PeerError
from tests.interop.shared_table import rows

Rows = list[dict[str, object]]
REFUSALS = ("conflict", "latest pending compaction instant time must be earlier")
"""Words of Hudi's errors; a compaction may be planned between the time of a write and its check."""


def own_rows(writer: str, batch: int) -> Rows:
    """Make rows of a writer's own, in buckets that the other one's lie in, too."""
    return [row | {"id": f"{writer}-{row['id']}"} for row in rows(range(12), batch)]


def write_at_once(
    batches: int, hudi_writes: Callable[[Rows], object], we_write: Callable[[Rows], object]
) -> tuple[list[Rows], Counter[str]]:
    """Have both write, bucketlake three times as often.

    Returns
    -------
    list of rows
        What the last batch of each leaves.
    Counter
        How often each was refused.
    """
    refused: Counter[str] = Counter()

    def again(writer: str, write: Callable[[], object]) -> None:
        while True:
            try:
                write()
            except CommitConflictError:
                refused[writer] += 1
            except PeerError as error:
                if not any(words in str(error).lower() for words in REFUSALS):
                    raise
                refused[writer] += 1
            else:
                return

    def hudi() -> None:
        for batch in range(1, batches + 1):
            again("hudi", lambda batch=batch: hudi_writes(own_rows("hudi", batch)))

    def ours() -> None:
        for batch in range(1, 3 * batches + 1):
            again("bucketlake", lambda batch=batch: we_write(own_rows("ours", batch)))
            time.sleep(0.3)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(hudi), pool.submit(ours)]:
            job.result()
    return [own_rows("hudi", batches), own_rows("ours", 3 * batches)], refused
