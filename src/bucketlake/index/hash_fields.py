"""Hash fields, and options of Hudi jobs: what the kinds of Hudi's ``BUCKET`` index share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketlake.config.entries import is_number
from bucketlake.config.record_options import INDEX_TYPE
from bucketlake.config.resize_options import ENGINE_OPTION
from bucketlake.errors import ConfigError
from bucketlake.model.arguments import names_of
from bucketlake.model.names import Names, did_you_mean

COUNT_OPTION = "hoodie.bucket.index.num.buckets"
_HASH_FIELD_OPTION = "hoodie.bucket.index.hash.field"


def checked_fields(hash_fields: Names) -> tuple[str, ...] | None:
    """Return hash fields as a tuple, None if there are none; raise ConfigError for bad names."""
    names = names_of(hash_fields, "hash_fields")
    for name in names:
        if not name or "," in name or names.count(name) > 1:
            raise ConfigError(
                "hash_fields", names, "name each field once; a name is not empty and has no comma"
            )
    return names or None


def check_hash_fields(hash_fields: Sequence[str] | None, record_key_fields: Sequence[str]) -> None:
    """Raise ConfigError for a hash field that is not among ``record_key_fields``."""
    for name in hash_fields or ():
        if name not in record_key_fields:
            raise ConfigError(
                "hash_fields",
                tuple(hash_fields or ()),
                f"{name!r} is not a field of the record key, which is "
                f"{', '.join(map(repr, record_key_fields))}{did_you_mean(name, record_key_fields)}",
            )


def hash_field_options(hash_fields: Sequence[str] | None) -> dict[str, str]:
    """Return the option that names the hash fields; none if all key fields are hashed."""
    return {_HASH_FIELD_OPTION: ",".join(hash_fields)} if hash_fields else {}


def hash_fields_from_options(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the hash fields that options name; Hudi does not trim names, so they are kept."""
    text = options.get(_HASH_FIELD_OPTION, "")
    return tuple(text.split(",")) if text else None


def require_engine(options: Mapping[str, str], engine: str, kind: str) -> None:
    """Raise ConfigError if options name another index type or engine."""
    _require(options, INDEX_TYPE, "BUCKET", "", kind)
    _require(options, ENGINE_OPTION, engine, "SIMPLE", kind)


def count_option(options: Mapping[str, str], key: str, default: int | None = None) -> int:
    """Return a number of buckets; raise ConfigError if it is missing, or not a number."""
    text = options.get(key, "").strip()
    if not text and default is not None:
        return default
    if not is_number(text):
        raise ConfigError(key, options.get(key, "")[:80], "give the number of buckets")
    return int(text)


def _require(options: Mapping[str, str], key: str, value: str, default: str, kind: str) -> None:
    if options.get(key, default).strip().upper() != value:
        raise ConfigError(key, options.get(key), f"a {kind} index needs {value}")
