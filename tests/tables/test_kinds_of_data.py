"""What a write takes beside Arrow tables: rows with the Arrow PyCapsule interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
ROWS = pa.Table.from_pylist([{"id": "a", "n": 1}, {"id": "b", "n": None}], SCHEMA)
NewPath = Callable[[], str]


class Frame:
    """A data frame of a library that offers its rows as an Arrow stream, once."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows: pa.Table | None = rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        if self._rows is None:
            raise ValueError("the stream was read before")
        rows, self._rows = self._rows, None
        return rows.__arrow_c_stream__(requested_schema)


def views() -> pa.Table:
    """Return the rows with strings as polars has them."""
    return ROWS.cast(pa.schema([("id", pa.string_view()), ("n", pa.int64())]))


def categories() -> pa.Table:
    """Return the rows with categories as polars has them."""
    ids = pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    )
    return ROWS.set_column(0, "id", ids)


def runs() -> pa.Table:
    """Return the rows with a run-end encoded column."""
    return ROWS.set_column(0, "id", pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]))


@pytest.mark.parametrize(
    "given",
    [
        lambda: ROWS.to_batches()[0],
        lambda: pa.RecordBatchReader.from_batches(SCHEMA, ROWS.to_batches(1)),
        lambda: Frame(ROWS),
        lambda: Frame(views()),
        lambda: Frame(categories()),
        runs,
        lambda: pytest.importorskip("pandas").DataFrame(ROWS.to_pydict()).astype({"n": "Int64"}),
    ],
    ids=["batch", "reader", "frame", "views", "categories", "runs", "pandas"],
)
def test_rows_with_the_arrow_interface_are_written_and_deleted(
    new_path: NewPath, given: Callable[[], Any]
) -> None:
    table = bl.create_table(new_path(), schema=SCHEMA, record_key="id")
    assert table.upsert(given()).inserted == 2
    assert table.to_arrow(columns=["id", "n"]).sort_by("id").to_pylist() == ROWS.to_pylist()
    assert table.delete(given()).deleted == 2


def test_list_views_are_written(new_path: NewPath) -> None:
    values = [[1, 2], None, [], [3]]
    views = pa.array(values, pa.list_view(pa.int64()))
    rows = pa.table({"id": [*"abcd"], "l": views})
    table = bl.create_table(new_path(), schema=rows.schema, record_key="id")
    assert table.upsert(rows).inserted == 4
    assert table.to_arrow(columns="l", where="id > ''").num_rows == 4
    assert table.to_arrow(columns=["id", "l"]).sort_by("id")["l"].to_pylist() == values


def test_save_takes_rows_with_the_arrow_interface(new_path: NewPath) -> None:
    path = new_path()
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }
    assert bl.save(Frame(ROWS), path, options=options).inserted == 2
    assert bl.open_table(path).to_arrow().num_rows == 2


@pytest.mark.parametrize("given", [[1], {"id": ["a"]}, None, 5, "rows.parquet"])
def test_other_data_is_an_error_that_names_what_can_be_written(
    new_path: NewPath, given: object
) -> None:
    table = bl.create_table(new_path(), schema=SCHEMA, record_key="id")
    wanted = "name files with" if isinstance(given, str) else r"cannot be written.*RecordBatch"
    with pytest.raises(InputError, match=wanted):
        table.upsert(given)  # type: ignore[arg-type]


def test_a_stream_that_was_read_before_is_an_error(new_path: NewPath) -> None:
    table = bl.create_table(new_path(), schema=SCHEMA, record_key="id")
    frame = Frame(ROWS)
    table.upsert(frame)
    with pytest.raises(InputError, match="read before"):
        table.upsert(frame)
