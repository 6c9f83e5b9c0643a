"""The command for the metadata table of a table: show it, build it, turn it off."""

from __future__ import annotations

import click

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import CommandWithExample, run_option, table_path
from bucketlake.services.metadata.rebuild import partitions_to_build


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake metadata orders
    bucketlake metadata orders --rebuild --partition column_stats --run
    bucketlake metadata orders --drop --run
    """,
)
@table_path
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
def metadata(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    rebuild: bool,
    partitions: tuple[str, ...],
    drop: bool,
    run: bool,
) -> None:
    """Show Hudi's metadata table; build it or turn it off.

    Readers take lists of files, statistics and locations of keys from it. The tenth commit since
    its last compaction compacts it.
    """
    if rebuild and drop:
        raise click.UsageError("give either --rebuild or --drop")
    if partitions and not rebuild:
        raise click.UsageError("--partition needs --rebuild")
    if run and not (rebuild or drop):
        raise click.UsageError("--run needs --rebuild or --drop")
    table = bl.open_table(path, storage_options=storage_options)
    if not rebuild and not drop:
        output.facts(_facts(table))
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
    output.outcome(_facts(table), ran=True, idle=not changed)


def _facts(table: bl.Table) -> dict[str, object]:
    found = table.metadata_table()
    return {
        "partitions": [
            {
                "name": partition.name,
                "state": "valid" if partition.is_valid else "being built",
                "file_groups": partition.file_groups,
                "base_files": partition.base_files,
                "log_files": partition.log_files,
                "size_bytes": partition.size_bytes,
            }
            for partition in found.partitions
        ],
        "commits_since_compaction": found.commits_since_compaction,
        "last_compaction": found.last_compaction,
    }
