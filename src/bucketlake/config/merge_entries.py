"""The entries that decide which of two records with one key wins, and which records are deletes.

In ``hoodie.properties`` this is the merge mode since table version 8. Before, it is a Java payload
class and the id of a merge strategy, which do not always agree: writers of version 6 stored the
same default strategy for every payload. So the payload has precedence there, as in Hudi.

The options of a job may name a payload class, too. Since table version 9 Hudi stores what the class
stands for: a merge mode, perhaps ordering fields and a delete marker, and the class as a memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bucketlake.config import table_keys as keys
from bucketlake.config.entries import ConfigEntries
from bucketlake.config.table_version import NEWEST_VERSION, TableVersion
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.model.table_type import MergeMode

DeleteMarker: TypeAlias = "tuple[str, str]"
"""A column, and the text in it that makes a row a delete."""

WRITE_MERGE_MODE = "hoodie.write.record.merge.mode"
WRITE_STRATEGY = "hoodie.write.record.merge.strategy.id"
WRITE_PAYLOAD = "hoodie.datasource.write.payload.class"
DELETE_FIELD = "hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.payload.delete.marker"

IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
"""A partial update mode: a null takes the value of the other record."""

FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
"""A partial update mode: a certain text takes the value of the other record."""

_BY_STRATEGY = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": MergeMode.COMMIT_TIME,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": MergeMode.EVENT_TIME,
}
MERGER_OF_HUDI_0 = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
"""The merge strategy that releases before Hudi 1 store for every payload class."""
_ONE_ORDERING_FIELD = keys.ORDERING_FIELDS_OLD


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Which record of a key wins, and which records are deletes.

    Attributes
    ----------
    ordering_fields : tuple of str
        Fields whose greater value wins, under event-time ordering.
    stated_mode : MergeMode or None
        The merge mode that a job states; None for the mode that follows from the fields.
    marker : (field, text) or None
        The custom delete marker.
    payload_class : str or None
        The payload class that a job names.
    partial_update_mode : str or None
        How the columns of two records are combined; None if the whole record is used.
    unavailable_value : str or None
        The text in place of a value that was not read, for mode FILL_UNAVAILABLE.
    ordering_groups : mapping of str to str
        The ordering column of each column that has one of its own.
    """

    ordering_fields: tuple[str, ...] = ()
    stated_mode: MergeMode | None = None
    marker: DeleteMarker | None = None
    payload_class: str | None = None
    partial_update_mode: str | None = None
    unavailable_value: str | None = None
    ordering_groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def mode(self) -> MergeMode:
        """The merge mode of a new table."""
        by_fields = MergeMode.EVENT_TIME if self.ordering_fields else MergeMode.COMMIT_TIME
        return self.stated_mode or by_fields


_COMMIT_TIME = MergeSettings(stated_mode=MergeMode.COMMIT_TIME)
_EVENT_TIME = MergeSettings(stated_mode=MergeMode.EVENT_TIME)
_MODEL = "org.apache.hudi.common.model."
_PAYLOADS = {
    f"{_MODEL}OverwriteWithLatestAvroPayload": _COMMIT_TIME,
    f"{_MODEL}DefaultHoodieRecordPayload": _EVENT_TIME,
    f"{_MODEL}EventTimeAvroPayload": _EVENT_TIME,
    f"{_MODEL}AWSDmsAvroPayload": replace(_COMMIT_TIME, marker=("Op", "D")),
    f"{_MODEL}debezium.MySqlDebeziumAvroPayload": replace(
        _EVENT_TIME,
        ordering_fields=("_event_bin_file", "_event_pos"),
        marker=("_change_operation_type", "d"),
    ),
    f"{_MODEL}PartialUpdateAvroPayload": replace(_EVENT_TIME, partial_update_mode=IGNORE_DEFAULTS),
    f"{_MODEL}OverwriteNonDefaultsWithLatestAvroPayload": replace(
        _COMMIT_TIME, partial_update_mode=IGNORE_DEFAULTS
    ),
    f"{_MODEL}debezium.PostgresDebeziumAvroPayload": replace(
        _EVENT_TIME,
        ordering_fields=("_event_lsn",),
        marker=("_change_operation_type", "d"),
        partial_update_mode=FILL_UNAVAILABLE,
        unavailable_value="__debezium_unavailable_value",
    ),
}
"""What a payload class stands for, as real Hudi 1.2.0 stores it."""

