"""A sync: the wanted entry of a table is compared with that of a catalog, which then is mended.

Only differences are sent, in an order that a killed sync does not break: columns before partitions,
and at the end the last commit, which says that all before it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from bucketlake.catalogs.catalog import (
    LAST_COMMIT,
    LAST_COMPLETION,
    Catalog,
    CatalogColumn,
    KeyValues,
    TableEntry,
    batches,
    is_inside,
    same_place,
)
from bucketlake.catalogs.settings import SyncSettings
from bucketlake.catalogs.table_entries import (
    EXTRACTOR,
    SPARK,
    WRITER,
    TableFacts,
    extractor_of,
    fields_of,
    partition_values,
)
from bucketlake.errors import CatalogError, InputError
from bucketlake.timeline.instant import UNDOING

if TYPE_CHECKING:
    from bucketlake.read.snapshot import Snapshot

_CREATED_BY = f"{SPARK}create.version"
_OF_SCHEMA = f"{SPARK}sources.schema"
_OF_COMMITS = (LAST_COMMIT, LAST_COMPLETION)
_OURS = (_OF_SCHEMA, *_OF_COMMITS, WRITER, EXTRACTOR)
"""Beginnings of properties that a sync takes away, too: not every table has them."""
_KEYS_OF_HUDI = (("bigint", "string"), ("timestamp", "bigint"))
"""Types of partition keys that Hudi's sync gives, and ours in their place."""


class PartitionsOfTable:
    """The partitions of a pinned table: the values that a catalog knows them by, and locations.

    They are looked up once, for all entries of the table.
    """

    def __init__(self, snapshot: Snapshot, facts: TableFacts, settings: SyncSettings) -> None:
        self._snapshot, self._location = snapshot, facts.location
        self._keys = len(fields_of(facts, settings))
        self._extractor = extractor_of(facts, settings)
        self.touched_since = cache(self._touched_since)  # Each entry asks.

    @cached_property
    def every(self) -> Mapping[KeyValues, str]:
        """All partitions with live files."""
        paths = {held.partition_path for held in self._snapshot.all_slices()}
        return {values: self._place(path) for values, path in self._by_values(paths).items()}

    def undone_since(self, entry: TableEntry) -> bool:
        """Return whether a rollback or a restore ended after the commit that an entry notes.

        Commits that it undid may be older than that one, or of a sync that died.
        """
        noted = entry.parameters.get(LAST_COMPLETION) or entry.parameters.get(LAST_COMMIT, "")
        return self._last_undo > noted

    @cached_property
    def _last_undo(self) -> str:
        undone = self._snapshot.timeline.completed(*UNDOING)
        return max((each.completed_at or each.requested_at for each in undone), default="")

    def _touched_since(self, commit: str) -> Mapping[KeyValues, str | None] | None:
        """Return the partitions that commits after one touched, with None for one that is gone.

        None if the timeline does not tell, as after a restore.
        """
        timeline, storage = self._snapshot.timeline, self._snapshot.storage
        ends = {
            each: timeline.completion_time(each.requested_at) or each.requested_at
            for each in timeline.completed_commits()
        }
        last = next((end for each, end in ends.items() if each.requested_at == commit), None)
        if last is None:
            return None
        touched: set[str] = set()
        for _, read in timeline.read_commits(storage, [each for each in ends if ends[each] > last]):
            touched.update(read.write_stats, read.replaced_file_ids)
        live = {held.partition_path for held in self._snapshot.partition_slices(sorted(touched))}
        return {
            values: self._place(path) if path in live else None
            for values, path in self._by_values(touched).items()
        }

    def _place(self, path: str) -> str:
        return f"{self._location}/{path}"

    def _by_values(self, paths: Iterable[str]) -> dict[KeyValues, str]:
        """Return paths by their values; two paths with the same values are an error."""
        found: dict[KeyValues, str] = {}
        for path in sorted(paths):
            values = partition_values(path, self._keys, self._extractor)
            if found.setdefault(values, path) != path:
                raise InputError(
                    f"partitions {found[values]!r} and {path!r}",
                    f"{self._extractor} gives both the values {', '.join(values)}",
                    "choose another hoodie.datasource.hive_sync.partition_extractor_class",
                )
        return found


@dataclass(frozen=True, slots=True)
class TableSync:
    """What a sync did, or would do, with one entry.

    Attributes
    ----------
    name : str
        Database and table.
    action : str
        ``created``, ``replaced``, ``altered`` or ``unchanged``.
    columns : tuple of str
        Columns that were added, or got another type.
    added, moved, dropped : int
        Partitions.
    left : tuple of str
        Partitions of the catalog that the table does not have and that lie elsewhere: somebody else
        made them.
    """

    name: str
    action: str
    columns: tuple[str, ...] = ()
    added: int = 0
    moved: int = 0
    dropped: int = 0
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class _Difference:
    """What has to be done with partitions."""

    add: dict[KeyValues, str] = field(default_factory=dict)
    move: dict[KeyValues, str] = field(default_factory=dict)
    drop: list[KeyValues] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.add or self.move or self.drop)


