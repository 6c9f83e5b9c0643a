"""Commands that change the buckets of a table: rescale, resize, convert."""

from __future__ import annotations

from dataclasses import asdict

import click

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import (
    CommandWithExample,
    GivenIndex,
    Word,
    bucket_limits,
    given_of,
    index_options,
    run_option,
    table_path,
)
from bucketlake.cli.table_facts import pending_of
from bucketlake.index.partition_rules import split_expressions
from bucketlake.services.resize.limits import (
    MAX_BYTES_DEFAULT,
    MAX_FILE_SIZE_DEFAULT,
    MAX_GROUPS_DEFAULT,
    SPLIT_POLICIES,
)
from bucketlake.services.resize.report import ResizedBuckets
from bucketlake.timeline.instant import Action


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake rescale orders --rules 'country=(US|CN),64;country=,8' --default 1
    bucketlake rescale orders --add 'day=2026-11-2[78],32' --run
    """,
)
@table_path
@click.option("--rules", metavar="TEXT", help="All rules: pattern,count;pattern,count ...")
@click.option("--add", metavar="TEXT", help="Rules to put before the table's rules.")
@click.option(
    "--default",
    type=click.IntRange(min=1),
    help="Buckets of partitions that no rule matches; if not set: unchanged.",
)
@click.option("--rule", metavar="KIND", help="regex or range; if not set: unchanged.")
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
    """Change the bucket counts of partitions.

    Partitions whose count changes are rewritten, all others keep their files. Another default may
    change many partitions.
    """
    if (rules is None) == (add is None):
        raise click.UsageError("give either --rules or --add")
    table = bl.open_table(path, storage_options=storage_options)
    held = table.index
    with output.progress("rescaling" if run else "looking at the partitions"):
        report = table.rescale(
            None if rules is None else split_expressions(rules),
            add=None if add is None else split_expressions(add),
            default=default,
            rule=rule,
            dry_run=not run,
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


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake resize orders
    bucketlake resize orders --max-file-size 64000000 --split-at balanced --run
    bucketlake resize orders --partition day=2026-11-27 --plan-only --run
    """,
)
@table_path
@index_options(of_new_table=False)
@click.option(
    "--max-file-size",
    type=click.IntRange(min=1),
    default=MAX_FILE_SIZE_DEFAULT,
    show_default=True,
    metavar="BYTES",
    help="Size that a bucket should have.",
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
@click.option(
    "--split-into",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Most parts of a split.",
)
@click.option(
    "--split-at",
    type=Word(SPLIT_POLICIES),
    default=SPLIT_POLICIES[0],
    show_default=True,
    help="Split into equal ranges, or into equal numbers of keys.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=MAX_BYTES_DEFAULT,
    show_default=True,
    help="Most bytes to read, 0 for no limit; the largest buckets come first.",
)
@click.option("--max-partitions", type=click.IntRange(min=1), help="Most partitions.")
@click.option(
    "--max-groups",
    type=click.IntRange(min=0),
    default=MAX_GROUPS_DEFAULT,
    show_default=True,
    help="Most splits and merges, 0 for no limit.",
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
def resize(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    index: GivenIndex | None,
    max_file_size: int,
    split_threshold: float,
    merge_threshold: float,
    split_into: int,
    split_at: str,
    max_bytes: int,
    max_partitions: int | None,
    max_groups: int,
    partitions: tuple[str, ...],
    plan_only: bool,
    run: bool,
) -> None:
    """Split large buckets of a hash ring or a directory and merge small ones.

    Only these buckets are rewritten. Pending plans are executed first. Writers may continue
    meanwhile. A range (10..20] holds the hash values 11 to 20, a suffix 01 those that end in these
    bits. For a directory, which splits in halves, leave out --split-into and --split-at.
    """
    table = bl.open_table(path, index=index, storage_options=storage_options)
    with output.progress("resizing" if run else "looking at the buckets"):
        report = table.resize(
            max_file_size=max_file_size,
            split_threshold=split_threshold,
            merge_threshold=merge_threshold,
            split_into=split_into,
            split_at=split_at,
            max_bytes=max_bytes or None,
            max_partitions=max_partitions,
            max_groups=max_groups or None,
            partitions=partitions or None,
            schedule_only=plan_only,
            dry_run=not run,
        )
    waiting = [] if run else pending_of(table, Action.CLUSTERING)
    output.outcome(
        {
            "buckets": [_resized(buckets) for buckets in report.buckets],
            "left": report.left,
            "scheduled": report.scheduled,
            "completed": list(report.instants),
            **({"pending": waiting} if waiting else {}),
        },
        ran=run,
        idle=not (report.buckets or report.instants or waiting),
    )


def _spans(buckets: ResizedBuckets) -> dict[str, object]:
    if buckets.new_suffixes:
        return {"old_suffixes": buckets.old_suffixes, "new_suffixes": buckets.new_suffixes}
    return {"old_ranges": buckets.old_ranges, "new_ranges": buckets.new_ranges}


def _resized(buckets: ResizedBuckets) -> dict[str, object]:
    return {
        "partition_path": buckets.partition_path,
        "action": buckets.action,
        "size_bytes": buckets.size_bytes,
        **_spans(buckets),
        "file_ids": buckets.file_ids,
    }


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake convert orders --max-file-size 120000000 --run
    bucketlake convert orders --one-group
    bucketlake convert orders --dynamic --max-records 2000000 --run
    """,
)
@table_path
@click.option(
    "--max-file-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Let a bucket have several file groups; the next is opened at this size.",
)
@click.option("--one-group", is_flag=True, help="Let each bucket have one file group again.")
@click.option(
    "--dynamic",
    is_flag=True,
    help="Put a table of any index under dynamic buckets; --max-file-size is that of a full one.",
)
@bucket_limits
@run_option
def convert(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    max_file_size: int | None,
    one_group: bool,
    dynamic: bool,
    max_records: int | None,
    assigners: int | None,
    run: bool,
) -> None:
    """Let buckets have several file groups, or one again; or put a table under dynamic buckets.

    With a size or --dynamic no data file is written: --dynamic builds a record-level index. With
    --one-group, partitions with buckets of several file groups are rewritten.
    """
    limits = given_of({"max_records": max_records, "assigners": assigners})
    if dynamic and one_group:
        raise click.UsageError("give either --dynamic or --one-group")
    if dynamic:
        index = bl.DynamicBucket(max_file_size=max_file_size, **limits)
        table = bl.open_table(path, storage_options=storage_options)
        held = table.index
        with output.progress("converting" if run else "looking at the table"):
            report = table.convert(index, dry_run=not run)
        output.outcome(
            {
                "index": repr(report.index),
                "builds_index": report.builds_index,
                "indexed_groups": report.indexed_groups,
                "indexed_keys": report.indexed_keys,
                "instant": report.instant,
            },
            ran=run,
            idle=report.instant is None and not report.builds_index and held == report.index,
        )
        return
    if limits:
        raise click.UsageError("--max-records and --assigners need --dynamic")
    if (max_file_size is None) != one_group:
        raise click.UsageError("give either --max-file-size or --one-group")
    table = bl.open_table(path, storage_options=storage_options)
    index_now = table.index
    if index_now is None:
        raise click.UsageError("the table stores no bucket setting; write to it first")
    with output.progress("converting" if run else "looking at the partitions"):
        report = table.convert(index_now.with_max_file_size(max_file_size), dry_run=not run)
    output.outcome(
        {
            "max_file_size": report.index.max_file_size,
            "partitions": list(report.partitions),
            "file_groups": report.file_groups,
            "size_bytes": report.size_bytes,
            "instant": report.instant,
        },
        ran=run,
        idle=report.instant is None and index_now == report.index,
    )
