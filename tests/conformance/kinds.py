"""The registry of index kinds: the tests of this folder run for each entry.

To add a kind, add an entry to :data:`KINDS`. Then the tests of this folder, the Spark tests in
``tests/spark/test_kinds.py`` and the simulation (its world and its crowd) run for the kind. An
entry has

- a name for ``pytest --kind NAME``;
- an index for tables of a dozen records, with few buckets, so that the tests are fast;
- another index of the same kind; opening a table of the first index with it must raise an error;
- what is special to the kind: unsupported table types, the record key that its hash fields need,
  and the damages of its tables (``damages.py``): ``COMMON`` and more.

The tests expect of a kind:

- The kind is a frozen value with ``to_options`` and ``from_options``; the table stores it.
- ``table.buckets()`` lists the live file groups with their buckets, and ``table.locate`` finds each
  key in one of them, once.
- A read with a condition on the key reads only file groups of the key's bucket.
- Two writers of the same bucket conflict; two writers of different buckets do not.
- Every attempt of a task writes the same files with the same bytes.

No test may assume that a bucket has one file group, or that a file name contains the bucket. The
tests check rows, counts, conflicts, errors, and the table's own reports. Features of only one kind,
such as rules and rescales, are tested in a module of that kind.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import bucketlake as bl
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.index.setting import TableIndex
from tests.conformance.damages import (
    COMMON,
    DIRECTORIES,
    FOREIGN_BUCKETS,
    GLOBAL,
    INDEXED,
    KEYS_IN_TWO_GROUPS,
    RINGS,
    RULES,
    SECOND_GROUPS,
    Damage,
)

FULL_BYTES = 2_000
"""Bytes of a file group of two or three records, so that a dozen records need several groups."""

TABLE_TYPES = ("copy_on_write", "merge_on_read")

LARGE_ROWS = 20
"""Rows of a large partition in these tests, so that partitions of both sizes have few rows."""


@dataclass(frozen=True)
class Kind:
    """An index kind, and what is special to it.

    Attributes
    ----------
    name : str
        Name for ``pytest --kind``.
    index : TableIndex
        The index of the tables; two partitions, ``a`` and ``b``, hold a dozen records.
    other : TableIndex
        Another setting of the same kind.
    table_types : tuple of str
        Table types that the tests run for.
    keyed_by_partition : bool
        Whether the record key is ``id`` and the partition column, which is needed for hash fields
        that are only a part of the key; otherwise the record key is ``id``.
    damages : tuple of Damage
        Damages that apply to its tables.
    keys_are_global : bool
        Whether a key is unique in the whole table; otherwise it is unique in its partition.
    version : int
        Version of its tables.
    is_variant : bool
        Whether this is only another setting of a kind above, without damages and Spark tests.
    """

    name: str
    index: TableIndex
    other: TableIndex
    table_types: tuple[str, ...] = TABLE_TYPES
    keyed_by_partition: bool = False
    damages: tuple[Damage, ...] = ()
    keys_are_global: bool = False
    version: int = NEWEST_VERSION
    is_variant: bool = False

    @property
    def is_rescaled(self) -> bool:
        """Whether partitions may get other bucket counts by rules."""
        has_counts = isinstance(self.index, bl.SimpleBucket | bl.PartitionBucket)
        return has_counts and self.version == NEWEST_VERSION

    @property
    def is_converted(self) -> bool:
        """Whether tables of the kind may be put under dynamic buckets."""
        return not isinstance(self.index, bl.DynamicBucket) and self.version == NEWEST_VERSION

    @property
    def needs_metadata_table(self) -> bool:
        """Whether the index is a part of the metadata table."""
        return isinstance(self.index, bl.RecordIndex | bl.DynamicBucket)

    def id_in(self, partition: str, number: int) -> str:
        """Return the id of a record that never moves to another partition."""
        return f"{partition}{number}" if self.keys_are_global else f"k{number}"

    @property
    def is_cut(self) -> bool:
        """Whether several tasks may share a slot without stored rows, or the lookup of its keys.

        A global index has its shards from the start, and keys are looked up in all of them.
        """
        has_parts = self.needs_metadata_table or self.index.max_file_size is not None
        return has_parts and not self.keys_are_global

    def record_key(self, partition_column: str) -> list[str]:
        """Return the record key of a table with this partition column."""
        return ["id", partition_column] if self.keyed_by_partition else ["id"]


KINDS = (
    Kind(
        "simple",
        bl.SimpleBucket(2),
        bl.SimpleBucket(3),
        damages=(*COMMON, *FOREIGN_BUCKETS, *SECOND_GROUPS),
    ),
    Kind(
        "simple_one_bucket",
        bl.SimpleBucket(1),
        bl.SimpleBucket(2),
        table_types=("copy_on_write",),
        is_variant=True,
    ),
    Kind(
        "simple_hash_fields",
        bl.SimpleBucket(2, hash_fields=["id"]),
        bl.SimpleBucket(2),
        table_types=("merge_on_read",),
        keyed_by_partition=True,
        is_variant=True,
    ),
    Kind(
        "partition_level",
        bl.PartitionBucket({"a": 3}, default=2),
        bl.PartitionBucket({"a": 2}, default=2),
        damages=(*COMMON, *FOREIGN_BUCKETS, *SECOND_GROUPS, *RULES),
    ),
    Kind(
        "several_groups",
        bl.SimpleBucket(2, max_file_size=FULL_BYTES),
        bl.SimpleBucket(2, max_file_size=2 * FULL_BYTES),
        damages=(*COMMON, *FOREIGN_BUCKETS, *KEYS_IN_TWO_GROUPS),
    ),
    Kind(
        "partition_level_several_groups",
        bl.PartitionBucket({"a": 1}, default=2, max_file_size=FULL_BYTES),
        bl.PartitionBucket({"a": 1}, default=2),
        is_variant=True,
    ),
    Kind("consistent", bl.ConsistentBucket(2), bl.ConsistentBucket(3), damages=(*COMMON, *RINGS)),
    Kind(
        "extendible",
        bl.ExtendibleBucket(2, max_depth=5),
        bl.ExtendibleBucket(3),
        damages=(*COMMON, *DIRECTORIES),
    ),
    Kind(
        "record_index",
        bl.RecordIndex(max_file_size=FULL_BYTES),
        bl.RecordIndex(partitioned=False),
        damages=(*COMMON, *INDEXED),
    ),
    Kind(
        "global_record_index",
        bl.RecordIndex(partitioned=False, max_file_size=FULL_BYTES),
        bl.RecordIndex(),
        keys_are_global=True,
        damages=(*COMMON, *GLOBAL),
    ),
    Kind(
        "dynamic",
        bl.DynamicBucket(max_records=2, assigners=2),
        bl.DynamicBucket(assigners=3),
        damages=(*COMMON, *INDEXED),
    ),
    Kind(
        "dynamic_by_size",
        bl.DynamicBucket(max_file_size=FULL_BYTES, assigners=1),
        bl.DynamicBucket(assigners=2),
        is_variant=True,
    ),
    Kind(
        "dynamic_by_rows",
        bl.DynamicBucket(max_records=2),
        bl.DynamicBucket(assigners=2),
        is_variant=True,
    ),
    Kind(
        "consistent_hash_fields",
        bl.ConsistentBucket(2, hash_fields=["id"]),
        bl.ConsistentBucket(2),
        keyed_by_partition=True,
        is_variant=True,
    ),
    Kind(
        "extendible_hash_fields",
        bl.ExtendibleBucket(2, hash_fields=["id"]),
        bl.ExtendibleBucket(2),
        keyed_by_partition=True,
        is_variant=True,
    ),
    Kind(
        "simple_6",
        bl.SimpleBucket(2),
        bl.SimpleBucket(3),
        version=6,
        is_variant=True,
    ),
    Kind(
        "consistent_6",
        bl.ConsistentBucket(2),
        bl.ConsistentBucket(3),
        version=6,
        is_variant=True,
    ),
    Kind(
        "global_record_index_6",
        bl.RecordIndex(partitioned=False, max_file_size=FULL_BYTES),
        bl.SimpleBucket(2),
        table_types=("merge_on_read",),
        keys_are_global=True,
        version=6,
        is_variant=True,
    ),
    Kind("simple_8", bl.SimpleBucket(2), bl.SimpleBucket(3), version=8, is_variant=True),
    Kind(
        "consistent_8", bl.ConsistentBucket(2), bl.ConsistentBucket(3), version=8, is_variant=True
    ),
    Kind(
        "global_record_index_8",
        bl.RecordIndex(partitioned=False, max_file_size=FULL_BYTES),
        bl.SimpleBucket(2),
        keys_are_global=True,
        version=8,
        is_variant=True,
    ),
)


def kinds_named(name: str | None) -> tuple[Kind, ...]:
    """Return the kind of this name, or all kinds.

    Raises
    ------
    ValueError
        If no kind has this name.
    """
    found = tuple(kind for kind in KINDS if name in (None, kind.name))
    if not found:
        known = ", ".join(kind.name for kind in KINDS)
        raise ValueError(f"there is no index kind {name!r} in tests/conformance/kinds.py: {known}")
    return found


def kind_of_seed(seed: int, name: str | None = None) -> tuple[Kind, str]:
    """Return the kind and the table type of a run of the simulation.

    Even seeds are for copy-on-write tables and odd seeds for merge-on-read tables, if the named
    kind supports the type. Without a name, the seed picks one of the kinds that support the type.
    """
    kinds, table_type = kinds_named(name), TABLE_TYPES[seed % 2]
    fitting = [kind for kind in kinds if table_type in kind.table_types]
    if not fitting:
        return kinds[0], kinds[0].table_types[0]
    return random.Random(f"kind of {seed}").choice(fitting), table_type
