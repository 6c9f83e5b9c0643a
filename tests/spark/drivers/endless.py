"""Writes round after round until it is killed: usage: endless FOLDER FIRST_ROUND LOG.

The number of each round is appended to the log, and flushed to the disk, once its write returned.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import bucketlake as bl
from tests.spark.drivers import common

FOLDER, FIRST, LOG = sys.argv[1:]

if __name__ == "__main__":
    spark = common.session("local[2]")
    table = bl.open_table(f"{FOLDER}/table")
    with Path(LOG).open("a") as log:
        for number in itertools.count(int(FIRST)):
            table.upsert(common.frame_of_round(spark, number, Path(FOLDER)))
            log.write(f"{number}\n")
            log.flush()
            os.fsync(log.fileno())
