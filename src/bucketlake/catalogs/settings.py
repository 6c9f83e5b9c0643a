"""Settings of a sync, from Hudi's options of catalogs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketlake.config.entries import ConfigEntries
from bucketlake.config.hudi_options import hudi_options, option_names
from bucketlake.errors import ConfigError
from bucketlake.model.names import did_you_mean

SYNC_PREFIX = "hoodie.datasource.hive_sync."
_META = "hoodie.datasource.meta_sync."
TOOL = "hoodie.meta.sync.client.tool.class"
URIS = f"{SYNC_PREFIX}metastore.uris"
_FIELDS = f"{SYNC_PREFIX}partition_fields"
_EXTRACTOR = f"{SYNC_PREFIX}partition_extractor_class"
_SNAPSHOT_WITH_NAME = "hoodie.meta.sync.sync_snapshot_with_table_name"
_SCHEMA_LENGTH = f"{SYNC_PREFIX}schema_string_length_thresh"
_BATCH = f"{SYNC_PREFIX}batch_num"
EXTRACTORS = (
    "NonPartitionedExtractor",
    "SinglePartPartitionValueExtractor",
    "HiveStylePartitionValueExtractor",
    "MultiPartKeysValueExtractor",
    "SlashEncodedDayPartitionValueExtractor",
    "SlashEncodedHourPartitionValueExtractor",
)
"""Hudi's rules from a partition path to values, as their classes are called."""
ENTRY_NAME = re.compile(r"([^./\\\s]+\.)?[^./\\\s]+")


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """What is written into a catalog; the defaults are Hudi's.

    Attributes
    ----------
    database, table : str
        In lower case; empty for the table's own, or the database ``default``.
    partition_fields : tuple of str or None
        In place of the table's own; None for those.
    extractor : str or None
        One of :data:`EXTRACTORS`; None for that of the table.
    timestamps : bool
        Whether the catalog's type of a timestamp is ``timestamp``; ``bigint`` otherwise.
    strategy : str
        ``ALL``, ``RO`` or ``RT``: the entries of a merge-on-read table.
    conditional : bool
        Whether the last commit is noted only where columns or partitions change.
    incremental : bool
        Whether only partitions that commits touched since the last sync are compared, where the
        timeline tells them.
    """

    database: str = ""
    table: str = ""
    partition_fields: tuple[str, ...] | None = None
    extractor: str | None = None
    timestamps: bool = False
    omit_meta: bool = False
    managed: bool = False
    as_datasource: bool = True
    comments: bool = False
    strategy: str = "ALL"
    skip_ro_suffix: bool = False
    snapshot_with_name: bool = True
    creates_database: bool = True
    conditional: bool = False
    incremental: bool = True
    batch: int = 1000
    schema_length: int = 4000
    table_properties: Mapping[str, str] = field(default_factory=dict)
    serde_properties: Mapping[str, str] = field(default_factory=dict)


def is_sync_option(key: str) -> bool:
    """Return whether an option is one of a sync."""
    return key.startswith((SYNC_PREFIX, _META, "hoodie.datasource.meta.sync.", "hoodie.meta.sync."))


def split_name(name: str) -> tuple[str, str]:
    """Return database and table of a name, in lower case; the database may be empty.

    >>> split_name("Sales.Orders"), split_name("orders")
    (('sales', 'orders'), ('', 'orders'))
    """
    database, _, table = name.lower().rpartition(".")
    return database, table


def settings_from_options(options: Mapping[str, str], name: str = "") -> SyncSettings:
    """Return the settings of Hudi's options; a name that is given goes before theirs.

    Raises
    ------
    ConfigError
        For an option that no sync has, or a value that it cannot have.
    """
    if name and not ENTRY_NAME.fullmatch(name):
        raise ConfigError("name", name, "give database.table, or table")
    entries, (database, table) = ConfigEntries(options), split_name(name)
    extractor = entries.text(_EXTRACTOR)
    short = None if extractor is None else extractor.rpartition(".")[2]
    if short is not None and short not in EXTRACTORS:
        allowed = f"a class of one's own does not run here; take {', '.join(EXTRACTORS)}"
        raise ConfigError(_EXTRACTOR, extractor, allowed)
    settings = SyncSettings(
        database=(database or entries.text(f"{SYNC_PREFIX}database") or "").lower(),
        table=(table or entries.text(f"{SYNC_PREFIX}table") or "").lower(),
        partition_fields=entries.fields(_FIELDS) if _FIELDS in options else None,
        extractor=short,
        timestamps=entries.boolean(f"{SYNC_PREFIX}support_timestamp"),
        omit_meta=entries.boolean(f"{SYNC_PREFIX}omit_metadata_fields"),
        managed=entries.boolean(f"{SYNC_PREFIX}create_managed_table"),
        as_datasource=entries.boolean(f"{SYNC_PREFIX}sync_as_datasource", default=True),
        comments=entries.boolean(f"{SYNC_PREFIX}sync_comment"),
        strategy=entries.one_of(f"{SYNC_PREFIX}table.strategy", ("ALL", "RO", "RT")),
        skip_ro_suffix=entries.boolean(f"{SYNC_PREFIX}skip_ro_suffix"),
        snapshot_with_name=entries.boolean(_SNAPSHOT_WITH_NAME, default=True),
        creates_database=entries.boolean(f"{SYNC_PREFIX}auto_create_database", default=True),
        conditional=entries.boolean(f"{_META}condition.sync"),
        incremental=entries.boolean("hoodie.meta.sync.incremental", default=True),
        batch=entries.option(_BATCH, 1000, least=1),
        schema_length=entries.option(_SCHEMA_LENGTH, 4000, least=1),
        table_properties=_lines(entries, f"{SYNC_PREFIX}table_properties"),
        serde_properties=_lines(entries, f"{SYNC_PREFIX}serde_properties"),
    )
    known = hudi_options()
    for key in options:
        if key not in known and (is_sync_option(key) or key not in option_names()):
            long = f"{SYNC_PREFIX}{key}"
            hint = did_you_mean(long if long in known else key, [*known, "catalog", "name"])
            raise ConfigError(key, options[key], f"Hudi has no such option{hint}")
    return settings


def _lines(entries: ConfigEntries, key: str) -> dict[str, str]:
    """Return ``name=value`` lines as Hudi takes them: blanks around both do not count."""
    found = {}
    for line in (entries.text(key) or "").splitlines():
        name, is_there, value = line.partition("=")
        if line.strip() and not (is_there and name.strip()):
            raise ConfigError(key, line, "each line must be name=value")
        if is_there:
            found[name.strip()] = value.strip()
    return found
