"""A table and a catalog: what of the table a sync looks at, and how a table names its catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING

from bucketlake.catalogs.catalog import Catalog, TableEntry
from bucketlake.catalogs.glue import GlueCatalog, region_of
from bucketlake.catalogs.hive import HiveMetastore, places_of
from bucketlake.catalogs.settings import (
    ENTRY_NAME,
    TOOL,
    URIS,
    SyncSettings,
    is_sync_option,
    settings_from_options,
    split_name,
)
from bucketlake.catalogs.synchronize import (
    PartitionsOfTable,
    TableSync,
    entry_in_place,
    synchronize,
    without_commits,
)
from bucketlake.catalogs.table_entries import TableFacts, entries_of
from bucketlake.config.table_keys import SYNC
from bucketlake.errors import CatalogError, ConfigError, InputError
from bucketlake.flow.call import note
from bucketlake.model.arguments import check_methods, check_texts, options_of
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.partition_path import formatted_fields
from bucketlake.model.result import Shown
from bucketlake.model.table_type import TableType
from bucketlake.services.check.findings import Finding, FindingKind

if TYPE_CHECKING:
    from bucketlake.read.snapshot import Snapshot

_WRITER = {9: "1.2.0"}
"""Table versions whose entries name the release that writes them, as Hudi's do."""


@dataclass(frozen=True, slots=True)
class SyncResult(Shown):
    """What a sync did with the entries of a table.

    Attributes
    ----------
    entries : tuple of TableSync
        One for each entry: the table, and for merge-on-read those with ``_ro`` and ``_rt``.
    calls : int
        Requests that were sent to the catalog.
    dry_run : bool
        Whether it only looked.
    """

    entries: tuple[TableSync, ...]
    calls: int
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    """Where a table is registered after each commit; it is stored with the table as JSON.

    Attributes
    ----------
    catalog : str
        Address, see :func:`open_catalog`.
    name : str
        ``database.table`` or ``table``; empty for the table's own name.
    options : mapping of str to str
        Hudi's options of catalogs.
    """

    catalog: str
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: str | Mapping[str, str]) -> Registration:
        """Return what the argument ``sync`` says; raise ConfigError if it says nothing."""
        if isinstance(given, str):
            return cls(given).checked()
        if not isinstance(given, Mapping):
            allowed = "give the address of a catalog, or a dict with catalog, name and options"
            raise ConfigError("sync", given, allowed)
        options = options_of(given, "sync")
        catalog, name = options.pop("catalog", ""), options.pop("name", "")
        return cls(catalog, name, options).checked()

    @classmethod
    def of_text(cls, text: str) -> Registration:
        """Return what a table stores."""
        try:
            held = parse_json(text)
        except ValueError:
            held = None
        if not isinstance(held, dict):
            raise ConfigError(SYNC, text, "it must be a JSON object with catalog")
        return cls.of(held)

    @property
    def text(self) -> str:
        """What a table stores."""
        told = {"catalog": self.catalog, **({"name": self.name} if self.name else {})}
        return json.dumps({**told, **self.options}, separators=(",", ":"))

    @property
    def settings(self) -> SyncSettings:
        """Names and options of the entries; raises ConfigError for a wrong one."""
        return settings_from_options(self.options, self.name)

    def checked(self) -> Registration:
        """Return the value itself; raise ConfigError for an address or an option that is wrong."""
        kind_of(self.catalog)
        check_texts(catalog=self.catalog)
        _ = self.settings
        return self


def registration_of_job(options: Mapping[str, str]) -> Registration | None:
    """Return where the options of a Hudi job register its table; None if they name no catalog."""
    given = {key: value for key, value in options.items() if is_sync_option(key)}
    is_glue = given.get(TOOL, "").endswith("AwsGlueCatalogSyncTool")
    address = "glue" if is_glue else given.get(URIS, "").strip()
    return Registration(address, options=given).checked() if address else None


def sync_table(
    snapshot: Snapshot,
    catalog: str | Catalog,
    settings: SyncSettings,
    *,
    replaces: bool = False,
    dry_run: bool = False,
) -> SyncResult:
    """Bring the entries of a pinned table in a catalog up to date; see ``bl.sync``."""
    with closing(open_catalog(catalog, settings.batch)) as opened:
        before = opened.calls
        database = settings.database or snapshot.config.database.lower() or "default"
        named, facts = replace(settings, database=database), _facts(snapshot)
        entries = sync_facts(snapshot, facts, opened, named, replaces=replaces, dry_run=dry_run)
        names = [(opened.address, entry.name) for entry in entries]
        note(lambda call: call.entries.extend(names))
    return SyncResult(entries, opened.calls - before, dry_run)


def kind_of(address: str) -> str:
    """Return the kind of a catalog's address; raise ConfigError for an address of no kind."""
    kind = address.partition(":")[0].lower()
    check = {"thrift": places_of, "glue": region_of}.get(kind)
    if check is None:
        allowed = "it must be thrift://host:port, glue, glue://region or an object with its methods"
        raise ConfigError("catalog", address, allowed)
    check(address)
    return kind


def open_catalog(given: str | Catalog, batch: int = 1000) -> Catalog:
    """Return the catalog at an address; raise ConfigError if there is no such kind.

    Parameters
    ----------
    batch : int
        Partitions of one call, where the catalog sets no smaller bound.
    """
    if not isinstance(given, str):
        check_methods("add_partitions", "an address, or an object with its methods", catalog=given)
        return given
    return HiveMetastore(given, batch) if kind_of(given) == "thrift" else GlueCatalog(given)


