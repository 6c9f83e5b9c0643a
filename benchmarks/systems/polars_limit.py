"""The limit: the bare merge of the same rows in one polars process.

One zstd Parquet file for each partition and bucket, read, merged by key and ordering value, and
written back; nothing else. No table format, index, commit, statistics, marker or shuffle between
processes: what is left is what any system with this layout must do. Polars uses as many threads
as the Spark contenders have cores; groups run side by side on as many.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common.rows import (
    EPOCH_MS,
    KEY,
    KEY_PREFIX,
    ORDERING,
    PAIR_MODULUS,
    PARTITION,
    DataSet,
)
from benchmarks.systems.engine_free import EngineFree
from bucketlake.model.schema import META_NAMES

INSTANT = "20260101000000000"  # Hudi's time of a commit; any will do here.


class PolarsLimit(EngineFree):
    """Merge file by file, as fast as one process can; perhaps with Hudi's five meta columns."""

    def __init__(self, settings: Mapping[str, Any], *, of_hudi: bool = False) -> None:
        self._of_hudi = of_hudi
        self._cores, self._buckets = settings["cores"], settings["buckets"]
        self._level = settings["zstd_level"]
        os.environ["POLARS_MAX_THREADS"] = str(self._cores)  # Read when polars is imported.
        super().__init__(
            threads=self._cores,
            compression=f"zstd level {self._level}",
            layout=f"one file for each partition and bucket, {self._buckets} buckets",
        )

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows."""
        self._write_groups(data.load, table)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes with the stored rows."""
        self._write_groups(data.changes, table)

    def _write_groups(self, rows: Path, table: Path) -> None:
        import polars as pl

        bucket = (pl.col(KEY).hash() % self._buckets).alias("bucket")
        incoming = pl.scan_parquet(rows / "*.parquet").with_columns(bucket).collect()
        groups = incoming.partition_by(PARTITION, "bucket", as_dict=True, maintain_order=False)

        def write(item: tuple[tuple[str, int], Any]) -> None:
            (partition, bucket_id), fresh = item
            path = table / partition / f"{bucket_id:08d}.parquet"
            merge_group(path, fresh.drop("bucket"), self._level, of_hudi=self._of_hudi)

        with ThreadPoolExecutor(self._cores) as pool:
            list(pool.map(write, groups.items()))

    def read(self, _data: DataSet, table: Path) -> dict[str, int]:
        """Sum everything up, as `rows.CHECKSUM_SQL` does."""
        import polars as pl

        digits = pl.col(KEY).str.slice(len(KEY_PREFIX)).str.replace("-", "", literal=True)
        number = digits.cast(pl.Int64)
        sums = {
            "rows": pl.len(),
            "order_id": number.sum(),
            "region": pl.col("region").str.len_chars().cast(pl.Int64).sum(),
            "customer_id": pl.col("customer_id").sum(),
            "status": pl.col("status").str.len_chars().cast(pl.Int64).sum(),
            "quantity": pl.col("quantity").cast(pl.Int64).sum(),
            "amount": (pl.col("amount") * 100).round().cast(pl.Int64).sum(),
            "note": pl.col("note").str.len_chars().cast(pl.Int64).sum(),
            "created": pl.col("created").cast(pl.Int32).cast(pl.Int64).sum(),
            "updated_at": (pl.col("updated_at") - EPOCH_MS).sum(),
            "pairing": (number % PAIR_MODULUS * pl.col("quantity")).sum(),
        }
        frame = pl.scan_parquet(table / "*/*.parquet")
        row = frame.select(**sums).collect().row(0, named=True)
        return {name: int(value) for name, value in row.items()}

    def observe(self, _step: str, table: Path) -> dict[str, Any]:
        """Return the size of the files."""
        sizes = [path.stat().st_size for path in table.glob("*/*.parquet")]
        return {"data_bytes": sum(sizes), "data_files": len(sizes)}

    def facts(self) -> dict[str, Any]:
        """Return versions and settings."""
        import polars as pl

        return {"versions": {"polars": pl.__version__}, "settings": self.settings}


def merge_group(path: Path, fresh: Any, level: int, *, of_hudi: bool = False) -> None:
    """Merge fresh rows into the file of a group, which need not exist.

    With ``of_hudi`` a file has the five meta columns that every row of a Hudi table has.
    """
    import polars as pl

    path.parent.mkdir(parents=True, exist_ok=True)
    if of_hudi:
        fresh = _with_meta(fresh, path)
    if path.exists():
        # Not mapped: the file is replaced while its columns are still in use.
        fresh = _merge(pl.read_parquet(path, memory_map=False), fresh)
    fresh.write_parquet(path, compression="zstd", compression_level=level)


def _with_meta(fresh: Any, path: Path) -> Any:
    import polars as pl

    number = pl.int_range(pl.len()).cast(pl.String)
    meta = (
        pl.lit(INSTANT),
        pl.concat_str(pl.lit(f"{INSTANT}_{path.stem}_"), number),
        pl.col(KEY),
        pl.lit(path.parent.name),
        pl.lit(path.name),
    )
    named = [value.alias(name) for name, value in zip(META_NAMES, meta, strict=True)]
    return fresh.select(*named, pl.all())


def _merge(stored: Any, fresh: Any) -> Any:
    """Stored rows and fresh ones by key; the greater ordering value stays, the fresh one on a tie.

    An inner join of the few columns that decide, then two filters: nothing wide is joined.
    """
    import polars as pl

    decided = (
        stored.lazy()
        .select(KEY, pl.col(ORDERING).alias("stored_at"))
        .join(fresh.lazy().select(KEY, ORDERING), on=KEY)
    )
    losers = decided.filter(pl.col(ORDERING) < pl.col("stored_at")).select(KEY).collect()
    winners = fresh.join(losers, on=KEY, how="anti") if len(losers) else fresh
    return pl.concat([stored.join(winners.select(KEY), on=KEY, how="anti"), winners])
