"""The command that advises which index, table type and services a table should have."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import click

import bucketlake as bl
from bucketlake.cli.output import Output, TextOutput, in_command_words
from bucketlake.cli.shared_options import (
    CommandWithExample,
    DataFile,
    format_option,
    given_of,
    split_names,
    table_path,
)
from bucketlake.config.table_version import NEWEST_VERSION, WRITTEN_VERSIONS
from bucketlake.services.advice.advice import AdviceList
from bucketlake.services.advice.workload import TARGET_FILE_SIZE_DEFAULT


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake advise orders
    bucketlake advise --sample monday.parquet --key order_id --partition-by day \\
      --ordering updated_at --rows 200000000 --partitions 365
    """,
)
@partial(table_path, required=False)
@click.option(
    "--sample",
    multiple=True,
    type=DataFile(or_address=True),
    metavar="FILE",
    help="Data file with some of the records of a table that is to be made; repeatable.",
)
@format_option("Format of the sample, if its ending does not name it.")
@click.option(
    "--key",
    multiple=True,
    metavar="NAME,...",
    callback=split_names,
    help="Columns that identify a record.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="NAME,...",
    callback=split_names,
    help="Columns whose values become folders.",
)
@click.option("--ordering", metavar="NAME", help="Column whose greater value wins.")
@click.option(
    "--hash-field",
    "hash_fields",
    multiple=True,
    metavar="NAME,...",
    callback=split_names,
    help="Key columns by which rows are to be found together.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    help="Rows that the table will have.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Partitions that it will have; if not set: those of the sample.",
)
@click.option(
    "--table-version",
    type=click.Choice([str(version) for version in WRITTEN_VERSIONS]),
    help=f"Table version that it is to have; if not set: {NEWEST_VERSION}.",
)
@click.option("--hudi-writers", is_flag=True, help="Jobs of Hudi will write the table too.")
@click.option(
    "--target-file-size",
    type=click.IntRange(min=1),
    default=TARGET_FILE_SIZE_DEFAULT,
    show_default=True,
    metavar="BYTES",
    help="Size that a file should have.",
)
def advise(
    path: str | None,
    storage_options: dict[str, str],
    output: Output,
    sample: tuple[Path | str, ...],
    file_format: str | None,
    key: list[str],
    partition_by: list[str],
    ordering: str | None,
    hash_fields: list[str],
    rows: int | None,
    partitions: int | None,
    table_version: str | None,
    hudi_writers: bool,
    target_file_size: int,
) -> None:
    """Advise which index, table type, partitions and services a table should have, and why.

    PATH is the table; nothing is changed, and no data file is read. With --sample instead of PATH,
    the advice is about a table that is to be made. Only -o, --output and --target-file-size
    belong to both.
    """
    if (path is None) == (not sample):
        raise click.UsageError("give either PATH, or --sample FILE and --key NAME")
    version = None if table_version is None else int(table_version)
    numbers = given_of({"rows": rows, "partitions": partitions, "version": version})
    if path is not None:
        if key or partition_by or ordering or hash_fields or numbers or file_format or hudi_writers:
            raise click.UsageError(
                "the table knows its columns and its version; only --target-file-size belongs to it"
            )
        table = bl.open_table(path, storage_options=storage_options)
        with output.progress("looking at the table"):
            found = table.advise(target_file_size=target_file_size)
    else:
        if not key:
            raise click.UsageError("--sample needs --key NAME")
        files = bl.files([*sample], format=file_format, storage_options=storage_options)
        with output.progress("looking at the sample"):
            found = bl.advise(
                files,
                record_key=key,
                partition_by=partition_by,
                ordering=ordering,
                hash_fields=hash_fields or None,
                hudi_writers=hudi_writers,
                target_file_size=target_file_size,
                **numbers,
            )
    found = AdviceList(
        (replace(own, reason=in_command_words(own.reason)) for own in found), found.workload
    )
    if isinstance(output, TextOutput):
        for line in found.lines(commands=True):
            click.echo(line)
        return
    advice = [asdict(own) | {"changes": own.changes} for own in found]
    output.facts({"advice": advice, "workload": found.workload.facts()})
