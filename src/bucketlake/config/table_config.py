"""The settings in ``hoodie.properties``, typed and frozen, for table versions 6, 8 and 9.

Spellings differ between versions. Entries that older tables lack are inferred as in Hudi
(``key_entries.py``, ``merge_entries.py``). Unknown entries are kept, so that
:meth:`TableConfig.from_properties` and :meth:`TableConfig.to_properties` are inverse.
``config/support.py`` says which tables bucketlake reads and writes;
``timeline/table_properties.py`` reads and writes the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, Self, TypeAlias

from bucketlake.config import table_keys as keys
from bucketlake.config.entries import ConfigEntries, is_number
from bucketlake.config.key_entries import (
    key_generator_name,
    key_generator_of,
    key_spec_of,
    render_key_spec,
)
from bucketlake.config.merge_entries import DeleteMarker, merge_mode_of, render_merging
from bucketlake.config.paths_of_table import (
    HOODIE_FOLDER,
    PROPERTIES_FILE,
    require_inner_name,
    require_inner_path,
)
from bucketlake.config.table_version import (
    NEWEST_VERSION,
    TableVersion,
    TimelineLayout,
    table_version,
)
from bucketlake.errors import ConfigError
from bucketlake.model.grouping import grouped
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import CDC_MODE_DEFAULT, ChangeLogMode, MergeMode, TableType

TimelineTimezone: TypeAlias = Literal["UTC", "LOCAL"]

OFF, AUTO = "off", "auto"
KEEP_DELETES_DEFAULT = "7 days"
_SECOND_MS = 1_000
_UNITS = {
    "second": _SECOND_MS,
    "minute": 60 * _SECOND_MS,
    "hour": 3_600 * _SECOND_MS,
    "day": 86_400 * _SECOND_MS,
    "week": 7 * 86_400 * _SECOND_MS,
}

UPKEEP_MODES = (OFF, AUTO)
"""Whether bucketlake's writers run the services of a table when they are due."""

_VERSIONS_BEFORE_CHECKSUMS = ("0", "1", "2", "3")