_OF_OLD_TABLES = [
    name
    for name, settings in _PAYLOADS.items()
    if settings.marker is None and settings.partial_update_mode is None
]
_PAYLOAD_OF_MODE = {
    MergeMode.COMMIT_TIME: f"{_MODEL}OverwriteWithLatestAvroPayload",
    MergeMode.EVENT_TIME: f"{_MODEL}DefaultHoodieRecordPayload",
}
_STORED_PAYLOADS = (keys.PAYLOAD_CLASS, keys.LEGACY_PAYLOAD_CLASS)


def merge_mode_of(
    entries: ConfigEntries, rules: TableVersion, *, has_ordering_fields: bool
) -> MergeMode:
    """Return the merge mode of a table, from its entry or inferred from older entries.

    An unknown payload class or strategy gives :attr:`MergeMode.CUSTOM`.
    """
    mode = entries.member(keys.MERGE_MODE, MergeMode, None)
    if mode is not None:
        return mode
    payload = entries.text(keys.PAYLOAD_CLASS)
    strategy = entries.text(keys.MERGE_STRATEGY, keys.MERGE_STRATEGY_OLD)
    by_payload = {name: _PAYLOADS[name].stated_mode for name in _OF_OLD_TABLES}
    modes = [
        None if payload is None else by_payload.get(payload, MergeMode.CUSTOM),
        None if strategy is None else _BY_STRATEGY.get(strategy, MergeMode.CUSTOM),
    ]
    if rules.has_names_of_hudi_1:
        modes.reverse()
    by_fields = MergeMode.EVENT_TIME if has_ordering_fields else MergeMode.COMMIT_TIME
    return next((mode for mode in modes if mode is not None), by_fields)


def render_merging(
    rules: TableVersion,
    mode: MergeMode,
    ordering_fields: Sequence[str],
    payload_class: str | None,
    strategy: str | None,
) -> dict[str, str | None]:
    """Return the entries of a merge mode; the inverse of :func:`merge_mode_of`."""
    ordering = keys.ORDERING_FIELDS if rules.has_several_ordering_fields else _ONE_ORDERING_FIELD
    if rules.names_payloads:
        payload_class = payload_class or _PAYLOAD_OF_MODE.get(mode)
    entries = {ordering: ",".join(ordering_fields), keys.PAYLOAD_CLASS: payload_class}
    if not rules.has_names_of_hudi_1:
        return entries | {keys.MERGE_STRATEGY_OLD: strategy or MERGER_OF_HUDI_0}
    if rules.names_payloads:
        strategy = strategy or next((s for s, meant in _BY_STRATEGY.items() if meant is mode), None)
    return entries | {keys.MERGE_MODE: mode.value, keys.MERGE_STRATEGY: strategy}


def require_storable(rules: TableVersion, settings: MergeSettings) -> None:
    """Raise ConfigError for merge settings that a table of a version cannot store."""
    for key, value, problem in unstorable_merges(
        rules,
        settings.ordering_fields,
        settings.marker and settings.marker[0],
        settings.partial_update_mode,
    ):
        raise ConfigError(key, value, f"{problem}; choose version {NEWEST_VERSION}")


def unstorable_merges(
    rules: TableVersion, ordering: Sequence[str], marker: str | None, partial: str | None
) -> Iterator[tuple[str, object, str]]:
    """Yield (key, value, problem) for each merge setting that a version does not store."""
    version = f"table version {rules.number}"
    if len(ordering) > 1 and not rules.has_several_ordering_fields:
        yield "ordering", tuple(ordering), f"{version} has one ordering field"
    if rules.stores_merge_rules:
        return
    if marker is not None:
        yield "delete_marker", marker, f"{version} does not store a delete marker"
    if partial is not None:
        yield keys.PARTIAL_UPDATE_MODE, partial, f"{version} does not store how columns are merged"


def merge_settings_of_job(entries: ConfigEntries) -> MergeSettings:
    """Return what the options of a job say; they may name the same thing in several ways.

    Raises
    ------
    ConfigError
        If options contradict each other, or one of a pair is missing.
    UnsupportedFeatureError
        If a payload class or merge strategy is not supported.
    """
    payload = entries.text(WRITE_PAYLOAD)
    implied = MergeSettings() if payload is None else _settings_of(payload)
    fields = entries.fields(keys.ORDERING_FIELDS)
    own_fields = implied.ordering_fields
    if own_fields and fields and fields != own_fields:
        allowed = f"{payload} orders by {','.join(own_fields)}; leave the option out"
        raise ConfigError(keys.ORDERING_FIELDS, ",".join(fields), allowed)
    settings = MergeSettings(
        own_fields or fields,
        _mode_of_job(entries, implied.stated_mode),
        _marker_of_job(entries, implied.marker),
        implied.payload_class,
        implied.partial_update_mode,
        implied.unavailable_value,
    )
    _require_agreement(entries, settings)
    return settings


