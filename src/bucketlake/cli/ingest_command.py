"""The command ``ingest``: from a landing zone or topics to tables, once or for ever."""

from __future__ import annotations

import inspect
import logging
import tomllib
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

import bucketlake as bl
from bucketlake.cli.output import Output, listening, rows_of
from bucketlake.cli.shared_options import (
    PlacePath,
    names_option,
    pairs_option,
    path_command,
)
from bucketlake.model.names import did_you_mean
from bucketlake.model.result import facts_of

if TYPE_CHECKING:  # Most commands ingest nothing, and should start fast.
    from bucketlake.intake.job_file import JobFile


@partial(path_command, required=False)
@click.argument("sources", nargs=-1, metavar="[SOURCE...]", type=PlacePath("dir"))
@click.option(
    *("--config", "--streamer-properties", "config"),
    metavar="FILE",
    help="TOML, or .properties of Hudi's Streamer.",
)
@click.option("--kafka", metavar="HOST:PORT,...", help="Servers of Kafka, in place of SOURCE.")
@names_option("--topic", "Topics of Kafka; {topic} in PATH stands for the topic.", "topics")
@names_option("--key", "Key columns of a new table; if not set: of the messages.", "record_key")
@names_option("--partition-by", "Partition columns of a new table.")
@click.option("--ordering", metavar="NAME", help="Column of a new table whose greater value wins.")
@pairs_option(
    *("--set", "settings"),
    help_text="Option of ingest(), files() or Spark's Kafka source; repeatable.",
    metavar="NAME=VALUE",
)
@pairs_option("--spark-conf", help_text="Setting of the Spark session; repeatable.")
@click.option("--every", type=float, metavar="SECONDS", help="Look again until SIGTERM comes.")
@click.option(
    "--on-bad-row",
    type=click.Choice(["dead_letter", "fail"]),
    help="Keep a row that cannot be taken as a dead letter (the default), or stop.",
)
@click.option("--metrics", multiple=True, metavar="FILE", help="A .jsonl or .prom; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what the first 100 rows become.")
@click.option("--replay", is_flag=True, help="Take the dead letters again, in place of the source.")
def ingest_command(
    path: str | None,
    output: Output,
    sources: tuple[str, ...],
    storage_options: dict[str, str],
    config: str | None,
    spark_conf: dict[str, str],
    **given: Any,
) -> None:
    r"""Take what is new in a folder or topics into the table at PATH, each row once.

    SOURCE is a folder, a pattern in quotes or an address. The command can be killed and started
    again: how far a source is read stands in the commits. Settings come before those of --config.

    Examples
    --------
    bucketlake ingest orders landing/ --key order_id --ordering updated_at --set max_files=100
    bucketlake ingest 'lake/{topic}' --kafka broker:9092 --topic shop.orders --every 5
    bucketlake ingest --config ingest.toml --dry-run
    """
    told = _from_file(config, output)
    options, of_files, kafka = _settings(given)
    source = kafka or told.source
    if sources:
        of_files = {"folder_columns": True, **of_files}
        source = bl.files(sources, storage_options=storage_options, **of_files)
    table = path or told.table
    if source is None or table is None:
        raise click.UsageError("give PATH and SOURCE, PATH and --kafka and --topic, or --config")
    options = {**told.options, **{k: v for k, v in options.items() if v not in (None, (), [])}}
    options["storage_options"] = storage_options or told.options.get("storage_options")
    if isinstance(source, Mapping):
        from bucketlake.spark.topic_reader import started_session

        started_session(spark_conf)
    with listening(_Lines()) if output.is_text else nullcontext():
        report = bl.ingest(source, table, **options)
    rows = report.preview
    if rows is not None:
        output.rows(rows_of(rows), rows.column_names, rows.num_rows)
    else:
        output.facts({k: v for k, v in facts_of(report).items() if k != "preview"})


def _from_file(config: str | None, output: Output) -> JobFile:
    """Return what a file of settings says; name what has no meaning."""
    from bucketlake.intake.job_file import JobFile, read_streamer_properties, read_toml

    if config is None:
        return JobFile()
    told = (read_streamer_properties if config.endswith(".properties") else read_toml)(config)
    if told.unused and output.is_text:
        click.echo(f"no meaning here, passed over: {', '.join(told.unused)}", err=True)
    return told


def _settings(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the options of ``ingest``, of ``files``, and of the Kafka source, if it is used."""
    from bucketlake.intake.ingesting import KNOWN_OPTIONS

    known_of_files = {*inspect.signature(bl.files).parameters} - {"paths", "schema"}
    servers, topics = given.pop("kafka"), given.pop("topics")
    options, of_files, kafka = {**given}, dict[str, Any](), dict[str, str]()
    options["metrics"] = [*options["metrics"]]
    for name, text in options.pop("settings").items():
        if name in KNOWN_OPTIONS:
            options[name] = _value(text)
        elif name in known_of_files:
            of_files[name] = _value(text)
        elif servers is not None:
            kafka[name] = text
        else:
            hint = did_you_mean(name, KNOWN_OPTIONS | known_of_files)
            raise click.UsageError(f"--set {name}: there is no such option{hint}")
    if servers is None:
        if topics:
            raise click.UsageError("--topic needs --kafka")
        return options, of_files, {}
    which = {"subscribe": ",".join(topics)} if topics else {}
    return options, of_files, {"kafka.bootstrap.servers": servers, **which, **kafka}


def _value(text: str) -> Any:
    """Return a value as TOML has it, or else the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


class _Lines(logging.Handler):
    """Writes what an ingest tells of its batches to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("ingest"):
            click.echo(record.getMessage(), err=True)
