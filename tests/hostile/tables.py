"""Tables of which one file after the other is hostile or damaged, in a process of its own.

Arguments: a seed, and how many such tables to try. It prints what was neither a result nor an
error, and the files that a read refuses and the doctor does not name.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import bucketlake as bl
from bucketlake.errors import BucketLakeError, FormatError
from tests.hostile.attacks import attacks, damaged
from tests.hostile.reading import MESSAGE_MAX, limit

ROWS = pa.table({"id": [f"k{n}" for n in range(20)], "p": ["a", "b"] * 10, "v": [*range(20)]})
ATTACKS = [*attacks()]
UNSAFE = {"fsync": "false"}
ACTS: dict[str, Callable[[bl.Table], object]] = {
    "read": bl.Table.to_arrow,
    "buckets": bl.Table.buckets,
    "timeline": lambda table: str(table.timeline()),
    "changes": lambda table: table.to_arrow(since="20000101000000000"),
    "doctor": lambda table: table.doctor(check_files=True, check_keys=True),
    "write": lambda table: table.upsert(ROWS.slice(0, 3)),
    "compact": bl.Table.compact,
}


def made(folder: Path) -> Path:
    """Make tables with many kinds of files, beside each other."""
    for name, index in (("rings", bl.ConsistentBucket(2)), ("index", bl.RecordIndex())):
        table = bl.create_table(
            str(folder / name), schema=ROWS.schema, record_key="id", partition_by="p", index=index,
            table_type="merge_on_read", storage_options=UNSAFE,
        )  # fmt: skip
        for start in (0, 3, 6):
            table.upsert(ROWS.slice(start, 12))
        table.savepoint()
        table.clean()
        table.upsert(ROWS)
    return folder


def contents(valid: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield hostile and damaged contents in place of a file."""
    yield "nothing", b""
    for kind, what, data in ATTACKS:
        is_alike = valid[:1] == data[:1] and kind in ("commit", "ring", "log file", "properties")
        if valid and is_alike and draw.random() < 0.2:
            yield what, data
    for number in range(3):
        yield f"damage {number}", damaged(valid, draw.randrange)


def problems_of(sound: Path, path: Path, data: bytes) -> Iterator[str]:
    """Put a content in place of a file of a copy, and do all that a user does."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "t"
        shutil.copytree(sound, copy)
        (copy / path).write_bytes(data)
        table = bl.Table(str(copy), storage_options=UNSAFE)
        refused, found = False, ""
        for name, act in ACTS.items():
            try:
                done = act(table)
                found += repr(done) if name == "doctor" else ""
            except BucketLakeError as error:
                refused |= isinstance(error, FormatError) and path.name in str(error)
                found += str(error) if name == "doctor" else ""
                if len(str(error)) > MESSAGE_MAX:
                    yield f"{name}: a message of {len(str(error))} characters"
            except BaseException as error:
                yield f"{name}: {type(error).__name__}: {error!s:.200}"
        if refused and path.name not in found:
            yield f"the doctor does not name the file: {found:.300}"


def main(seed: int, count: int) -> None:
    warnings.simplefilter("ignore")
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        tables = made(Path(place))
        files = sorted(path.relative_to(tables) for path in tables.rglob("*") if path.is_file())
        limit(600 + 10 * count)
        for path in draw.choices(files, k=count):
            what, data = draw.choice([*contents((tables / path).read_bytes(), draw)])
            print(f"{path}: {what}", file=sys.stderr, flush=True)
            sound, *within = path.parts
            for problem in problems_of(tables / sound, Path(*within), data):
                print(f"{path}: {what}: {problem}", flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
