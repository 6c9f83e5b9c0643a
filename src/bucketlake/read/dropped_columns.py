"""Partition columns that the files of a table lack: their values come from the partition path.

Hudi leaves them out if ``hoodie.datasource.write.drop.partition.columns`` is set. The table's
schema lacks them, too; readers append them as text, as Hudi's reader does, whatever their type was.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError
from bucketlake.model.keys import KeySpec
from bucketlake.model.partition_path import DEFAULT_PARTITION, decode_segment
from bucketlake.model.schema import RECORD_KEY


@dataclass(frozen=True, slots=True)
class DroppedColumns:
    """The partition columns that files lack.

    Attributes
    ----------
    key_spec : KeySpec
        How partition paths are made.
    """

    key_spec: KeySpec

    @classmethod
    def of_config(cls, config: TableConfig) -> DroppedColumns | None:
        """Return what a table lacks; None if its files have all columns."""
        return cls(config.key_spec) if config.drop_partition_columns else None

    def schema_with(self, schema: pa.Schema) -> pa.Schema:
        """Append the columns to the schema of the files."""
        held = frozenset(schema.names)
        absent = [name for name in self.key_spec.partition_fields if name not in held]
        return pa.schema([*schema, *(pa.field(name, pa.string()) for name in absent)])

    def stored(self, needed: pa.Schema) -> pa.Schema:
        """Return the columns to read from files; at least one, which tells the number of rows."""
        names = self.key_spec.partition_fields
        held = pa.schema([field for field in needed if field.name not in names])
        return held if len(held) else pa.schema([(RECORD_KEY, pa.string())])

    def completed(self, rows: pa.Table, needed: pa.Schema, partition_path: str) -> pa.Table:
        """Add the columns to rows of a partition.

        Raises
        ------
        FormatError
            If the path does not have a value for each column.
        """
        values = self.values(partition_path)
        columns = [
            pa.repeat(pa.scalar(values[field.name], pa.string()).cast(field.type), rows.num_rows)
            if field.name in values
            else rows[field.name]
            for field in needed
        ]
        return pa.Table.from_arrays(columns, schema=needed)

    def values(self, partition_path: str) -> dict[str, str | None]:
        """Return the values in a partition path.

        Examples
        --------
        >>> from bucketlake.model.keys import KeyGenerator
        >>> fields = ("id",), ("day", "place")
        >>> spec = KeySpec(*fields, KeyGenerator.COMPLEX, hive_style=True, url_encode=True)
        >>> DroppedColumns(spec).values("day=1/place=a%2Fb")
        {'day': '1', 'place': 'a/b'}
        """
        names, segments = self.key_spec.partition_fields, partition_path.split("/")
        if len(segments) != len(names):
            expected = f"a partition path with values of {', '.join(names)}"
            raise FormatError(partition_path, expected, f"{len(segments)} folders")
        pairs = zip(names, segments, strict=True)
        return {name: self._value(name, segment) for name, segment in pairs}

    def _value(self, name: str, segment: str) -> str | None:
        text = segment.removeprefix(f"{name}=") if self.key_spec.hive_style else segment
        if text == DEFAULT_PARTITION:
            return None
        return decode_segment(text) if self.key_spec.url_encode else text
