"""How data files are read: their format, and the form of their text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.partition_path import DEFAULT_PARTITION
from bucketlake.model.text_values import PLAIN, TextForm

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FileFormat(Enum):
    """Formats of data files; the value is the name on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"

    @classmethod
    def of(cls, path: PurePath, named: str | None, shown: str | None = None) -> FileFormat:
        """Return the named format, or else that of the file's ending; errors show ``shown``."""
        if named is not None:
            return cls(named)
        try:
            return _BY_ENDING[path.suffix.lower()]
        except KeyError:
            raise InputError(
                shown or str(path),
                f"the ending {path.suffix!r} does not name a format",
                "name the format with format= (--format): "
                f"{', '.join(known.value for known in cls)}",
            ) from None


_BY_ENDING = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
}

_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read data files.

    Attributes
    ----------
    file_format : str or None
        Their format; None for that of each file's ending.
    null_values : tuple of str
        Texts that mean null in CSV, outside of quotes.
    separator : str
        What stands between two values of CSV.
    header : bool
        Whether the first line of CSV names the columns.
    columns : tuple of str or None
        Names of the columns of CSV, in place of those of the first line.
    renamed : tuple of (str, str)
        Columns whose name in the files is another one, and their names in the table.
    form : TextForm
        How numbers and times are written.
    schema : pyarrow.Schema
        Types of columns of CSV and JSON, in place of the table's and those of the values.
    objects_alike : bool
        Whether all JSON objects of a file must have the same names.
    fits_numbers : bool
        Whether a column of numbers of Parquet takes the type of the table's, if all values fit it.
    folder_columns : bool
        Whether names of folders such as ``day=1`` are values of columns.
    """

    file_format: str | None = None
    null_values: tuple[str, ...] = ("",)
    separator: str = ","
    header: bool = True
    columns: tuple[str, ...] | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    form: TextForm = PLAIN
    schema: pa.Schema = _NO_COLUMNS
    objects_alike: bool = False
    fits_numbers: bool = False
    folder_columns: bool = False

    def table_names(self, names: list[str]) -> list[str]:
        """Return the names in the table of columns of a file."""
        known = dict(self.renamed)
        return [known.get(name, name) for name in names]

    def folder_values(self, path: str) -> dict[str, str | None]:
        """Return the values in the names of the folders of a file, by their names in the table."""
        pairs = [part.partition("=") for part in PurePosixPath(path).parts[:-1]]
        if not self.folder_columns:
            return {}
        names = self.table_names([unquote(name) for name, equals, _ in pairs if equals])
        texts = [unquote(text) for _, equals, text in pairs if equals]
        return {
            n: None if t == DEFAULT_PARTITION else t for n, t in zip(names, texts, strict=True) if n
        }

    def file_name(self, name: str) -> str:
        """Return the name in the files of a column of the table."""
        return {to: given for given, to in self.renamed}.get(name, name)
