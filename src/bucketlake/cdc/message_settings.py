"""How messages are read: the settings of a call, as one picklable value."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.hashing.ring import named_uuid
from bucketlake.model.arrays import mask_of

PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True)
class MessageSettings:
    """How messages are read.

    Attributes
    ----------
    envelope : str
        Form of the messages, a name of ``ENVELOPES``.
    columns : pa.Schema or None
        Types that the caller declares; needed where messages have no schema.
    keeps_unavailable : bool
        Whether a row may lack values that its message does not show.
    placeholder : str
        What Debezium writes in their place.
    tracks : bool
        Whether rows name the columns that they lack.
    on_truncate : str
        What a truncate does: ``fail``, it is a bad row; ``ignore``; ``delete`` the rows before it.
    partition_by : tuple of str
        Columns of partitions that are not of the key, in which a change must show the row before.
    key : tuple of str
        Columns of the key, where they are known.
    registry : str or None
        Address of the registry of Avro schemas; None for messages in JSON.
    wide : bool
        Whether an id in front of a message in Avro has 8 bytes.
    avro : mapping of int to Any
        Avro schemas by their id.
    """

    envelope: str = "debezium"
    columns: pa.Schema | None = None
    keeps_unavailable: bool = True
    placeholder: str = PLACEHOLDER
    tracks: bool = False
    on_truncate: str = "fail"
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    registry: str | None = None
    wide: bool = False
    avro: Mapping[int, Any] = field(default_factory=dict)

    @cached_property
    def forms(self) -> tuple[str, str, str]:
        """The placeholder as text, in base64, and as Java's ``UUID.nameUUIDFromBytes`` of it."""
        data = self.placeholder.encode()
        return self.placeholder, b64encode(data).decode(), named_uuid(data)

    @property
    def traces(self) -> tuple[bytes, ...]:
        """Bytes of which one is in every message that lacks a value."""
        numbers = ",".join(map(str, self.placeholder.encode()))
        varints = [  # Of Avro. Before a number that may be null stands its branch of the union.
            bytes([2 * n]) if n < 64 else bytes([2 * n & 127 | 128, n >> 6])
            for n in self.placeholder.encode()
        ]
        of_avro = (b"".join(varints), b"\x02".join(varints))
        return (*(form.encode() for form in self.forms), numbers.encode(), *of_avro)

    def lacking(self, values: pa.Array) -> npt.NDArray[np.bool_] | None:
        """Return which values of a column stand for one that was not read; None if none can."""
        kind = values.type
        if pa.types.is_string(kind):
            found = pc.is_in(values, pa.array(self.forms[:2]))
        elif pa.types.is_binary(kind):
            found = pc.is_in(values, pa.array([self.placeholder.encode()], kind))
        elif pa.types.is_list(kind):
            return self._lacking_lists(values)
        else:
            return None
        return mask_of(found)

    def _lacking_lists(self, values: pa.ListArray) -> npt.NDArray[np.bool_] | None:
        """Return which lists stand for one: of one text, or of the bytes as numbers."""
        kind, data = values.type.value_type, self.placeholder.encode()
        if pa.types.is_string(kind):
            wanted = [[self.forms[0]], [self.forms[2]]]
        elif pa.types.is_integer(kind) or pa.types.is_date(kind):
            wanted = [pa.array([*data], pa.int32()).cast(kind).to_pylist()]
        else:
            return None
        lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy(zero_copy_only=False)
        some = np.flatnonzero(lengths == len(wanted[0]))
        flags = np.zeros(len(values), np.bool_)
        flags[some] = [held in wanted for held in values.take(pa.array(some)).to_pylist()]
        return flags
