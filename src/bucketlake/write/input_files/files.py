"""``files(...)``: files as the records of a write, which its tasks read themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import PurePosixPath

import pyarrow as pa

from bucketlake.config.inner_path import is_inner
from bucketlake.errors import ConfigError, InputError
from bucketlake.format.object_file import open_object
from bucketlake.model.arguments import (
    check_optional_texts,
    check_texts,
    items_of,
    options_of,
    path_of,
)
from bucketlake.model.names import one_of
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.write.input_files.data_files import FileFormat, Reading

_WILD = re.compile(r"[*?\[]")
_HIDDEN = re.compile(r"(?:^|/)[._]")  # As in Spark: temporary files, and marks such as _SUCCESS.


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files that hold the records of a write; from :func:`files`.

    Attributes
    ----------
    paths : tuple of str
        Files, folders and patterns.
    reading : Reading
        Format, and texts that mean null in CSV.
    schema : pa.Schema or None
        Types of columns of CSV and JSON that the table does not have.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    """

    paths: tuple[str, ...]
    reading: Reading
    schema: pa.Schema | None = None
    storage_options: Mapping[str, str] | None = None

    def with_names_alike(self) -> InputFiles:
        """Return the same files, of which JSON is refused where an object lacks a name."""
        return replace(self, reading=replace(self.reading, names_alike=True))


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read.

    Attributes
    ----------
    storage : Storage
        The folder that was listed.
    stored : StoredObject
        The file, as it was listed.
    file_format : FileFormat
        Its format.
    """

    storage: Storage
    stored: StoredObject
    file_format: FileFormat

    @property
    def shown(self) -> str:
        """Its address, for messages."""
        return f"{self.storage.root.rstrip('/')}/{self.stored.path}"

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, and no text."""
        return self.file_format is FileFormat.PARQUET

    @property
    def is_compressed(self) -> bool:
        """Whether its text is compressed, so that it cannot be read in parts."""
        return PurePosixPath(self.stored.path).suffix.lower() in _COMPRESSIONS


_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 -- the word of Spark's and pandas' readers.
    schema: pa.Schema | None = None,
    null_values: Sequence[str] = ("",),
    storage_options: Mapping[str, str] | None = None,
) -> InputFiles:
    """Name files as the records of a write: its tasks read them in Arrow, without the JVM.

    Parameters
    ----------
    paths : str, Path or sequence of them
        Files, folders, and patterns with ``*``, ``?``, ``[...]`` and ``**``, on local disk or an
        object store. A file or folder that has the very name of a pattern is taken instead; inside
        a pattern ``[[]`` means a bracket. Of folders and patterns, names that begin with ``_`` or
        ``.`` are left out.
    format : {"parquet", "csv", "jsonl"}, optional
        By default by the ending of each file: ``.parquet``, ``.csv``, ``.json``, ``.jsonl`` or
        ``.ndjson``; text may be compressed (``.gz``, ``.zst``, ``.bz2``).
    schema : pa.Schema, optional
        Types of columns of CSV and JSON that the table does not have. By default the first MiB of
        the files says them; columns of the table are read with its types.
    null_values : sequence of str
        Texts that mean null in CSV, outside of quotes.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store of the files.

    Returns
    -------
    InputFiles
        For ``upsert``, ``insert``, ``bulk_insert``, ``delete``, ``insert_overwrite`` and ``save``.
        The files are listed when the write begins, and must not change while it runs. All files of
        Parquet and CSV need the same columns; values in names of folders (``day=1``) are none. Of
        records with one key and one ordering value, that of the last file by its path, and of the
        last row in it, wins.

    Raises
    ------
    ConfigError
        If the format is unknown.

    Examples
    --------
    >>> import bucketlake as bl
    >>> import pyarrow.parquet as pq
    >>> from tempfile import TemporaryDirectory
    >>> table = bl.create_table(
    ...     "memory://docs/landed", schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
    ...     record_key="id")
    >>> with TemporaryDirectory() as landing:
    ...     pq.write_table(pa.table({"id": ["a", "b"], "n": [1, 2]}), f"{landing}/1.parquet")
    ...     table.upsert(files(f"{landing}/*.parquet")).inserted
    2
    """
    wanted = "give the path of a file, a folder or a pattern, or a list of such paths"
    is_one = isinstance(paths, str | os.PathLike)
    given = tuple(map(path_of, [paths] if is_one else items_of(paths, "paths", wanted)))
    if not given or not all(given):
        raise ConfigError("paths", paths, wanted)
    check_optional_texts(format=format)
    known = {one.value: one for one in FileFormat}
    if format is not None and format not in known:
        raise ConfigError("format", format, one_of(format, known))
    if schema is not None and not isinstance(schema, pa.Schema):
        raise ConfigError("schema", schema, "give a pyarrow.Schema")
    if isinstance(null_values, str):
        raise ConfigError("null_values", null_values, "give a list of texts")
    nulls = tuple(items_of(null_values, "null_values", "give a list of texts"))
    for text in nulls:
        check_texts(null_values=text)
    reading = Reading(format, nulls, widens=True)
    return InputFiles(given, reading, schema, options_of(storage_options, "storage_options"))


