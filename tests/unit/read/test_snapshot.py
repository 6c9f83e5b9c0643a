"""Pinning a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.open_table import opened_table
from tests.pinned import snapshot_as_of
from tests.storages import memory_of

SPEC = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
CONFIG = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)
FIRST, SECOND = "20240101000000001", "20240101000000003"
SCHEMA = '{"type":"record","name":"trips_record","fields":[{"name":"id","type":"string"}]}'


def test_meta_columns_in_the_schema_of_a_commit_are_no_columns_of_the_table() -> None:
    """Hudi 0.15 lists them where it deletes partitions."""
    listed = SCHEMA.replace("[{", '[{"name":"_hoodie_commit_time","type":["null","string"]},{')
    commit = encode_commit_metadata(CommitMetadata("DELETE_PARTITION", {}, {"schema": listed}))
    storage = memory_of({f".hoodie/timeline/{FIRST}_{SECOND}.replacecommit": commit})
    assert load_snapshot(opened_table(storage, CONFIG)).schema.names == ["id"]


def test_table_whose_columns_may_have_other_names_in_its_files_is_refused() -> None:
    """Before that commit the table is read as ever."""
    plain = CommitMetadata("UPSERT", {}, {"schema": SCHEMA})
    evolved = replace(plain, extra={"schema": SCHEMA, "latest_schema": '{"max_column_id":6}'})
    storage = memory_of(
        {
            f".hoodie/timeline/{instant}_{int(instant) + 1}.commit": encode_commit_metadata(
                metadata
            )
            for instant, metadata in ((FIRST, plain), (SECOND, evolved))
        }
    )
    with pytest.raises(UnsupportedFeatureError, match="schema evolution on read"):
        load_snapshot(opened_table(storage, CONFIG))
    assert snapshot_as_of(opened_table(storage, CONFIG), FIRST).schema.names == ["id"]
