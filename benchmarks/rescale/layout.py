"""Whether a table's rows lie in the buckets that its new counts ask for.

Counted in the files themselves, whoever wrote them: the live file groups of each partition, the
record keys in each file, and the bucket of each key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

import bucketlake as bl
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.buckets import Bucket


def layout_errors(path: Path, counts: Mapping[str, int]) -> list[str]:
    """Say what is wrong with a table's layout.

    Parameters
    ----------
    path : Path
        The table.
    counts : mapping of str to int
        The bucket count that each partition must have.

    Returns
    -------
    list of str
        Nothing where each partition has exactly its buckets, by the rules and in the files, and
        each row is in its own.
    """
    table = bl.open_table(str(path))
    index = table.index
    held: dict[str, list[Bucket]] = defaultdict(list)
    for bucket in table.buckets():
        held[bucket.partition_path].append(bucket)
    errors = []
    if set(held) != set(counts):
        errors.append(f"partitions {sorted(held)}, expected {sorted(counts)}")
    for partition, count in counts.items():
        ruled = index.count_of(partition) if index is not None else None
        if ruled != count:
            errors.append(f"the rules give {partition} {ruled} buckets, expected {count}")
        found = sorted(str(bucket.bucket_id) for bucket in held[partition])
        if found != sorted(map(str, range(count))):
            errors.append(f"{partition} has the buckets {', '.join(found)}, expected {count}")
        errors += _strayed(path, held[partition], count)
    return errors


def _strayed(path: Path, buckets: list[Bucket], count: int) -> Iterator[str]:
    """Find the files with rows of other buckets."""
    for bucket in buckets:
        assert bucket.path is not None
        keys = pq.ParquetFile(path / bucket.path).read([RECORD_KEY])[RECORD_KEY]
        strayed = sum(
            pc.sum(pc.not_equal(assign_buckets(chunk, count), bucket.bucket_id)).as_py() or 0
            for chunk in keys.chunks
        )
        if strayed:
            yield f"{bucket.path} holds {strayed} rows of other buckets"
