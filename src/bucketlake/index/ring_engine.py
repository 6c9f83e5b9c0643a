"""The engines whose buckets split and merge: consistent hashing and extendible hashing.

Both keep the buckets of a partition as a ring (``hashing/ring.py``), in immutable files with the
instants of resizes; ``hashing/directory.py`` says why a directory is a ring. An engine says what
differs: the hash, the first ring, the names, and how files and plans spell a ring. Layouts, plans,
copies and the publication of versions are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count

import pyarrow as pa

from bucketlake.config.paths_of_table import EXTENSION_FOLDER, HOODIE_FOLDER
from bucketlake.config.resize_options import ENGINE, EXTENDIBLE_ENGINE
from bucketlake.errors import DirectoryMetadataError, HashingMetadataError
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.format.hashing_metadata import (
    HashingMetadata,
    decode_child_buckets,
    decode_child_nodes,
    decode_directory_metadata,
    decode_hashing_metadata,
    encode_child_buckets,
    encode_child_nodes,
    encode_directory_metadata,
    encode_hashing_metadata,
)
from bucketlake.hashing.directory import Directory, first_directory, has_letter, hash_directory_keys
from bucketlake.hashing.ring import ChildNode, Ring, RingHashes, initial_ring
from bucketlake.hashing.xx_hash import hash_ring_keys
from bucketlake.model.file_name import InstantTime, derived_uuid


@dataclass(frozen=True, slots=True)
class RingEngine:
    """What differs between the engines.

    Attributes
    ----------
    name : str
        The engine in options and in the stored setting.
    command_word : str
        The engine in commands.
    folder, ending : str
        Folder of the versions of rings, and the ending of their names after the instant.
    strategy : str
        The class of Hudi that a plan names; empty in a plan on which Hudi must fail.
    splits_in_halves : bool
        Whether a bucket splits into two halves alone, by the next bit of the hash.
    ring_word, bucket_word, slot_word : str
        A ring, a bucket of it, and the same without the ring, in messages.
    error : type
        The error for a ring that is broken.
    hash_keys : callable
        Returns the places of record keys on a ring, by the hash fields.
    takes_prefix : callable
        Returns whether a drawn UUID may be the file id prefix of a bucket.
    first_ring : callable
        Returns the ring of a new partition, of its path and number of buckets.
    encode, decode : callable
        From a version of a ring to the bytes of its file, and back.
    encode_children, decode_children : callable
        From the children of a ring to their text in a plan, and back.
    """

    name: str
    command_word: str
    folder: str
    ending: str
    strategy: str
    splits_in_halves: bool
    ring_word: str
    bucket_word: str
    slot_word: str
    error: type[HashingMetadataError]
    hash_keys: Callable[[pa.Array | pa.ChunkedArray, Sequence[str]], RingHashes]
    takes_prefix: Callable[[str], bool]
    first_ring: Callable[[str, int], Ring]
    encode: Callable[[HashingMetadata], bytes]
    decode: Callable[[bytes, str], HashingMetadata]
    encode_children: Callable[[Ring, Iterable[ChildNode]], str]
    decode_children: Callable[[str, str], tuple[ChildNode, ...]]

    def __reduce__(self) -> tuple[Callable[[str], RingEngine], tuple[str]]:
        return _named, (self.name,)


CONSISTENT = RingEngine(
    name=ENGINE,
    command_word="consistent",
    folder=f"{HOODIE_FOLDER}/.bucket_index/consistent_hashing_metadata",
    ending=".hashing_meta",
    strategy="org.apache.hudi.client.clustering.run.strategy."
    "SingleSparkJobConsistentHashingExecutionStrategy",
    splits_in_halves=False,
    ring_word="hash ring",
    bucket_word="node",
    slot_word="ring node",
    error=HashingMetadataError,
    hash_keys=hash_ring_keys,
    takes_prefix=bool,
    first_ring=initial_ring,
    encode=encode_hashing_metadata,
    decode=decode_hashing_metadata,
    encode_children=lambda _, children: encode_child_nodes(children),
    decode_children=decode_child_nodes,
)

EXTENDIBLE = RingEngine(
    name=EXTENDIBLE_ENGINE,
    command_word="extendible",
    folder=f"{EXTENSION_FOLDER}/extendible",
    ending=".extendible_meta",
    strategy="",
    splits_in_halves=True,
    ring_word="directory",
    bucket_word="bucket",
    slot_word="directory bucket",
    error=DirectoryMetadataError,
    hash_keys=hash_directory_keys,
    takes_prefix=has_letter,
    first_ring=first_directory,
    encode=encode_directory_metadata,
    decode=decode_directory_metadata,
    encode_children=encode_child_buckets,
    decode_children=decode_child_buckets,
)

ENGINES = (CONSISTENT, EXTENDIBLE)

EXTENSION_KEY = "bucket.index.ext.engine"
"""Key in commits and plans; its value is the name of an engine that only bucketlake has."""


def engine_of_ring(ring: Ring) -> RingEngine:
    """Return the engine that a ring belongs to."""
    return EXTENDIBLE if isinstance(ring, Directory) else CONSISTENT


def engine_of_plan(plan: ClusteringPlan) -> RingEngine:
    """Return the engine whose rings a plan resizes."""
    return _named(plan.extra.get(EXTENSION_KEY, CONSISTENT.name))


def extension_entries(engine: RingEngine) -> dict[str, str]:
    """Return the entry in commits and plans of an engine; none for an engine of Hudi."""
    return {} if engine is CONSISTENT else {EXTENSION_KEY: engine.name}


def new_prefix(
    instant: InstantTime, partition_path: str, value: int, engine: RingEngine = CONSISTENT
) -> str:
    """Return the file id prefix of a node that an instant makes.

    Hudi draws a random one. Here it follows from the instant, the partition and the value, so that
    a repeated attempt makes the same. In a directory no prefix looks like one with a bucket number.

    Examples
    --------
    >>> new_prefix("20240101120000000", "region=eu", 1073741824)
    'd01901a2-0f00-4501-8d51-5a5bf8128919'
    """
    names = (instant, partition_path, str(value))
    tries = chain([()], ((str(number),) for number in count(1)))
    return next(filter(engine.takes_prefix, (derived_uuid(*names, *more) for more in tries)))


def _named(name: str) -> RingEngine:
    return next(engine for engine in ENGINES if engine.name == name)
