"""Commands that keep a table in shape: compact, clean, rescale, restore, repair and so on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

import bucketlake as bl
from bucketlake.cli.options import CommandWithExample, run_option, table_path
from bucketlake.cli.output import Output
from bucketlake.cli.table_facts import instant_facts
from bucketlake.index.partition_rules import split_expressions
from bucketlake.services.doctor import MIN_AGE_SECONDS
from bucketlake.services.findings import Finding


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake rescale orders --rules 'country=(US|CN),64;country=,8' --default 1
    bucketlake rescale orders --add 'day=2026-11-2[78],32' --run
    """,
)
@table_path
@click.option("--rules", metavar="TEXT", help="All rules: pattern,count;pattern,count ...")
@click.option("--add", metavar="TEXT", help="Rules to put before those that the table has.")
@click.option(
    "--default",
    type=click.IntRange(min=1),
    help="Buckets of partitions that no rule fits; those of before, if not set.",
)
@click.option("--rule", metavar="KIND", help="regex or range; that of before, if not set.")
@run_option
def rescale(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    rules: str | None,
    add: str | None,
    default: int | None,
    rule: str | None,
    run: bool,
) -> None:
    """Give partitions other bucket counts.

    Partitions whose count changes are written anew, all others keep their files. Another default
    may change many partitions.
    """
    if (rules is None) == (add is None):
        raise click.UsageError("give either --rules or --add")
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("rescaling" if run else "looking at the partitions"):
        report = table.rescale(
            None if rules is None else split_expressions(rules),
            add=None if add is None else split_expressions(add),
            default=default,
            rule=rule,
            dry_run=not run,
        )
    output.facts(
        {
            "rules": report.index.expressions,
            "default": report.index.default,
            "partitions": [asdict(change) for change in report.partitions],
            "instant": report.instant,
        }
    )


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake convert orders --max-file-size 120000000 --run
    bucketlake convert orders --one-group
    """,
)
@table_path
@click.option(
    "--max-file-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Let a bucket have several file groups; the next one is opened at this size.",
)
@click.option("--one-group", is_flag=True, help="Let each bucket have one file group again.")
@run_option
def convert(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    max_file_size: int | None,
    one_group: bool,
    run: bool,
) -> None:
    """Let buckets have several file groups, or one again.

    With a size no file is written. With --one-group, partitions that have buckets of several file
    groups are written anew.
    """
    if (max_file_size is None) != one_group:
        raise click.UsageError("give either --max-file-size or --one-group")
    table = bl.open_table(path, storage_options=storage_options)
    if table.index is None:
        raise click.UsageError("the table stores no bucket setting; write to it first")
    with output.progress("converting" if run else "looking at the partitions"):
        report = table.convert(table.index.with_max_file_size(max_file_size), dry_run=not run)
    output.facts(
        {
            "max_file_size": report.index.max_file_size,
            "partitions": list(report.partitions),
            "file_groups": report.file_groups,
            "size_bytes": report.size_bytes,
            "instant": report.instant,
        }
    )


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
@click.option("--max-bytes", type=click.IntRange(min=1), help="Bytes to read in all.")
@click.option("--schedule-only", is_flag=True, help="Leave the plan to somebody else.")
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

    Plans that are pending are carried out first. Writers may go on meanwhile.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("compacting" if run else "looking at the log files"):
        report = table.compact(
            min_log_files=min_log_files,
            max_bytes=max_bytes,
            schedule_only=schedule_only,
            dry_run=not run,
        )
    output.facts(
        {
            "slices": [asdict(one) for one in report.slices],
            "scheduled": report.scheduled,
            "completed": list(report.instants),
        }
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
    help="Commits that stay in the active timeline.",
)
@click.option(
    "--keep-max",
    type=click.IntRange(min=2),
    default=30,
    show_default=True,
    help="Commits up to which nothing is archived.",
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
    """Move old instants out of the active timeline.

    No row changes. Instants that a reader or writer may still need stay; the output says what holds
    them back.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("archiving" if run else "looking at the timeline"):
        report = table.archive(keep_min=keep_min, keep_max=keep_max, dry_run=not run)
    output.facts(
        {
            "instants": [instant_facts(instant) for instant in report.instants],
            "held_back": report.held_back,
        }
    )


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake rollback orders 20261122101530123
    bucketlake rollback orders 20261122101530123 --cascade --run
    """,
)
@table_path
@click.argument("instant")
@click.option("--cascade", is_flag=True, help="Also roll back later commits that build on it.")
@run_option
def rollback(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    instant: str,
    cascade: bool,
    run: bool,
) -> None:
    """Roll a commit back: its files, its rules and the commit itself go.

    INSTANT is the time of a commit, as "bucketlake timeline" shows it. A rescale that later commits
    build on is undone without losing them by another rescale to the earlier rules.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("rolling back" if run else "looking at the commits"):
        report = table.rollback(instant, cascade=cascade, dry_run=not run)
    output.facts(
        {
            "commits": [asdict(commit) for commit in report.commits],
            "rollbacks": list(report.instants),
        }
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
    "--retain-commits", type=click.IntRange(min=1), help="Newest commits that stay; 10, if not set."
)
@click.option(
    "--retain-hours",
    type=click.IntRange(min=1),
    help="Instead: keep what was readable in the last N hours.",
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

    "read --as-of" goes back as far as something is retained, and to savepoints. A clean that is
    pending is carried out first. Writers may go on meanwhile.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("cleaning" if run else "looking at the files"):
        report = table.clean(
            retain_commits=retain_commits,
            retain_hours=retain_hours,
            retain_versions=retain_versions,
            dry_run=not run,
        )
    output.facts(
        {
            "partitions": [asdict(one) for one in report.partitions],
            "earliest_retained": report.earliest_retained,
            "completed": list(report.instants),
        }
    )


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake savepoint orders --comment "before the import"
    bucketlake savepoint orders 20261122101530123 --delete
    """,
)
@table_path
@click.argument("instant", required=False)
@click.option("--comment", default="", metavar="TEXT", help="What it is for.")
@click.option("--delete", is_flag=True, help="Give the files of a savepoint free instead.")
def savepoint(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    instant: str | None,
    comment: str,
    delete: bool,
) -> None:
    """Keep what a commit needs from being cleaned, to read or restore it.

    INSTANT is the time of a commit, as "bucketlake timeline" shows it; the newest, if not set.
    """
    if delete and instant is None:
        raise click.UsageError("--delete needs the instant of a savepoint")
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("deleting the savepoint" if delete else "making a savepoint"):
        if instant is not None and delete:
            table.delete_savepoint(instant)
        else:
            instant = table.savepoint(instant, comment=comment)
    output.facts({"deleted" if delete else "savepoint": instant})


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake restore orders 20261122101530123
    bucketlake restore orders 20261122101530123 --run
    """,
)
@table_path
@click.argument("instant")
@run_option
def restore(
    path: str, storage_options: dict[str, str], output: Output, instant: str, run: bool
) -> None:
    """Restore a table to a savepoint: all that was written later goes.

    INSTANT is the time of the savepoint's commit, as "bucketlake timeline" shows it.
    """
    table = bl.open_table(path, storage_options=storage_options)
    with output.progress("restoring" if run else "looking at the commits"):
        report = table.restore(instant, dry_run=not run)
    output.facts(
        {
            "commits": [asdict(commit) for commit in report.commits],
            "plans": list(report.plans),
            "restore": report.instant,
        }
    )


