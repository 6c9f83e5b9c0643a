"""The memory that Arrow alone takes to read a base file, to sort its rows and to write it again.

It is what to compare a worker with that merges rows into the file. Arrow allocates in its usual way
here, while workers use jemalloc. The module runs as a program, since only a new process has memory
that nothing else has used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common.usage import reset_high_water_mark, status_bytes

LEVEL = 1  # Of zstd, as the tables have it.


def memory_of_group(path: Path) -> int:
    """Return the bytes that a new process takes for a file, above what it has without one."""
    program = [sys.executable, "-m", __name__, str(path)]
    return int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def _rewrite(path: str) -> None:
    rows = pq.ParquetFile(path).read(use_threads=False)
    order = np.random.default_rng(0).permutation(len(rows))
    rows = rows.take(pa.array(order))
    pq.write_table(rows, pa.BufferOutputStream(), compression="zstd", compression_level=LEVEL)


if __name__ == "__main__":
    own = os.getpid()
    reset_high_water_mark(own)
    idle = status_bytes(own, "VmRSS")
    _rewrite(sys.argv[1])
    print(status_bytes(own, "VmHWM") - idle)
