"""The options of the location cache: environment variables of the process that writes.

The driver reads them, and the tasks of a write get the cache as a value. So executors need no
variables of their own, on Spark Connect neither. See ``docs/how-to/dynamic-buckets.md``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bucketlake.errors import ConfigError
from bucketlake.metadata.location_cache.cache import BYTES_MAX, LocationCache
from bucketlake.metadata.location_cache.eviction import EvictionPolicy
from bucketlake.metadata.location_cache.root_folder import UnsafeFolderError, require_own

FOLDER: Final = "BUCKETLAKE_CACHE_FOLDER"
"""Folder on each host; created if it is missing."""

BYTES: Final = "BUCKETLAKE_CACHE_BYTES"
"""Size of the cache on each host; 0 for none."""

EVICTION: Final = "BUCKETLAKE_CACHE_EVICTION"
"""Which shards are dropped: ``lru`` or ``checkpoint``."""


def chosen_cache() -> LocationCache | None:
    """Return the cache as the variables say; None if it is turned off.

    Raises
    ------
    ConfigError
        If a variable has a value that cannot be used.
    """
    folder, bytes_max, policy = _folder(), _bytes_max(), _policy()
    return LocationCache(folder, bytes_max, policy) if bytes_max else None


def _folder() -> str | None:
    text = os.environ.get(FOLDER, "")
    if not text:
        return None
    path = Path(text)
    if not path.is_absolute():
        raise ConfigError(FOLDER, text, "give an absolute path: tasks run in other folders")
    try:
        require_own(path)
    except FileNotFoundError:  # Tasks create it on their hosts.
        return text
    except (UnsafeFolderError, OSError) as error:
        allowed = f"{error}; give a folder that you own and that nobody else can write to"
        raise ConfigError(FOLDER, text, allowed) from error
    return text


def _bytes_max() -> int:
    text = os.environ.get(BYTES, "")
    if not text:
        return BYTES_MAX
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(BYTES, text, "give a number of bytes, such as 4294967296; 0 for no cache")
    return int(text)


def _policy() -> EvictionPolicy:
    text = os.environ.get(EVICTION, "")
    if not text:
        return EvictionPolicy.LRU
    try:
        return EvictionPolicy(text)
    except ValueError:
        allowed = " or ".join(policy.value for policy in EvictionPolicy)
        raise ConfigError(EVICTION, text, f"give {allowed}") from None
