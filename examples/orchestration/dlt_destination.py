"""A destination for dlt pipelines: resources become tables of bucketlake.

    pipeline = dlt.pipeline("shop", destination=lake(folder="s3://lake"))
    pipeline.run(orders)        # @dlt.resource(primary_key="id", write_disposition="merge")

dlt extracts and normalizes, and hands over files of Parquet; a file is one write. A file that dlt
hands over again changes nothing, because rows are upserted by the primary key of the resource.
"""

from __future__ import annotations

from typing import Any

import dlt

import bucketlake as bl


@dlt.destination(
    name="bucketlake",
    loader_file_format="parquet",
    batch_size=0,  # Whole files.
    naming_convention="direct",
    skip_dlt_columns_and_tables=True,
)
def lake(file: str, table: dict[str, Any], folder: str = dlt.config.value) -> None:
    """Write a file of a load to its table."""
    name, columns = table["name"], table["columns"]
    keys = [column for column, hints in columns.items() if hints.get("primary_key")]
    partitions = [column for column, hints in columns.items() if hints.get("partition")]
    if not keys or table.get("write_disposition") == "replace":
        raise ValueError(
            f"resource {name}: give it a primary_key, and merge or append as disposition"
        )
    path, rows = f"{folder.rstrip('/')}/{name}", bl.files(file)
    try:
        bl.open_table(path).upsert(rows, merge_schema=True)
    except bl.TableNotFoundError:
        bl.create_table(path, rows, record_key=keys, partition_by=partitions)
