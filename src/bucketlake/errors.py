"""Every error that bucketlake raises, in one tree.

::

    BucketLakeError
    ├── ConfigError(ValueError)           key, value, what is allowed
    ├── InputError(ValueError)            table, column or key, what is wrong, next step
    ├── TableNotFoundError                path, what was found there, next step
    ├── StorageError                      path, operation, reason
    │   ├── ObjectNotFoundError           nothing at the path
    │   └── AlreadyExistsError            the losing side of put-if-absent
    ├── FormatError                       path, offset_bytes, expected, found
    ├── MissingFileError                  path, who names it
    ├── TimelineError                     instant
    │   ├── CommitConflictError           refresh, then retry
    │   └── CommitOutcomeUnknownError     look before any retry
    ├── LockError                         the lock, its owner, how long the caller waited
    ├── IndexStateError                   what the index believes, what the table holds
    │   ├── HashingMetadataError          path, expected, found: no hash ring
    │   │   └── DirectoryMetadataError    the same for extendible hashing: no directory
    │   ├── BucketOutOfRangeError         file_id, bucket_id, bucket_count
    │   ├── IndexMissingError             table, kind of record-level index, why it cannot be used
    │   ├── KeyTwiceError                 table, key, where it is, next step
    │   └── MetadataTableError            table, what is wrong
    ├── UnsupportedFeatureError           feature, where, next step
    └── OutOfMemoryError(MemoryError)     what could not be had

    NullElementWarning(UserWarning)       column, the setting that Hudi's writers need
    MetadataTableWarning(UserWarning)     partitions of the metadata table that were taken off
    ServiceWarning(UserWarning)           what was not done after a write that is committed

There is a class for each case in which a caller acts differently. The facts are ``args``, so an
error survives pickling between processes; the message is made from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

_IN_MEMORY = re.compile(r" at 0x[0-9A-Fa-f]{6,}>")  # In the repr of a function.
_VALUE_MAX = 500  # Characters of a value of a file or a setting that a message shows.
_SENTENCE_MAX = 4_000
_END = 1_000  # Of these, the characters of the end, which says what to do next.


class BucketLakeError(Exception):
    """Base of all errors raised by bucketlake.

    Attributes
    ----------
    table : str or None
        Address of the table, without secrets; None if the error concerns no table. The public
        functions set it (:func:`naming_table`), so that no other function needs to.
    """

    table: str | None = None

    _form: ClassVar[str] = ""
    """The sentence of a class, with the names of its attributes in braces."""

    def __str__(self) -> str:
        """Return the sentence, after the table's address if the sentence does not show it.

        A value may be a function or another object; its place in memory tells a reader nothing.
        """
        sentence = _IN_MEMORY.sub(">", _cut(self.sentence, _SENTENCE_MAX, _END))
        if self.table is None or _shows(sentence, self.table):
            return sentence
        return f"table {self.table}: {sentence}"

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do next."""
        return self._form.format_map(vars(self)) if self._form else super().__str__()


def _cut(text: str, length: int, end: int = 0) -> str:
    """Cut a long text in its middle, or at its end.

    >>> _cut("a" * 9, 4), _cut("abcdefghi", 4, 2)
    ('aaaa… (9 characters)', 'ab… (9 characters) …hi')
    """
    if len(text) <= length:
        return text
    said = f"{text[: length - end]}… ({len(text)} characters)"
    return f"{said} …{text[-end:]}" if end else said


def _shows(sentence: str, address: str) -> bool:
    """Return whether a sentence contains an address, or a path below it.

    >>> _shows("/lake/t/day=1/x.parquet is missing", "/lake/t"), _shows("/lake/t2", "/lake/t")
    (True, False)
    """
    whole = rf"(?<![\w/.-]){re.escape(address)}(?![\w-]|\.\w)"
    return re.search(whole, sentence) is not None


@contextmanager
def naming_table(address: str) -> Iterator[None]:
    """Give each error of the body the address of the table, unless it has one.

    If a library has no memory, it says so in its own words, perhaps in the middle of a file that
    then seems to be damaged. It becomes an OutOfMemoryError here.

    Parameters
    ----------
    address : str
        Address without secrets, as ``shown_address`` returns it.
    """
    try:
        yield
    except (BucketLakeError, MemoryError) as error:
        told = with_memory_told(error)
        told.table = told.table or address
        if told is error:
            raise
        raise told from error


def with_memory_told(error: BucketLakeError | MemoryError) -> BucketLakeError:
    """Return the error to raise: an OutOfMemoryError if memory lacks, here or in its cause."""
    if isinstance(error, OutOfMemoryError):
        return error
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemoryError):
        cause = cause.__cause__
    if isinstance(error, BucketLakeError) and cause is None:
        return error
    return OutOfMemoryError(str(cause) or "no more was given")