def entry_in_place(
    catalog: Catalog, wanted: TableEntry, *, replaces: bool
) -> tuple[TableEntry | None, TableEntry | None]:
    """Return the entry that a sync alters, and the one that it drops first; None for either.

    Raises
    ------
    CatalogError
        If the catalog has a table of that name elsewhere, of another format, or with other
        partition keys, which no catalog changes, and it is not to be replaced. Columns of other
        types are altered, unless it is.
    """
    stored = catalog.table(wanted.database, wanted.name)
    if stored is None:
        return None, None
    types = zip(stored.columns, wanted.columns, strict=False)
    types_differ = any(old.type != new.type for old, new in types)  # A metastore may refuse that.
    if not stored.is_hudi:
        problem = f"{wanted.title} is no table of Hudi there, but {stored.format}"
        step = (
            "choose another name, or pass replace=True (--replace) to drop that entry, and no file"
        )
    elif not same_place(stored.location, wanted.location):
        problem = f"{wanted.title} is a table at {stored.location}, not at {wanted.location}"
        step = "choose another name, or pass replace=True (--replace) to give it this table"
    elif not _same_keys(stored.keys, wanted.keys):
        problem = (
            f"{wanted.title} has {_told_keys(stored.keys)}, and the table has "
            f"{_told_keys(wanted.keys)}"
        )
        step = "pass replace=True (--replace) to drop that entry, and no file, and make another"
    elif replaces and types_differ:
        return None, stored
    else:
        return stored, None
    if not replaces:
        raise CatalogError(catalog.address, problem, step)
    return None, stored


def _same_keys(stored: Sequence[CatalogColumn], wanted: Sequence[CatalogColumn]) -> bool:
    """Return whether keys have one name and type, or the type that Hudi gives where we do not."""
    if [key.name for key in stored] != [key.name for key in wanted]:
        return False
    pairs = {(old.type, new.type) for old, new in zip(stored, wanted, strict=True)}
    return all(old == new or (old, new) in _KEYS_OF_HUDI for old, new in pairs)


def _told_keys(keys: Sequence[CatalogColumn]) -> str:
    if not keys:
        return "no partition keys"
    return f"the partition keys {', '.join(f'{key.name} {key.type}' for key in keys)}"


def synchronize(
    catalog: Catalog,
    wanted: TableEntry,
    held: tuple[TableEntry | None, TableEntry | None],
    partitions: PartitionsOfTable,
    settings: SyncSettings,
    *,
    dry_run: bool = False,
) -> TableSync:
    """Bring the entry of a catalog to what it is to be, and return what that took.

    Parameters
    ----------
    held : tuple of TableEntry or None
        What :func:`entry_in_place` returned.
    dry_run : bool
        Whether only to look.

    Raises
    ------
    CatalogError
        If the catalog refuses.
    """
    stored, dropped = held
    if stored is None:
        return _created(catalog, wanted, dropped, partitions, dry_run)
    merged = _merged(stored, wanted)
    is_other_rule = _differ(stored, wanted, EXTRACTOR)
    if is_other_rule:
        settings = replace(settings, incremental=False)
    is_old = _differ(stored, wanted, *_OF_COMMITS) or partitions.undone_since(stored)
    found = _Difference()
    if wanted.keys and (is_old or not settings.incremental):
        found = _difference(catalog, stored, partitions, settings)
    columns = _changed_columns(stored.columns, merged.columns)
    if not columns and found.is_empty and settings.conditional:
        merged = replace(merged, parameters=_with_commits_of(merged, stored))
    is_same = merged == stored
    told = TableSync(
        wanted.title,
        "unchanged" if is_same and found.is_empty else "altered",
        columns,
        len(found.add),
        len(found.move),
        len(found.drop),
        tuple(found.left),
    )
    if dry_run:
        return told
    if found.is_empty:
        if not is_same:
            catalog.alter_table(merged, cascade=bool(columns))
        return told
    if columns or is_other_rule:
        # Where partitions get other values, no commit is noted until all have them.
        before = replace(stored, parameters={}) if is_other_rule else stored
        until_done = replace(merged, parameters=_with_commits_of(merged, before))
        catalog.alter_table(until_done, cascade=bool(columns))
        merged = _merged(catalog.table(wanted.database, wanted.name) or merged, wanted)
    _send(catalog, merged, found)
    catalog.alter_table(merged, cascade=False)
    return told


def without_commits(entry: TableEntry) -> TableEntry:
    """Return an entry that names no commit yet, so that the next sync completes it."""
    kept = {k: v for k, v in entry.parameters.items() if k not in _OF_COMMITS}
    return replace(entry, parameters=kept)


