"""Apache Hudi bucket-index tables from PySpark, in plain Python.

A public name is imported when it is first used. Every Python worker of Spark imports this package
before its first task, and a task needs about half of the modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bucketlake.hudi_job import save
    from bucketlake.index.consistent import ConsistentBucket
    from bucketlake.index.dynamic import DynamicBucket
    from bucketlake.index.extendible import ExtendibleBucket
    from bucketlake.index.partition import PartitionBucket
    from bucketlake.index.record import RecordIndex
    from bucketlake.index.simple import SimpleBucket
    from bucketlake.model.keys import TimestampPartition
    from bucketlake.model.result import WriteResult
    from bucketlake.opening import convert, create_table, open_table
    from bucketlake.table import Table
    from bucketlake.timeline.locks import FileSystemLock, InProcessLock, StorageLock

__version__ = "0.1.0"

__all__ = [
    "ConsistentBucket",
    "DynamicBucket",
    "ExtendibleBucket",
    "FileSystemLock",
    "InProcessLock",
    "PartitionBucket",
    "RecordIndex",
    "SimpleBucket",
    "StorageLock",
    "Table",
    "TimestampPartition",
    "WriteResult",
    "convert",
    "create_table",
    "open_table",
    "save",
]

_MODULES = {
    "ConsistentBucket": "index.consistent",
    "DynamicBucket": "index.dynamic",
    "ExtendibleBucket": "index.extendible",
    "FileSystemLock": "timeline.locks",
    "InProcessLock": "timeline.locks",
    "PartitionBucket": "index.partition",
    "RecordIndex": "index.record",
    "SimpleBucket": "index.simple",
    "StorageLock": "timeline.locks",
    "Table": "table",
    "TimestampPartition": "model.keys",
    "WriteResult": "model.result",
    "convert": "opening",
    "create_table": "opening",
    "open_table": "opening",
    "save": "hudi_job",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # The next use finds it without this function.
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
