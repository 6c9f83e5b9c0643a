"""Commands that read a table and do not change it: read, changes, show, timeline and more."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
import pyarrow as pa

import bucketlake as bl
from bucketlake.cli.export import write_file
from bucketlake.cli.output import Output, TextOutput, rows_of
from bucketlake.cli.shared_options import (
    CommandWithExample,
    format_option,
    split_names,
    split_pairs,
    table_path,
)
from bucketlake.cli.table_facts import history_facts, table_facts
from bucketlake.errors import InputError
from bucketlake.hashing.ring import HashRange
from bucketlake.model.field_path import field_at, why_missing

ROWS_SHOWN = 20

_row_limit = click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Most rows to show or write, 0 for all; all matching rows are read first.  "
    f"[default: {ROWS_SHOWN} as text, else all]",
)
_target_file = click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the rows to: .parquet, .csv or .jsonl.",
)


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake read orders --where "day = '2013-01-01'" --columns order_id,status
    bucketlake read orders --to orders.parquet
    """,
)
@table_path
@click.option("--where", metavar="SQL", help="Condition, such as \"month = 1 AND origin = 'JFK'\".")
@click.option(
    "--columns", multiple=True, metavar="NAME,...", callback=split_names, help="If not set: all."
)
@click.option("--as-of", metavar="TIME", help="Read the table as it was at this time.")
@click.option("--since", metavar="TIME", help="Read only changes after this time.")
@click.option("--until", metavar="TIME", help="Read only changes up to this time.")
@_row_limit
@_target_file
@format_option("Format of --to, if its ending does not name it.")
def read(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    where: str | None,
    columns: list[str],
    as_of: str | None,
    since: str | None,
    until: str | None,
    limit: int | None,
    target: Path | None,
    file_format: str | None,
) -> None:
    """Read rows; show them or write them to a file.

    A TIME is an instant of the timeline (yyyyMMddHHmmss[SSS]) or a date (yyyy-MM-dd, or
    "yyyy-MM-dd HH:mm:ss[.SSS]", also with T and a zone), without a zone on its clock; a date alone
    is its first moment.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("reading"):
        rows = table.to_arrow(
            where=where, columns=columns or None, as_of=as_of, since=since, until=until
        )
    _show(rows, output, limit, target, file_format)


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake changes orders --since 20240102030405678
    bucketlake changes orders --where "status = 'paid'" --columns order_id,status --to new.jsonl
    """,
)
@table_path
@click.option("--since", metavar="TIME", help="Only changes after this time; if not set: all.")
@click.option("--until", metavar="TIME", help="Only changes up to this time.")
@click.option("--where", metavar="SQL", help="Condition of the row before or after a change.")
@click.option(
    "--columns", multiple=True, metavar="NAME,...", callback=split_names, help="If not set: all."
)
@_row_limit
@_target_file
@format_option("Format of --to, if its ending does not name it.")
def changes(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    since: str | None,
    until: str | None,
    where: str | None,
    columns: list[str],
    limit: int | None,
    target: Path | None,
    file_format: str | None,
) -> None:
    """Show what each commit inserted (i), updated (u) and deleted (d).

    A TIME is a completion time, in the forms of bucketlake read. To go on later, give the last
    completed_at as --since.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("comparing"):
        found = table.changes_to_arrow(
            since=since, until=until, where=where, columns=columns or None
        )
    _show(found, output, limit, target, file_format)


def _show(
    rows: pa.Table,
    output: Output,
    limit: int | None,
    target: Path | None,
    file_format: str | None,
) -> None:
    """Show rows, or write them to a file."""
    if limit is None and target is None and isinstance(output, TextOutput):
        limit = ROWS_SHOWN
    some = rows.slice(0, limit) if limit else rows
    if target is None:
        output.rows(rows_of(some), some.column_names, rows.num_rows)
        return
    with output.progress(f"writing {target}"):
        write_file(some, target, file_format)
    output.facts({"file": str(target), "rows": some.num_rows, "size_bytes": target.stat().st_size})


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake show orders
    bucketlake show s3://bucket/orders -o region=eu-west-1 --output json
    """,
)
@table_path
def show(path: str, storage_options: dict[str, str], output: Output) -> None:
    """Show the facts of a table: keys, index, columns, newest commit."""
    output.facts(table_facts(bl.open_table(path, storage_options=storage_options)))


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake timeline orders
    """,
)
@table_path
def timeline(path: str, storage_options: dict[str, str], output: Output) -> None:
    """Show the instants of a table, oldest first."""
    table = bl.open_table(path, storage_options=storage_options)
    rows = [history_facts(instant) for instant in table.timeline()]
    output.rows(rows, _TIMELINE_COLUMNS, len(rows))


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake buckets orders
    bucketlake buckets orders --by-partition
    """,
)
@table_path
@click.option(
    "--by-partition", is_flag=True, help="Show the size and the skew of each partition instead."
)
def buckets(path: str, storage_options: dict[str, str], output: Output, by_partition: bool) -> None:
    """Show the file of each bucket, and its size.

    Growth and written records are those of the last ten writes.

    Buckets of a hash ring are shown in the order of the ring, with their ranges of hash values and,
    as text, a picture of their sizes. A range (10..20] holds the hash values 11 to 20. Buckets of a
    directory are shown with the last bits of their hash values.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("listing"):
        found = table.buckets()
    if by_partition:
        sizes = found.partitions
        output.rows([asdict(own) | {"skew": own.skew} for own in sizes], _SKEW_COLUMNS, len(sizes))
        return
    ring = [bucket for bucket in found if bucket.hash_range is not None]
    if any(bucket.hash_suffix is not None for bucket in found):
        found.sort(key=lambda bucket: (bucket.partition_path, bucket.bucket_id or 0))
        columns = [*_BUCKET_COLUMNS[:2], "hash_suffix", *_BUCKET_COLUMNS[2:]]
        output.rows([asdict(bucket) for bucket in found], columns, len(found))
        return
    if not ring:
        output.rows([asdict(bucket) for bucket in found], _BUCKET_COLUMNS, len(found))
        return
    found.sort(key=lambda bucket: (bucket.partition_path, bucket.bucket_id or 0))
    rows = [asdict(bucket) for bucket in found]
    columns = [*_BUCKET_COLUMNS[:2], "hash_range", *_BUCKET_COLUMNS[2:]]
    if isinstance(output, TextOutput):
        largest = max(bucket.size_bytes for bucket in found)
        rows = [row | _picture(row["hash_range"], row["size_bytes"], largest) for row in rows]
        columns[3:4] = ["of_ring", "size_bytes", "picture"]
    output.rows(rows, columns, len(rows))


_TIMELINE_COLUMNS = [
    "instant", "action", "state", "completed_at", "operation", "written", "deleted", "files",
    "written_bytes", "partitions", "seconds",
]  # fmt: skip
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


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake report orders --to orders.html
    """,
)
@table_path
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FILE",
    help="HTML file to write, or its address in an object store; an existing one is replaced.",
)
def report(path: str, storage_options: dict[str, str], output: Output, target: str) -> None:
    """Write a page about a table: growth, sizes, skew, timeline, what the doctor finds.

    The page is one file, without scripts, and loads nothing from a network. Its charts need
    Matplotlib: pip install 'bucketlake[report]'.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("reading the table"):
        written = table.report(target)
    output.facts({"file": written})


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake locate orders A-1017
    bucketlake locate flights --key year=2013 --key month=1 --key day=31 --partition 1
    """,
)
@table_path
@click.argument("record_key", metavar="[KEY]", required=False)
@click.option(
    "--key",
    "fields",
    multiple=True,
    metavar="NAME=VALUE",
    callback=split_pairs,
    help="A key column and its value, instead of KEY; give one for each key column.",
)
@click.option("--partition", metavar="PATH", help="Partition to search; if not set: all.")
def locate(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    record_key: str | None,
    fields: dict[str, str],
    partition: str | None,
) -> None:
    """Find the bucket and the file of a record.

    KEY is the record key as the table stores it: the value of a single column, or NAME:VALUE pairs
    separated by commas.
    """
    if (record_key is None) == (not fields):
        raise click.UsageError("give either KEY or --key NAME=VALUE")
    table = bl.open_table(path, storage_options=storage_options)
    key = record_key if record_key is not None else _typed(fields, table)
    with output.progress("searching"):
        found = table.locate(key, partition)
    rows = [asdict(location) for location in found]
    output.rows(rows, _LOCATION_COLUMNS, len(rows))


_LOCATION_COLUMNS = [
    *("record_key", "partition_path", "bucket_id", "committed_at", "path"),
]


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