def _checks(command: Callable[..., None]) -> Callable[..., Any]:
    """Add the options that say what is looked at."""
    for option in (
        click.option(
            "--min-age",
            "min_age_seconds",
            type=click.IntRange(min=0),
            default=MIN_AGE_SECONDS,
            show_default=True,
            metavar="SECONDS",
            help="Age from which on something counts as left behind.",
        ),
        click.option("--check-files", is_flag=True, help="Read all live files, too."),
        click.option("--check-keys", is_flag=True, help="Read all keys, too."),
    ):
        command = option(command)
    return command


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake doctor orders
    bucketlake doctor orders --check-keys --check-files --output json
    """,
)
@table_path
@_checks
def doctor(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    check_keys: bool,
    check_files: bool,
    min_age_seconds: int,
) -> None:
    """Look a table over: what is wrong, what was left behind, what may become wrong.

    Nothing is changed. The worst comes first.
    """
    table = bl.Table(path, storage_options=storage_options)
    with output.progress("looking the table over"):
        found = table.doctor(
            check_keys=check_keys, check_files=check_files, min_age_seconds=min_age_seconds
        )
    output.facts({"findings": [_finding(one) for one in found]})


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake repair orders
    bucketlake repair orders --check-keys --run
    """,
)
@table_path
@_checks
@run_option
def repair(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    check_keys: bool,
    check_files: bool,
    min_age_seconds: int,
    run: bool,
) -> None:
    """Repair what "bucketlake doctor" finds, as far as no committed row is lost by it.

    No data file is deleted: those of no commit are moved to quarantine.
    """
    table = bl.Table(path, storage_options=storage_options)
    with output.progress("repairing" if run else "looking the table over"):
        report = table.repair(
            dry_run=not run,
            check_keys=check_keys,
            check_files=check_files,
            min_age_seconds=min_age_seconds,
        )
    output.facts(
        {
            "repaired": [_finding(one) for one in report.repaired],
            "left": [_finding(one) for one in report.left],
            "quarantine": report.quarantine,
            "commits": list(report.commits),
        }
    )


def _finding(one: Finding) -> dict[str, object]:
    return {
        "severity": one.severity,
        "kind": one.kind,
        "partition": one.partition,
        "meaning": one.meaning,
        "repair": one.repair,
        "files": list(one.files),
    }
