"""How the location cache was used: small values that tasks return and a write adds up."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Counts of lookups through the cache; counts of several lookups are added with ``+``.

    Attributes
    ----------
    hits : int
        Shards that the cache answered as they were.
    extended : int
        Shards to which the entries of new log files were added first.
    built : int
        Shards that were read whole from the metadata table first.
    bypassed : int
        Shards that were looked up in the metadata table, without the cache.
    damaged : int
        Cached shards that could not be used because a file was damaged or missing.
    outdated : int
        Cached shards that could not be used because files that they cover are gone.
    unwritten : int
        Shards that could not be written to local disk, for example because it is full.
    key_count : int
        Keys that were looked up in all these shards.
    found_count : int
        Keys that have a file group.
    read_count : int
        Entries that the cache read from the metadata table.
    cached_bytes : int
        Size of the shards on local disk.
    resident_bytes : int
        Size of their arrays that each lookup reads.
    freed_bytes : int
        Size of other shards that were dropped.
    """

    hits: int = 0
    extended: int = 0
    built: int = 0
    bypassed: int = 0
    damaged: int = 0
    outdated: int = 0
    unwritten: int = 0
    key_count: int = 0
    found_count: int = 0
    read_count: int = 0
    cached_bytes: int = 0
    resident_bytes: int = 0
    freed_bytes: int = 0

    def __add__(self, other: CacheUse) -> CacheUse:
        names = (member.name for member in fields(self))
        return CacheUse(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def is_from_cache(self) -> bool:
        """Whether all shards were answered by the cache, perhaps after it read new log files."""
        return self.hits + self.extended > 0 and self.built + self.bypassed == 0
