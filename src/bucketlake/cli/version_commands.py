"""The commands that change the version of a table: upgrade, downgrade."""

from __future__ import annotations

from dataclasses import asdict

import click

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import CommandWithExample, run_option, table_path
from bucketlake.config.table_version import NEWEST_VERSION, WRITTEN_VERSIONS
from bucketlake.services.version_change import DROPPABLE

_VERSIONS = click.Choice([str(version) for version in WRITTEN_VERSIONS])


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake upgrade orders
    bucketlake upgrade orders --to 9 --run
    """,
)
@table_path
@click.option(
    "--to", type=_VERSIONS, default=str(NEWEST_VERSION), show_default=True, help="Table version."
)
@run_option
def upgrade(path: str, storage_options: dict[str, str], output: Output, to: str, run: bool) -> None:
    """Put a table into a newer table version, in place.

    No data file is written. The metadata table is built anew; from version 6 on, the timeline is
    written in the newer layout.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("upgrading" if run else "looking at the table"):
        report = table.upgrade(to=int(to), dry_run=not run)
    output.outcome(asdict(report), ran=run, idle=report.version == report.version_before)


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake downgrade orders --to 8
    bucketlake downgrade orders --to 6 --run
    """,
)
@table_path
@click.option("--to", type=_VERSIONS, required=True, help="Table version.")
@click.option(
    "--drop",
    type=click.Choice(DROPPABLE),
    multiple=True,
    help="What may be lost: the times at which commits completed, if that changes their order.",
)
@run_option
def downgrade(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    to: str,
    drop: tuple[str, ...],
    run: bool,
) -> None:
    """Put a table into an older table version, in place, so that older releases of Hudi read it.

    The metadata table is built anew. Log files are compacted before a
    downgrade to version 6. What the version lacks is an error.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("downgrading" if run else "looking at the table"):
        report = table.downgrade(to=int(to), drop=drop, dry_run=not run)
    output.outcome(asdict(report), ran=run, idle=report.version == report.version_before)
