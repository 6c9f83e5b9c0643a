"""Tables that are refused, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bucketlake.config.support import check_readable, check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType

SPEC = KeySpec(("id",), ("region",), KeyGenerator.SIMPLE)
COW = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.EVENT_TIME, ("ts",))
MOR = replace(COW, table_type=TableType.MERGE_ON_READ)


def test_new_table_is_read_and_written() -> None:
    check_readable(COW, "t")
    check_writable(COW, "t")


def test_merge_on_read_table_is_read_and_written() -> None:
    check_readable(MOR, "t")
    check_writable(MOR, "t")


def test_table_of_version_7_is_read_but_not_written() -> None:
    config = replace(COW, version=7, layout_version=1)
    check_readable(config, "t")
    with pytest.raises(UnsupportedFeatureError, match=r"table version 7.*upgrade"):
        check_writable(config, "t")


OLD = replace(COW, version=6, layout_version=1)


def test_table_of_version_6_is_written_also_with_a_metadata_table() -> None:
    check_writable(OLD, "t")
    check_writable(replace(OLD, table_type=TableType.MERGE_ON_READ), "t")
    check_writable(replace(OLD, metadata_partitions=("files",)), "t")


def test_table_of_version_8_is_read_and_written() -> None:
    config = replace(COW, version=8)
    check_readable(config, "t")
    check_writable(config, "t")


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"version": 10}, "table version 10"),
        ({"version": 5, "layout_version": 1}, "table version 5"),
        ({"layout_version": 3}, "timeline layout 3"),
        ({"layout_version": 1}, "timeline layout 1 under table version 9"),
        ({"version": 6}, "timeline layout 2 under table version 6"),
        ({"table_format": "iceberg"}, "table format 'iceberg'"),
        ({"base_file_format": "HFILE"}, "base file format HFILE"),
        ({"multiple_base_file_formats": True}, "a mix of base file formats"),
        ({"bootstrap_base_path": "s3://old"}, "a bootstrap from s3://old"),
        (
            {"populate_meta_fields": False, "foreign_key_generator": "USER_PROVIDED"},
            "without meta columns .* with key generator USER_PROVIDED",
        ),
        (
            {"populate_meta_fields": False, "key_spec": replace(SPEC, record_key_fields=())},
            "without meta columns .* without record key fields",
        ),
        (
            {"drop_partition_columns": True, "table_type": TableType.MERGE_ON_READ},
            "merge-on-read table whose files lack the partition columns",
        ),
        (
            {"drop_partition_columns": True, "populate_meta_fields": False},
            "without meta columns whose files lack the partition columns",
        ),
        (
            {"drop_partition_columns": True, "slash_separated_dates": True},
            "lack the partition columns, with key generator SIMPLE",
        ),
    ],
)
@pytest.mark.parametrize("check", [check_readable, check_writable])
def test_table_that_would_be_read_wrong_is_refused(
    changes: dict[str, Any], feature: str, check: Any
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"^s3://lake/trips: .*{feature}"):
        check(replace(COW, **changes), "s3://lake/trips")


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"merge_mode": MergeMode.CUSTOM, "payload_class": "a.B"}, r"custom merging \(a\.B\)"),
        ({"merge_mode": MergeMode.CUSTOM}, "custom merging"),
        ({"partial_update_mode": "KEEP_VALUES"}, "partial update mode KEEP_VALUES"),
    ],
)
def test_merging_of_its_own_keeps_merge_on_read_from_being_read_and_every_table_from_being_written(
    changes: dict[str, Any], feature: str
) -> None:
    check_readable(replace(COW, **changes), "t")  # Its base files are merged already.
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_readable(replace(MOR, **changes), "t")
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_writable(replace(COW, **changes), "t")


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"populate_meta_fields": False}, "writing a table without meta columns"),
        ({"drop_partition_columns": True}, "files lack the partition columns"),
        ({"foreign_key_generator": "USER_PROVIDED"}, "key generator USER_PROVIDED"),
        ({"slash_separated_dates": True}, "partition paths"),
        ({"ordering_groups": {"a": "b"}, "ordering_fields": ("t", "u")}, "without one ordering"),
    ],
)
def test_table_that_would_be_left_wrong_is_read_but_not_written(
    changes: dict[str, Any], feature: str
) -> None:
    config = replace(COW, **changes)
    check_readable(config, "t")
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_writable(config, "t")


def test_metadata_table_without_a_list_of_files_is_refused_with_the_way_out() -> None:
    check_writable(replace(COW, metadata_partitions=("files",)), "t")
    config = replace(COW, metadata_partitions=("column_stats",))
    check_readable(config, "t")
    with pytest.raises(UnsupportedFeatureError, match=r"\(column_stats\).*drop_metadata_table"):
        check_writable(config, "t")


def test_partition_markers_in_the_base_format_do_not_matter() -> None:
    # Whatever form a marker has, a partition is found by the beginning of its name.
    check_writable(replace(COW, partition_metafile_as_base_format=True), "t")
