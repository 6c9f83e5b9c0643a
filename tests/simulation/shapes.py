"""Shapes of the tables of a sequence: key and partition columns, types, index, odd values."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pyarrow as pa

import bucketlake as bl
from tests.conformance.kinds import FULL_BYTES

Row = dict[str, Any]
Key = tuple[Any, ...]

MARKER = "_hoodie_is_deleted"
TYPES_OF_Q: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, -2, None]),
    (pa.string(), ["1", "z", ""]),
    (pa.date32(), [date(2024, 1, 1), None]),
    (pa.bool_(), [True, False, None]),
]


class Shape:
    """The shape of a table, drawn once before the first step."""

    def __init__(self, drawn: random.Random) -> None:
        self.merges_on_read = drawn.random() < 0.5
        self.ordered = drawn.random() < 0.4
        # Under event-time ordering, a late row after a delete in a merge-on-read table would be
        # merged with the base row again, as in Hudi. The model has no base rows.
        self.deletes = not (self.merges_on_read and self.ordered)
        self.has_marker = self.deletes and drawn.random() < 0.4
        self.hive_style = drawn.random() < 0.4
        self.url_encode = drawn.random() < 0.5
        self.types: dict[str, pa.DataType] = {}
        self.values: dict[str, list[Any]] = {}
        self.keys = ["id"]
        hash_fields = self._draw_keys(drawn)
        self.partitions = ["p", "q"][: drawn.choice([0, 1, 1, 2])]
        self._draw_partitions(drawn)
        self.types |= {"v": pa.int32(), "ts": pa.int32()}
        if self.has_marker:
            self.types[MARKER] = pa.bool_()
        size = FULL_BYTES if drawn.random() < 0.3 else None
        self.index: bl.SimpleBucket | bl.PartitionBucket | bl.ConsistentBucket = bl.SimpleBucket(
            drawn.randrange(1, 5), hash_fields, size
        )
        if drawn.random() < 0.3:
            self.index = bl.ConsistentBucket(drawn.randrange(1, 4), hash_fields=hash_fields)
        elif drawn.random() < 0.3:
            rules, default = {"a": drawn.randrange(1, 5)}, drawn.randrange(1, 5)
            self.index = bl.PartitionBucket(
                rules, default, hash_fields=hash_fields, max_file_size=size
            )

    def _draw_keys(self, drawn: random.Random) -> list[str] | None:
        self.types["id"] = drawn.choice([pa.string(), pa.string(), pa.int32()])
        is_text = self.types["id"] == pa.string()
        self.values["id"] = ["k1", "k2", "k3", "a,b:c", "x:y", "1"] if is_text else [*range(1, 7)]
        if drawn.random() < 0.6:
            return None
        self.keys.append("k2")
        self.types["k2"] = pa.string()
        self.values["k2"] = [None, "", "u", ",id:k1", "a,k2:z"]
        return drawn.choice([None, ["id"]])

    def _draw_partitions(self, drawn: random.Random) -> None:
        odd = ["x=y", "a/b", "%41", "a:b", "A"] if self.url_encode else ["a,b"]
        many = ["a", "b", "c d", None, "é", *odd]
        type_of_q, q = drawn.choice(TYPES_OF_Q)
        types = {"p": pa.string(), "q": type_of_q}
        values = {"p": many if drawn.random() < 0.3 else ["a", "b"], "q": q}
        for name in self.partitions:
            self.types[name], self.values[name] = types[name], values[name]

    def partition_of(self, row: Row) -> Key:
        """Return the partition values; empty text becomes null, because both share a folder."""
        return tuple(None if row[name] == "" else row[name] for name in self.partitions)

    def key_of(self, row: Row) -> Key:
        """Return the identity of a row: its partition values and its key."""
        return (*self.partition_of(row), *[row[name] for name in self.keys])

    def make(self, path: str) -> bl.Table:
        """Make the table."""
        return bl.create_table(
            path,
            schema=pa.schema([*self.types.items()]),
            record_key=self.keys,
            index=self.index,
            partition_by=self.partitions,
            ordering="ts" if self.ordered else None,
            table_type="merge_on_read" if self.merges_on_read else "copy_on_write",
            hive_style=self.hive_style,
            url_encode=self.url_encode,
        )