def _created(
    catalog: Catalog,
    wanted: TableEntry,
    dropped: TableEntry | None,
    partitions: PartitionsOfTable,
    dry_run: bool,
) -> TableSync:
    found = _Difference(add=dict(partitions.every) if wanted.keys else {})
    if not dry_run:
        if dropped is not None:
            catalog.drop_table(dropped)
        catalog.create_table(without_commits(wanted) if found.add else wanted)
        if found.add:
            made = catalog.table(wanted.database, wanted.name)
            if made is None or not same_place(made.location, wanted.location):
                problem = f"another process dropped {wanted.title}, or gave it another table"
                raise CatalogError(catalog.address, problem, "sync again")
            _send(catalog, made, found)
            catalog.alter_table(_merged(made, wanted), cascade=False)
    action = "created" if dropped is None else "replaced"
    return TableSync(wanted.title, action, added=len(found.add))


def _send(catalog: Catalog, entry: TableEntry, found: _Difference) -> None:
    for some in batches(found.add, catalog.batch):
        catalog.add_partitions(entry, {values: found.add[values] for values in some})
    for some in batches(found.move, catalog.batch):
        catalog.move_partitions(entry, {values: found.move[values] for values in some})
    for some in batches(found.drop, catalog.batch):
        catalog.drop_partitions(entry, some)


def _merged(stored: TableEntry, wanted: TableEntry) -> TableEntry:
    """Return the wanted entry with what others added to the stored one: properties, comments."""
    comments = {each.name: each.comment for each in stored.columns}
    columns = tuple(
        CatalogColumn(each.name, each.type, each.comment or comments.get(each.name, ""))
        for each in wanted.columns
    )
    others = {k: v for k, v in stored.parameters.items() if not k.startswith(_OURS)}
    parameters = {**others, **wanted.parameters}
    if _CREATED_BY in stored.parameters:  # Of the first writer; another Spark is no difference.
        parameters[_CREATED_BY] = stored.parameters[_CREATED_BY]
    serde = {**stored.serde, **wanted.serde}
    path = stored.serde.get("path", "")
    if path and same_place(path, wanted.serde["path"]):  # A spelling is no difference.
        serde["path"] = path
    return replace(
        stored,
        columns=columns,
        input_format=wanted.input_format,
        parameters=parameters,
        serde=serde,
    )


def _differ(one: TableEntry, other: TableEntry, *keys: str) -> bool:
    return any(one.parameters.get(key) != other.parameters.get(key) for key in keys)


def _with_commits_of(entry: TableEntry, stored: TableEntry) -> dict[str, str]:
    noted = {k: stored.parameters[k] for k in _OF_COMMITS if k in stored.parameters}
    return {**without_commits(entry).parameters, **noted}


def _changed_columns(old: Iterable[CatalogColumn], new: Iterable[CatalogColumn]) -> tuple[str, ...]:
    known = {each.name: each.type for each in old}
    names = {each.name: each.type for each in new}
    changed = [name for name, held in names.items() if known.get(name) != held]
    changed += [name for name in known if name not in names]
    # Some readers take the columns of partitions by their places.
    return tuple(changed or (name for name, held in zip(names, known, strict=True) if name != held))


def _difference(
    catalog: Catalog, stored: TableEntry, partitions: PartitionsOfTable, settings: SyncSettings
) -> _Difference:
    since = stored.parameters.get(LAST_COMMIT)
    is_told = settings.incremental and not partitions.undone_since(stored)
    touched = partitions.touched_since(since) if since and is_told else None
    found = _Difference()
    if touched is not None:
        held = _located(catalog, stored, touched)
        wanted = {values: place for values, place in touched.items() if place is not None}
        gone = [values for values in held if values not in wanted]
    else:
        wanted = dict(partitions.every)
        known = catalog.values(stored)
        asked = [v for v in known if v not in wanted or not settings.incremental]
        held = {**dict.fromkeys(known, ""), **_located(catalog, stored, asked)}
        gone = [values for values in known if values not in wanted]
    for values, place in wanted.items():
        if values not in held:
            found.add[values] = place
        elif held[values] and not same_place(held[values], place):
            found.move[values] = place
    if found.move:
        _ = partitions.every  # Another path of these values may be one that no commit touched.
    for values in gone:
        if is_inside(held[values], stored.location):
            found.drop.append(values)
        elif held[values]:
            found.left.append("/".join(values))
    return found


def _located(
    catalog: Catalog, stored: TableEntry, values: Iterable[KeyValues]
) -> dict[KeyValues, str]:
    found: dict[KeyValues, str] = {}
    for some in batches(values, catalog.batch):
        found.update(catalog.locations(stored, some))
    return found
