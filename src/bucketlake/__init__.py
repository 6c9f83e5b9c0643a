"""Apache Hudi bucket-index tables from PySpark, in plain Python.

A public name is imported when it is first used. Every Python worker of Spark imports this package
before its first task, and a task needs about half of the modules.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bucketlake.advising import advise
    from bucketlake.engine import register
    from bucketlake.errors import (
        AlreadyExistsError,
        BucketLakeError,
        BucketOutOfRangeError,
        CommitConflictError,
        CommitOutcomeUnknownError,
        ConfigError,
        DirectoryMetadataError,
        FormatError,
        HashingMetadataError,
        IndexMissingError,
        IndexStateError,
        InputError,
        KeyTwiceError,
        LockError,
        MetadataTableError,
        MetadataTableWarning,
        MissingFileError,
        NullElementWarning,
        ObjectNotFoundError,
        ServiceWarning,
        StorageError,
        TableNotFoundError,
        TimelineError,
        UnsupportedFeatureError,
    )
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
    from bucketlake.statements import sql
    from bucketlake.table import Table
    from bucketlake.timeline.locks import FileSystemLock, InProcessLock, StorageLock
    from bucketlake.write.input_files.files import files

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "BucketLakeError",
    "BucketOutOfRangeError",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "ConfigError",
    "ConsistentBucket",
    "DirectoryMetadataError",
    "DynamicBucket",
    "ExtendibleBucket",
    "FileSystemLock",
    "FormatError",
    "HashingMetadataError",
    "InProcessLock",
    "IndexMissingError",
    "IndexStateError",
    "InputError",
    "KeyTwiceError",
    "LockError",
    "MetadataTableError",
    "MetadataTableWarning",
    "MissingFileError",
    "NullElementWarning",
    "ObjectNotFoundError",
    "PartitionBucket",
    "RecordIndex",
    "ServiceWarning",
    "SimpleBucket",
    "StorageError",
    "StorageLock",
    "Table",
    "TableNotFoundError",
    "TimelineError",
    "TimestampPartition",
    "UnsupportedFeatureError",
    "WriteResult",
    "advise",
    "convert",
    "create_table",
    "files",
    "open_table",
    "register",
    "save",
    "sql",
]

_MODULES = {
    "AlreadyExistsError": "errors",
    "BucketLakeError": "errors",
    "BucketOutOfRangeError": "errors",
    "CommitConflictError": "errors",
    "CommitOutcomeUnknownError": "errors",
    "ConfigError": "errors",
    "ConsistentBucket": "index.consistent",
    "DirectoryMetadataError": "errors",
    "DynamicBucket": "index.dynamic",
    "ExtendibleBucket": "index.extendible",
    "FileSystemLock": "timeline.locks",
    "FormatError": "errors",
    "HashingMetadataError": "errors",
    "InProcessLock": "timeline.locks",
    "IndexMissingError": "errors",
    "IndexStateError": "errors",
    "InputError": "errors",
    "KeyTwiceError": "errors",
    "LockError": "errors",
    "MetadataTableError": "errors",
    "MetadataTableWarning": "errors",
    "MissingFileError": "errors",
    "NullElementWarning": "errors",
    "ObjectNotFoundError": "errors",
    "PartitionBucket": "index.partition",
    "RecordIndex": "index.record",
    "ServiceWarning": "errors",
    "SimpleBucket": "index.simple",
    "StorageError": "errors",
    "StorageLock": "timeline.locks",
    "Table": "table",
    "TableNotFoundError": "errors",
    "TimelineError": "errors",
    "TimestampPartition": "model.keys",
    "UnsupportedFeatureError": "errors",
    "WriteResult": "model.result",
    "advise": "advising",
    "convert": "opening",
    "create_table": "opening",
    "files": "write.input_files.files",
    "open_table": "opening",
    "register": "engine",
    "save": "hudi_job",
    "sql": "statements",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # The next use finds it without this function.
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not, and the names that every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
