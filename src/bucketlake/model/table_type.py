"""Enums that describe a table: its type, its merge mode, the operations on it."""

from __future__ import annotations

from enum import Enum


class TableType(Enum):
    """How a table stores updates; the value is Hudi's spelling."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(Enum):
    """Which of two records with one key wins; the value is Hudi's spelling."""

    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    EVENT_TIME = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class LogFormat(Enum):
    """The format of records in log files; the value is Hudi's spelling."""

    PARQUET = "parquet"
    AVRO = "avro"


class ChangeLogMode(Enum):
    """What a table keeps of each change in files of their own; the value is Hudi's spelling."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


CDC_MODE_DEFAULT = ChangeLogMode.DATA_BEFORE_AFTER
"""Hudi's default."""


class DuplicatePolicy(Enum):
    """What an insert does with records whose key is stored; the value is Hudi's spelling."""

    DROP = "drop"
    FAIL = "fail"


class Operation(Enum):
    """What a write does; the value is the ``operationType`` of its commit metadata."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"

    @property
    def replaces(self) -> bool:
        """Whether the write replaces file groups; then it is a replace commit."""
        return self in _REPLACING

    @property
    def orders_records(self) -> bool:
        """Whether the records of the write win or lose by their ordering values."""
        return self in (Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT)


_REPLACING = frozenset(
    {Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE, Operation.DELETE_PARTITION}
)
