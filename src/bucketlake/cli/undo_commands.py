"""Commands that undo commits, and those that keep a way back: rollback, savepoint, restore."""

from __future__ import annotations

from dataclasses import asdict

import click

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import as_command, on_opened_table, run_option


@as_command
@on_opened_table
@click.argument("instant")
@click.option("--cascade", is_flag=True, help="Also roll back later commits that build on it.")
@run_option
def rollback_command(
    table: bl.Table, output: Output, instant: str, cascade: bool, run: bool
) -> None:
    """Roll a commit back: remove its files, its rules and the commit itself.

    INSTANT is the time of a commit, as "bucketlake timeline" shows it. To undo a rescale without
    losing later commits that build on it, rescale again to the earlier rules.

    Examples
    --------
    bucketlake rollback orders 20261122101530123
    bucketlake rollback orders 20261122101530123 --cascade --run
    """
    with output.progress("rolling back" if run else "looking at the commits"):
        report = table.rollback(instant, cascade=cascade, dry_run=not run)
    output.outcome(
        {
            "commits": [asdict(commit) for commit in report.commits],
            "rollbacks": list(report.instants),
        },
        ran=run,
        idle=not report.commits,
    )


@as_command
@on_opened_table
@click.argument("instant", required=False)
@click.option("--comment", default="", metavar="TEXT", help="Purpose of the savepoint.")
@click.option(
    "--delete", is_flag=True, help="Delete a savepoint instead; its files may be cleaned."
)
def savepoint_command(
    table: bl.Table, output: Output, instant: str | None, comment: str, delete: bool
) -> None:
    """Protect the files of a commit from cleaning, so that it can be read or restored.

    INSTANT is the time of a commit, as "bucketlake timeline" shows it; if not set: the newest
    commit.

    Examples
    --------
    bucketlake savepoint orders --comment "before the import"
    bucketlake savepoint orders 20261122101530123 --delete
    """
    if delete and instant is None:
        raise click.UsageError("--delete needs the instant of a savepoint")
    with output.progress("deleting the savepoint" if delete else "creating a savepoint"):
        if instant is not None and delete:
            table.delete_savepoint(instant)
        else:
            instant = table.savepoint(instant, comment=comment)
    output.facts({"deleted" if delete else "savepoint": instant})


@as_command
@on_opened_table
@click.argument("instant")
@run_option
def restore_command(table: bl.Table, output: Output, instant: str, run: bool) -> None:
    """Restore a table to a savepoint: undo everything that was written later.

    INSTANT is the time of the savepoint's commit, as "bucketlake timeline" shows it.

    Examples
    --------
    bucketlake restore orders 20261122101530123
    bucketlake restore orders 20261122101530123 --run
    """
    with output.progress("restoring" if run else "looking at the commits"):
        report = table.restore(instant, dry_run=not run)
    output.outcome(
        {
            "commits": [asdict(commit) for commit in report.commits],
            "plans": list(report.plans),
            "restore": report.instant,
        },
        ran=run,
        idle=not (report.commits or report.plans or report.instant),
    )
