"""Apache Hudi bucket-index tables from PySpark, in plain Python."""

from bucketlake.index.partition import PartitionBucket
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.keys import TimestampPartition
from bucketlake.model.result import WriteResult
from bucketlake.opening import convert, create_table, open_table
from bucketlake.save import save
from bucketlake.table import Table
from bucketlake.timeline.locks import FileSystemLock, InProcessLock, StorageLock

__all__ = [
    "FileSystemLock",
    "InProcessLock",
    "PartitionBucket",
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
