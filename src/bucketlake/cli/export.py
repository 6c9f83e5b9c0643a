"""Writing rows to a data file (Parquet, CSV or JSON lines), completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from bucketlake.cli.output import rows_of, time_texts
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.text_table import plain_value
from bucketlake.storage.user_file import local_file
from bucketlake.write.input_files.data_files import FileFormat


def write_file(rows: pa.Table, path: Path, named_format: str | None) -> None:
    """Write rows to a file; an existing file is replaced and keeps its mode.

    Raises
    ------
    InputError
        If the file's ending does not name a format, and no format is given.
    UnsupportedFeatureError
        If the format cannot hold a column's type.
    StorageError
        If the file cannot be written.
    """
    file_format = FileFormat.of(path, named_format)
    try:
        with local_file(path) as unfinished:
            _WRITERS[file_format](rows, unfinished)
    except pa.ArrowException as reason:
        raise UnsupportedFeatureError(
            f"a column's type in {file_format.value} ({reason})",
            str(path),
            "choose --columns, or write Parquet",
        ) from reason


def _write_parquet(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="zstd")


def _write_csv(rows: pa.Table, path: Path) -> None:
    # Without empty batches: PyArrow 22 repeats the column names after an empty batch.
    filled = [batch for batch in rows.to_batches() if batch.num_rows]
    pyarrow.csv.write_csv(_with_printable_times(pa.Table.from_batches(filled, rows.schema)), path)


def _with_printable_times(rows: pa.Table) -> pa.Table:
    """Return rows with text for the times of a column that Arrow cannot print.

    Arrow prints years from -32767 to 32767, and wrong years beyond them for times with a zone.
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_date32(field.type):
            limits = pc.min_max(rows.column(place))
            if any(_is_far(limits[end]) for end in ("min", "max")):
                rows = rows.set_column(place, field.name, time_texts(rows.column(place)))
    return rows


def _is_far(time: pa.Scalar) -> bool:
    try:
        time.as_py()
    except (OverflowError, ValueError):
        return True
    return False


def _write_json_lines(rows: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in rows.to_batches(max_chunksize=10_000):
            for row in rows_of(batch):
                file.write(json.dumps(plain_value(row), ensure_ascii=False) + "\n")


_WRITERS: dict[FileFormat, Callable[[pa.Table, Path], None]] = {
    FileFormat.PARQUET: _write_parquet,
    FileFormat.CSV: _write_csv,
    FileFormat.JSONL: _write_json_lines,
}