class ConfigError(BucketLakeError, ValueError):
    """A setting has a value that cannot be used."""

    def __init__(self, key: str, value: object, allowed: str, done: str = "used") -> None:
        super().__init__(key, value, allowed, done)
        self.key, self.value, self.allowed, self.done = key, value, allowed, done

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do next."""
        value = _cut(repr(self.value), _VALUE_MAX)
        return f"{self.key} = {value} cannot be {self.done}: {self.allowed}"


class InputError(BucketLakeError, ValueError):
    """The given data or schema cannot be written to the table; nothing was written."""

    is_too_much: bool = False
    """Whether the rows have more bytes than Spark hands over to the driver."""

    _form = "{where}: {problem}; {next_step}"

    def __init__(self, where: str, problem: str, next_step: str) -> None:
        super().__init__(where, problem, next_step)
        self.where, self.problem, self.next_step = where, problem, next_step


class TableNotFoundError(BucketLakeError):
    """There is no Hudi table at the path."""

    usual_step = (
        "check the path, or create a table there with create_table(...) (bucketlake create)"
    )

    _form = "{path} is not a Hudi table: {found}; {next_step}"

    def __init__(self, path: str, found: str, next_step: str = usual_step) -> None:
        super().__init__(path, found, next_step)
        self.path, self.found, self.next_step = path, found, next_step


class StorageError(BucketLakeError):
    """Storage rejected an operation, or an operation failed."""

    _form = "{operation} {path}: {reason}"

    def __init__(self, path: str, operation: str, reason: str) -> None:
        super().__init__(path, operation, reason)
        self.path, self.operation, self.reason = path, operation, reason


class ObjectNotFoundError(StorageError):
    """Nothing is stored at the path."""


class AlreadyExistsError(StorageError):
    """The path exists: put-if-absent failed, or a duplicate met an object of another size."""


class FormatError(BucketLakeError):
    """Bytes on storage do not have the expected format."""

    def __init__(
        self, path: str, expected: str, found: str, offset_bytes: int | None = None
    ) -> None:
        super().__init__(path, expected, found, offset_bytes)
        self.path, self.expected, self.found = path, expected, found
        self.offset_bytes = offset_bytes

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do next."""
        return f"{self.problem}; restore the file, or run table.doctor() (bucketlake doctor)"

    @property
    def problem(self) -> str:
        """What is wrong, without the next step."""
        at = "" if self.offset_bytes is None else f" at byte {self.offset_bytes}"
        found = _cut(self.found, _VALUE_MAX)
        return f"{self.path}{at}: expected {self.expected}, found {found}"


class MissingFileError(BucketLakeError):
    """A committed data file is missing in storage; without it, older rows would look current."""

    _form = (
        "{path} is missing: {named_by}, and neither a clean nor a rollback deleted "
        "it; restore the file, or give its rows up: roll back the commit and later ones, or "
        "overwrite or delete the partition; table.doctor() (bucketlake doctor) finds all "
        "missing files"
    )

    def __init__(self, path: str, named_by: str) -> None:
        super().__init__(path, named_by)
        self.path, self.named_by = path, named_by


class TimelineError(BucketLakeError):
    """An instant on the timeline is not in the state that an operation needs."""

    readable_since: str | None = None
    """Since when changes can be read, if a clean deleted what earlier ones need; else None."""

    _form = "instant {instant}: {problem}"

    def __init__(self, instant: str, problem: str) -> None:
        super().__init__(instant, problem)
        self.instant, self.problem = instant, problem


class CommitConflictError(TimelineError):
    """Another writer changed what this write read; refresh and retry."""

    attempts: int | None = None
    """How often the write was tried, if it was tried again by itself; else None."""

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do next."""
        tried = "" if self.attempts is None else f"; it was tried {self.attempts} times"
        return f"{super().sentence}{tried}"


class CommitOutcomeUnknownError(TimelineError):
    """Storage failed while the commit was published; look at the timeline before any retry."""


class LockError(BucketLakeError):
    """The lock of a table was not free in time, or was lost before the commit."""

    def __init__(self, lock: str, holder: str, waited_seconds: float | None) -> None:
        super().__init__(lock, holder, waited_seconds)
        self.lock, self.holder, self.waited_seconds = lock, holder, waited_seconds

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do next."""
        if self.waited_seconds is None:
            return (
                f"{self.lock} was lost before the commit: it is held by {self.holder}; "
                "nothing was committed, write again"
            )
        return (
            f"{self.lock} is held by {self.holder} and was not free within "
            f"{self.waited_seconds:g} s; nothing was committed, write again; if its owner is "
            "dead, delete the lock first"
        )


class IndexStateError(BucketLakeError):
    """The index setting and the table's file groups contradict each other."""

    _form = "{believed}, but {held}; {next_step}"

    def __init__(self, believed: str, held: str, next_step: str) -> None:
        super().__init__(believed, held, next_step)
        self.believed, self.held, self.next_step = believed, held, next_step


