"""The entries of a table in a catalog are those that Hudi's own sync wrote."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bucketlake.catalogs.catalog import LAST_COMMIT, LAST_COMPLETION, TableEntry
from bucketlake.catalogs.settings import settings_from_options
from bucketlake.catalogs.table_entries import (
    EXTRACTOR,
    TableFacts,
    entries_of,
    extractor_of,
    partition_values,
)
from bucketlake.format.avro.tree import arrow_from_avro

RECORDED = Path(__file__).parent / "catalogs" / "entries.json.gz"
STEPS = {held["step"]: held for held in json.loads(gzip.decompress(RECORDED.read_bytes()))}

COMMENTS_AT_ONCE = {"comments 0: bulk_insert and sync", "types 2: sync tool", "types 9: sync tool"}
"""Hudi writes comments from the second sync on."""
EDITED = {f"edited {n}" for n in (1, 2, 3, 4, 5)}
"""Somebody edited the entry by hand."""
TIME_AS_TEXT = {"slash_days 7: bulk_insert and sync", "slash_days 8: sync tool"}
"""A key generator's format of a time is no number, which Hudi says it is."""
NUMBER_OF_TIME = {"key_types 7: insert and sync"}
"""A number of microseconds is no timestamp, which Hudi says it is."""
REFUSED = {"recreated 2: sync tool again"}
"""The metastore refused the change, so the recorded entry is that before it."""


def facts_of(step: Mapping[str, Any]) -> TableFacts:
    properties = step["properties"]
    schema = step["schema"]
    times = sorted(re.findall(r"\d{17}", name) for name in step["commits"])
    fields = tuple(filter(None, properties.get("hoodie.table.partition.fields", "").split(",")))
    is_time = properties.get("hoodie.table.keygenerator.type") == "TIMESTAMP"
    extractor = properties.get("hoodie.table.partition_extractor_class", "NonPartitionedExtractor")
    return TableFacts(
        properties["hoodie.table.name"],
        "file:/lake/t",
        properties["hoodie.table.type"] == "MERGE_ON_READ",
        arrow_from_avro(json.dumps(schema)),
        {field["name"]: field["doc"] for field in schema["fields"] if field.get("doc")},
        fields,
        fields if is_time else (),
        extractor.rpartition(".")[2],
        times[-1][0],
        times[-1][-1],
        step["spark"],
        step["hudi"],
    )


def wanted(step: Mapping[str, Any]) -> list[TableEntry]:
    return entries_of(facts_of(step), settings_from_options(step["options"]))


def columns(held: Any) -> list[list[str]]:
    return [[each.name, each.type, each.comment] for each in held]


def without(held: Mapping[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in held.items() if key not in names}


@pytest.mark.parametrize("name", sorted(STEPS.keys() - REFUSED))
def test_an_entry_is_that_of_hudi(name: str) -> None:
    step = STEPS[name]
    is_edited = name.partition(":")[0] in EDITED
    passed = [LAST_COMMIT, LAST_COMPLETION] if "conditional" in name else []
    passed.append(EXTRACTOR)  # Hudi does not note it.
    if name.startswith("moved"):
        passed.append("hudi_writer_version")  # Hudi makes such an entry by another way.
    for entry in wanted(step):
        recorded = step["tables"][entry.name]
        assert entry.input_format == recorded["format"]
        assert entry.managed == recorded["managed"]
        given, told = without(entry.parameters, *passed), without(recorded["parameters"], *passed)
        serde, kept = without(entry.serde, "path"), without(recorded["serde"], "path")
        if is_edited:
            assert given.items() <= told.items()
            assert serde.items() <= kept.items()
        else:
            assert given == told
            assert serde == kept
        if name not in TIME_AS_TEXT | NUMBER_OF_TIME:
            assert columns(entry.keys) == recorded["keys"]
        if name in COMMENTS_AT_ONCE or is_edited:
            assert [c[:2] for c in columns(entry.columns)] == [c[:2] for c in recorded["cols"]]
        else:
            assert columns(entry.columns) == recorded["cols"]


def test_what_hudi_calls_by_another_type_is_called_by_its_own() -> None:
    for name, key in (*((name, "string") for name in TIME_AS_TEXT), ("key_types 7", "bigint")):
        step = next(held for held in STEPS.values() if held["step"].startswith(name))
        assert [each.type for each in wanted(step)[0].keys] == [key]


@pytest.mark.parametrize("name", sorted(STEPS.keys() - REFUSED))
def test_values_of_partitions_are_those_of_hudi(name: str) -> None:
    step = STEPS[name]
    facts, settings = facts_of(step), settings_from_options(step["options"])
    for entry in wanted(step):
        recorded = step["tables"][entry.name]["partitions"]
        if not entry.keys or not isinstance(recorded, list):
            continue
        rule = extractor_of(facts, settings)
        given = {
            partition_values(path, len(entry.keys), rule): path for path in step["partition_paths"]
        }
        for values, location in recorded:
            if tuple(values) in given:
                assert location.endswith(f"/{given[tuple(values)]}")
            else:  # Gone from the table, or moved by hand.
                assert name.split()[0] in {"dropped_partition", "edited", "restored"}
