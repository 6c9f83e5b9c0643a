"""Hudi's bucket index and Bloom index, loaded in both ways, with and without its metadata table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.hudi import SESSION, TABLE, HudiContender, bucket_index, metadata_table
from benchmarks.common.process import serve
from benchmarks.common.spark import start_session

BLOOM = {"hoodie.index.type": "BLOOM"}


def contenders(settings: Mapping[str, Any]) -> dict[str, HudiContender]:
    """Build what this process offers."""
    spark = start_session("hudi", settings, SESSION)

    def hudi(load_operation: str, index: Mapping[str, str], *, metadata: bool) -> HudiContender:
        options = {**TABLE, **index, **metadata_table(metadata)}
        return HudiContender(spark, options, load_operation)

    bucket = bucket_index(settings["buckets"])
    return {
        "hudi-bucket-upsert": hudi("upsert", bucket, metadata=True),
        "hudi-bucket-upsert-nomdt": hudi("upsert", bucket, metadata=False),
        "hudi-bucket-bulk_insert": hudi("bulk_insert", bucket, metadata=True),
        "hudi-bucket-bulk_insert-nomdt": hudi("bulk_insert", bucket, metadata=False),
        "hudi-bloom": hudi("upsert", BLOOM, metadata=True),
    }


if __name__ == "__main__":
    serve(contenders)
