"""Tables that real Hudi wrote: every record lies in the bucket, under the key and path, of ours."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import InputError
from bucketlake.format.properties import parse_properties
from bucketlake.index.bucket_hash import assign_buckets, bucket_of_file_id
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.setting import index_from_options
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import BaseFileName
from bucketlake.model.keys import record_keys
from bucketlake.model.partition_path import partition_paths
from tests.golden.objects import VIRTUAL_TABLES_FOLDER, table_names

FOLDER = Path(__file__).parent / "tables"
ARCHIVES = {path.name.removesuffix(".tar.gz"): path for path in FOLDER.rglob("*.tar.gz")}
OPTIONS = {
    name: json.loads(path.with_name(f"{name}.json").read_text(encoding="utf-8"))["options"]
    for name, path in ARCHIVES.items()
}


def _index(name: str) -> SimpleBucket | PartitionBucket | None:
    options = OPTIONS[name]
    is_fixed = options.get("hoodie.index.type") == "BUCKET"
    is_fixed &= options.get("hoodie.index.bucket.engine", "SIMPLE") == "SIMPLE"
    return index_from_options(options) if is_fixed else None


WITHOUT_KEYS = {
    *table_names(VIRTUAL_TABLES_FOLDER),  # test_virtual_keys.py looks at these.
    "cow_without_meta_fields",  # Its meta columns are null.
    # They have log files only.
    "mor_consistent",
    "mor_consistent_hashing",
    "mor_non_blocking",
    "mor_resize_pending",
    "damaged_by_update",
}
BUCKET_TABLES = sorted(name for name in ARCHIVES.keys() - WITHOUT_KEYS if _index(name) is not None)
SLASHES = "cow_plain_partitions"  # Values with a slash that no one encoded, which we refuse.


def _base_files(name: str) -> tuple[TableConfig, Iterator[tuple[str, pa.Table]]]:
    """Return a table's configuration, and its base files by path."""
    with tarfile.open(ARCHIVES[name]) as packed:
        data = {
            member.name.removeprefix(f"{name}/"): file.read()
            for member in packed
            if (file := packed.extractfile(member)) is not None
        }
    config = TableConfig.from_properties(parse_properties(data[".hoodie/hoodie.properties"]))
    files = (
        (path, pq.read_table(io.BytesIO(content)))
        for path, content in data.items()
        if path.endswith(".parquet") and not path.startswith(".hoodie/")
        if not path.rpartition("/")[2].startswith(".")
    )
    return config, files


def test_most_golden_tables_have_a_bucket_index_of_fixed_counts() -> None:
    assert len(BUCKET_TABLES) >= 25


@pytest.mark.parametrize("name", BUCKET_TABLES)
def test_records_lie_in_the_bucket_that_their_file_id_names(name: str) -> None:
    index = _index(name)
    assert index is not None
    config, files = _base_files(name)
    fields = index.hash_fields or config.key_spec.record_key_fields
    records = 0
    for path, rows in files:
        parsed = BaseFileName.from_file_name(path.rpartition("/")[2])
        assert parsed is not None, path
        count = index.count_of(path.rpartition("/")[0])
        buckets = assign_buckets(rows["_hoodie_record_key"], count, fields)
        assert set(buckets.tolist()) <= {bucket_of_file_id(parsed.file_id)}, path
        records += len(rows)
    assert records > 0


@pytest.mark.parametrize("name", sorted(ARCHIVES.keys() - WITHOUT_KEYS))
def test_keys_and_paths_made_of_the_columns_are_the_stored_ones(name: str) -> None:
    config, files = _base_files(name)
    spec = config.key_spec
    records = 0
    for path, rows in files:
        assert record_keys(rows, spec).to_pylist() == rows["_hoodie_record_key"].to_pylist(), path
        records += len(rows)
        stored = rows["_hoodie_partition_path"].to_pylist()
        if name == SLASHES and "/" in stored[0]:
            with pytest.raises(InputError, match="contains a slash"):
                partition_paths(rows, spec)
        elif not config.drop_partition_columns:
            assert partition_paths(rows, spec).to_pylist() == stored, path
    assert records > 0
