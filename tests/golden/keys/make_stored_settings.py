"""Ask real Hudi what a table stores about keys and partitions, for each key generator.

    scripts/setup spark35
    uv run python -m tests.golden.keys.make_stored_settings      # Some minutes.

Each case writes two rows to a new table with the options of the case, and keeps the entries of
``hoodie.properties``. Where Hudi refuses the options, the case has the message of the innermost
cause instead. ``stored_settings.json`` holds all cases, a line for each, and apart from them the
entries that all tables share.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bucketlake.format.properties import parse_properties
from tests.interop.peer.client import HUDI_VERSION, HudiPeer, PeerError

OUT = Path(__file__).with_name("stored_settings.json")
WRITE = "hoodie.datasource.write."
TIME = "hoodie.keygen.timebased."
PACKAGE = "org.apache.hudi.keygen."
ROWS = pa.table(
    {
        "id": ["a", "b"],
        "part": ["x", "y"],
        "city": ["Bonn", "Kyiv"],
        "day": ["2024-05-06", "2024-05-07"],
        "ms": pa.array([1_714_953_600_000, 1_715_040_000_000], pa.int64()),
    }
)
BASE = {
    "hoodie.table.name": "stored",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
}
DROPPED = ("hoodie.table.checksum", "hoodie.table.create.schema")
MILLIS = {f"{TIME}timestamp.type": "EPOCHMILLISECONDS", f"{TIME}output.dateformat": "yyyy/MM/dd"}
TEXT = {
    f"{TIME}timestamp.type": "DATE_STRING",
    f"{TIME}input.dateformat": "yyyy-MM-dd",
    f"{TIME}output.dateformat": "yyyyMMdd",
    f"{TIME}timezone": "UTC",
}
SCALAR = {
    f"{TIME}timestamp.type": "SCALAR",
    f"{TIME}timestamp.scalar.time.unit": "MILLISECONDS",
    f"{TIME}output.dateformat": "yyyy-MM",
    f"{TIME}output.timezone": "GMT",
}
TEXTS = {
    f"{TIME}timestamp.type": "DATE_STRING",
    f"{TIME}input.dateformat": "yyyy-MM-dd;yyyy/MM/dd",
    f"{TIME}input.dateformat.list.delimiter.regex": ";",
    f"{TIME}output.dateformat": "yyyy",
    f"{TIME}input.timezone": "UTC",
    f"{TIME}output.timezone": "UTC",
}
FOLDERS = [
    {f"{WRITE}hive_style_partitioning": hive, f"{WRITE}partitionpath.urlencode": encoded}
    for hive in ("false", "true")
    for encoded in ("false", "true")
]


def fields(keys: str | None, partitions: str | None) -> dict[str, str]:
    """Return the options for columns; None leaves an option out."""
    named = {f"{WRITE}recordkey.field": keys, f"{WRITE}partitionpath.field": partitions}
    return {key: value for key, value in named.items() if value is not None}


COLUMNS = {
    "Simple": [fields("id", "city"), fields("id", "city,part"), fields("id,part", "city")],
    "Complex": [
        fields("id", "city"),
        fields("id,part", "city"),
        fields("id", "city,part"),
        fields("id", None),
        fields("id", ""),
        fields(" id , part ", " city "),
    ],
    "TimestampBased": [
        fields("id", "ms") | MILLIS,
        fields("id", "day") | TEXT,
        fields("id", "ms") | SCALAR,
        fields("id,part", "ms") | MILLIS,
        fields("id", "ms") | MILLIS | {f"{TIME}timestamp.scalar.time.unit": "SECONDS"},
        fields("id", "day") | TEXTS,
        fields("id", "ms,city") | MILLIS,
        fields("id", "ms"),
    ],
    "Nonpartitioned": [fields("id", None), fields("id", "city"), fields("id,part", "city")],
    "Custom": [
        fields("id", "city:SIMPLE"),
        fields("id", "city:simple,ms:timestamp") | MILLIS,
        fields("id", "city:SIMPLE") | MILLIS,
        fields("id,part", "city:SIMPLE"),
        fields("id", "city"),
        fields("id", None),
        fields("id", ""),
        fields("id", "city:OTHER"),
    ],
    "GlobalDelete": [fields("id", None), fields("id", "city"), fields("id,part", "city")],
}
"""Columns for each generator; the first ones are also used for its other names."""

AVRO_CLASSES = {
    **{name: f"{name}AvroKeyGenerator" for name in COLUMNS},
    "GlobalDelete": "GlobalAvroDeleteKeyGenerator",
}
TYPES = {
    "Simple": "SIMPLE",
    "Complex": "COMPLEX",
    "TimestampBased": "TIMESTAMP",
    "Nonpartitioned": "NON_PARTITION",
    "Custom": "CUSTOM",
    "GlobalDelete": "GLOBAL_DELETE",
}
OTHER_NAMES = [
    {f"{WRITE}keygenerator.class": "org.apache.spark.sql.hudi.command.SqlKeyGenerator"},
    {f"{WRITE}keygenerator.class": "org.apache.spark.sql.hudi.command.UuidKeyGenerator"},
    {f"{WRITE}keygenerator.class": "org.apache.spark.sql.hudi.command.MergeIntoKeyGenerator"},
    {f"{WRITE}keygenerator.type": "SPARK_SQL"},
    {f"{WRITE}keygenerator.type": "USER_PROVIDED"},
    {f"{WRITE}keygenerator.type": "HOODIE_TABLE_METADATA"},
    {f"{WRITE}keygenerator.class": f"{PACKAGE}BuiltinKeyGenerator"},
]
INFERRED = [
    fields("id", None),
    fields("id", ""),
    fields("id", "city"),
    fields("id,part", "city"),
    fields("id", "city,part"),
    fields("id,part", None),
    fields(None, "city"),
    fields(None, None),
    fields("id", "city:SIMPLE"),
    fields("id", "ms") | MILLIS,
]


def cases() -> Iterator[dict[str, str]]:
    """Yield the options of each case."""
    for name, columns in COLUMNS.items():
        usual = {f"{WRITE}keygenerator.class": f"{PACKAGE}{name}KeyGenerator"}
        avro = {f"{WRITE}keygenerator.class": PACKAGE + AVRO_CLASSES[name]}
        for named in columns:
            for folders in (*FOLDERS, {}):
                yield usual | named | folders
        for folders in FOLDERS:
            yield avro | columns[0] | folders
        for kind in (TYPES[name], f"{TYPES[name]}_AVRO"):
            yield {f"{WRITE}keygenerator.type": kind} | columns[0]
            yield {f"{WRITE}keygenerator.type": kind} | fields("id,part", "city")
        yield usual | {f"{WRITE}keygenerator.type": "CUSTOM"} | columns[0]
    for other in OTHER_NAMES:
        yield other | fields("id", "city")
    for columns_alone in INFERRED:
        for folders in (*FOLDERS, {}):
            yield columns_alone | folders


def stored(hudi: HudiPeer, options: dict[str, str]) -> dict[str, dict[str, str]]:
    """Write a table, and return what it stores, or why Hudi refuses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stored")
        try:
            hudi.write(path, ROWS, BASE | options, mode="overwrite")
        except PeerError as error:
            return {"options": options, "refused": {"why": str(error).splitlines()[-2][:200]}}
        text = Path(path, ".hoodie", "hoodie.properties").read_bytes()
    kept = {k: v for k, v in sorted(parse_properties(text).items()) if k not in DROPPED}
    return {"options": options, "stored": kept}


def main() -> None:
    """Write all cases."""
    with HudiPeer() as hudi:
        found = [stored(hudi, options) for options in cases()]
    tables = [case["stored"] for case in found if "stored" in case]
    common = dict(set.intersection(*(set(held.items()) for held in tables)))
    for held in tables:
        for key in common:
            del held[key]
    head = {"hudi": HUDI_VERSION, "base": BASE, "stored": dict(sorted(common.items()))}
    lines = ",\n".join(json.dumps(case) for case in found)
    OUT.write_text(f'{{"head": {json.dumps(head)},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