class HashingMetadataError(IndexStateError):
    """The nodes of a partition do not make a hash ring."""

    what = "hash ring"

    def __init__(self, path: str, expected: str, found: str) -> None:
        BucketLakeError.__init__(self, path, expected, found)
        self.path, self.expected, self.found = path, expected, found
        self.believed = f"{path}: expected {expected}"
        self.held = f"the {self.what} has {found}"
        self.next_step = "restore the file, or run table.doctor() (bucketlake doctor)"


class DirectoryMetadataError(HashingMetadataError):
    """The buckets of a partition do not make a directory of extendible hashing."""

    what = "directory"


class BucketOutOfRangeError(IndexStateError):
    """A file group names a bucket that its partition does not have."""

    _form = "file group {file_id} names bucket {bucket_id} of {bucket_count}; {next_step}"

    def __init__(self, file_id: str, bucket_id: int, bucket_count: int) -> None:
        BucketLakeError.__init__(self, file_id, bucket_id, bucket_count)
        self.file_id, self.bucket_id, self.bucket_count = file_id, bucket_id, bucket_count
        self.believed = f"the partition has {bucket_count} buckets"
        self.held = f"file group {file_id} names bucket {bucket_id}"
        self.next_step = (
            "was the bucket count changed without a rescale? "
            "table.doctor() (bucketlake doctor) finds all such file groups"
        )


class IndexMissingError(IndexStateError):
    """Writes need a record-level index that the table does not have; build it, then write again."""

    def __init__(self, table: str, is_partitioned: bool, held: str) -> None:
        BucketLakeError.__init__(self, table, is_partitioned, held)
        self.table, self.is_partitioned, self.held = table, is_partitioned, held
        kind = "partitioned" if is_partitioned else "global"
        self.believed = f"{table} is written with a {kind} record-level index"
        self.next_step = (
            "build it with table.rebuild_metadata_table(['record_index'], "
            f"partitioned={is_partitioned})"
        )


class KeyTwiceError(IndexStateError):
    """A key has two places, so a record-level index cannot be built."""

    def __init__(self, table: str, key: str, places: str, next_step: str) -> None:
        BucketLakeError.__init__(self, table, key, places, next_step)
        self.table, self.key, self.places, self.next_step = table, key, places, next_step
        self.believed = f"the record-level index of {table} has one place for each key"
        self.held = f"key {key!r} is in {places}"


class MetadataTableError(IndexStateError):
    """The metadata table is missing, damaged, or behind the table; rebuild it or turn it off."""

    def __init__(self, table: str, problem: str, partition: str | None = None) -> None:
        BucketLakeError.__init__(self, table, problem, partition)
        self.table, self.problem, self.partition = table, problem, partition
        self.believed = f"{table}: hoodie.properties lists a metadata table"
        self.held = problem
        rebuilt = "" if partition is None else f"['{partition}']"
        option = "" if partition is None else f" --partition {partition}"
        self.next_step = (
            f"rebuild it with table.rebuild_metadata_table({rebuilt}) (bucketlake metadata "
            f"--rebuild{option} --run), or turn it off with table.drop_metadata_table() "
            "(bucketlake metadata --drop --run)"
        )


class OutOfMemoryError(BucketLakeError, MemoryError):
    """A process has too little memory."""

    _form = (
        "out of memory ({reason}): give this process more (ulimit -v, the limit of its "
        "container; on Spark spark.executor.memoryOverhead or more, smaller partitions of the "
        "input), or lower what is held at once: rows of a call (a file or a batch each), "
        "columns and rows of a read (columns=, where=), file groups (more buckets, or a lower "
        "max_file_size)"
    )

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedFeatureError(BucketLakeError):
    """The table or the request uses a feature that bucketlake does not support."""

    _form = "{where}: {feature} is not supported; {next_step}"

    def __init__(self, feature: str, where: str, next_step: str) -> None:
        super().__init__(feature, where, next_step)
        self.feature, self.where, self.next_step = feature, where, next_step


class NullElementWarning(UserWarning):
    """The data are stored, but Hudi writers need a setting to rewrite them."""


class MetadataTableWarning(UserWarning):
    """A part of the metadata table cannot be maintained and was taken off."""


class ServiceWarning(UserWarning):
    """A write is committed, but a compaction, clean or archival after it failed."""


class ClockWarning(UserWarning):
    """Instants of a table are in the future of this clock; a writer's clock or zone was ahead."""


class CatalogError(BucketLakeError):
    """A catalog cannot be reached, or refuses a call; the table itself is as before."""

    _form = "catalog {catalog}: {problem}; {next_step}"

    def __init__(self, catalog: str, problem: str, next_step: str) -> None:
        super().__init__(catalog, problem, next_step)
        self.catalog, self.problem, self.next_step = catalog, problem, next_step
