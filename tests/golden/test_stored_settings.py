"""What a table stores about keys and partitions, for each key generator: as real Hudi stores it.

``keys/make_stored_settings.py`` asked Hudi. Where Hudi refuses the options with the first record,
``save`` refuses them too, or makes a table that Hudi reads: only Hudi needs an option for no
partition fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.config.write_options import parse_job_options
from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.index.setting import index_from_options
from bucketlake.write.create import new_config, plan_table
from tests.golden.keys.make_stored_settings import BASE, DROPPED, ROWS, TIME, WRITE

STORED = json.loads(Path(__file__).with_name("keys").joinpath("stored_settings.json").read_text())
HEAD: dict[str, Any] = STORED["head"]
CASES: list[dict[str, Any]] = STORED["cases"]
FOREIGN = ("GLOBAL_DELETE", "SPARK_SQL")  # Generators that bucketlake does not have.
TYPE = f"{WRITE}keygenerator.type"
# The time zone of the timeline is ours by decision 11; the class is for a sync to a catalog alone.
OF_OTHER_THINGS = (
    *DROPPED, "hoodie.table.timeline.timezone", "hoodie.table.partition_extractor_class"
)  # fmt: skip
NEEDS_FIELD = "partitionpath.field not found"


def name_of(case: dict[str, Any]) -> str:
    values = (value.rpartition(".")[2] for value in case["options"].values())
    return "-".join(values)


def planned(options: dict[str, str]) -> dict[str, str]:
    """Return what a first ``save`` with these options stores."""
    job = parse_job_options(BASE | options)
    index = index_from_options(job.index_options)
    config = new_config(job.key_spec, job.merging, name=job.table_name)
    made = plan_table("stored", ROWS.schema, config, index, metadata_table=False)
    return compared(made.config.to_properties())


def compared(entries: Mapping[str, str]) -> dict[str, str]:
    """Return entries without spaces between names, which Hudi keeps, and without other things.

    Hudi stores no formats for the generator CUSTOM, so that each of its jobs must give them.
    """
    is_custom = entries["hoodie.table.keygenerator.type"].startswith("CUSTOM")
    dropped = (TIME,) if is_custom else ()
    kept = {k: v for k, v in entries.items() if k not in OF_OTHER_THINGS}
    return {k: v.replace(" ", "") for k, v in kept.items() if not k.startswith(dropped)}


@pytest.mark.parametrize("case", [c for c in CASES if "stored" in c], ids=name_of)
def test_a_first_save_stores_what_hudi_stores(case: dict[str, Any]) -> None:
    wanted = HEAD["stored"] | case["stored"]
    options = case["options"]
    kind = wanted["hoodie.table.keygenerator.type"]
    named = options.get(TYPE, kind).removesuffix("_AVRO")
    if kind.startswith(FOREIGN) or named.startswith((*FOREIGN, "USER", "HOODIE")):
        with pytest.raises(UnsupportedFeatureError, match="key generator"):
            planned(options)
    elif named != kind.removesuffix("_AVRO"):  # Hudi ignores the type; here it would mean more.
        with pytest.raises(ConfigError, match=r"keygenerator\.type"):
            planned(options)
    else:
        assert planned(options) == compared(wanted)


@pytest.mark.parametrize("case", [c for c in CASES if "refused" in c], ids=name_of)
def test_options_that_hudi_refuses_are_refused_or_mean_no_partitions(case: dict[str, Any]) -> None:
    if NEEDS_FIELD in case["refused"]["why"]:
        assert planned(case["options"])["hoodie.table.partition.fields"] == ""
        return
    with pytest.raises((ConfigError, InputError, UnsupportedFeatureError)):
        planned(case["options"])


def timestamp_of(options: dict[str, str]) -> bl.TimestampPartition | None:
    """Return the argument of ``create_table`` that means the same."""
    held = {k.removeprefix(TIME): v for k, v in options.items() if k.startswith(TIME)}
    if not held:
        return None
    return bl.TimestampPartition(
        held["timestamp.type"],
        held["output.dateformat"],
        scalar_unit=held.get("timestamp.scalar.time.unit", "SECONDS"),
        input_timezone=held.get("input.timezone"),
        output_timezone=held.get("output.timezone"),
    )


def is_of_create_table(case: dict[str, Any]) -> bool:
    """Return whether ``create_table`` has arguments for a case: it infers the generator."""
    options, stored = case["options"], case.get("stored", {})
    kind, names = stored.get("hoodie.table.keygenerator.type"), options.keys()
    text_times = f"{TIME}input.dateformat" in names or f"{TIME}timezone" in names
    if text_times or kind is None or kind == "CUSTOM" or TYPE in names:
        return False
    has_unit = f"{TIME}timestamp.scalar.time.unit" in names
    if kind == "TIMESTAMP":
        return not has_unit or options[f"{TIME}timestamp.type"] == "SCALAR"
    return f"{WRITE}keygenerator.class" not in names and f"{TIME}timestamp.type" not in names


@pytest.mark.parametrize("case", [c for c in CASES if is_of_create_table(c)], ids=name_of)
def test_create_table_stores_what_hudi_stores(tmp_path: Path, case: dict[str, Any]) -> None:
    options = case["options"]

    def fields(name: str) -> list[str]:
        return [field for field in options.get(f"{WRITE}{name}.field", "").split(",") if field]

    table = bl.create_table(
        str(tmp_path / "stored"),
        schema=ROWS.schema,
        record_key=fields("recordkey"),
        partition_by=fields("partitionpath"),
        index=bl.SimpleBucket(1),
        hive_style=options.get(f"{WRITE}hive_style_partitioning") == "true",
        url_encode=options.get(f"{WRITE}partitionpath.urlencode") == "true",
        timestamp_partition=timestamp_of(options),
        metadata_table=False,
    )
    found = table.config().to_properties()
    wanted = HEAD["stored"] | case["stored"]
    assert compared(found) == compared(wanted)
