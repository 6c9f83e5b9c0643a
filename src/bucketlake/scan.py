"""The scan: a read that is stated, and its terminals, which run it on Spark or in this process.

``read/`` plans and reads. ``Table.read``, ``Table.to_arrow`` and the like are a scan with one of
its terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import pyarrow as pa

from bucketlake.engine import read_frame, require_package, require_session, sample_rows
from bucketlake.errors import ConfigError, naming_table
from bucketlake.model.arguments import check_flags, check_integers, check_optional_texts, names_of
from bucketlake.model.cast import selectable
from bucketlake.model.field_path import columns_at, roots_of
from bucketlake.model.names import Names
from bucketlake.model.text_table import render_table
from bucketlake.read.arrow_reader import PlannedRows, count_rows, read_arrow, read_first
from bucketlake.read.handle import Handle, naming_its_table
from bucketlake.read.pruning.prune import PruningReport
from bucketlake.read.read_plan import ReadPlan, plan_read, returned_schema
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.storage.base import Storage
from bucketlake.timeline.read_time import ReadTime, read_time

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.engine import Records

Condition: TypeAlias = "str | tuple[Names, object]"
"""SQL text, or the names of columns and the values, or rows of values, that they may have."""


class ScanOptions(TypedDict, total=False):
    """The options of ``Table.scan``, for the methods that hand them on."""

    where: Condition | None
    keys: Records | None
    columns: Names | None
    as_of: ReadTime | None
    since: ReadTime | None
    until: ReadTime | None
    read_optimized: bool


def request_of(
    where: Condition | None = None,
    columns: Names | None = None,
    as_of: ReadTime | None = None,
    since: ReadTime | None = None,
    until: ReadTime | None = None,
    read_optimized: bool = False,
    keys: Records | None = None,
) -> ReadRequest:
    """Return the request of a read, with checked arguments."""
    wanted, key_columns = None if keys is None else sample_rows(keys, None, "keys"), None
    if isinstance(where, tuple) and len(where) == 2:
        if keys is not None:
            raise ConfigError("keys", "where=(columns, values)", "give one of them", "with")
        key_columns = names_of(where[0], "where")
        wanted, where = _values_of(key_columns, where[1]), None
    check_optional_texts(where=where)
    for name, time in (("as_of", as_of), ("since", since), ("until", until)):
        if time is not None:
            read_time(time, name)  # ``pin_read`` reads it on the clock of the table.
    check_flags(read_optimized=read_optimized)
    names = None if columns is None else names_of(columns, "columns")
    return ReadRequest(where, names, as_of, since, until, read_optimized, wanted, key_columns)


def _values_of(names: tuple[str, ...], values: Any) -> pa.Table:
    """Return the values of columns; as in an ``IN`` list, a null is no value of a row."""
    if len(names) > 1 or hasattr(type(values), "columns"):
        return columns_at(sample_rows(values, None, "where"), names).drop_null()
    try:
        is_stream = hasattr(type(values), "__arrow_c_stream__")
        column = pa.chunked_array(values) if is_stream else pa.array(values)
    except (pa.ArrowException, TypeError) as error:
        raise ConfigError("where", values, f"give values of one type ({error})") from error
    return selectable(pa.table([column], names=list(names))).drop_null()


@naming_its_table("handle")
@dataclass(frozen=True, slots=True, repr=False)
class Scan:
    """A read that is not run yet; :meth:`Table.scan` returns it.

    It is a value without a session or rows, and can be pickled. Each terminal opens the table anew,
    so without ``as_of`` it sees the newest commit. A scan is also an Arrow stream (PyCapsule
    interface): ``polars.DataFrame(scan)``, ``pyarrow.table(scan)`` and DuckDB take it as it is.

    Attributes
    ----------
    handle : Handle
        How the table is opened.
    request : ReadRequest
        The options of the scan.
    """

    handle: Handle
    request: ReadRequest

    def __repr__(self) -> str:
        """Return the address of the table, and the options that are given."""
        given = {each.name: getattr(self.request, each.name) for each in fields(self.request)}
        if (keys := given["keys"]) is not None:
            given["keys"] = f"{len(keys)} rows"
        options = [f", {name}={value!r}" for name, value in given.items() if value]
        return f"Scan(path={self.handle.address!r}{''.join(options)})"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as an Arrow stream in a PyCapsule; ``to_batches`` has the details."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows as a DataFrame of Spark.

        A ``.filter()`` on the result returns the same rows as ``where``, but prunes no buckets.

        Parameters
        ----------
        spark : SparkSession, optional
            The session; by default the active session.

        Returns
        -------
        DataFrame
        """
        pinned = self._pinned()
        session = require_session(spark)
        index = self.handle.index_of(pinned.snapshot)
        return read_frame(session, self.handle.path, pinned, index)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        Returns
        -------
        pa.Table
        """
        return read_arrow(*self._planned(self._pinned()))

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches; files are read while it is consumed.

        The files are those of the commit that was newest at the call. Memory holds a part of one
        file, not the table.

        Returns
        -------
        pa.RecordBatchReader
        """
        storage, plan = self._planned(self._pinned())
        rows = PlannedRows.of_plan(storage, plan)
        schema = rows.returned([]).schema

        def batches() -> Iterator[pa.RecordBatch]:
            with naming_table(self.handle.address):
                for table in rows.tables(*plan.jobs):
                    yield from table.to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a data frame of pandas.

        Returns
        -------
        pandas.DataFrame
        """
        require_package("pandas", self.handle.path)
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a data frame of polars.

        Returns
        -------
        polars.DataFrame
        """
        package = require_package("polars", self.handle.path)
        frame: polars.DataFrame = package.from_arrow(self.to_arrow())
        return frame

    def count(self) -> int:
        """Return the number of rows.

        Rows of base files are counted by their footers; only slices with log files, and files that
        may have matching rows, are read.

        Returns
        -------
        int
        """
        pinned = self._pinned()
        if pinned.request.columns is not None:
            returned_schema(pinned)  # Raises an error for columns that the table lacks.
        snapshot = pinned.snapshot
        keys = roots_of(snapshot.config.key_spec.record_key_fields, snapshot.readable_schema.names)
        pinned = replace(pinned, request=replace(pinned.request, columns=tuple(keys)))
        return count_rows(*self._planned(pinned))

    def show(self, n: int = 20) -> None:
        """Print some rows; only the files that have them are read.

        Parameters
        ----------
        n : int
            Number of rows.
        """
        check_integers(1, n=n)
        rows = read_first(*self._planned(self._pinned()), n)
        print("\n".join(render_table(rows.to_pylist(), rows.column_names)[0]))

    def explain(self) -> PruningReport:
        """Return which partitions and buckets are read, and why.

        Returns
        -------
        PruningReport
        """
        return self._planned(self._pinned(), counts_all=True)[1].report

    def _pinned(self) -> PinnedRead:
        return self.handle.pin(self.request)

    def _planned(self, pinned: PinnedRead, *, counts_all: bool = False) -> tuple[Storage, ReadPlan]:
        index = self.handle.index_of(pinned.snapshot)
        return pinned.snapshot.storage, plan_read(pinned, index, counts_all=counts_all)