def sync_facts(
    snapshot: Snapshot,
    facts: TableFacts,
    catalog: Catalog,
    settings: SyncSettings,
    *,
    replaces: bool = False,
    dry_run: bool = False,
) -> tuple[TableSync, ...]:
    """Bring the entries of a table up to date, with settings that name the database.

    The snapshot gives partitions, and the timeline which of them commits touched.
    """
    wanted, database = entries_of(facts, settings), settings.database
    if not ENTRY_NAME.fullmatch(wanted[0].title):
        raise ConfigError("name", wanted[0].title, "choose another one: name= (--name)")
    partitions = PartitionsOfTable(snapshot, facts, settings)
    # All entries are looked at, and all partitions of a new one, before anything is changed.
    found = [entry_in_place(catalog, each, replaces=replaces) for each in wanted]
    if wanted[0].keys and any(stored is None for stored, _ in found):
        _ = partitions.every
    is_known = any(stored or dropped for stored, dropped in found)
    if not is_known and not catalog.has_database(database):
        if not settings.creates_database:
            raise CatalogError(
                catalog.address,
                f"there is no database {database}",
                "create it, or leave hoodie.datasource.hive_sync.auto_create_database out",
            )
        if not dry_run:
            catalog.create_database(without_commits(wanted[0]))
    return tuple(
        synchronize(catalog, each, held, partitions, settings, dry_run=dry_run)
        for each, held in zip(wanted, found, strict=True)
    )


def _facts(snapshot: Snapshot) -> TableFacts:
    config, timeline = snapshot.config, snapshot.timeline
    _ = snapshot.schema_or_none  # Raises an error for a column that no entry could name.
    spec = config.key_spec
    commits = [each.requested_at for each in timeline.completed_commits()]
    completions = [timeline.completion_time(each) or each for each in commits]
    return TableFacts(
        config.name,
        _location(snapshot.storage.root),
        config.table_type is TableType.MERGE_ON_READ,
        snapshot.readable_schema,
        _comments(snapshot.schema_text),
        spec.partition_fields,
        tuple(formatted_fields(spec)),
        config.extractor.rpartition(".")[2],
        max(commits, default=None),
        max(completions, default=None),
        _spark_version(),
        _WRITER.get(config.version),
    )


def _comments(schema_text: str | None) -> dict[str, str]:
    held = parse_json(schema_text or "{}")
    return {each["name"]: each["doc"] for each in held.get("fields", ()) if each.get("doc")}


def _spark_version() -> str | None:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


def _location(root: str) -> str:
    """Return the address of a storage's root as Hadoop spells it.

    >>> _location("/lake/orders"), _location("s3://lake/orders")
    ('file:/lake/orders', 's3://lake/orders')
    """
    return f"file:{root}" if root.startswith("/") else root


def place_of_name(name: str, catalog: str | Catalog) -> str:
    """Return the folder of the table that a catalog knows by a name.

    Raises
    ------
    CatalogError
        If it does not know the name, or the name is no table of Hudi.
    ConfigError
        If the name is not ``database.table``.
    """
    check_texts(path=name)
    if "." not in name or not ENTRY_NAME.fullmatch(name):
        raise ConfigError("path", name, "with catalog= give a name of two parts: database.table")
    database, table = split_name(name)
    with closing(open_catalog(catalog)) as opened:
        held = opened.table(database, table)
    if held is None:
        problem = f"it knows no table {database}.{table}"
        step = "check the name, or register the table: bl.sync(table, …) (bucketlake sync)"
        raise CatalogError(opened.address, problem, step)
    if not held.is_hudi:
        problem = f"{held.title} is no table of Hudi there, but {held.format}"
        raise CatalogError(opened.address, problem, "read it by what made it, or check the name")
    return held.path


def entries_in_database(catalog: str | Catalog, database: str) -> list[TableEntry]:
    """Return the entries of the tables of Hudi in a database.

    Raises
    ------
    CatalogError
        If there is no such database.
    """
    database = database.lower()
    with closing(open_catalog(catalog)) as opened:
        if not opened.has_database(database):
            step = "check the name, or register a table in it: bl.sync(table, …) (bucketlake sync)"
            raise CatalogError(opened.address, f"there is no database {database}", step)
        found = [opened.table(database, name) for name in opened.table_names(database)]
    return [each for each in found if each is not None and each.is_hudi]


# ---- The doctor's look at the catalog in which a table registers itself, and a repair -------

_REFUSED = (CatalogError, ConfigError, InputError)


class EntryCheck:
    """Compares all partitions and columns, also where no commit followed the last sync."""

    def check(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Find the entries of a table that a sync would change, or why that cannot be told."""
        try:
            told = _synced(snapshot, dry_run=True)
        except _REFUSED as error:
            yield Finding(FindingKind.CATALOG_NOT_COMPARED, str(error))
            return
        for each in told.entries:
            if each.action != "unchanged":
                yield Finding(FindingKind.CATALOG_BEHIND, _meaning(each))

    def mend(self, snapshot: Snapshot) -> None:
        """Sync; what the catalog refuses remains a finding."""
        with suppress(*_REFUSED):
            _synced(snapshot, dry_run=False)


def _synced(snapshot: Snapshot, *, dry_run: bool) -> SyncResult:
    assert snapshot.config.sync is not None
    where = Registration.of_text(snapshot.config.sync)
    settings = replace(where.settings, incremental=False)
    return sync_table(snapshot, where.catalog, settings, dry_run=dry_run)


def _meaning(entry: TableSync) -> str:
    if entry.action == "created":
        return f"the catalog has no table {entry.name}"
    counts = {"missing": entry.added, "elsewhere": entry.moved, "no longer there": entry.dropped}
    differs = [f"{count} partitions {how}" for how, count in counts.items() if count]
    if entry.columns:
        differs.insert(0, f"columns {', '.join(entry.columns)}")
    return f"{entry.name} in the catalog differs: {'; '.join(differs) or 'its properties'}"
