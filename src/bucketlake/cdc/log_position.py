"""Positions of changes in the log of their database, as texts of fixed width that sort as the log.

A table orders rows by one column. Texts are what Hudi compares alike everywhere: in memory, in
Avro's delete blocks, in Parquet's statistics, in all releases. Numbers of 64 bits do not hold a
position, and decimals as ordering values differ between Hudi's readers. Each text consists of whole
numbers in hexadecimal digits with leading zeros, the more significant first, and ends with ``00``
for a row of a snapshot and ``01`` for a change, so that a change at the place of a snapshot wins.

- Postgres: the end of the last commit before, then the place of the change (``source.sequence``,
  ``source.lsn``). Where the first is not told, as in a snapshot, the second takes its place. A
  sequence that cannot be read is no position: within a transaction that began before another one
  was committed, such a change would sort before those whose sequence is read.
- MySQL and MariaDB: number of the file, position, row.
- SQL Server and Db2: commit, change, serial number; Oracle: commit number, change number, sub
  number. These by Debezium's documentation, not tried.
- Without a source: the offset in Kafka, which orders the changes of a key in its partition.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.arrays import mask_of

Numbers = npt.NDArray[np.uint64]

SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("snapshot", pa.string()),
        ("table", pa.string()),
        ("sequence", pa.string()),
        ("lsn", pa.int64()),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int64()),
        ("commit_lsn", pa.string()),
        ("change_lsn", pa.string()),
        ("event_serial_no", pa.int64()),
        ("commit_scn", pa.string()),
        ("scn", pa.string()),
        ("ssn", pa.int64()),
    ]
)
"""The fields of ``source`` that tell a position."""

_SEQUENCE = r'^\[\s*(?:null|"(?P<commit>\d+)")\s*,\s*"(?P<change>\d+)"\s*\]$'


def hexadecimal(*parts: tuple[Numbers, int]) -> pa.Array:
    """Return texts of numbers, each in so many bytes."""
    data = [n.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :] for n, width in parts]
    joined = np.ascontiguousarray(np.concatenate(data, axis=1))
    count, width = joined.shape[0], 2 * joined.shape[1]
    offsets = (np.arange(count + 1) * width).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined.tobytes().hex().encode())]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def of_offsets(offsets: pa.Array) -> pa.Array:
    """Return positions by the offsets in Kafka."""
    return hexadecimal((place_numbers(offsets), 8))


def positions(source: pa.StructArray, operations: pa.Array) -> pa.Array:
    """Return the position of each change; null where its source tells none.

    Parameters
    ----------
    source : pa.StructArray
        The fields of :data:`SOURCE`.
    operations : pa.Array
        The ``op`` of each change.
    """
    kinds = source.field("connector")
    changed = pc.invert(pc.fill_null(pc.equal(operations, "r"), False))
    flags = changed.to_numpy(zero_copy_only=False).astype(np.uint64)
    found = pa.nulls(len(source), pa.string())
    for kind in pc.unique(kinds).to_pylist():
        rule = _RULES.get(kind)
        if rule is not None:
            own = pc.fill_null(pc.equal(kinds, kind), False)
            texts = rule(source.filter(own), flags[own.to_numpy(zero_copy_only=False)])
            found = pc.replace_with_mask(found, own, texts)
    return found


def unread_sequences(source: pa.StructArray, places: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which changes have no position because their sequence cannot be read."""
    return mask_of(pc.and_(places.is_null(), source.field("sequence").is_valid()))


def place_numbers(values: pa.Array) -> Numbers:
    """Return whole numbers, also of texts; 0 for none."""
    if pa.types.is_string(values.type):
        values = pc.if_else(pc.equal(pc.binary_length(values), 0), None, values)
    numbers: Numbers = values.cast(pa.uint64()).fill_null(0).to_numpy()
    return numbers


def _postgres(source: pa.StructArray, flags: Numbers) -> pa.Array:
    texts = source.field("sequence")
    sequence = pc.extract_regex(texts, _SEQUENCE)
    change = place_numbers(sequence.field("change"))
    lsn = place_numbers(source.field("lsn"))
    change = np.where(change > 0, change, lsn)
    commit = place_numbers(sequence.field("commit"))
    found = hexadecimal((np.where(commit > 0, commit, change), 8), (change, 8), (flags, 1))
    is_told = pc.or_(texts.is_null(), sequence.is_valid())
    return pc.if_else(is_told, found, pa.scalar(None, pa.string()))


def _mysql(source: pa.StructArray, flags: Numbers) -> pa.Array:
    file = pc.extract_regex(source.field("file"), r"\.(?P<number>\d+)$").field("number")
    place, row = (place_numbers(source.field(name)) for name in ("pos", "row"))
    texts = hexadecimal((place_numbers(file), 4), (place, 8), (row, 4), (flags, 1))
    is_told = pc.and_(pc.not_equal(file, ""), source.field("pos").is_valid())
    return pc.if_else(pc.fill_null(is_told, False), texts, pa.scalar(None, pa.string()))


def _sql_server(source: pa.StructArray, flags: Numbers) -> pa.Array:
    parts, is_told = [], pa.repeat(True, len(source))
    for name in ("commit_lsn", "change_lsn"):
        texts = pc.replace_substring(pc.fill_null(source.field(name), ""), ":", "")
        texts = pc.utf8_lower(pc.replace_substring_regex(texts, "^NULL$", ""))
        is_told = pc.and_(is_told, pc.match_substring_regex(texts, "^[0-9a-f]{0,20}$"))
        parts.append(pc.utf8_lpad(texts, 20, "0"))
    rest = hexadecimal((place_numbers(source.field("event_serial_no")), 4), (flags, 1))
    texts = pc.binary_join_element_wise(*parts, rest, "")
    return pc.if_else(is_told, texts, pa.scalar(None, pa.string()))


def _oracle(source: pa.StructArray, flags: Numbers) -> pa.Array:
    scn = place_numbers(_first_digits(source.field("scn")))
    commit = place_numbers(_first_digits(source.field("commit_scn")))
    ssn = place_numbers(source.field("ssn"))
    return hexadecimal((np.where(commit > 0, commit, scn), 8), (scn, 8), (ssn, 4), (flags, 1))


def _first_digits(texts: pa.Array) -> pa.Array:
    return pc.extract_regex(texts, r"^(?P<n>\d+)").field("n")


_Rule = Callable[[pa.StructArray, Numbers], pa.Array]
_RULES: dict[str | None, _Rule] = {
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sql_server,
    "db2": _sql_server,
    "oracle": _oracle,
}
