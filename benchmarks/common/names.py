"""What pictures call the contenders: names that people know."""

from __future__ import annotations

NAMES = {
    "bucketlake-spark4": "bucketlake",
    "bucketlake-default": "bucketlake",
    "bucketlake-files-spark4": "bucketlake, from files",
    "bucketlake-mor-spark4": "bucketlake, merge-on-read",
    "bucketlake-simple-mor-nomdt-spark4": "bucketlake, SimpleBucket, merge-on-read",
    "bucketlake-simple": "bucketlake, SimpleBucket",
    "bucketlake-simple-spark4": "bucketlake, SimpleBucket",
    "bucketlake-simple-groups-spark4": "bucketlake, SimpleBucket of several groups",
    "bucketlake-partition-spark4": "bucketlake, PartitionBucket",
    "bucketlake-consistent-spark4": "bucketlake, ConsistentBucket",
    "bucketlake-extendible-spark4": "bucketlake, ExtendibleBucket",
    "bucketlake-record-spark4": "bucketlake, RecordIndex",
    "polars-limit": "floor: polars alone",
    "polars-hudi-limit": "floor: polars, Hudi's columns",
    "spark-limit": "floor: Spark hands rows over",
    "spark-hudi-limit": "floor: Spark, Hudi's columns",
    "delta-merge": "Delta Lake, MERGE",
    "iceberg-merge": "Iceberg, MERGE",
    "iceberg-merge-mor": "Iceberg, MERGE, merge-on-read",
    "bucketlake-arrow": "bucketlake",
    "bucketlake-arrow-simple": "bucketlake, SimpleBucket",
    "bucketlake-arrow-mor": "bucketlake, merge-on-read",
    "hudi-rli-cow": "Hudi, record-level index",
    "hudi-bucket-upsert": "Hudi, bucket index",
}


def named(*contenders: str) -> dict[str, str]:
    """Return the names of some contenders."""
    return {contender: NAMES[contender] for contender in contenders}