def _settings_of(payload: str) -> MergeSettings:
    """Return what a payload class stands for; it may be given by its last name."""
    for name, settings in _PAYLOADS.items():
        if payload in (name, name.rpartition(".")[2]):
            return replace(settings, payload_class=name)
    known = ", ".join(name.rpartition(".")[2] for name in _PAYLOADS)
    step = f"give one of {known}, or write this table with Hudi"
    raise UnsupportedFeatureError(f"payload class {payload}", WRITE_PAYLOAD, step)


def _mode_of_job(entries: ConfigEntries, implied: MergeMode | None) -> MergeMode | None:
    strategy = entries.text(WRITE_STRATEGY)
    stated = {
        WRITE_MERGE_MODE: entries.member(WRITE_MERGE_MODE, MergeMode, None),
        WRITE_STRATEGY: None if strategy is None else _mode_of_strategy(strategy),
    }
    for key, found in stated.items():
        if found is None:
            continue
        if implied not in (None, found):
            said = f"other options of the job mean {implied and implied.value}"
            raise ConfigError(key, entries.text(key), f"{said}; leave one of them out")
        implied = found
    if implied is MergeMode.CUSTOM:
        modes = f"{MergeMode.COMMIT_TIME.value} or {MergeMode.EVENT_TIME.value}"
        mode = entries.text(WRITE_MERGE_MODE)
        raise ConfigError(WRITE_MERGE_MODE, mode, f"bucketlake only supports {modes}")
    return implied


def _mode_of_strategy(strategy: str) -> MergeMode:
    if strategy not in _BY_STRATEGY:
        step = f"choose the winner with {WRITE_MERGE_MODE}, or write this table with Hudi"
        raise UnsupportedFeatureError(f"merge strategy {strategy}", WRITE_STRATEGY, step)
    return _BY_STRATEGY[strategy]


def _marker_of_job(entries: ConfigEntries, implied: DeleteMarker | None) -> DeleteMarker | None:
    field, text = entries.text(DELETE_FIELD), entries.text(DELETE_MARKER)
    if field is None and text is None:
        return implied
    if field is None or text is None:
        missing, given = sorted(
            (DELETE_FIELD, DELETE_MARKER), key=lambda key: bool(entries.text(key))
        )
        raise ConfigError(given, field or text, f"{missing} is missing; give both or none")
    if implied not in (None, (field, text)):
        said = f"the payload class means {'='.join(implied or ())}; leave this one out"
        raise ConfigError(DELETE_FIELD, f"{field}={text}", said)
    return field, text


def _require_agreement(entries: ConfigEntries, settings: MergeSettings) -> None:
    """Check entries of a table among the options: Hudi's writer ignores them for a new table."""
    field, marker = settings.marker or (None, None)
    _require_same(entries, keys.STORED_DELETE_FIELD, (field,), DELETE_FIELD)
    _require_same(entries, keys.STORED_DELETE_MARKER, (marker,), DELETE_MARKER)
    mode = settings.mode
    _require_same(entries, keys.MERGE_MODE, (mode.value,), WRITE_MERGE_MODE)
    strategies = [strategy for strategy, meant in _BY_STRATEGY.items() if meant is mode]
    _require_same(entries, keys.MERGE_STRATEGY, strategies, WRITE_MERGE_MODE)
    partial = settings.partial_update_mode
    _require_same(entries, keys.PARTIAL_UPDATE_MODE, (partial or "NONE",), WRITE_PAYLOAD)
    _require_same(entries, keys.UNAVAILABLE_VALUE, (settings.unavailable_value,), WRITE_PAYLOAD)
    same = (settings.marker, mode, partial)
    payloads = [
        name
        for name, held in _PAYLOADS.items()
        if (held.marker, held.stated_mode, held.partial_update_mode) == same
    ]
    for key in _STORED_PAYLOADS:
        _require_same(entries, key, payloads, WRITE_PAYLOAD)


def _require_same(
    entries: ConfigEntries, key: str, accepted: Sequence[str | None], option: str
) -> None:
    text = entries.text(key)
    if text is not None and text not in accepted:
        raise ConfigError(key, text, f"Hudi's writer ignores this option; give {option} instead")
