"""A file for a report of a fault: facts of a table and of this machine, without data or secrets.

Values come from a table's rows: partition paths become ``partition-1`` and so on, and names of
columns, of the table and of its folder are left out. Entries of the properties are told by value
only where bucketlake knows that the value is a word, a number or a class.
"""

from __future__ import annotations

import json
import platform
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import bucketlake as bl
from bucketlake.config import table_keys as keys
from bucketlake.errors import BucketLakeError
from bucketlake.services.check.findings import Findings

PACKAGES = (
    *("bucketlake", "click", "fastavro", "isal", "numpy", "obstore", "pandas", "polars", "pyarrow"),
    *("pyspark", "sqlglot"),
)
_TOLD_KEYS = (
    keys.TABLE_TYPE,
    keys.VERSION,
    keys.INITIAL_VERSION,
    keys.LAYOUT_VERSION,
    keys.TIMELINE_TIMEZONE,
    keys.BASE_FILE_FORMAT,
    keys.POPULATE_META_FIELDS,
    keys.DROP_PARTITION_COLUMNS,
    keys.CDC_ENABLED,
    keys.METADATA_PARTITIONS,
    keys.METADATA_PARTITIONS_INFLIGHT,
    keys.KEY_GENERATOR_TYPE,
    keys.KEY_GENERATOR_CLASS,
    keys.PARTIAL_UPDATE_MODE,
    keys.UPKEEP,
)
_TOLD_KINDS = (str, int, float, bool, type(None))


def write_bundle(table: bl.Table, found: Findings, target: Path) -> None:
    """Write the file.

    Parameters
    ----------
    table : Table
        The table, which may be broken: what cannot be read becomes the kind of its error.
    found : Findings
        What the doctor found.
    target : Path
        A zip file; one that is there is replaced.
    """
    pseudonyms: dict[str, str] = {}

    def partition(path: str) -> str:
        return pseudonyms.setdefault(path, f"partition-{len(pseudonyms) + 1}")

    parts: dict[str, Callable[[], object]] = {
        "environment.json": _environment,
        "properties.json": lambda: _properties(table),
        "index.json": lambda: _index(table),
        "timeline.json": lambda: [
            asdict(entry) | {"action": entry.action.value, "state": entry.state.name}
            for entry in table.timeline()
        ],
        "buckets.json": lambda: [*_buckets(table, partition)],
        "metadata_table.json": lambda: asdict(table.metadata_table()),
        "findings.json": lambda: _findings(found),
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, told in parts.items():
            bundle.writestr(name, json.dumps(_or_error(told), indent=2, default=str) + "\n")


def _or_error(told: Callable[[], object]) -> object:
    try:
        return told()
    except BucketLakeError as error:  # Its words may have names or values.
        return {"error": type(error).__name__}


def _environment() -> object:
    return {
        "python": sys.version,
        "system": platform.platform(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _properties(table: bl.Table) -> object:
    entries = table.config().to_properties()
    return {
        "values": {key: entries[key] for key in _TOLD_KEYS if key in entries},
        "other_keys": sorted(entries.keys() - {*_TOLD_KEYS}),
    }


def _index(table: bl.Table) -> object:
    if table.index is None:
        return None
    facts = table.index.facts()
    return {key: value for key, value in facts.items() if isinstance(value, _TOLD_KINDS)}


def _buckets(table: bl.Table, partition: Callable[[str], str]) -> Iterable[object]:
    for bucket in table.buckets():
        facts = asdict(bucket)
        facts["partition_path"] = partition(bucket.partition_path)
        facts["path"] = None if bucket.path is None else Path(bucket.path).name
        yield facts


def _findings(found: Findings) -> object:
    """Return the kinds of the findings; their words may have keys and values."""
    return {
        "summary": found.summary,
        "findings": [{"kind": one.kind.value, "severity": one.severity.value} for one in found],
        "checked": list(found.checked),
    }
