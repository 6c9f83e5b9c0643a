"""``files(...)``: files as the records of a write, which its tasks read themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, partial
from itertools import chain
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.paths_of_table import is_inner
from bucketlake.errors import ConfigError, InputError
from bucketlake.format.object_file import open_object
from bucketlake.model.arguments import (
    check_flags,
    check_optional_texts,
    check_texts,
    items_of,
    options_of,
    path_of,
)
from bucketlake.model.names import one_of
from bucketlake.model.row_merge import RowMerge, SchemaMerge
from bucketlake.model.text_values import TextForm
from bucketlake.model.words_of_others import in_our_words
from bucketlake.storage.base import Buffer, Storage, StoredObject
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.storage.secret_text import HIDDEN
from bucketlake.storage.store_options import GivenOptions
from bucketlake.write.input_files.reading import FileFormat, Reading

_WILD = re.compile(r"[*?\[]")
_HIDDEN = re.compile(r"(?:^|/)[._]")  # As in Spark: temporary files, and marks such as _SUCCESS.


class Union(Enum):
    """Which columns some files of a write may lack, while others have them."""

    NONE = "none"
    NEW = "new"  # Those that the table lacks, too: there are no stored values.
    ALL = "all"  # Every column: its nulls are allowed, or keep stored values.
    GAPS = "gaps"  # Every column; a file that lacks it keeps stored values.


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files that hold the records of a write; from :func:`files`.

    Attributes
    ----------
    paths : tuple of str
        Files, folders and patterns.
    reading : Reading
        Format, and the form of texts.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store.
    union : Union
        Which columns some of the files may lack.
    held : tuple of InputFile
        The files, if they are listed already.
    """

    paths: tuple[str, ...]
    reading: Reading
    storage_options: Mapping[str, str] | None = None
    union: Union = Union.NONE
    held: tuple[InputFile, ...] = field(default=(), repr=False)

    def to_write(self, merge: SchemaMerge, rows: RowMerge, *, keys_only: bool) -> InputFiles:
        """Return the files for a write with these arguments.

        ``keys_only`` says whether it deletes the records of keys.
        """
        if keys_only or merge.fill_missing or rows.keeps_nulls:
            return replace(self, union=Union.ALL)
        if rows.keeps_missing:
            alike = replace(self.reading, objects_alike=True)
            return replace(self, union=Union.GAPS, reading=alike)
        return replace(self, union=Union.NEW) if merge.add_columns else self


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
    content : Buffer or None
        What it holds, if it was read whole.
    """

    storage: Storage
    stored: StoredObject
    file_format: FileFormat
    content: Buffer | None = field(default=None, repr=False)

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
        return PurePosixPath(self.stored.path).suffix.lower() in COMPRESSIONS


COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


@in_our_words
def files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 -- the word of Spark's and pandas' readers.
    schema: pa.Schema | None = None,
    null_values: Sequence[str] = ("",),
    separator: str = ",",
    header: bool = True,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    decimal: str = ".",
    time_zone: str | None = None,
    folder_columns: bool = False,
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
        Types of columns of CSV and JSON. By default columns of the table have its types, and the
        values in the first MiB of the files say the others.
    null_values : sequence of str
        Texts that mean null in CSV, outside of quotes.
    separator : str
        What stands between two values of CSV, one character.
    header : bool
        Whether the first line of CSV names the columns; if not, ``columns`` names them.
    columns : sequence of str or mapping of str to str, optional
        Names of the columns of CSV in their order, in place of those of the first line; or, for
        all formats, the table's name of each column that has another name in the files.
    decimal : str
        The decimal point of numbers in CSV, for example ``","``.
    time_zone : str, optional
        Zone of the times without a zone, such as ``"Europe/Berlin"``. By default a time in text
        must have a zone in a column of instants (``timestamp``), and none in a column of local
        times (``timestamp_ntz``); with a zone given, each is converted to the other.
    folder_columns : bool
        Whether names of folders below the path, such as ``day=2026-11-02``, are values of columns
        that the files do not have. Their types are those of the table or of ``schema``, else text.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store of the files.

    Returns
    -------
    InputFiles
        For ``upsert``, ``insert``, ``bulk_insert``, ``delete``, ``insert_overwrite`` and ``save``.
        The files are listed when the write begins, and must not change while it runs. Files of
        Parquet and CSV need the same columns, unless ``merge_schema``, ``missing`` or ``nulls`` of
        the write says what a lacking one means. Of records with one key and one ordering value,
        that of the last file by its path, and of the last row in it, wins.

    Raises
    ------
    ConfigError
        If the format, the time zone or the form of another argument is unknown, or a path has a
        secret.

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
    for path in given:
        if HIDDEN in (shown := shown_address(path)) and HIDDEN not in path:
            allowed = "name a bucket, and give secrets as storage_options"
            raise ConfigError("paths", shown, allowed)
    check_optional_texts(format=format)
    check_flags(folder_columns=folder_columns)
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
    _check_csv(separator, decimal, header)
    names, renamed = _columns(columns)
    if not header and names is None:
        raise ConfigError("columns", columns, "header=False needs the names: columns=['id', ...]")
    form = TextForm(decimal, _known_zone(time_zone))
    reading = Reading(
        format, nulls, separator, header, names, renamed, form, folder_columns=folder_columns
    )
    reading = reading if schema is None else replace(reading, schema=schema)
    options = GivenOptions(options_of(storage_options, "storage_options"))
    return InputFiles(given, reading, options)


def _check_csv(separator: object, decimal: object, header: object) -> None:
    for name, mark in (("separator", separator), ("decimal", decimal)):
        if not (
            isinstance(mark, str) and len(mark) == 1 and mark.isascii() and mark not in '"\r\n'
        ):
            raise ConfigError(name, mark, "give one character of ASCII, but no quote")
    if decimal not in (".", ","):
        raise ConfigError("decimal", decimal, "give '.' or ','")
    if not isinstance(header, bool):
        raise ConfigError("header", header, "give True or False; columns=[...] names columns")


def _columns(given: object) -> tuple[tuple[str, ...] | None, tuple[tuple[str, str], ...]]:
    """Return the names of the columns, and the pairs of names of a mapping."""
    wanted = "give the names in order, or a dict of names in the files and in the table"
    if given is None:
        return None, ()
    if isinstance(given, Mapping):
        pairs = tuple(given.items())
        for name in chain.from_iterable(pairs):
            check_texts(columns=name)
        targets = [to for _, to in pairs]
        if len({*targets}) < len(targets):
            raise ConfigError("columns", given, "give each column one name in the files")
        return None, pairs
    if isinstance(given, str):
        raise ConfigError("columns", given, wanted)
    names = tuple(items_of(given, "columns", wanted))
    for name in names:
        check_texts(columns=name)
    if not names:
        raise ConfigError("columns", given, wanted)
    return names, ()


def _known_zone(name: str | None) -> str | None:
    check_optional_texts(time_zone=name)
    if name is not None:
        try:
            pc.assume_timezone(pa.array([0], pa.timestamp("us")), name)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            wanted = "give the name of a time zone, such as 'UTC' or 'Europe/Berlin'"
            raise ConfigError("time_zone", name, wanted) from error
    return name


def listed(given: InputFiles) -> list[InputFile]:
    """Return the files, sorted by address, each once.

    Raises
    ------
    InputError
        If a path names no file, or the ending of a file no format.
    """
    if given.held:
        return [*given.held]
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
            yield input_file(storage, stored, given)
            return
    yield from _matching(open_storage(path, given.storage_options), "**", given)


def _named(storage: Storage, pattern: str, given: InputFiles) -> list[InputFile]:
    """Return the file, or the files in the folder, that has the very name of a pattern."""
    name = pattern.rstrip("/")
    if not is_inner(name):
        return []
    stored = storage.stat(name)
    if stored is not None:
        return [input_file(storage, stored, given)]
    return [
        input_file(storage, below, given)
        for below in storage.list(name)
        if not _HIDDEN.search(below.path.removeprefix(f"{name}/"))
    ]


def _matching(storage: Storage, pattern: str, given: InputFiles) -> Iterator[InputFile]:
    matches = _regex_of(pattern).fullmatch
    for stored in storage.list("", recursive="/" in pattern or "**" in pattern):
        if matches(stored.path) and not _HIDDEN.search(stored.path):
            yield input_file(storage, stored, given)


def input_file(
    storage: Storage, stored: StoredObject, given: InputFiles, shown: str | None = None
) -> InputFile:
    """Return a file, whose format is named or follows from its ending; errors show ``shown``."""
    path = PurePosixPath(stored.path)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    shown = shown or shown_address(f"{storage.root.rstrip('/')}/{stored.path}")
    if not shown.isascii() and (plain := shown.encode(errors="replace").decode()) != shown:
        raise InputError(f"files {plain}", "the name of the file is not UTF-8", "rename the file")
    return InputFile(storage, stored, FileFormat.of(path, given.reading.file_format, shown))


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


def open_bytes(file: InputFile) -> pa.NativeFile:
    """Open a file, unless it was read whole."""
    if file.content is not None:
        return pa.BufferReader(file.content)
    return open_object(file.storage, file.stored.path, file.stored.size_bytes)


def open_text(file: InputFile) -> pa.NativeFile:
    """Open the text of a file that may be compressed, from its beginning; it is not empty."""
    source = open_bytes(file)
    codec = COMPRESSIONS.get(PurePosixPath(file.stored.path).suffix.lower())
    return source if codec is None else pa.CompressedInputStream(source, codec)
