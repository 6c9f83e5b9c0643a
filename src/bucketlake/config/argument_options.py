"""Errors in the words of a Hudi job: the options that stand for the arguments that a hint names.

The parts of bucketlake that check a table and its records do not know whether a caller passed
arguments or options. ``save`` adds the options to what they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import DELETE_FIELD
from bucketlake.errors import ConfigError, IndexStateError, InputError, UnsupportedFeatureError

_WRITE = "hoodie.datasource.write."
OPTION_OF_ARGUMENT = {
    "record_key": f"{_WRITE}recordkey.field",
    "partition_by": f"{_WRITE}partitionpath.field",
    "ordering": keys.ORDERING_FIELDS,
    "delete_marker": DELETE_FIELD,
    "table_type": f"{_WRITE}table.type",
    "name": keys.NAME,
    "hive_style": keys.HIVE_STYLE,
    "url_encode": keys.URL_ENCODE,
    "metadata_table": "hoodie.metadata.enable",
    "cdc": keys.CDC_MODE,
    "version": keys.WRITE_VERSION,
    "hash_fields": "hoodie.bucket.index.hash.field",
    "max_file_size": "hoodie.bucket.index.ext.max.file.size",
    "timestamp_partition": f"{keys.TIMESTAMP_PREFIX}timestamp.type",
}
"""The option for each argument of ``create_table`` that a job can give."""

_FILL_MISSING = "hoodie.write.set.null.for.missing.columns=true"
_ANY_CHANGE = "mergeSchema=true"
_ADVISED = re.compile(
    rf"\b(?:(?P<argument>{'|'.join(OPTION_OF_ARGUMENT)})(?:=(?P<value>True|False)\b|(?= names ))"
    r"|merge_schema=(?P<change>'\w+'|\[[^]]*\]))"
)


@contextmanager
def naming_options() -> Iterator[None]:
    """Add the options of a job to an error that names arguments."""
    try:
        yield
    except (ConfigError, InputError, IndexStateError, UnsupportedFeatureError) as error:
        facts: list[Any] = [_with_options(fact) for fact in error.args]  # An error of them is made.
        if isinstance(error, ConfigError) and error.key in OPTION_OF_ARGUMENT:
            facts[0] = OPTION_OF_ARGUMENT[error.key]
        if tuple(facts) == error.args:
            raise
        raise type(error)(*facts).with_traceback(error.__traceback__) from error.__cause__


def _with_options(fact: Any) -> Any:
    return _ADVISED.sub(_and_option, fact) if isinstance(fact, str) else fact


def _and_option(found: re.Match[str]) -> str:
    """Return an argument and its option.

    >>> _with_options("create the table with url_encode=True")
    'create the table with url_encode=True (hoodie.datasource.write.partitionpath.urlencode=true)'
    """
    if found["argument"] is None:
        option = _FILL_MISSING if found["change"] == "'fill_missing'" else _ANY_CHANGE
    else:
        value = found["value"]
        option = OPTION_OF_ARGUMENT[found["argument"]] + (f"={value.lower()}" if value else "")
    return f"{found[0]} ({option})"
