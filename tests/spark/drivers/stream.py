"""Upserts the batches of one stream until it is killed: usage: stream TABLE NAME LOG.

Goes on after the last batch whose number is in the log; one is appended, and flushed to the disk,
once its write returned. A write that met others too often is repeated.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import suppress
from pathlib import Path

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from tests.spark.drivers import common

TABLE, NAME, LOG = sys.argv[1:]

if __name__ == "__main__":
    spark = common.session("local[1]", {"spark.sql.shuffle.partitions": "2"})
    log = Path(LOG)
    known = log.read_text().split() if log.exists() else []
    upsert = bl.open_table(TABLE).upsert_batch(query_name=NAME)
    for number in itertools.count(int(known[-1]) + 1 if known else 0):
        rows = spark.createDataFrame(
            common.batch_of(NAME, number), "id string, part string, ts long, v long"
        )
        while common.parent_lives():
            with suppress(CommitConflictError):
                upsert(rows, number)
                break
        else:
            sys.exit("the test that started this is gone")
        with log.open("a") as lines:
            lines.write(f"{number}\n")
            lines.flush()
            os.fsync(lines.fileno())