@dataclass(frozen=True)
class TableConfig:
    """Settings of a table; the defaults are those of a new table.

    Attributes
    ----------
    key_spec : KeySpec
        How keys and partition paths are made; only a guess if ``foreign_key_generator`` is set.
    foreign_key_generator : str or None
        Name of a key generator that bucketlake does not have.
    archive_folder : str
        Folder of the archive below the timeline's folder, up to table version 7.
    metadata_partitions, metadata_partitions_inflight : tuple of str
        Partitions of the metadata table that readers may use, and partitions being built.
    create_schema : str or None
        Avro schema at the table's creation, valid until a commit has a schema.
    payload_class, merge_strategy_id : str or None
        Java names of a custom merge mode; in older tables, of every merge mode.
    legacy_payload_class : str or None
        Payload class for which the merge mode and the delete marker stand.
    partial_update_mode : str or None
        How the columns of two records are combined; None if the whole record is used.
    unavailable_value : str or None
        The text in place of a value that was not read, for such a mode.
    delete_field, delete_marker : str or None
        A record whose field has the marker's text deletes its key; see ``custom_marker``.
    bootstrap_base_path : str or None
        Path of the data of a bootstrapped table.
    partition_extractor : str or None
        Java class that extracts partitions for a catalog; None for the class inferred from the
        fields.
    cdc_mode : ChangeLogMode or None
        What change data capture keeps; see ``change_log``.
    slash_separated_dates : bool
        Whether a date in the partition path has ``/`` instead of ``-``.
    upkeep : {"off", "auto"}
        Whether bucketlake's writers run the services of the table when they are due.
    keep_deletes : str or None
        How long bucketlake's writers remember deletes with an ordering value, such as ``7 days``;
        see ``keep_deletes_ms``.
    sync : str or None
        JSON of the catalog in which bucketlake's writers register the table after each commit.
    ordering_groups : mapping of str to str
        The ordering column of each column that has one of its own.
    extra : mapping of str to str
        Unknown entries, which are kept.
    """

    name: str
    table_type: TableType
    key_spec: KeySpec
    merge_mode: MergeMode
    ordering_fields: tuple[str, ...] = ()
    database: str = ""
    version: int = NEWEST_VERSION
    initial_version: int | None = NEWEST_VERSION
    layout_version: int = 2
    timeline_timezone: TimelineTimezone = "UTC"
    timeline_path: str = "timeline"
    history_path: str = "history"
    archive_folder: str = "history"
    create_schema: str | None = None
    metadata_partitions: tuple[str, ...] = ()
    metadata_partitions_inflight: tuple[str, ...] = ()
    base_file_format: str = "PARQUET"
    multiple_base_file_formats: bool = False
    table_format: str = "native"
    payload_class: str | None = None
    legacy_payload_class: str | None = None
    merge_strategy_id: str | None = None
    partial_update_mode: str | None = None
    unavailable_value: str | None = None
    delete_field: str | None = None
    delete_marker: str | None = None
    bootstrap_base_path: str | None = None
    foreign_key_generator: str | None = None
    partition_extractor: str | None = None
    populate_meta_fields: bool = True
    drop_partition_columns: bool = False
    partition_metafile_as_base_format: bool = False
    cdc_enabled: bool = False
    cdc_mode: ChangeLogMode | None = None
    slash_separated_dates: bool = False
    upkeep: str = OFF
    keep_deletes: str | None = None
    sync: str | None = None
    ordering_groups: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def written_metadata_partitions(self) -> frozenset[str]:
        """Partitions of the metadata table that writers maintain: valid, or being built."""
        return frozenset({*self.metadata_partitions, *self.metadata_partitions_inflight})

    @property
    def extractor(self) -> str:
        """Java class with which Hudi turns partition paths into values of a catalog."""
        return self.partition_extractor or _extractor(self.key_spec)

    @property
    def change_log(self) -> ChangeLogMode | None:
        """What the table keeps of each change; None if it keeps no change data."""
        if not self.cdc_enabled:
            return None
        return self.cdc_mode or CDC_MODE_DEFAULT

    @property
    def keep_deletes_ms(self) -> int:
        """How long deletes with an ordering value are remembered; 0 if ordering decides nothing."""
        return span_ms(self.kept_deletes, keys.KEEP_DELETES)

    @property
    def kept_deletes(self) -> str:
        """The same as a text."""
        decides = self.merge_mode is MergeMode.EVENT_TIME and self.ordering_fields
        return (self.keep_deletes or KEEP_DELETES_DEFAULT) if decides else "0"

    @property
    def groups_text(self) -> str | None:
        """The orderings of columns in words; None if no column has one of its own."""
        by_ordering = grouped((own, name) for name, own in self.ordering_groups.items())
        texts = (f"{own} of {', '.join(names)}" for own, names in by_ordering.items())
        return "; ".join(texts) or None

    @property
    def custom_marker(self) -> DeleteMarker | None:
        """The column and the text in it that make a row a delete; None if there is no such rule."""
        if self.delete_field is None or self.delete_marker is None:
            return None
        return self.delete_field, self.delete_marker

    @property
    def marker_text(self) -> str | None:
        """The custom delete marker in words; None if there is none."""
        marker = self.custom_marker
        return None if marker is None else f"{marker[0]} = {marker[1]!r}"

    @property
    def rules(self) -> TableVersion:
        """What the table's version means."""
        return table_version(self.version)

    @property
    def layout(self) -> TimelineLayout:
        """Layout of the timeline."""
        return self.rules.layout

    def in_version(self, number: int) -> Self:
        """Return the settings of the table in another version, without a metadata table.

        What the version does not store must not be set.
        """
        rules = table_version(number)
        # A payload class with the meaning of a merge mode is only remembered where it is not used.
        payload = self.payload_class or self.legacy_payload_class
        is_custom = self.merge_mode is MergeMode.CUSTOM
        made_as = self.initial_version
        if rules.has_names_of_hudi_1 != self.rules.has_names_of_hudi_1:
            made_as = (made_as or self.version) if rules.has_names_of_hudi_1 else None
        moves = rules.layout != self.layout
        return replace(
            self,
            version=number,
            initial_version=made_as,
            layout_version=rules.layout.number,
            archive_folder=rules.layout.archive_folder if moves else self.archive_folder,
            payload_class=payload if rules.names_payloads or is_custom else None,
            legacy_payload_class=None if rules.names_payloads or is_custom else payload,
            merge_strategy_id=self.merge_strategy_id if is_custom else None,
            metadata_partitions=(),
            metadata_partitions_inflight=(),
        )

    @property
    def timeline_folder(self) -> str:
        """Folder of the active timeline, relative to the table."""
        if self.layout.has_timeline_folder:
            return f"{HOODIE_FOLDER}/{self.timeline_path}"
        return HOODIE_FOLDER  # Such a table may still have an entry for the timeline path.

    @property
    def history_folder(self) -> str:
        """Folder of the archived timeline, relative to the table."""
        below = self.history_path if self.layout.has_tree_archive else self.archive_folder
        return f"{self.timeline_folder}/{below}"

    @property
    def timeline_moved_ms(self) -> int | None:
        """When a change of version wrote the timeline's files, in ms since 1970 UTC.

        The times of change of these files say nothing about their instants.
        """
        text = self.extra.get(keys.TIMELINE_MOVED, "")
        return int(text) if is_number(text) else None

    @property
    def paths_follow_keys(self) -> bool:
        """Whether ``key_spec`` gives a record's partition path; else queries must not prune."""
        untold = (
            self.key_spec.generator is KeyGenerator.CUSTOM
            and self.key_spec.partition_fields
            and not self.key_spec.partition_field_kinds
        )
        return not (self.foreign_key_generator or self.slash_separated_dates or untold)

    @property
    def may_have_bare_keys(self) -> bool:
        """Whether a COMPLEX key of one field may be stored as ``v`` instead of ``f:v``.

        Some Hudi releases (0.14.1 to 1.0.2) stored it so, and no property tells.
        """
        return not table_version(self.initial_version or 0).names_single_keys

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Parse a table's properties of any version.

        Raises
        ------
        ConfigError
            If a required entry is missing, or an entry has an invalid value.
        FormatError
            If a folder of the timeline or of the metadata table is outside of the table.
        """
        config = cls._of_entries(tuple(properties.items()))
        # A caller may change its mappings.
        groups, extra = {**config.ordering_groups}, {**config.extra}
        return replace(config, ordering_groups=groups, extra=extra)

    @classmethod
    @lru_cache(maxsize=32)  # An action asks for those of its table several times.
    def _of_entries(cls, properties: tuple[tuple[str, str], ...]) -> Self:
        entries = ConfigEntries(dict(properties))
        version = entries.integer(keys.VERSION, NEWEST_VERSION)
        ordering_fields = entries.fields(keys.ORDERING_FIELDS, keys.ORDERING_FIELDS_OLD)
        partial_update_mode = entries.text(keys.PARTIAL_UPDATE_MODE)
        key_spec = key_spec_of(entries)
        extractor = entries.text(keys.PARTITION_EXTRACTOR)
        config = cls(
            name=entries.required(keys.NAME),
            table_type=entries.member(keys.TABLE_TYPE, TableType, TableType.COPY_ON_WRITE),
            key_spec=key_spec,
            merge_mode=merge_mode_of(
                entries, table_version(version), has_ordering_fields=bool(ordering_fields)
            ),
            ordering_fields=ordering_fields,
            database=entries.text(keys.DATABASE) or "",
            version=version,
            initial_version=entries.integer(keys.INITIAL_VERSION, None),
            layout_version=_layout_version(entries),
            timeline_timezone=_timezone(entries),
            timeline_path=_folder(entries, keys.TIMELINE_PATH, "timeline"),
            history_path=_folder(entries, keys.HISTORY_PATH, "history"),
            archive_folder=_folder(entries, keys.ARCHIVE_FOLDER, "archived"),
            create_schema=entries.text(keys.CREATE_SCHEMA),
            metadata_partitions=_folder_names(entries, keys.METADATA_PARTITIONS),
            metadata_partitions_inflight=_folder_names(entries, keys.METADATA_PARTITIONS_INFLIGHT),
            base_file_format=_base_file_format(entries),
            multiple_base_file_formats=entries.boolean(keys.MULTIPLE_BASE_FILE_FORMATS),
            table_format=entries.text(keys.TABLE_FORMAT) or "native",
            payload_class=entries.text(keys.PAYLOAD_CLASS),
            legacy_payload_class=entries.text(keys.LEGACY_PAYLOAD_CLASS),
            merge_strategy_id=entries.text(keys.MERGE_STRATEGY, keys.MERGE_STRATEGY_OLD),
            partial_update_mode=None if partial_update_mode == "NONE" else partial_update_mode,
            unavailable_value=entries.text(keys.UNAVAILABLE_VALUE),
            delete_field=entries.text(keys.STORED_DELETE_FIELD),
            delete_marker=entries.text(keys.STORED_DELETE_MARKER),
            bootstrap_base_path=entries.text(keys.BOOTSTRAP_BASE_PATH),
            foreign_key_generator=_foreign_key_generator(entries),
            partition_extractor=None if extractor == _extractor(key_spec) else extractor,
            populate_meta_fields=entries.boolean(keys.POPULATE_META_FIELDS, default=True),
            drop_partition_columns=entries.boolean(keys.DROP_PARTITION_COLUMNS),
            partition_metafile_as_base_format=entries.boolean(keys.METAFILE_AS_BASE_FORMAT),
            cdc_enabled=entries.boolean(keys.CDC_ENABLED),
            cdc_mode=entries.member(keys.CDC_MODE, ChangeLogMode, None),
            slash_separated_dates=entries.boolean(keys.SLASH_SEPARATED_DATES),
            upkeep=entries.one_of(keys.UPKEEP, UPKEEP_MODES),
            keep_deletes=entries.text(keys.KEEP_DELETES),
            sync=entries.text(keys.SYNC),
            ordering_groups=entries.mapping(keys.ORDERING_GROUPS),
        )
        entries.text(keys.CHECKSUM)
        object.__setattr__(config, "extra", entries.not_asked())
        return config

    def to_properties(self) -> dict[str, str]:
        """Return the entries that Hudi writes for a table of this version, with the checksum."""
        entries = self._always() | self._where_set() | render_key_spec(self.key_spec, self.rules)
        if self.foreign_key_generator is not None:
            has_types = self.rules.has_names_of_hudi_1
            key = keys.KEY_GENERATOR_TYPE if has_types else keys.KEY_GENERATOR_CLASS
            entries[key] = self.foreign_key_generator
        entries |= self.extra
        return entries | {keys.CHECKSUM: table_checksum(entries)}

    def _always(self) -> dict[str, str]:
        return {
            keys.NAME: self.name,
            keys.TABLE_TYPE: self.table_type.value,
            keys.VERSION: str(self.version),
            keys.LAYOUT_VERSION: str(self.layout_version),
            keys.ARCHIVE_FOLDER: self.archive_folder,
            keys.TIMELINE_TIMEZONE: self.timeline_timezone,
            keys.BASE_FILE_FORMAT: self.base_file_format,
            keys.MULTIPLE_BASE_FILE_FORMATS: _yes_no(self.multiple_base_file_formats),
            keys.PARTITION_EXTRACTOR: self.extractor,
            keys.POPULATE_META_FIELDS: _yes_no(self.populate_meta_fields),
            keys.DROP_PARTITION_COLUMNS: _yes_no(self.drop_partition_columns),
            keys.METAFILE_AS_BASE_FORMAT: _yes_no(self.partition_metafile_as_base_format),
            keys.CDC_ENABLED: _yes_no(self.cdc_enabled),
        }

    def _where_set(self) -> dict[str, str]:
        has_metadata_table = self.written_metadata_partitions
        has_folder = self.layout.has_timeline_folder
        entries = {
            keys.INITIAL_VERSION: str(self.initial_version or ""),
            keys.TIMELINE_PATH: self.timeline_path if has_folder else None,
            keys.HISTORY_PATH: self.history_path if has_folder else None,
            keys.DATABASE: self.database,
            keys.TABLE_FORMAT: self.table_format if self.rules.has_formats else None,
            keys.CREATE_SCHEMA: self.create_schema,
            keys.LEGACY_PAYLOAD_CLASS: self.legacy_payload_class,
            **render_merging(
                self.rules,
                self.merge_mode,
                self.ordering_fields,
                self.payload_class,
                self.merge_strategy_id,
            ),
            keys.PARTIAL_UPDATE_MODE: self.partial_update_mode,
            keys.UNAVAILABLE_VALUE: self.unavailable_value,
            keys.STORED_DELETE_FIELD: self.delete_field,
            keys.STORED_DELETE_MARKER: self.delete_marker,
            keys.BOOTSTRAP_BASE_PATH: self.bootstrap_base_path,
            keys.CDC_MODE: self.cdc_mode and self.cdc_mode.value,
            keys.SLASH_SEPARATED_DATES: "true" if self.slash_separated_dates else None,
            keys.UPKEEP: None if self.upkeep == OFF else self.upkeep,
            keys.KEEP_DELETES: self.keep_deletes,
            keys.SYNC: self.sync,
            keys.ORDERING_GROUPS: self.ordering_groups
            and json.dumps(dict(sorted(self.ordering_groups.items()))),
        }
        metadata_entries = {
            keys.METADATA_PARTITIONS: ",".join(self.metadata_partitions),
            keys.METADATA_PARTITIONS_INFLIGHT: ",".join(self.metadata_partitions_inflight),
        }
        # If there is a metadata table, Hudi writes both lists, even if one is empty.
        set_entries = {key: text for key, text in entries.items() if text}
        return set_entries | (metadata_entries if has_metadata_table else {})


def span_ms(text: str, what: str) -> int:
    """Return the milliseconds of a text such as ``7 days``; raise ConfigError for another text.

    Examples
    --------
    >>> span_ms("12 hours", "keep_deletes"), span_ms("0", "keep_deletes")
    (43200000, 0)
    """
    number, _, unit = text.strip().lower().partition(" ")
    unit = unit.strip().removesuffix("s")
    if number == "0":
        return 0
    if is_number(number) and unit in _UNITS:
        return int(number) * _UNITS[unit]
    raise ConfigError(what, text, "give a number and a unit, such as '7 days', '12 hours', or '0'")


def check_keep_deletes(text: str, *, has_ordering: bool) -> None:
    """Raise ConfigError for a time that is none, or that a table without ordering cannot use."""
    if span_ms(text, "keep_deletes") and not has_ordering:
        wanted = "a delete is remembered by its ordering value, and the table has no ordering"
        raise ConfigError("keep_deletes", text, wanted)


def table_checksum(properties: Mapping[str, str]) -> str:
    """Return the checksum of a table's properties; it only covers the table's full name.

    Examples
    --------
    >>> table_checksum({"hoodie.database.name": "default", "hoodie.table.name": "pu"})
    '3368304800'
    """
    full_name = f"{properties.get(keys.DATABASE, '')}.{properties.get(keys.NAME, '')}"
    return str(zlib.crc32(full_name.encode("utf-8", "surrogatepass")))


def is_whole(properties: Mapping[str, str]) -> bool:
    """Return whether properties are complete: they name a table, and the checksum matches.

    Hudi writes a checksum since table version 4. A file without one was cut off or edited.
    """
    checksum = properties.get(keys.CHECKSUM)
    if keys.NAME not in properties:
        return False
    if checksum is None:
        return properties.get(keys.VERSION, "") in _VERSIONS_BEFORE_CHECKSUMS
    return checksum == table_checksum(properties)


def _layout_version(entries: ConfigEntries) -> int:
    entries.required(keys.LAYOUT_VERSION)
    return entries.integer(keys.LAYOUT_VERSION, 0)


def _folder(entries: ConfigEntries, key: str, default: str) -> str:
    folder = entries.text(key) or default
    require_inner_path(folder, PROPERTIES_FILE, f"{key} as a folder")
    return folder


def _folder_names(entries: ConfigEntries, key: str) -> tuple[str, ...]:
    names = entries.fields(key)
    for name in names:
        require_inner_name(name, PROPERTIES_FILE, f"{key} as names of folders")
    return names


def _timezone(entries: ConfigEntries) -> TimelineTimezone:
    return "UTC" if entries.one_of(keys.TIMELINE_TIMEZONE, ["LOCAL", "UTC"]) == "UTC" else "LOCAL"


def _base_file_format(entries: ConfigEntries) -> str:
    return (entries.text(keys.BASE_FILE_FORMAT, keys.BASE_FILE_FORMAT_OLD) or "PARQUET").upper()


def _foreign_key_generator(entries: ConfigEntries) -> str | None:
    name = key_generator_name(entries)
    return None if name is None or key_generator_of(name) is not None else name


def _yes_no(value: bool) -> str:
    return "true" if value else "false"


def _extractor(spec: KeySpec) -> str:
    """Return the Java class with which Hudi registers partitions in a catalog."""
    package = "org.apache.hudi.hive"
    if not spec.partition_fields:
        return f"{package}.NonPartitionedExtractor"
    if len(spec.partition_fields) > 1:
        return f"{package}.MultiPartKeysValueExtractor"
    style = "HiveStylePartition" if spec.hive_style else "SinglePartPartition"
    return f"{package}.{style}ValueExtractor"
