"""Commands that read a table and do not change it: read, changes, show, timeline and more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import bucketlake as bl
from bucketlake.cli.output import Output, in_command_words, rows_of
from bucketlake.cli.shared_options import (
    DataFilePath,
    PlacePath,
    apply_all,
    format_option,
    int_option,
    names_option,
    pairs_option,
    path_command,
    split_names,
    table_command,
)
from bucketlake.cli.table_facts import history_facts, table_facts
from bucketlake.config.table_version import NEWEST_VERSION, WRITTEN_VERSIONS
from bucketlake.errors import InputError
from bucketlake.hashing.ring import HashRange
from bucketlake.model.field_path import field_at, why_missing
from bucketlake.services.advice.workload import TARGET_FILE_SIZE_DEFAULT

ROWS_SHOWN = 20

_columns = names_option(
    "--columns", "If not set: all.", callback=lambda *given: split_names(*given) or None
)


def _shows_rows(command: Callable[..., pa.Table]) -> Callable[..., None]:
    """Show the rows that a command returns, or write them to a file; add the options for this."""

    @wraps(command)
    def show(
        output: Output,
        limit: int | None,
        target: Path | None,
        file_format: str | None,
        **others: Any,
    ) -> None:
        from bucketlake.cli.data_files import write_file

        rows = command(output=output, **others)
        if limit is None and target is None and output.is_text:
            limit = ROWS_SHOWN
        some = rows.slice(0, limit) if limit else rows
        if target is None:
            output.rows(rows_of(some), some.column_names, rows.num_rows)
            return
        with output.progress(f"writing {target}"):
            write_file(some, target, file_format)
        size_bytes = target.stat().st_size
        output.facts({"file": str(target), "rows": some.num_rows, "size_bytes": size_bytes})

    row_limit = int_option(
        "--limit",
        "Most rows to show or write, 0 for all; all matching rows are read first.  "
        f"[default: {ROWS_SHOWN} as text, else all]",
        least=0,
    )
    target_file = click.option(
        "--to",
        "target",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File to write the rows to: .parquet, .csv or .jsonl.",
    )
    named_format = format_option("Format of --to, if its ending does not name it.")
    return apply_all(show, [row_limit, target_file, named_format])


@table_command
@click.option("--where", metavar="SQL", help="Condition, such as \"month = 1 AND origin = 'JFK'\".")
@_columns
@click.option("--as-of", metavar="TIME", help="Read the table as it was at this time.")
@click.option("--since", metavar="TIME", help="Read only changes after this time.")
@click.option("--until", metavar="TIME", help="Read only changes up to this time.")
@_shows_rows
def read_command(table: bl.Table, output: Output, **options: Any) -> pa.Table:
    """Read rows; show them or write them to a file.

    A TIME is an instant of the timeline (yyyyMMddHHmmss[SSS]) or a date (yyyy-MM-dd, or
    "yyyy-MM-dd HH:mm:ss[.SSS]", also with T and a zone), without a zone on its clock; a date alone
    is its first moment.

    Examples
    --------
    bucketlake read orders --where "day = '2013-01-01'" --columns order_id,status
    bucketlake read orders --to orders.parquet
    """
    with output.progress("reading"):
        return table.to_arrow(**options)


@table_command
@click.option("--since", metavar="TIME", help="Only changes after this time; if not set: all.")
@click.option("--until", metavar="TIME", help="Only changes up to this time.")
@click.option("--where", metavar="SQL", help="Condition of the row before or after a change.")
@_columns
@_shows_rows
def changes_command(table: bl.Table, output: Output, **options: Any) -> pa.Table:
    """Show what each commit inserted (i), updated (u) and deleted (d).

    A TIME is a completion time, in the forms of bucketlake read. To go on later, give the last
    completed_at as --since.

    Examples
    --------
    bucketlake changes orders --since 20240102030405678
    bucketlake changes orders --where "status = 'paid'" --columns order_id,status --to new.jsonl
    """
    with output.progress("comparing"):
        return table.changes_to_arrow(**options)


@table_command
def show_command(table: bl.Table, output: Output) -> None:
    """Show the facts of a table: keys, index, columns, newest commit.

    Examples
    --------
    bucketlake show orders
    bucketlake show s3://bucket/orders -o region=eu-west-1 --output json
    """
    output.facts(table_facts(table))


@table_command
def timeline_command(table: bl.Table, output: Output) -> None:
    """Show the instants of a table, oldest first.

    Examples
    --------
    bucketlake timeline orders
    """
    rows = [history_facts(instant) for instant in table.timeline()]
    first, spare = ["instant", "action"], ["written_bytes", "seconds"]
    # The state is of interest if an instant is pending.
    (spare if all(row["completed_at"] for row in rows) else first).append("state")
    spare += ["completed_at", "files", "partitions"]
    columns = [*first, "operation", "written", "deleted", *spare]
    output.rows(rows, columns, len(rows), spare=spare)


@table_command
@click.option(
    "--by-partition", is_flag=True, help="Show the size and the skew of each partition instead."
)
def buckets_command(table: bl.Table, output: Output, by_partition: bool) -> None:
    """Show the file of each bucket, and its size.

    Growth and written records are those of the last ten writes.

    Buckets of a hash ring are shown in the order of the ring, with their ranges of hash values and,
    as text, a picture of their sizes. A range (10..20] holds the hash values 11 to 20. Buckets of a
    directory are shown with the last bits of their hash values.

    Examples
    --------
    bucketlake buckets orders
    bucketlake buckets orders --by-partition
    """
    with output.progress("listing"):
        found = table.buckets()
    if by_partition:
        sizes = found.partitions
        output.rows([asdict(own) | {"skew": own.skew} for own in sizes], _SKEW_COLUMNS, len(sizes))
        return
    columns, hashes = [*_BUCKET_COLUMNS], ""
    if any(bucket.hash_suffix is not None for bucket in found):
        hashes = "hash_suffix"
    elif any(bucket.hash_range is not None for bucket in found):
        hashes = "hash_range"
    if hashes:
        columns.insert(2, hashes)
        found.sort(key=lambda bucket: (bucket.partition_path, bucket.bucket_id or 0))
    rows = [asdict(bucket) for bucket in found]
    if hashes == "hash_range" and output.is_text:
        largest = max(bucket.size_bytes for bucket in found)
        rows = [row | _picture(row["hash_range"], row["size_bytes"], largest) for row in rows]
        columns[3:4] = ["of_ring", "size_bytes", "picture"]
    output.rows(rows, columns, len(rows))


_BUCKET_COLUMNS = [
    *("partition_path", "bucket_id", "size_bytes", "share", "rows", "growth_bytes", "written"),
    *("log_files", "instant", "path"),
]
_SKEW_COLUMNS = [
    *("partition_path", "size_bytes", "share", "rows", "growth_bytes", "written", "file_groups"),
    *("log_bytes", "buckets", "largest_bucket", "max_over_mean", "hot_value", "skew"),
]
_BAR_CELLS = 24  # Of the largest bucket.


def _picture(
    hash_range: tuple[int, int] | None, size_bytes: int, largest_bytes: int
) -> dict[str, object]:
    """Return the share of the ring, and a bar of the size; a short bar for very few bytes."""
    cells = round(_BAR_CELLS * size_bytes / max(largest_bytes, 1))
    share = None if hash_range is None else f"{HashRange(*hash_range).share:.1%}"
    return {"of_ring": share, "picture": "█" * cells or "▏"}


@table_command
@click.option(
    "--to",
    "target",
    required=True,
    type=PlacePath("file"),
    metavar="FILE",
    help="HTML file to write, or its address in an object store; an existing one is replaced.",
)
def report_command(table: bl.Table, output: Output, target: str) -> None:
    """Write a page about a table: growth, sizes, skew, timeline, what the doctor finds.

    The page is one file, without scripts, and loads nothing from a network. Its charts need
    Matplotlib: pip install 'bucketlake[report]'.

    Examples
    --------
    bucketlake report orders --to orders.html
    """
    with output.progress("reading the table"):
        written = table.report(target)
    output.facts({"file": written})


@table_command
@click.argument("source")
@click.option("--as-of", metavar="TIME", help="The position as it was at this time.")
def position_command(table: bl.Table, output: Output, source: str, as_of: str | None) -> None:
    """Show how far a source is written into the table, as the writes of it have said.

    Examples
    --------
    bucketlake position orders clicks-topic
    """
    found = table.position(source, as_of)
    output.facts({"source": source, "last": None if found is None else dict(found.last)})


@table_command
@click.argument("record_key", metavar="[KEY]", required=False)
@pairs_option(
    *("--key", "fields"),
    help_text="A key column and its value, instead of KEY; give one for each key column.",
    metavar="NAME=VALUE",
)
@click.option("--partition", metavar="PATH", help="Partition to search; if not set: all.")
def locate_command(
    table: bl.Table,
    output: Output,
    record_key: str | None,
    fields: dict[str, str],
    partition: str | None,
) -> None:
    """Find the bucket and the file of a record.

    KEY is the record key as the table stores it: the value of a single column, or NAME:VALUE pairs
    separated by commas.

    Examples
    --------
    bucketlake locate orders A-1017
    bucketlake locate flights --key year=2013 --key month=1 --key day=31 --partition 1
    """
    if (record_key is None) == (not fields):
        raise click.UsageError("give either KEY or --key NAME=VALUE")
    key = record_key if record_key is not None else _typed(fields, table)
    with output.progress("searching"):
        found = table.locate(key, partition)
    rows = [asdict(location) for location in found]
    output.rows(rows, _LOCATION_COLUMNS, len(rows))


_LOCATION_COLUMNS = ["record_key", "partition_path", "bucket_id", "committed_at", "path"]


def _typed(fields: dict[str, str], table: bl.Table) -> dict[str, object]:
    """Cast the text values of key columns to the types of the columns."""
    schema = table.schema()
    typed: dict[str, object] = {}
    for name, text in fields.items():
        field = field_at(schema, name)
        if field is None:
            problem = f"the table {why_missing(schema, name)}"
            raise InputError(f"--key {name}={text}", problem, "see bucketlake show")
        wanted = field.type
        try:
            typed[name] = pa.scalar(text).cast(wanted).as_py()
        except pa.ArrowException as reason:
            raise InputError(
                f"--key {name}={text}",
                f"the value does not have type {wanted}",
                "correct the value",
            ) from reason
    return typed


# ---- The command that advises which index, table type and services a table should have -----------


@partial(path_command, required=False)
@click.option(
    "--sample",
    multiple=True,
    type=DataFilePath(or_address=True),
    metavar="FILE",
    help="Data file with some of the records of a table that is to be made; repeatable.",
)
@format_option("Format of the sample, if its ending does not name it.")
@names_option("--key", "Columns that identify a record.", "record_key")
@names_option("--partition-by", "Columns whose values become folders.")
@click.option("--ordering", metavar="NAME", help="Column whose greater value wins.")
@names_option("--hash-field", "Key columns by which rows are to be found together.", "hash_fields")
@int_option("--rows", "Rows that the table will have.")
@int_option("--partitions", "Partitions that it will have; if not set: those of the sample.")
@click.option(
    "--table-version",
    "version",
    type=click.Choice(WRITTEN_VERSIONS),
    help=f"Table version that it is to have; if not set: {NEWEST_VERSION}.",
)
@click.option("--hudi-writers", is_flag=True, help="Jobs of Hudi will write the table too.")
@int_option(
    "--target-file-size",
    "Size that a file should have.",
    default=TARGET_FILE_SIZE_DEFAULT,
    metavar="BYTES",
)
def advise_command(
    path: str | None,
    storage_options: dict[str, str],
    output: Output,
    sample: tuple[Path | str, ...],
    file_format: str | None,
    target_file_size: int,
    **settings: Any,
) -> None:
    r"""Advise which index, table type, partitions and services a table should have, and why.

    PATH is the table; nothing is changed, and no data file is read. With --sample instead of PATH,
    the advice is about a table that is to be made. Only -o, --output and --target-file-size
    belong to both.

    Examples
    --------
    bucketlake advise orders
    bucketlake advise --sample monday.parquet --key order_id --partition-by day \
      --ordering updated_at --rows 200000000 --partitions 365
    """
    from bucketlake.services.advice.advice import AdviceList

    if (path is None) == (not sample):
        raise click.UsageError("give either PATH, or --sample FILE and --key NAME")
    given = {name: value for name, value in settings.items() if value not in (None, [], False)}
    if path is not None:
        if given or file_format:
            raise click.UsageError(
                "the table knows its columns and its version; only --target-file-size belongs to it"
            )
        table = bl.open_table(path, storage_options=storage_options)
        with output.progress("looking at the table"):
            found = table.advise(target_file_size=target_file_size)
    else:
        if "record_key" not in given:
            raise click.UsageError("--sample needs --key NAME")
        files = bl.files([*sample], format=file_format, storage_options=storage_options)
        with output.progress("looking at the sample"):
            found = bl.advise(files, **given, target_file_size=target_file_size)
    found = AdviceList(
        (replace(own, reason=in_command_words(own.reason)) for own in found), found.workload
    )
    if output.is_text:
        for line in found.lines(commands=True):
            click.echo(line)
        return
    advice = [asdict(own) | {"changes": own.changes} for own in found]
    output.facts({"advice": advice, "workload": found.workload.facts()})
