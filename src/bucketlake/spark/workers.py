"""What a Python worker of Spark does between two tasks, and need not do.

After each task, and before the next task, a worker runs a full garbage collection; PySpark 3.5 also
lets Python's path finders list their folders again. With NumPy and Arrow loaded, and with PySpark
in a zip file, this takes about 60 to 160 ms per task.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

import pyarrow as pa

_modules_seen = 0


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
