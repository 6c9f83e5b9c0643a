"""The index setting of a table: stored in the extension folder, checked against what is asked.

Hudi stores no bucket setting in a table, so every writer has to be told it again, and a wrong count
silently puts a key into a second file group. The first write of bucketlake stores the setting;
later ones read it, and refuse another one.
"""

from __future__ import annotations

import json

from bucketlake.config.layout import EXTENSION_FOLDER, HOODIE_FOLDER
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    FormatError,
    IndexStateError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.index.simple import SimpleBucket
from bucketlake.storage.base import Storage

SETTINGS_FILE = f"{EXTENSION_FOLDER}/engine.json"

_OTHER_KINDS = {
    f"{HOODIE_FOLDER}/.bucket_index/partition_bucket_index_meta/configs": "partition-level bucket",
    f"{HOODIE_FOLDER}/.bucket_index/consistent_hashing_metadata": "consistent hashing bucket",
}


def read_index(storage: Storage) -> SimpleBucket | None:
    """Return the stored setting; None where no write of bucketlake has stored one."""
    try:
        data = storage.read(SETTINGS_FILE)
    except ObjectNotFoundError:
        return None
    try:
        stored = json.loads(data)
        engine, version = stored["engine"], stored["version"]
        index = SimpleBucket(stored["bucketCount"], tuple(stored["hashFields"]) or None)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            SETTINGS_FILE,
            "a JSON object with engine, version, bucketCount and hashFields",
            f"{data[:80]!r} ({error!r})",
        ) from None
    if (engine, version) != ("SIMPLE", 1):
        raise UnsupportedFeatureError(
            f"bucket index engine {engine!r} of version {version}",
            storage.root,
            "use a newer bucketlake",
        )
    return index


def store_index(storage: Storage, index: SimpleBucket) -> None:
    """Store the setting of a table that has none; IndexStateError where another one is stored."""
    data = json.dumps(
        {
            "engine": "SIMPLE",
            "version": 1,
            "bucketCount": index.count,
            "hashFields": list(index.hash_fields or ()),
        },
        indent=2,
    ).encode()
    try:
        storage.put_if_absent(SETTINGS_FILE, data)
    except AlreadyExistsError:
        resolve_index(storage, index)


def resolve_index(storage: Storage, given: SimpleBucket | None) -> SimpleBucket | None:
    """Return the index that the table is under, checking what the caller says it is.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    given : SimpleBucket or None
        What the caller says; None asks the table alone.

    Returns
    -------
    SimpleBucket or None
        None where the table stores no setting and the caller gave none.
    """
    stored = read_index(storage)
    if stored is not None and given is not None and stored != given:
        raise IndexStateError(
            f"index={given!r} was asked for",
            f"{storage.root} holds {stored!r}",
            "open the table without index=, or write its rows to a new table",
        )
    return stored or given


def require_index(storage: Storage, index: SimpleBucket | None) -> SimpleBucket:
    """Return the index that a write uses; refuse a table whose index is unknown or another."""
    for folder, kind in _OTHER_KINDS.items():
        if next(iter(storage.list(folder)), None) is not None:
            raise UnsupportedFeatureError(
                f"writing to a table with a {kind} index", storage.root, "write to it with Hudi"
            )
    if index is None:
        raise ConfigError(
            "index",
            None,
            "the table stores no bucket setting; open it with "
            "open_table(path, index=SimpleBucket(count)) and the count of its Hudi writers "
            "(hoodie.bucket.index.num.buckets)",
        )
    return index
