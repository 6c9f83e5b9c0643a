"""Apache Hudi bucket-index tables from PySpark, in plain Python.

A public name is imported when it is first used. Every Python worker of Spark imports this package
before its first task, and a task needs about half of the modules.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from bucketlake.advising import advise
    from bucketlake.creating import create_table
    from bucketlake.engine import register
    from bucketlake.errors import (
        AlreadyExistsError,
        BucketLakeError,
        BucketOutOfRangeError,
        CatalogError,
        ClockWarning,
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
        OutOfMemoryError,
        ServiceWarning,
        StorageError,
        TableNotFoundError,
        TimelineError,
        UnsupportedFeatureError,
    )
    from bucketlake.following import debezium
    from bucketlake.hudi_job import save
    from bucketlake.index.dynamic import DynamicBucket, RecordIndex
    from bucketlake.index.partition import PartitionBucket
    from bucketlake.index.ring_kind import ConsistentBucket, ExtendibleBucket
    from bucketlake.index.simple import SimpleBucket
    from bucketlake.intake.ingesting import ingest
    from bucketlake.intervals import ChangeHistory, history
    from bucketlake.model.column_type import blob, blob_reference
    from bucketlake.model.keys import TimestampPartition
    from bucketlake.model.position import Position
    from bucketlake.model.result import WriteResult
    from bucketlake.opening import convert, open_table
    from bucketlake.scan import Scan
    from bucketlake.statements import sql
    from bucketlake.storage.user_file import read_blob
    from bucketlake.syncing import sync
    from bucketlake.table import Table
    from bucketlake.timeline.locks import FileSystemLock, InProcessLock, StorageLock
    from bucketlake.variants import variant, variant_json
    from bucketlake.write.input_files.files import files

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "BucketLakeError",
    "BucketOutOfRangeError",
    "CatalogError",
    "ChangeHistory",
    "ClockWarning",
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
    "OutOfMemoryError",
    "PartitionBucket",
    "Position",
    "RecordIndex",
    "Scan",
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
    "blob",
    "blob_reference",
    "convert",
    "create_table",
    "debezium",
    "files",
    "history",
    "ingest",
    "open_table",
    "read_blob",
    "register",
    "save",
    "sql",
    "sync",
    "variant",
    "variant_json",
]

_MODULES = {
    "ChangeHistory": "intervals",
    "ConsistentBucket": "index.ring_kind",
    "DynamicBucket": "index.dynamic",
    "ExtendibleBucket": "index.ring_kind",
    "FileSystemLock": "timeline.locks",
    "InProcessLock": "timeline.locks",
    "PartitionBucket": "index.partition",
    "Position": "model.position",
    "RecordIndex": "index.dynamic",
    "Scan": "scan",
    "SimpleBucket": "index.simple",
    "StorageLock": "timeline.locks",
    "Table": "table",
    "TimestampPartition": "model.keys",
    "WriteResult": "model.result",
    "advise": "advising",
    "blob": "model.column_type",
    "blob_reference": "model.column_type",
    "convert": "opening",
    "create_table": "creating",
    "debezium": "following",
    "files": "write.input_files.files",
    "history": "intervals",
    "ingest": "intake.ingesting",
    "open_table": "opening",
    "read_blob": "storage.user_file",
    "register": "engine",
    "save": "hudi_job",
    "sql": "statements",
    "sync": "syncing",
    "variant": "variants",
    "variant_json": "variants",
}
"""The modules of the public names that are no errors."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in __all__:
        from bucketlake.model.words_of_others import attribute_error

        package = sys.modules[__name__]
        raise attribute_error(name, package, "module", package)
    value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value  # The next use finds it without this function.
    return value


class _Module(ModuleType):
    """A module of the package; a call says what to call, as ``bl.read(path)`` is of others."""

    def __call__(self, *_args: Any, **_options: Any) -> NoReturn:
        from bucketlake.model.words_of_others import module_call_error

        raise module_call_error(self.__name__)

    def __reduce__(self) -> Any:  # For cloudpickle, which knows plain modules alone.
        return import_module, (self.__name__,)


class _Package(_Module):
    """The package, which gets each of its modules as an attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        if type(value) is ModuleType:
            value.__class__ = _Module
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    """Return the public names, imported or not, and the names that every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
