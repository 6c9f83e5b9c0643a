"""What a Python worker of Spark carries from task to task.

A worker collects garbage in full after every task, and takes the next one only then. With NumPy,
Arrow and pandas loaded that is some 60 ms a task, spent on objects that live as long as the worker.
"""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def spare_modules() -> None:
    """Take what a worker has loaded out of its collections; to be called at the end of a task.

    Done again only where a task loaded more. Garbage is collected first, so that none is kept.
    """
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        gc.collect()
        gc.freeze()
