"""Compacts a table again and again until it is killed: usage: compactor TABLE LOG."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from tests.spark.drivers.common import parent_lives

TABLE, LOG = sys.argv[1:]

if __name__ == "__main__":
    while parent_lives():
        with suppress(CommitConflictError):
            done = bl.open_table(TABLE).compact(min_log_files=2).instants
            with Path(LOG).open("a") as lines:
                lines.writelines(f"{instant}\n" for instant in done)
        time.sleep(0.2)