def listed(given: InputFiles) -> list[InputFile]:
    """Return the files, sorted by address, each once.

    Raises
    ------
    InputError
        If a path names no file, or the ending of a file no format.
    """
    found: dict[str, InputFile] = {}
    for path in given.paths:
        here = list(_files_at(path, given))
        found |= {file.shown: file for file in here}
        if not here:
            problem = "there is no such file"
            if is_pattern(path):
                problem += ", and no file matches it as a pattern with *, ? or [...]"
            raise InputError(
                f"files {shown_address(path)}",
                problem,
                "correct the path; of folders and patterns, names that begin with _ or . are left "
                "out",
            )
    return [found[shown] for shown in sorted(found)]


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern, unless a file or folder has this very name."""
    return _WILD.search(path) is not None


def _files_at(path: str, given: InputFiles) -> Iterator[InputFile]:
    wild = _WILD.search(path)
    cut = path.rfind("/", 0, None if wild is None else wild.start()) + 1
    folder = path[: cut - 1] if cut > 1 else "/" if cut else "."
    around, rest = partial(open_storage, folder, given.storage_options), path[cut:]
    if wild is not None:
        storage = around()
        yield from _named(storage, rest, given) or _matching(storage, rest, given)
        return
    if rest and not folder.endswith((":/", ":")):  # Else it is a folder, or the root of a store.
        storage = around()
        stored = storage.stat(rest)
        if stored is not None:
            yield _file(storage, stored, given)
            return
    yield from _matching(open_storage(path, given.storage_options), "**", given)


def _named(storage: Storage, pattern: str, given: InputFiles) -> list[InputFile]:
    """Return the file, or the files in the folder, that has the very name of a pattern."""
    name = pattern.rstrip("/")
    if not is_inner(name):
        return []
    stored = storage.stat(name)
    if stored is not None:
        return [_file(storage, stored, given)]
    return [
        _file(storage, below, given)
        for below in storage.list(name)
        if not _HIDDEN.search(below.path.removeprefix(f"{name}/"))
    ]


def _matching(storage: Storage, pattern: str, given: InputFiles) -> Iterator[InputFile]:
    matches = _regex_of(pattern).fullmatch
    for stored in storage.list("", recursive="/" in pattern or "**" in pattern):
        if matches(stored.path) and not _HIDDEN.search(stored.path):
            yield _file(storage, stored, given)


def _file(storage: Storage, stored: StoredObject, given: InputFiles) -> InputFile:
    path = PurePosixPath(stored.path)
    if path.suffix.lower() in _COMPRESSIONS:
        path = path.with_suffix("")
    try:
        file_format = FileFormat.of(path, given.reading.file_format)
    except InputError as error:
        next_step = error.next_step.replace("--format", "format= (--format)")
        raise InputError(error.where, error.problem, next_step) from None
    return InputFile(storage, stored, file_format)


@cache
def _regex_of(pattern: str) -> re.Pattern[str]:
    """Translate a pattern: ``*`` and ``?`` stay in a folder, ``**`` goes through folders."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            held = re.sub(r"([\[\\])", r"\\\1", pattern[at + 1 : end])
            parts.append(f"[{'^' + held[1:] if held[0] in '!^' else held}]")
            at = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at])))
            at += 1
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error:  # [9-1] is no range; as in a shell, it matches no character.
        return re.compile(r"(?!)")


def open_text(file: InputFile) -> pa.NativeFile:
    """Open the text of a file that may be compressed, from its beginning; it is not empty."""
    stored = file.stored
    source = open_object(file.storage, stored.path, stored.size_bytes)
    codec = _COMPRESSIONS.get(PurePosixPath(stored.path).suffix.lower())
    return source if codec is None else pa.CompressedInputStream(source, codec)
