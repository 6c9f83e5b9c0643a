"""Random lives of a table beside a catalog: writes, undone writes, syncs that die, hands of others.

After each sync that ends, the entry is what a sync into an empty catalog makes, and what others put
into it. Another sync changes nothing then, whether it compares what is new or everything.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.catalogs.catalog import LAST_COMMIT, LAST_COMPLETION, KeyValues, TableEntry
from bucketlake.errors import IndexStateError, TimelineError
from bucketlake.read.history import TimelineEntry
from bucketlake.storage.memory import forget
from tests.catalog_services import Glue, Metastore, Name
from tests.choices import DEEP
from tests.memory_catalog import KilledError

SEEDS = range(2_000 if DEEP else 8)
STEPS = 24
NUMBERS = itertools.count()
REGIONS = ["eu", "us", "new york", "ü", "x"]
ADDED = ["x1", "x2", "x3"]
GROWS = ["add_columns", "widen_types"]
NAMES = ["sales.orders", "sales.orders", "sales.orders", "Archive.Old"]
INCREMENTAL = "hoodie.meta.sync.incremental"
CONDITIONAL = "hoodie.datasource.meta_sync.condition.sync"
EXTRACTOR = "hoodie.datasource.hive_sync.partition_extractor_class"
OF_ONE_FIELD = ["SinglePart", "HiveStyle"]


@dataclass
class Theirs:
    """What others put into an entry."""

    parameters: dict[str, str] = field(default_factory=dict)
    serde: dict[str, str] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    partitions: dict[KeyValues, str] = field(default_factory=dict)


class Life:
    """One table, one service, and a log."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random.choice
        self.service = draw([Metastore, Glue])()
        self.fields = draw([[], ["region"], ["region"], ["region", "city"]])
        self.hive_style = draw([True, False])
        self.table_type = draw(["copy_on_write", "copy_on_write", "merge_on_read"])
        self.conditional = draw([True, False, False])
        self.paths = [f"memory://catalog-{next(NUMBERS)}" for _ in range(2)]
        self.table, self.other = map(self.make, self.paths)
        self.other.upsert(self.batch(self.other), merge_schema=GROWS)
        self.theirs: dict[Name, Theirs] = defaultdict(Theirs)
        self.damaged: set[str] = set()
        """Names whose partitions somebody spoilt: only a sync that compares all mends them."""
        self.foreign: set[str] = set()
        """Names whose entry may be that of the other table."""
        self.log = [str({k: v for k, v in vars(self).items() if isinstance(v, str | list | bool)})]

    def make(self, path: str) -> bl.Table:
        return bl.create_table(
            path,
            schema=pa.schema(
                {"id": pa.string(), "v": pa.int32(), "region": pa.string(), "city": pa.string()}
            ),
            record_key="id",
            partition_by=self.fields,
            hive_style=self.hive_style,
            table_type=self.table_type,
            index=bl.SimpleBucket(1),
            metadata_table=False,
        )

    def live(self) -> None:
        actions: dict[Callable[[], None], float] = {
            self.write: 8, self.drop: 3, self.empty: 1, self.overwrite: 1, self.save: 2,
            self.restore: 2, self.roll_back: 4, self.archive: 1, self.sync: 6, self.die: 5,
            self.look: 1, self.be_edited: 4, self.be_spoilt: 1, self.meet_another: 1,
        }  # fmt: skip
        for action in self.random.choices([*actions], [*actions.values()], k=STEPS):
            self.log.append(action.__name__)
            action()
        self.sync()

    # What becomes of the table.

    def batch(self, table: bl.Table) -> pa.Table:
        """Return a row for each of some regions, sometimes with more columns or a wider type."""
        schema = table.schema()
        if self.random.random() < 0.15:
            more = [name for name in ADDED if name not in schema.names]
            for name in self.random.sample(more, min(1, len(more))):
                schema = schema.append(pa.field(name, pa.int64()))
        if self.random.random() < 0.1:
            place = schema.get_field_index("v")
            schema = schema.set(place, pa.field("v", pa.int64()))
        found = self.random.sample(REGIONS, self.random.randrange(1, 4))
        rows = [{"id": name, "v": 1, "region": name, "city": "a" * len(name)} for name in found]
        return pa.Table.from_pylist(rows, schema)

    def write(self) -> None:
        self.table.upsert(self.batch(self.table), merge_schema=GROWS)

    def overwrite(self) -> None:
        batch = self.batch(self.table)
        self.table.insert_overwrite(batch, whole_table=True, merge_schema=GROWS)

    def drop(self) -> None:
        held = sorted({bucket.partition_path for bucket in self.table.buckets()} - {""})
        gone = self.random.sample(held, min(len(held), self.random.choice([1, 2])))
        if gone:
            self.table.delete_partitions(gone)

    def empty(self) -> None:
        self.table.delete(where=f"region = '{self.random.choice(REGIONS)}'")

    def save(self) -> None:
        with suppress(TimelineError):
            self.table.savepoint()

    def restore(self) -> None:
        saved = [found.requested_at for found in self.table.timeline() if self._is(found, "save")]
        if saved:
            self.table.restore(max(saved))

    def roll_back(self) -> None:
        """Undo one of the last commits, sometimes one that others follow."""
        for saved in [each for each in self.table.timeline() if self._is(each, "save")]:
            if self.random.random() < 0.5:
                self.table.delete_savepoint(saved.requested_at)
        recent = [found for found in self.table.timeline() if self._is(found, "")][-4:]
        if recent:
            with suppress(TimelineError, IndexStateError):
                self.table.rollback(self.random.choice(recent).requested_at, cascade=True)

    def archive(self) -> None:
        self.table.archive(keep_min=2, keep_max=3)

    @staticmethod
    def _is(instant: TimelineEntry, begin: str) -> bool:
        is_save = instant.action.value == "savepoint"
        return bool(instant.completed_at) and (is_save if begin else instant.action.writes_data)

    # What becomes of the catalog.

    def sync(self) -> None:
        """Sync to the end; look before, sometimes."""
        name = self.random.choice(NAMES)
        options = self.options(name)
        replaces = name in self.foreign
        before = len(self.service.changes)
        told = None
        if self.random.random() < 0.3:
            told = self.run(name, options, replace=replaces, dry_run=True)
            assert len(self.service.changes) == before
        done = self.run(name, options, replace=replaces)
        assert told is None or told.entries == done.entries
        self.ended(name, options)

    def die(self) -> None:
        """Sync, and die at one of the calls."""
        name = self.random.choice(NAMES)
        options = self.options(name)
        self.service.lives = self.random.choice([*range(14), *range(5, 10)])
        self.service.does_last = self.random.random() < 0.5
        self.log.append(f"  at {self.service.lives}, done: {self.service.does_last}")
        try:
            self.run(name, options, replace=name in self.foreign)
        except KilledError:
            self.service.lives = None
            self.log.append("  died")
            for each in self.service.tables:
                self.forget_comments(self.entry(each), self.theirs[each])
        else:
            self.service.lives = None
            self.ended(name, options)

    def look(self) -> None:
        before = len(self.service.changes)
        name = self.random.choice(NAMES)
        self.run(name, self.options(name), replace=True, dry_run=True)
        assert len(self.service.changes) == before

    def be_edited(self) -> None:
        """Let somebody else add to an entry what a sync keeps."""
        for name in self.some_entry():
            entry, theirs, catalog = self.entry(name), self.theirs[name], self.service.opened()
            number = str(self.random.randrange(3))
            what = self.random.choice(["parameter", "serde", "comment", "partition"])
            self.log.append(f"  {name}: {what} {number}")
            if what == "parameter":
                theirs.parameters[f"p{number}"] = number
            elif what == "serde":
                theirs.serde[f"s{number}"] = number
            elif what == "comment":
                theirs.comments[self.random.choice(entry.columns).name] = f"comment {number}"
            elif entry.keys:
                values = (f"mars{number}",) * len(entry.keys)
                theirs.partitions[values] = f"s3://mars/{number}"
                catalog.add_partitions(entry, {values: theirs.partitions[values]})
                return
            catalog.alter_table(self.with_theirs(entry, theirs), cascade=False)

    def be_spoilt(self) -> None:
        """Let somebody else drop or move a partition that a sync made, or edit the schema."""
        for name in self.some_entry():
            entry, catalog = self.entry(name), self.service.opened()
            theirs = self.theirs[name].partitions
            ours = sorted(values for values in self.service.told(name) if values not in theirs)
            if ours and self.random.random() < 0.7:
                values = self.random.choice(ours)
                self.log.append(f"  {name}: {values}")
                if self.random.random() < 0.5:
                    catalog.drop_partitions(entry, [values])
                else:
                    catalog.move_partitions(entry, {values: f"{entry.location}/wrong"})
                self.damaged.update(each for each in NAMES if name in self.entries_of(each))
            else:
                kept = {k: v for k, v in entry.parameters.items() if "part.0" not in k}
                columns = entry.columns[:-1]
                self.theirs[name].comments.pop(entry.columns[-1].name, None)
                spoilt = replace(entry, parameters=kept, columns=columns)
                catalog.alter_table(spoilt, cascade=False)

    def meet_another(self) -> None:
        """Sync another table under the same name: refused, or in place of the entry."""
        name = self.random.choice(NAMES)
        held = [each for each in self.entries_of(name) if each in self.service.tables]
        if not held or name in self.foreign:
            return
        before = len(self.service.changes)
        with pytest.raises(bl.CatalogError, match="is a table at"):
            bl.sync(self.other, self.service.opened(), name)
        assert len(self.service.changes) == before
        if self.random.random() < 0.5:
            self.log.append("  in place")
            bl.sync(self.other, self.service.opened(), name, replace=True)
            self.foreign.add(name)
            self.damaged.discard(name)
            for each in self.entries_of(name):
                self.theirs[each] = Theirs()

    def options(self, name: str) -> dict[str, str]:
        given = {CONDITIONAL: "true"} if self.conditional else {}
        if name in self.damaged or self.random.random() < 0.15:
            given[INCREMENTAL] = "false"
        if len(self.fields) == 1 and self.hive_style and self.random.random() < 0.5:
            given[EXTRACTOR] = f"{self.random.choice(OF_ONE_FIELD)}PartitionValueExtractor"
        self.log.append(f"  {name} {given}")
        return given

    def run(self, name: str, options: dict[str, str], **more: bool) -> bl.SyncResult:
        table = bl.open_table(self.paths[0])
        return bl.sync(table, self.service.opened(), name, options=options, **more)

    def ended(self, name: str, options: dict[str, str]) -> None:
        """Check the entries after a sync that ended."""
        self.foreign.discard(name)
        self.damaged.discard(name)
        empty = type(self.service)()
        bl.sync(bl.open_table(self.paths[0]), empty.opened(), name, options=options)
        assert {*empty.tables} == {*self.entries_of(name)}
        for each in empty.tables:
            theirs, found = self.theirs[each], self.entry(each)
            self.forget_comments(found, theirs)
            wanted = empty.opened().table(*each)
            assert wanted is not None
            assert self.plain(found) == self.plain(self.with_theirs(wanted, theirs)), each
            told = self.service.told(each)
            assert {
                values: told.pop(values)[0] for values in theirs.partitions
            } == theirs.partitions
            assert told == empty.told(each), each
        before = [*self.service.changes]
        for more in ({}, {INCREMENTAL: "false"}):
            again = self.run(name, options | more)
            assert {entry.action for entry in again.entries} == {"unchanged"}, again
            assert self.service.changes == before

    def entries_of(self, name: str) -> list[Name]:
        database, table = name.lower().split(".")
        ends = ["", "_ro", "_rt"] if self.table_type == "merge_on_read" else [""]
        return [(database, f"{table}{end}") for end in ends]

    def some_entry(self) -> list[Name]:
        """Return one entry that is that of the table; none, if there is none."""
        foreign = {each for name in self.foreign for each in self.entries_of(name)}
        return (
            self.random.sample(sorted(self.service.tables.keys() - foreign), 1)
            if (self.service.tables.keys() - foreign)
            else []
        )

    def entry(self, name: Name) -> TableEntry:
        found = self.service.opened().table(*name)
        assert found is not None, name
        return found

    def plain(self, entry: TableEntry) -> TableEntry:
        """Return an entry without the last commit, where a sync does not always note it."""
        passed = (LAST_COMMIT, LAST_COMPLETION) if self.conditional else ()
        kept = {k: v for k, v in entry.parameters.items() if k not in passed}
        return replace(entry, parameters=kept)

    @staticmethod
    def forget_comments(entry: TableEntry, theirs: Theirs) -> None:
        """Forget the comments of columns that are gone."""
        names = {column.name for column in entry.columns}
        theirs.comments = {k: v for k, v in theirs.comments.items() if k in names}

    @staticmethod
    def with_theirs(entry: TableEntry, theirs: Theirs) -> TableEntry:
        return replace(
            entry,
            parameters={**entry.parameters, **theirs.parameters},
            serde={**entry.serde, **theirs.serde},
            columns=tuple(
                replace(column, comment=theirs.comments.get(column.name, ""))
                for column in entry.columns
            ),
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_entry_is_what_an_empty_catalog_would_get_and_what_others_made(seed: int) -> None:
    life = Life(seed)
    try:
        life.live()
    except Exception as error:  # Whatever is raised is a finding.
        raise AssertionError("\n".join([repr(error), *life.log])) from error
    finally:
        for path in life.paths:
            forget(path.removeprefix("memory://"))
