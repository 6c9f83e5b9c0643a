"""The entries of ``hoodie.properties`` that decide which of two records with one key wins.

Since table version 8 this is the merge mode. Before, it is a Java payload class and the id of a
merge strategy, which do not always agree: writers of version 6 stored the same default strategy for
every payload. So the payload has precedence there, as in Hudi.
"""

from __future__ import annotations

from bucketlake.config import table_keys as keys
from bucketlake.config.entries import Entries
from bucketlake.errors import ConfigError
from bucketlake.model.names import one_of
from bucketlake.model.table_type import MergeMode

_BY_STRATEGY = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": MergeMode.COMMIT_TIME,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": MergeMode.EVENT_TIME,
}
_PAYLOAD_PACKAGE = "org.apache.hudi.common.model."
_BY_PAYLOAD = {
    f"{_PAYLOAD_PACKAGE}OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME,
    f"{_PAYLOAD_PACKAGE}DefaultHoodieRecordPayload": MergeMode.EVENT_TIME,
    f"{_PAYLOAD_PACKAGE}EventTimeAvroPayload": MergeMode.EVENT_TIME,
}
_STRATEGY_FIRST_VERSION = 8


def merge_mode_of(entries: Entries, *, version: int, has_ordering_fields: bool) -> MergeMode:
    """Return the merge mode of a table, from its entry or inferred from older entries.

    An unknown payload class or strategy gives :attr:`MergeMode.CUSTOM`.
    """
    mode = entries.text(keys.MERGE_MODE)
    if mode is not None:
        return _named(mode)
    payload = entries.text(keys.PAYLOAD_CLASS)
    strategy = entries.text(keys.MERGE_STRATEGY, keys.MERGE_STRATEGY_OLD)
    modes = [
        None if payload is None else _BY_PAYLOAD.get(payload, MergeMode.CUSTOM),
        None if strategy is None else _BY_STRATEGY.get(strategy, MergeMode.CUSTOM),
    ]
    if version >= _STRATEGY_FIRST_VERSION:
        modes.reverse()
    by_fields = MergeMode.EVENT_TIME if has_ordering_fields else MergeMode.COMMIT_TIME
    return next((mode for mode in modes if mode is not None), by_fields)


def _named(text: str) -> MergeMode:
    try:
        return MergeMode(text.upper())
    except ValueError:
        allowed = one_of(text, (mode.value for mode in MergeMode))
        raise ConfigError(keys.MERGE_MODE, text, f"it must be {allowed}") from None
