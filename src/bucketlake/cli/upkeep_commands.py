"""Commands that keep a table and its metadata table up, and change its version."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import bucketlake as bl
from bucketlake.cli.output import Output, in_command_words
from bucketlake.cli.shared_options import (
    int_option,
    pairs_option,
    run_option,
    table_command,
)
from bucketlake.cli.table_facts import show_service
from bucketlake.config.table_config import UPKEEP_MODES
from bucketlake.config.table_version import DROPPABLE, NEWEST_VERSION, WRITTEN_VERSIONS
from bucketlake.model.result import facts_of
from bucketlake.timeline.instant import Action


@table_command
@click.option("--set", "mode", type=click.Choice(UPKEEP_MODES), help="What to store.")
@click.option("--keep-deletes", "span", metavar="TIME", help="How long: '7 days', '12 hours', 0.")
def upkeep_command(table: bl.Table, output: Output, mode: str | None, span: str | None) -> None:
    """Tell or set whether writes compact, resize, clean and archive the table when it is due.

    Also how long deletes with an ordering value are remembered, so that late rows stay out.

    Examples
    --------
    bucketlake upkeep orders
    bucketlake upkeep orders --set auto
    bucketlake upkeep orders --keep-deletes "3 days"
    """
    if mode is not None:
        table.set_upkeep(mode)
    if span is not None:
        table.set_keep_deletes(span)
    config = table.config()
    output.facts({"upkeep": config.upkeep, "keep_deletes": config.kept_deletes})


@table_command
@int_option(
    "--min-log-files", "Compact only file groups with at least this many log files.", default=1
)
@int_option("--max-bytes", "Most bytes to read.")
@click.option("--schedule-only", is_flag=True, help="Only plan; another process executes the plan.")
@run_option
def compact_command(table: bl.Table, output: Output, run: bool, **limits: Any) -> None:
    """Merge log files of a merge-on-read table into base files.

    Pending plans are executed first. Writers may continue meanwhile.

    Examples
    --------
    bucketlake compact orders
    bucketlake compact orders --min-log-files 4 --max-bytes 10000000000 --run
    """
    with output.progress("compacting" if run else "looking at the log files"):
        report = table.compact(**limits, dry_run=not run)
    slices = [asdict(file_slice) for file_slice in report.slices]
    facts = {"slices": slices, "scheduled": report.scheduled}
    done = report.instants
    show_service(output, table, Action.COMPACTION, facts, done, ran=run, found=slices)


@table_command
@int_option("--keep-min", "Number of commits that stay on the active timeline.", default=20)
@int_option("--keep-max", "Number of commits up to which nothing is archived.", least=2, default=30)
@run_option
def archive_command(table: bl.Table, output: Output, run: bool, **kept: Any) -> None:
    """Move old instants from the active timeline to the archive.

    No row changes. Instants that a reader or writer may still need stay; the output gives the
    reason.

    Examples
    --------
    bucketlake archive orders
    bucketlake archive orders --keep-min 50 --keep-max 100 --run
    """
    with output.progress("archiving" if run else "looking at the timeline"):
        report = table.archive(**kept, dry_run=not run)
    output.outcome(
        {
            "instants": [instant.facts() for instant in report.instants],
            "held_back": report.held_back,
        },
        ran=run,
        idle=not report.instants,
    )


@table_command
@int_option("--retain-commits", "Newest commits that stay; if not set: 10.")
@int_option("--retain-hours", "Instead: keep everything that was readable in the last N hours.")
@int_option("--retain-versions", "Instead: keep N versions of each file group.")
@run_option
def clean_command(table: bl.Table, output: Output, run: bool, **retained: Any) -> None:
    """Delete old versions of files; without --run only show which.

    In Python, table.clean() deletes, and dry_run=True shows. "read --as-of" can read retained
    commits and savepoints. Pending cleans are executed first. Writers may continue meanwhile.

    Examples
    --------
    bucketlake clean orders
    bucketlake clean orders --retain-hours 48 --run
    """
    with output.progress("cleaning" if run else "looking at the files"):
        report = table.clean(**retained, dry_run=not run)
    partitions, held_back = [asdict(own) for own in report.partitions], report.held_back
    facts: dict[str, object] = {"partitions": partitions}
    facts["earliest_retained"] = report.earliest_retained
    if held_back is not None:
        facts["held_back"] = in_command_words(held_back)
    show_service(output, table, Action.CLEAN, facts, report.instants, ran=run, found=partitions)


@table_command
@click.argument("catalog", metavar="CATALOG")
@click.option("--name", metavar="DATABASE.TABLE", help="Name there; if not set: the table's own.")
@pairs_option(
    *("--set", "options"),
    help_text="Option of Hudi's sync; hoodie.datasource.hive_sync. may be left out. Repeatable.",
    metavar="OPTION=VALUE",
)
@click.option("--replace", is_flag=True, help="Replace an entry of another folder, keys or types.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def sync_command(table: bl.Table, output: Output, options: dict[str, str], **told: Any) -> None:
    """Register the table in a catalog, or bring its entry up to date.

    CATALOG is thrift://host:9083 (Hive Metastore), glue or glue://region. Only differences are
    sent; a sync that was killed is completed by the next one.

    Examples
    --------
    bucketlake sync orders thrift://metastore:9083 --name sales.orders
    bucketlake sync orders glue://eu-west-1 --set support_timestamp=true --dry-run
    """
    from bucketlake.catalogs.settings import SYNC_PREFIX

    given = {key if "." in key else f"{SYNC_PREFIX}{key}": value for key, value in options.items()}
    with output.progress("comparing with the catalog"):
        result = bl.sync(table, options=given, **told)
    output.facts(facts_of(result))


# ---- The commands that change the version of a table: upgrade, downgrade -------------------------


@table_command
@click.option("--rebuild", is_flag=True, help="Build partitions, also anew; writers may continue.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="NAME",
    help="Partition to build: files, column_stats, partition_stats or record_index; repeatable. "
    "If not set: those that the table has, or all but the last if it has none.",
)
@click.option("--drop", is_flag=True, help="Turn the metadata table off, and delete it.")
@run_option
def metadata_command(
    table: bl.Table,
    output: Output,
    rebuild: bool,
    partitions: tuple[str, ...],
    drop: bool,
    run: bool,
) -> None:
    """Show Hudi's metadata table; build it or turn it off.

    Readers take lists of files, statistics and locations of keys from it. The tenth commit since
    its last compaction compacts it.

    Examples
    --------
    bucketlake metadata orders
    bucketlake metadata orders --rebuild --partition column_stats --run
    bucketlake metadata orders --drop --run
    """
    from bucketlake.services.metadata.rebuild import partitions_to_build

    if rebuild and drop:
        raise click.UsageError("give either --rebuild or --drop")
    if partitions and not rebuild:
        raise click.UsageError("--partition needs --rebuild")
    if run and not (rebuild or drop):
        raise click.UsageError("--run needs --rebuild or --drop")
    if not rebuild and not drop:
        output.facts(_metadata_facts(table))
        return
    config = table.config()
    built = partitions_to_build(config, partitions) if rebuild else ()
    changed = [*built] if rebuild else sorted(config.written_metadata_partitions)
    if not run:
        output.outcome(
            {"would_build" if rebuild else "would_drop": changed}, ran=False, idle=not changed
        )
        return
    if rebuild:
        with output.progress("building the metadata table"):
            table.rebuild_metadata_table(partitions)
    else:
        table.drop_metadata_table()
    output.outcome(_metadata_facts(table), ran=True, idle=not changed)


def _metadata_facts(table: bl.Table) -> dict[str, object]:
    facts = asdict(table.metadata_table())
    facts["partitions"] = [
        {"name": held.pop("name"), "state": "valid" if held.pop("is_valid") else "being built"}
        | held
        for held in facts["partitions"]
    ]
    return facts


_VERSIONS = click.Choice(WRITTEN_VERSIONS)


@table_command
@click.option(
    "--to", type=_VERSIONS, default=NEWEST_VERSION, show_default=True, help="Table version."
)
@run_option
def upgrade_command(table: bl.Table, output: Output, to: int, run: bool) -> None:
    """Put a table into a newer table version, in place.

    No data file is written. The metadata table is built anew; from version 6 on, the timeline is
    written in the newer layout.

    Examples
    --------
    bucketlake upgrade orders
    bucketlake upgrade orders --to 9 --run
    """
    with output.progress("upgrading" if run else "looking at the table"):
        report = table.upgrade(to=to, dry_run=not run)
    output.outcome(asdict(report), ran=run, idle=report.version == report.version_before)


@table_command
@click.option("--to", type=_VERSIONS, required=True, help="Table version.")
@click.option(
    "--drop",
    type=click.Choice(DROPPABLE),
    multiple=True,
    help="What may be lost: the times at which commits completed, if that changes their order.",
)
@run_option
def downgrade_command(table: bl.Table, output: Output, run: bool, **target: Any) -> None:
    """Put a table into an older table version, in place, so that older releases of Hudi read it.

    The metadata table is built anew. Log files are compacted before a
    downgrade to version 6. What the version lacks is an error.

    Examples
    --------
    bucketlake downgrade orders --to 8
    bucketlake downgrade orders --to 6 --run
    """
    with output.progress("downgrading" if run else "looking at the table"):
        report = table.downgrade(**target, dry_run=not run)
    output.outcome(asdict(report), ran=run, idle=report.version == report.version_before)


# ---- The commands that undo commits and keep a way back: rollback, savepoint, restore ------------


@table_command
@click.argument("instant")
@click.option("--cascade", is_flag=True, help="Also roll back later commits that build on it.")
@run_option
def rollback_command(table: bl.Table, output: Output, run: bool, **what: Any) -> None:
    """Roll a commit back: remove its files, its rules and the commit itself.

    INSTANT is the time of a commit, as "bucketlake timeline" shows it. To undo a rescale without
    losing later commits that build on it, rescale again to the earlier rules.

    Examples
    --------
    bucketlake rollback orders 20261122101530123
    bucketlake rollback orders 20261122101530123 --cascade --run
    """
    with output.progress("rolling back" if run else "looking at the commits"):
        report = table.rollback(**what, dry_run=not run)
    output.outcome(
        {
            "commits": [asdict(commit) for commit in report.commits],
            "rollbacks": list(report.instants),
        },
        ran=run,
        idle=not report.commits,
    )


@table_command
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


@table_command
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
