"""Commands for the regular upkeep of a table: upkeep, compact, archive, clean."""

from __future__ import annotations

from dataclasses import asdict

import click

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import CommandWithExample, run_option, table_path
from bucketlake.cli.table_facts import instant_facts, pending_of
from bucketlake.config.table_config import UPKEEP_MODES
from bucketlake.timeline.instant import Action


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake upkeep orders
    bucketlake upkeep orders --set auto
    """,
)
@table_path
@click.option("--set", "mode", type=click.Choice(UPKEEP_MODES), help="What to store.")
def upkeep(path: str, storage_options: dict[str, str], output: Output, mode: str | None) -> None:
    """Tell or set whether writes compact, resize, clean and archive the table when it is due."""
    table = bl.open_table(path, storage_options=storage_options)
    if mode is not None:
        table.set_upkeep(mode)
    output.facts({"upkeep": table.config().upkeep})


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake compact orders
    bucketlake compact orders --min-log-files 4 --max-bytes 10000000000 --run
    """,
)
@table_path
@click.option(
    "--min-log-files",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Compact only file groups with at least this many log files.",
)
@click.option("--max-bytes", type=click.IntRange(min=1), help="Most bytes to read.")
@click.option("--schedule-only", is_flag=True, help="Only plan; another process executes the plan.")
@run_option
def compact(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    min_log_files: int,
    max_bytes: int | None,
    schedule_only: bool,
    run: bool,
) -> None:
    """Merge log files of a merge-on-read table into base files.

    Pending plans are executed first. Writers may continue meanwhile.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("compacting" if run else "looking at the log files"):
        report = table.compact(
            min_log_files=min_log_files,
            max_bytes=max_bytes,
            schedule_only=schedule_only,
            dry_run=not run,
        )
    waiting = [] if run else pending_of(table, Action.COMPACTION)
    output.outcome(
        {
            "slices": [asdict(file_slice) for file_slice in report.slices],
            "scheduled": report.scheduled,
            "completed": list(report.instants),
            **({"pending": waiting} if waiting else {}),
        },
        ran=run,
        idle=not (report.slices or report.instants or waiting),
    )


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake archive orders
    bucketlake archive orders --keep-min 50 --keep-max 100 --run
    """,
)
@table_path
@click.option(
    "--keep-min",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of commits that stay on the active timeline.",
)
@click.option(
    "--keep-max",
    type=click.IntRange(min=2),
    default=30,
    show_default=True,
    help="Number of commits up to which nothing is archived.",
)
@run_option
def archive(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    keep_min: int,
    keep_max: int,
    run: bool,
) -> None:
    """Move old instants from the active timeline to the archive.

    No row changes. Instants that a reader or writer may still need stay; the output gives the
    reason.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("archiving" if run else "looking at the timeline"):
        report = table.archive(keep_min=keep_min, keep_max=keep_max, dry_run=not run)
    output.outcome(
        {
            "instants": [instant_facts(instant) for instant in report.instants],
            "held_back": report.held_back,
        },
        ran=run,
        idle=not report.instants,
    )


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake clean orders
    bucketlake clean orders --retain-hours 48 --run
    """,
)
@table_path
@click.option(
    "--retain-commits", type=click.IntRange(min=1), help="Newest commits that stay; if not set: 10."
)
@click.option(
    "--retain-hours",
    type=click.IntRange(min=1),
    help="Instead: keep everything that was readable in the last N hours.",
)
@click.option(
    "--retain-versions",
    type=click.IntRange(min=1),
    help="Instead: keep N versions of each file group.",
)
@run_option
def clean(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    retain_commits: int | None,
    retain_hours: int | None,
    retain_versions: int | None,
    run: bool,
) -> None:
    """Delete old versions of files.

    "read --as-of" can read retained commits and savepoints. Pending cleans are executed first.
    Writers may continue meanwhile.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("cleaning" if run else "looking at the files"):
        report = table.clean(
            retain_commits=retain_commits,
            retain_hours=retain_hours,
            retain_versions=retain_versions,
            dry_run=not run,
        )
    waiting = [] if run else pending_of(table, Action.CLEAN)
    output.outcome(
        {
            "partitions": [asdict(partition) for partition in report.partitions],
            "earliest_retained": report.earliest_retained,
            "completed": list(report.instants),
            **({"pending": waiting} if waiting else {}),
        },
        ran=run,
        idle=not (report.partitions or report.instants or waiting),
    )
