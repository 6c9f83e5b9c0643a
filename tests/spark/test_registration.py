"""``bl.register``: it works from PySpark 4 on, and says what to do before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_session_reads_by_format_or_learns_how_to_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = bl.create_table(
        str(tmp_path / "t"), schema=pa.schema({"id": pa.string()}), record_key="id"
    )
    table.upsert(pa.table({"id": ["a", "b"]}))
    if spark.version.startswith("3."):
        with pytest.raises(UnsupportedFeatureError, match=r"open_table\(path\)\.read\(spark\)"):
            bl.register(spark)
        assert table.read(spark).count() == 2
        return
    found = spark.newSession().read.format("bucketlake").load(table.path)  # By Spark itself.
    assert sorted(row.id for row in found.collect()) == ["a", "b"]
    bl.register(spark)
    with pytest.MonkeyPatch.context() as patch:  # Spark warns of a second registration.
        patch.setattr(type(spark.dataSource), "register", None)
        bl.register()  # In the active session.
    frame = spark.read.format("bucketlake").load(table.path)
    assert sorted(row.id for row in frame.collect()) == ["a", "b"]
