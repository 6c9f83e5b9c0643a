"""Which fields of a record key are hashed, and how a job of Hudi names them.

Hudi hashes the values of the hash fields, which are all key fields by default, and finds them in a
key by their names. So a comma and a colon in a value may end it, or open a field of another name.

Hudi 1 takes a key without a comma, or without a colon, as it is. Hudi 0.14 and 0.15, which write
tables of version 6, split it, too (:class:`~bucketlake.hashing.index_key.SplitFields`), so that
most keys of one field with a colon are in bucket 1. Both write tables of version 6, and put such a
key into two buckets. So a table of version 6 has one of two rules. ``index/setting.py`` finds it:
the rule that the table stores, else the caller's. Until it is decided, a write of such keys looks
at the files (``write/key_rule_check.py``). Readers look in the buckets of both rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bucketlake.config.entries import is_number
from bucketlake.config.record_options import INDEX_TYPE
from bucketlake.config.resize_options import ENGINE_OPTION
from bucketlake.errors import ConfigError
from bucketlake.hashing.index_key import SplitFields
from bucketlake.model.arguments import names_of
from bucketlake.model.names import Names, did_you_mean

_SPLIT = "is split at ':' and ',' before it is hashed, as Hudi 0.14 and 0.15 do (split_keys=True)"
_WHOLE = "is hashed whole, as Hudi 1 does (split_keys=False)"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The rule of a table, and the other rule of its version.

    Attributes
    ----------
    names : tuple of str
        The hash fields.
    splits : bool
        Whether keys are split as by Hudi 0.14 and 0.15.
    has_other : bool
        Whether other releases of Hudi write the table by the other rule.
    is_decided : bool
        Whether the table, or the caller, states the rule; else it is what the table was probably
        written by.
    """

    names: tuple[str, ...]
    splits: bool = False
    has_other: bool = False
    is_decided: bool = True

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The hash fields, which say how keys are split."""
        return SplitFields(self.names) if self.splits else self.names

    @property
    def stated(self) -> bool | None:
        """Whether keys are split, if that is decided; None also if the table has one rule."""
        return self.splits if self.is_decided and self.has_other else None

    @property
    def other(self) -> KeyRule:
        """The other rule, of a table that has two."""
        assert self.has_other, "there are two rules"
        return replace(self, splits=not self.splits)

    @property
    def text(self) -> str:
        """The rule in words: what is done with a key."""
        return _SPLIT if self.splits else _WHOLE


# ---- Hash fields, and options of Hudi jobs -------------------------------------------------------
#
# What the kinds of Hudi's ``BUCKET`` index share.

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


def check_split_keys(split_keys: object) -> None:
    """Raise ConfigError unless the rule of a table is a bool or None."""
    if split_keys is not None and type(split_keys) is not bool:
        raise ConfigError("split_keys", split_keys, "give True, False or None")


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
