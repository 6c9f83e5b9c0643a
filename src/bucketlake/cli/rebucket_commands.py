"""Commands that change the buckets of a table: rescale, resize, convert."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import (
    Word,
    bucket_limits,
    given_of,
    index_options,
    int_option,
    path_command,
    run_option,
    table_command,
)
from bucketlake.cli.table_facts import show_service
from bucketlake.index.dynamic import MAX_FILE_SIZE_DEFAULT
from bucketlake.index.partition_rules import split_expressions
from bucketlake.index.setting import TableIndex
from bucketlake.services.resize.service import (
    MAX_BYTES_DEFAULT,
    MAX_GROUPS_DEFAULT,
    SPLIT_POLICIES,
    ResizedBuckets,
)
from bucketlake.timeline.instant import Action


@table_command
@click.option("--rules", metavar="TEXT", help="All rules: pattern,count;pattern,count ...")
@click.option("--add", metavar="TEXT", help="Rules to put before the table's rules.")
@int_option("--default", "Buckets of partitions that no rule matches; if not set: unchanged.")
@click.option("--rule", metavar="KIND", help="regex or range; if not set: unchanged.")
@run_option
def rescale_command(
    table: bl.Table, output: Output, rules: str | None, add: str | None, run: bool, **settings: Any
) -> None:
    """Change the bucket counts of partitions.

    Partitions whose count changes are rewritten, all others keep their files. Another default may
    change many partitions.

    Examples
    --------
    bucketlake rescale orders --rules 'country=(US|CN),64;country=,8' --default 1
    bucketlake rescale orders --add 'day=2026-11-2[78],32' --run
    """
    if (rules is None) == (add is None):
        raise click.UsageError("give either --rules or --add")
    held = table.index
    with output.progress("rescaling" if run else "looking at the partitions"):
        report = table.rescale(
            None if rules is None else split_expressions(rules),
            add=None if add is None else split_expressions(add),
            dry_run=not run,
            **settings,
        )
    output.outcome(
        {
            "rules": report.index.expressions,
            "default": report.index.default,
            "unused_rules": list(report.unused_rules),
            "shrunk_by_default": list(report.shrunk_by_default),
            "partitions": [asdict(change) for change in report.partitions],
            "instant": report.instant,
        },
        ran=run,
        idle=report.instant is None and not report.partitions and (run or held == report.index),
    )


@path_command
@index_options(of_new_table=False)
@int_option(
    "--max-file-size",
    "Size that a bucket should have.",
    default=MAX_FILE_SIZE_DEFAULT,
    metavar="BYTES",
)
@click.option(
    "--split-threshold",
    type=float,
    default=2.0,
    show_default=True,
    help="Split a bucket of more than this times --max-file-size.",
)
@click.option(
    "--merge-threshold",
    type=float,
    default=0.2,
    show_default=True,
    help="Merge neighbours of at most this times --max-file-size.",
)
@int_option("--split-into", "Most parts of a split.", least=2, default=2)
@click.option(
    "--split-at",
    type=Word(SPLIT_POLICIES),
    default=SPLIT_POLICIES[0],
    show_default=True,
    help="Split into equal ranges, or into equal numbers of keys.",
)
@int_option(
    "--max-bytes",
    "Most bytes to read, 0 for no limit; the largest buckets come first.",
    least=0,
    default=MAX_BYTES_DEFAULT,
)
@int_option("--max-partitions", "Most partitions.")
@int_option(
    "--max-groups", "Most splits and merges, 0 for no limit.", least=0, default=MAX_GROUPS_DEFAULT
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="PATH",
    help="Partition to look at; repeatable. If not set: all.",
)
@click.option("--plan-only", is_flag=True, help="Only plan; another process executes the plan.")
@run_option
def resize_command(
    table: bl.Table, output: Output, plan_only: bool, run: bool, **limits: Any
) -> None:
    """Split large buckets of a hash ring or a directory and merge small ones.

    Only these buckets are rewritten. Pending plans are executed first. Writers may continue
    meanwhile. A range (10..20] holds the hash values 11 to 20, a suffix 01 those that end in these
    bits. For a directory, which splits in halves, leave out --split-into and --split-at.

    Examples
    --------
    bucketlake resize orders
    bucketlake resize orders --max-file-size 64000000 --split-at balanced --run
    bucketlake resize orders --partition day=2026-11-27 --plan-only --run
    """
    with output.progress("resizing" if run else "looking at the buckets"):
        unlimited = {name: limits[name] or None for name in ("max_bytes", "max_groups")}
        limits |= unlimited | {"partitions": limits["partitions"] or None}
        report = table.resize(**limits, schedule_only=plan_only, dry_run=not run)
    buckets = [_resized(own) for own in report.buckets]
    facts = {"buckets": buckets, "left": report.left, "scheduled": report.scheduled}
    done = report.instants
    show_service(output, table, Action.CLUSTERING, facts, done, ran=run, found=buckets)


def _resized(buckets: ResizedBuckets) -> dict[str, object]:
    spans = "suffixes" if buckets.new_suffixes else "ranges"
    names = ("partition_path", "action", "size_bytes", f"old_{spans}", f"new_{spans}", "file_ids")
    return {name: getattr(buckets, name) for name in names}


@table_command
@int_option(
    "--max-file-size",
    "Let a bucket have several file groups; the next is opened at this size.",
    metavar="BYTES",
)
@click.option("--one-group", is_flag=True, help="Let each bucket have one file group again.")
@click.option(
    "--dynamic",
    is_flag=True,
    help="Put a table of any index under dynamic buckets; --max-file-size is that of a full one.",
)
@bucket_limits
@run_option
def convert_command(
    table: bl.Table,
    output: Output,
    max_file_size: int | None,
    one_group: bool,
    dynamic: bool,
    run: bool,
    **dynamic_limits: int | None,
) -> None:
    """Let buckets have several file groups, or one again; or put a table under dynamic buckets.

    With a size or --dynamic no data file is written: --dynamic builds a record-level index. With
    --one-group, partitions with buckets of several file groups are rewritten.

    Examples
    --------
    bucketlake convert orders --max-file-size 120000000 --run
    bucketlake convert orders --one-group
    bucketlake convert orders --dynamic --max-records 2000000 --run
    """
    limits = given_of(dynamic_limits)
    if dynamic and one_group:
        raise click.UsageError("give either --dynamic or --one-group")
    if limits and not dynamic:
        raise click.UsageError("--max-records and --assigners need --dynamic")
    if not dynamic and (max_file_size is None) != one_group:
        raise click.UsageError("give either --max-file-size or --one-group")
    held = table.index
    if dynamic:
        index: TableIndex = bl.DynamicBucket(max_file_size=max_file_size, **limits)
        looking, names = "the table", ("builds_index", "indexed_groups", "indexed_keys")
    elif held is None:
        raise click.UsageError("the table stores no bucket setting; write to it first")
    else:
        index = held.with_max_file_size(max_file_size)
        looking, names = "the partitions", ("partitions", "file_groups", "size_bytes")
    with output.progress("converting" if run else f"looking at {looking}"):
        report = table.convert(index, dry_run=not run)
    setting: dict[str, object] = {"max_file_size": report.index.max_file_size}
    if dynamic:
        setting = {"index": repr(report.index)}
    output.outcome(
        setting | {name: getattr(report, name) for name in (*names, "instant")},
        ran=run,
        idle=report.instant is None and not report.builds_index and held == report.index,
    )
