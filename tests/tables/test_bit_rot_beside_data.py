"""A flipped bit beside the data: timeline, properties, settings, rings, outcomes, archive.

Each flip is an error that names the file, or changes nothing: the rows, the list of instants, and
what the next write makes of the table.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import EXTENSION_FOLDER, PROPERTIES_FILE
from bucketlake.errors import BucketLakeError, FormatError
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import forget
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.open_table import opened_table
from tests.choices import DEEP

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64()), ("s", pa.string())])
FLIPS = 250 if DEEP else 60
WRITES_EVERY = 12  # Flips after which a write is tried, too.
NewPath = Callable[[], str]


def rows(start: int, end: int, version: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": f"k{i}", "p": f"p{i % 2}", "n": 100 * version + i, "s": f"text {version} {i}"}
            for i in range(start, end)
        ],
        SCHEMA,
    )


class Kind(NamedTuple):
    """A table, and those of its files in which bits are flipped."""

    options: dict[str, Any]
    files: str
    errors: int
    """Flips that are errors, at least; a read does not need all files."""


def of(index: Any, *, merge_on_read: bool = False, metadata_table: bool = False) -> dict[str, Any]:
    return {
        "index": index,
        "table_type": "merge_on_read" if merge_on_read else "copy_on_write",
        "metadata_table": metadata_table,
    }


RING = of(bl.ConsistentBucket(2, 1, 8), merge_on_read=True)
RULES = of(bl.PartitionBucket({"p1": 3}, 2))
SIMPLE = of(bl.SimpleBucket(2), merge_on_read=True)
KINDS = {
    "timeline": Kind(SIMPLE, r"\.hoodie/timeline/\d.*", FLIPS // 5),
    "timeline beside a metadata table": Kind(
        of(bl.DynamicBucket(max_records=20, assigners=2), metadata_table=True),
        r"\.hoodie/(metadata/\.hoodie/)?timeline/\d.*",
        FLIPS // 10,
    ),
    "properties": Kind(SIMPLE, re.escape(PROPERTIES_FILE), FLIPS * 3 // 4),
    "properties beside a metadata table": Kind(
        of(bl.SimpleBucket(2), metadata_table=True), r".*hoodie\.properties", FLIPS * 3 // 4
    ),
    "extension folder": Kind(SIMPLE, re.escape(EXTENSION_FOLDER) + "/.*", FLIPS // 20),
    "rings": Kind(RING, r"\.hoodie/\.bucket_index/.*meta", FLIPS // 20),
    "setting and rules": Kind(
        RULES, r".*(engine|partition_counts/.*)\.json|.*hashing_config", FLIPS // 2
    ),
    "index definitions": Kind(
        of(bl.SimpleBucket(2), metadata_table=True), r".*index\.json", FLIPS // 20
    ),
    "partition markers": Kind(SIMPLE, r".*/\.hoodie_partition_metadata", 0),
}


@contextmanager
def a_table(path: str, kind: Kind) -> Iterator[bl.Table]:
    table = bl.create_table(
        path, schema=SCHEMA, record_key="id", partition_by="p", ordering="n", **kind.options
    )
    table.upsert(rows(0, 20, 1))
    table.upsert(rows(10, 25, 2))
    table.savepoint()
    table.delete(rows(0, 3, 40))
    yield table


def state(path: str) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    table = bl.open_table(path)
    return table.to_arrow(columns=SCHEMA.names).sort_by("id"), [
        (entry, entry.operation, entry.written, entry.deleted, entry.files)
        for entry in table.timeline()
    ]


def state_after_a_write(path: str, copy: str) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    source, target = open_storage(path), open_storage(copy)
    for stored in source.list(""):
        target.put(stored.path, source.read(stored.path))
    try:
        bl.open_table(copy).upsert(rows(5, 30, 99))
        return state(copy)[0], []
    finally:
        forget(copy.removeprefix("memory://"))


def shown_alike(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """An instant whose file is damaged is listed without facts."""
    pairs = list(zip(found, expected, strict=True))
    return all(a == b or (a[0] == b[0] and set(a[1:]) == {None}) for a, b in pairs)


def judged(file: str, look: Callable[[], Any], expected: tuple[pa.Table, list[Any]]) -> str:
    try:
        found, shown = look()
    except BucketLakeError as error:
        return "error" if file.rpartition("/")[2] in str(error) else f"unnamed: {file}: {error}"
    if not found.equals(expected[0]):
        return f"other rows: {file}"
    return "same" if shown_alike(shown, expected[1]) else f"other timeline: {file}"


def flipped(storage: Storage, file: str, drawn: random.Random) -> bytes:
    held = storage.read(file)
    damaged = bytearray(held)
    damaged[drawn.randrange(len(held))] ^= 1 << drawn.randrange(8)
    storage.put(file, damaged)
    return held


@pytest.mark.parametrize("name", KINDS)
def test_flips_beside_the_data_are_errors_or_change_nothing(name: str, new_path: NewPath) -> None:
    kind, path, copy = KINDS[name], new_path(), new_path()
    with a_table(path, kind):
        storage = open_storage(path)
        sizes = {stored.path: stored.size_bytes for stored in storage.list("")}
        files = sorted(file for file in sizes if re.fullmatch(kind.files, file) and sizes[file])
        assert files
        expected, expected_later = state(path), state_after_a_write(path, copy)
        drawn, outcomes = random.Random(name), Counter[str]()
        for number in range(FLIPS):
            file = drawn.choice(files)
            held = flipped(storage, file, drawn)
            outcome = judged(file, lambda: state(path), expected)
            if outcome != "error" and number % WRITES_EVERY == 0:
                look = lambda: state_after_a_write(path, copy)  # noqa: E731
                outcome = judged(file, look, expected_later)
            outcomes[outcome] += 1
            storage.put(file, held)
        assert not {*outcomes} - {"error", "same"}, outcomes
        assert outcomes["error"] >= kind.errors, outcomes


def test_flips_in_the_archive_are_errors_or_change_no_entry(new_path: NewPath) -> None:
    table = bl.create_table(new_path(), schema=SCHEMA, record_key="id", ordering="n", **SIMPLE)
    for version in range(6):
        table.upsert(rows(0, 4, version))
    table.archive(keep_min=2, keep_max=3)
    storage, config = open_storage(table.path), table.config()
    expected = read_archive(opened_table(storage, config))
    assert len(expected) > 2
    files = [o.path for o in storage.list(config.history_folder) if o.size_bytes]
    drawn, outcomes = random.Random("archive"), Counter[str]()
    for _ in range(FLIPS):
        file = drawn.choice(files)
        held = flipped(storage, file, drawn)
        try:
            outcomes[
                "same" if read_archive(opened_table(storage, config)) == expected else "other"
            ] += 1
        except FormatError as error:
            outcomes["error" if error.path == file else "unnamed"] += 1
        storage.put(file, held)
    assert not {*outcomes} - {"error", "same"}, outcomes
    assert outcomes["error"] > FLIPS // 3, outcomes


def test_a_changed_byte_of_the_properties_is_restored_by_a_repair(new_path: NewPath) -> None:
    with a_table(new_path(), KINDS["properties"]) as table:
        storage, before = open_storage(table.path), state(table.path)
        held = storage.read(PROPERTIES_FILE)
        place = held.index(b"hoodie.timeline.path=timeline") + 10
        storage.put(PROPERTIES_FILE, held[:place] + b"#" + held[place + 1 :])
        for act in (table.to_arrow, table.timeline, lambda: table.upsert(rows(0, 1, 50))):
            with pytest.raises(FormatError, match=r"hoodie\.properties.* one changed byte"):
                act()
        [found] = table.doctor()
        assert (found.kind, found.files) == (FindingKind.PROPERTIES_BROKEN, (PROPERTIES_FILE,))
        table.repair(dry_run=False)
        assert storage.read(PROPERTIES_FILE) == held
        assert state(table.path) == before


def test_properties_that_somebody_edited_or_that_hudi_wrote_are_not_compared(
    new_path: NewPath,
) -> None:
    with a_table(new_path(), KINDS["properties"]) as table:
        storage, before = open_storage(table.path), state(table.path)
        held = storage.read(PROPERTIES_FILE)
        storage.put(PROPERTIES_FILE, held + b"hoodie.table.timeline.timezone=UTC\n")
        assert state(table.path) == before
        without = [line for line in held.splitlines(keepends=True) if not line.startswith(b"#")]
        storage.put(PROPERTIES_FILE, b"".join(without))
        assert state(table.path) == before


def test_the_doctor_names_a_damaged_commit(new_path: NewPath) -> None:
    with a_table(new_path(), KINDS["timeline"]) as table:
        storage = open_storage(table.path)
        last = table.timeline()[-1]
        file = f".hoodie/timeline/{last.requested_at}_{last.completed_at}.deltacommit"
        held = bytearray(storage.read(file))
        held[len(held) // 2] ^= 1
        storage.put(file, held)
        assert file in {path for finding in table.doctor() for path in finding.files}
