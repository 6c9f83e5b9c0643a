"""What a Python worker of Spark need not do between two tasks.

A worker tidies up after each task, and takes the next one only then: it collects garbage in full,
and PySpark 3.5 also has Python's path finders look at their places anew. With NumPy and Arrow
loaded, and PySpark itself lying in a zip file, that is some 60 to 160 ms a task.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

_modules_seen = 0


def spare_modules() -> None:
    """Keep a worker from going through all that it has loaded; to be called as a task ends.

    Modules are taken out of its collections, again only where a task loaded more, and garbage
    before, so that none is kept. Finders in zip files are dropped: Python makes them anew when it
    needs one, and each of them would read the whole directory of its file.
    """
    global _modules_seen
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        gc.collect()
        gc.freeze()
