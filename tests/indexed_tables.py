"""Tables of bucketlake that get a metadata table with a record-level index."""

from __future__ import annotations

from collections import defaultdict

from bucketlake.config.table_keys import METADATA_PARTITIONS
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.creation import (
    complete_initialisation,
    create_metadata_table,
    delete_metadata_table,
    initial_instant,
    initialise_partitions,
    usual_file_groups,
)
from bucketlake.metadata.file_listing import entries_of_table
from bucketlake.metadata.metadata_table import inner_table, open_metadata_table
from bucketlake.metadata.record_index.definition_file import update_index_definitions
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.shards import ShardLimits
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.metadata.index_builder import build_index, plan_index
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import table_clock
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.storages import set_properties

FILES, RECORD_INDEX = MetadataPartition.FILES, MetadataPartition.RECORD_INDEX

ROWS_OF_LARGE = "bucketlake.metadata.record_index.shards.ROWS_OF_LARGE"
"""What tests set lower, so that few rows make a large partition."""


def add_record_index(
    storage: Storage, *, is_partitioned: bool, shards: int = 1, engine: Engine = HERE
) -> None:
    """Build a metadata table with the partitions ``files`` and ``record_index`` anew."""
    set_properties(storage, {METADATA_PARTITIONS: ""})
    delete_metadata_table(storage)
    config = read_table_config(storage)
    snapshot = load_snapshot(opened_table(storage, config))
    clock = table_clock(storage.root, config.timeline_timezone)
    completed_at = clock.next_instant(snapshot.timeline)
    create_metadata_table(opened_table(storage, config))
    files: dict[str, dict[str, int]] = defaultdict(dict)
    for file in snapshot.listed(None).files:
        files[file.partition_path][file.name.to_file_name()] = file.size_bytes
    groups = dict.fromkeys(usual_file_groups(FILES), entries_of_table(files))
    initialise_partitions(
        opened_table(storage, config),
        {FILES: groups},
        instant=initial_instant(0),
        completed_at=completed_at,
    )
    table, instant = inner_table(opened_table(storage, config)), initial_instant(1)
    limits = ShardLimits(shards, shards)
    plan = plan_index(snapshot, table, instant, is_partitioned=is_partitioned, limits=limits)
    stats = build_index(snapshot, table, plan, engine)
    complete_initialisation(table, [RECORD_INDEX], stats, instant, completed_at)
    definition = IndexDefinition.of_record_index(is_partitioned=is_partitioned)
    update_index_definitions(opened_table(storage, config), [definition])
    set_properties(storage, {METADATA_PARTITIONS: f"{FILES},{RECORD_INDEX}"})


def shards_of(path: str) -> dict[str, int]:
    """Return the number of shards of each data partition of a table."""
    opened = opened_table(storage := open_storage(path), read_table_config(storage))
    reader = RecordIndexReader(open_metadata_table(opened, load_timeline(opened)))
    return dict(reader.shards.counts)
