"""A table whose files contradict the index is refused, whoever brought them there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import BucketLakeError, IndexStateError

ROWS = pa.table({"id": [f"k{i}" for i in range(40)], "v": pa.array(range(40), pa.int64())})


def table_of_two_buckets(path: Path) -> bl.Table:
    table = bl.create_table(
        str(path), schema=ROWS.schema, record_key=["id"], index=bl.SimpleBucket(2)
    )
    table.upsert(ROWS)
    return table


def forget_setting(path: Path) -> None:
    (path / EXTENSION_FOLDER / "index.json").unlink()


@pytest.mark.parametrize("count", [1, 3, 4])
def test_table_without_setting_refuses_a_wrong_bucket_count(tmp_path: Path, count: int) -> None:
    table_of_two_buckets(tmp_path / "t")
    forget_setting(tmp_path / "t")
    table = bl.open_table(str(tmp_path / "t"), index=bl.SimpleBucket(count))
    before = table.to_arrow()
    with pytest.raises(IndexStateError):
        table.upsert(ROWS)
    assert bl.open_table(str(tmp_path / "t")).to_arrow().equals(before)


def test_table_without_setting_adopts_the_right_bucket_count(tmp_path: Path) -> None:
    table_of_two_buckets(tmp_path / "t")
    forget_setting(tmp_path / "t")
    bl.open_table(str(tmp_path / "t"), index=bl.SimpleBucket(2)).upsert(ROWS)
    table = bl.open_table(str(tmp_path / "t"))
    assert table.index == bl.SimpleBucket(2)
    assert table.to_arrow().num_rows == ROWS.num_rows


def test_foreign_file_with_keys_of_another_bucket_is_refused_at_its_merge(tmp_path: Path) -> None:
    table = table_of_two_buckets(tmp_path / "t")
    first, second = (tmp_path / "t" / b.path for b in table.buckets())
    # As a writer with another bucket count would leave it, and without the footer of our files.
    pq.write_table(pq.read_table(second).replace_schema_metadata(None), first)
    with pytest.raises(IndexStateError, match="belongs to bucket 1"):
        table.upsert(ROWS)
    with pytest.raises(BucketLakeError):
        table.delete(ROWS.select(["id"]))
