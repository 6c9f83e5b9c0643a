"""Draws docs/how-to/ring.svg: the hash ring of a small table, before and after resizes.

The table is real: a few devices with very different numbers of records are written, and the hash of
the device alone chooses the bucket. Then ``Table.resize`` runs until nothing is left to do.

usage: uv run python scripts/ring_picture.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import bucketlake as bl
from bucketlake.hashing.ring import HashRange
from bucketlake.read.buckets import Bucket

TARGET = Path(__file__).parents[1] / "docs" / "how-to" / "ring.svg"

RECORDS = {f"device-{number}": 20 + (number * number * number * 37) % 2500 for number in range(20)}
MAX_FILE_SIZE, SPLIT_THRESHOLD, MERGE_THRESHOLD = 8_000, 1.2, 0.6
SPLIT_BYTES, MERGE_BYTES = MAX_FILE_SIZE * SPLIT_THRESHOLD, MAX_FILE_SIZE * MERGE_THRESHOLD

SIDE, HOLE, RADIUS = 300, 46, 92
LARGE, MIDDLE, SMALL = "#c0504d", "#4f81bd", "#9bbb59"


def rows() -> pa.Table:
    """Return the records."""
    devices = [device for device, count in RECORDS.items() for _ in range(count)]
    return pa.table({"device": devices, "at": [*range(len(devices))]})


def rings() -> list[tuple[str, list[Bucket]]]:
    """Return a title and the buckets: before, after a resize, and after the last one."""
    table = bl.create_table(
        "memory://ring/picture",
        schema=rows().schema,
        record_key=["device", "at"],
        index=bl.ConsistentBucket(8, hash_fields=["device"], max=24),
    )
    table.upsert(rows())
    found = [("before", table.buckets())]
    number = 0
    while True:
        report = table.resize(
            max_file_size=MAX_FILE_SIZE,
            split_threshold=SPLIT_THRESHOLD,
            merge_threshold=MERGE_THRESHOLD,
        )
        if not report.instants:
            break
        number += 1
        found.append((f"after resize {number}", table.buckets()))
    return [*found[:2], found[-1]]


def sector(hash_range: HashRange, height: float) -> str:
    """Return the path of a part of the ring, clockwise from the top."""
    begin, end = ((value + 1) / 2**31 for value in (hash_range.start, hash_range.end))
    begin %= 1
    end = begin + hash_range.share
    is_long = 1 if end - begin > 0.5 else 0
    outer = HOLE + height

    def point(radius: float, turn: float) -> str:
        angle = 2 * math.pi * turn
        x, y = SIDE / 2 + radius * math.sin(angle), SIDE / 2 - radius * math.cos(angle)
        return f"{x:.1f},{y:.1f}"

    return (
        f"M{point(HOLE, begin)} L{point(outer, begin)} "
        f"A{outer:.1f},{outer:.1f} 0 {is_long} 1 {point(outer, end)} L{point(HOLE, end)} "
        f"A{HOLE},{HOLE} 0 {is_long} 0 {point(HOLE, begin)} Z"
    )


def color(size_bytes: int) -> str:
    """Return the color of a bucket: too large, too small, or neither."""
    return LARGE if size_bytes > SPLIT_BYTES else SMALL if size_bytes <= MERGE_BYTES else MIDDLE


def picture(titled: Sequence[tuple[str, Sequence[Bucket]]]) -> str:
    """Draw rings side by side; the height of a part is the size of the bucket."""
    largest = max(bucket.size_bytes for _, buckets in titled for bucket in buckets)
    width = SIDE * len(titled)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {SIDE + 60}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">',
        f'<rect width="{width}" height="{SIDE + 60}" fill="white"/>',
    ]
    for place, (title, buckets) in enumerate(titled):
        parts.append(f'<g transform="translate({SIDE * place},24)">')
        parts.append(f'<text x="{SIDE / 2}" y="0">{title}: {len(buckets)} buckets</text>')
        for bucket in buckets:
            assert bucket.hash_range is not None
            path = sector(HashRange(*bucket.hash_range), RADIUS * bucket.size_bytes / largest)
            parts.append(
                f'<path d="{path}" fill="{color(bucket.size_bytes)}" stroke="white">'
                f"<title>{bucket.size_bytes / 1000:.1f} kB</title></path>"
            )
        middle = f'x="{SIDE / 2}" y="{SIDE / 2 + 4}"'
        parts.append(f'<text {middle} font-size="11">hash ring</text></g>')
    legend = (
        (LARGE, "larger than the split limit"),
        (MIDDLE, "in between: left alone"),
        (SMALL, "small: merged with small neighbours"),
    )
    for place, (fill, text) in enumerate(legend):
        x = 40 + place * width // 3
        parts.append(f'<rect x="{x}" y="{SIDE + 34}" width="14" height="14" fill="{fill}"/>')
        label = f'x="{x + 22}" y="{SIDE + 46}" text-anchor="start"'
        parts.append(f"<text {label}>{text}</text>")
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(picture(rings()), encoding="utf-8")
