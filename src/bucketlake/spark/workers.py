"""What a Python worker of Spark does before and after a task, and need not do.

Arrow's usual allocator gives memory back and takes it again all the time: with jemalloc, which most
builds of Arrow have, the workers of a write take 5 % less processor time and a sixth less memory
(docs/benchmarks/profile.md).

After each task, and before the next task, a worker runs a full garbage collection; PySpark 3.5 also
lets Python's path finders list their folders again. With NumPy and Arrow loaded, and with PySpark
in a zip file, this takes about 60 to 160 ms per task.
"""

from __future__ import annotations

import gc
import os
import sys
from zipimport import zipimporter

import pyarrow as pa

from bucketlake.spark.late_pandas import postpone_pandas

_POOL = "jemalloc"
_POOL_OF_USER = "ARROW_DEFAULT_MEMORY_POOL"  # Arrow's own variable.

_modules_seen = 0


def begin_task() -> None:
    """Choose where Arrow allocates, unless the user did, and postpone the import of pandas."""
    if (
        _POOL_OF_USER not in os.environ
        and _POOL in pa.supported_memory_backends()
        and pa.default_memory_pool().backend_name != _POOL
    ):
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    postpone_pandas()


def end_task() -> None:
    """Return memory, and exclude loaded modules from garbage collections, when a task ends.

    If a task loaded new modules, garbage is collected first, so that no garbage is kept, and then
    all objects are excluded. Finders in zip files are dropped, because each would read the whole
    directory of its file; Python creates a finder again when it needs it.
    """
    global _modules_seen
    pa.default_memory_pool().release_unused()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        gc.collect()
        gc.freeze()
