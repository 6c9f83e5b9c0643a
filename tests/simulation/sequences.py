"""Random sequences of all operations of a table, on tables of many shapes, against a model.

There is one writer, and nothing fails. The test looks for operations that do not work together,
such as a rollback before a rescale. The model is the list of valid commits, each with its effect on
a dictionary of rows. So a rollback removes commits from the list, time travel reads a part of the
list, and an incremental read returns the rows whose last commit is in the range.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.errors import IndexStateError, InputError, TimelineError
from bucketlake.model.result import WriteResult
from bucketlake.model.schema import PARTITION_PATH, RECORD_KEY
from bucketlake.services.check.findings import FindingKind
from bucketlake.services.rebucket.rescale import RescaleReport
from bucketlake.storage.memory import forget
from tests.simulation.conditions import Conditions
from tests.simulation.record import MISPLACED
from tests.simulation.resizes import drawn_limits, has_rings
from tests.simulation.shapes import MARKER, Key, Row, Shape

State = dict[Key, tuple[Row, str]]
GONE = "gone"
"""Before the key of a delete that is remembered, in a state."""
"""Rows of the table, each with the instant of its last commit, by partition and key values."""

SOURCE = "a source"
GROWS = ["add_columns", "widen_types"]
META = [RECORD_KEY, PARTITION_PATH]
BEGINNING = "0" * 17
PATTERNS = ["a", "b", "^a$", ".*", "=a", "x", "^$", "1", "__"]


@dataclass(frozen=True)
class Commit:
    """A commit, and its effect on the rows."""

    instant: str
    completed_at: str
    after: Callable[[State, str], State]
    rescales: bool
    position: int | None = None


class Player:
    """One run: a table, its model, and a log."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.shape = Shape(self.random)
        self.path = f"memory://sequence-{seed}-{id(self)}"
        self.handles = [self.shape.make(self.path)]
        self.commits: list[Commit] = []  # Valid commits, oldest first.
        self.saved: list[str] = []
        self.folders: dict[Key, str] = {}  # Known partition paths, by partition values.
        self.is_cleaned = False
        self.columns = 0  # Number of added columns.
        self.log = [str(vars(self.shape))]

    def play(self, steps: int) -> None:
        """Do random operations; check the table between them and at the end."""
        try:
            for _ in range(steps):
                self.step()
            self.check()
        except Exception as error:  # Whatever is raised is a finding.
            replay = f"replay: pytest tests/simulation/test_sequences.py --seed {self.seed}"
            raise AssertionError("\n".join([repr(error), *self.log, replay])) from error
        finally:
            forget(self.path.removeprefix("memory://"))

    def step(self) -> None:
        """Do a random operation, with a handle that may be as old as the table."""
        if self.random.random() < 0.3:
            self.handles.append(bl.open_table(self.path))
        actions: dict[Callable[[], None], float] = {
            self.write: 10, self.overwrite: 2, self.overwrite_all: 1, self.delete: 2,
            self.drop_partitions: 2, self.rescale: 4, self.resize: 4, self.roll_back: 5,
            self.save: 1, self.delete_savepoint: 1, self.restore: 1, self.clean: 1,
            self.archive: 1.5, self.compact: 3,
        }  # fmt: skip
        action = self.random.choices([*actions], [*actions.values()])[0]
        self.log.append(action.__name__)
        action()
        if action == self.roll_back or self.random.random() < 0.2:
            self.check()

    @property
    def table(self) -> bl.Table:
        """A random handle among the newest three."""
        return self.random.choice(self.handles[-3:])

    # Writes.

    def write(self) -> None:
        rows, batch = self._batch()
        operation = self.random.choice(["upsert"] * 8 + ["insert", "bulk_insert"])
        self.log.append(f"  {operation}")
        if operation == "upsert" and self.random.random() < 0.4:
            return self._follow(rows, batch)
        try:
            result = getattr(self.table, operation)(batch, merge_schema=GROWS)
        except InputError as error:
            assert operation == "bulk_insert", error  # noqa: PT017
            self.log.append(f"  refused: {error}")
        else:
            self._committed(result, self._upserted(rows))

    def _follow(self, rows: list[Row], batch: pa.Table) -> None:
        """Write rows of a source, from where the table is in it; or what the table has again."""
        held = self._position()
        end = (held or 0) + self.random.randrange(3)
        self.log.append(f"  from {held} to {end}")
        begin = {} if held is None else {"p": held + 1}
        position = bl.Position(SOURCE, {"p": end}, begin if end != held else {})
        result = self.table.upsert(batch, merge_schema=GROWS, position=position)
        assert result.skipped == (end == held), result
        self._committed(result, self._upserted(rows), position=end)

    def _position(self) -> int | None:
        """Return where the source is by the newest valid commit that moved it."""
        moved = [one.position for one in self.commits if one.position is not None]
        return moved[-1] if moved else None

    def overwrite(self) -> None:
        rows, batch = self._batch()
        size = len(self.shape.partitions)
        touched = {self.shape.partition_of(row) for row in rows}

        def after(state: State, instant: str) -> State:
            kept = {key: held for key, held in state.items() if key[:size] not in touched}
            return self._upserted(rows, meets=False)(kept, instant)

        self._committed(self.table.insert_overwrite(batch, merge_schema=GROWS), after)

    def overwrite_all(self) -> None:
        rows, batch = self._batch()
        if self.random.random() < 0.3:
            rows, batch = [], batch.slice(0, 0)
            self.log.append("  with nothing")
        after = self._upserted(rows, meets=False)
        result = self.table.insert_overwrite(batch, whole_table=True, merge_schema=GROWS)

        def alone(state: State, instant: str) -> State:
            return after({key: held for key, held in state.items() if key[0] == GONE}, instant)

        self._committed(result, alone)

    def delete(self) -> None:
        if not self.shape.deletes:
            return
        rows, batch = self._batch()
        gone = {self.shape.key_of(row) for row in rows}
        result = self.table.delete(batch.select([*self.shape.keys, *self.shape.partitions]))
        self._committed(result, lambda state, _: {k: v for k, v in state.items() if k not in gone})

    def drop_partitions(self) -> None:
        held = sorted({bucket.partition_path for bucket in self.table.buckets()})
        gone = self.random.sample(held, min(len(held), self.random.choice([1, 1, 2])))
        if not gone:
            return
        self.log.append(f"  {gone}")
        self._read()  # Learns the paths.
        dropped = {values for values, folder in self.folders.items() if folder in gone}
        size = len(self.shape.partitions)
        self._committed(
            self.table.delete_partitions(gone),
            lambda state, _: {k: v for k, v in state.items() if k[:size] not in dropped},
        )

    def rescale(self) -> None:
        """Give partitions other bucket counts; no row changes."""
        if has_rings(self.shape.index):
            return
        patterns = self.random.sample(PATTERNS, self.random.choice([1, 2]))
        rules = {pattern: self.random.randrange(1, 6) for pattern in patterns}
        asked: dict[str, Any] = {self.random.choice(["rules"] * 4 + ["add"]): rules}
        if self.random.random() < 0.6:
            asked["default"] = self.random.randrange(1, 5)
        self.log.append(f"  {asked}")
        result = self.table.rescale(**asked, dry_run=False)
        self._committed(result, lambda state, _: state, rescales=True)

    def resize(self) -> None:
        """Split and merge buckets, or only plan to; no row changes."""
        if not has_rings(self.shape.index):
            return
        asked = asdict(drawn_limits(self.random, self.shape.index)) | {
            "schedule_only": self.random.random() < 0.5
        }
        self.log.append(f"  {asked}")
        report = self.table.resize(**asked)
        self.log.append(f"  -> {report.instants}, planned {report.scheduled}")

    def _batch(self) -> tuple[list[Row], pa.Table]:
        """Return some rows, sometimes with a wider type or a new column."""
        schema = self.table.schema()
        widens, adds = self.random.random() < 0.1, self.random.random() < 0.07
        if adds:
            self.columns += 1
            schema = schema.append(pa.field(f"x{self.columns}", pa.int64()))
        rows = [self._row(schema.names) for _ in range(self.random.randrange(1, 7))]
        if widens:
            place = schema.get_field_index("v")
            schema = schema.set(place, pa.field("v", pa.int64()))
            for row in rows:
                row["v"] += 2**40
        self.log.append(f"  {rows}")
        return rows, pa.Table.from_pylist(rows, schema)

    def _row(self, names: list[str]) -> Row:
        row = {name: self.random.choice(values) for name, values in self.shape.values.items()}
        row |= {"v": self.random.randrange(1000), "ts": self.random.randrange(5)}
        if self.shape.has_marker:
            row[MARKER] = self.random.random() < 0.2
        added = [name for name in names if name.startswith("x")]
        return row | {name: self.random.choice([None, 1, 2]) for name in added}

    def _upserted(self, rows: list[Row], *, meets: bool = True) -> Callable[[State, str], State]:
        """Return the effect of an upsert: the greater ordering value wins, else the later row.

        A delete wins over a row with its ordering value, and is remembered if the rows meet the
        deletes before them; the state has it under ``GONE`` and the key.
        """
        meets = meets and self.shape.ordered

        def is_late(row: Row, held: Row | None) -> bool:
            return self.shape.ordered and held is not None and row["ts"] < held["ts"]

        def resets_key(row: Row) -> bool:
            return bool(row.get(MARKER)) and row["ts"] == 0  # An int's 0 is no ordering value.

        def after(state: State, instant: str) -> State:
            state = dict(state)
            best: dict[Key, Row] = {}
            for row in rows:
                key = self.shape.key_of(row)
                gone = state.get((GONE, *key)) if meets and not resets_key(row) else None
                if gone is not None and row["ts"] < gone[0]["ts"] + (not row.get(MARKER)):
                    continue
                held = best.get(key)
                ties = self.shape.ordered and held is not None and 0 < row["ts"] == held["ts"]
                loses = ties and held is not None and held.get(MARKER) and not row.get(MARKER)
                if not loses and not is_late(row, held):
                    best[key] = row
            for row in rows if meets else ():
                place = (GONE, *self.shape.key_of(row))
                newest = state[place][0]["ts"] if place in state else 0
                if row.get(MARKER) and row["ts"] > newest:
                    state[place] = (row, instant)
            for key, row in best.items():
                resets = resets_key(row)
                if not resets and is_late(row, state[key][0] if key in state else None):
                    continue
                if row.get(MARKER):
                    state.pop(key, None)
                else:
                    state[key] = (row, instant)
            return state

        return after

    def _committed(
        self,
        result: WriteResult | RescaleReport,
        after: Callable[[State, str], State],
        *,
        rescales: bool = False,
        position: int | None = None,
    ) -> None:
        self.log.append(f"  -> {result.instant}")
        if result.instant is None:
            return
        made = next(i for i in self.table.timeline() if i.requested_at == result.instant)
        commit = Commit(str(result.instant), str(made.completed_at), after, rescales, position)
        self.commits.append(commit)

    # Services.

    def roll_back(self) -> None:
        """Roll back one of the newest commits or compactions, sometimes with its dependents."""
        recent = [i for i in self.table.timeline() if i.completed_at and i.action.writes_data][-6:]
        if not recent:
            return
        instant, cascade = self.random.choice(recent).requested_at, self.random.random() < 0.7
        self.log.append(f"  {instant}, cascade={cascade}")
        try:
            report = self.table.rollback(instant, cascade=cascade)
        except (TimelineError, IndexStateError) as error:
            self.log.append(f"  refused: {error}")
        else:
            gone = {str(one.instant) for one in report.commits}
            self.log.append(f"  gone: {sorted(gone)}")
            self.commits = [one for one in self.commits if one.instant not in gone]

    def save(self) -> None:
        if not self.commits:
            return
        instant = self.random.choice([self.commits[-1], *self.commits[-4:]]).instant
        self.log.append(f"  {instant}")
        try:
            self.saved.append(str(self.table.savepoint(instant)))
        except TimelineError as error:
            self.log.append(f"  refused: {error}")

    def delete_savepoint(self) -> None:
        if self.saved:
            gone = self.random.choice(self.saved)
            self.log.append(f"  {gone}")
            self.table.delete_savepoint(gone)
            self.saved = [one for one in self.saved if one != gone]

    def restore(self) -> None:
        if self.saved:
            instant = max(self.saved)
            self.log.append(f"  {instant}")
            self.table.restore(instant)
            self.commits = [one for one in self.commits if one.instant <= instant]

    def clean(self) -> None:
        kept = self.random.randrange(1, 4)
        if self.random.random() < 0.5:
            self.table.clean(retain_commits=kept)
        else:
            self.table.clean(retain_versions=kept)
        self.is_cleaned = True

    def archive(self) -> None:
        kept = self.random.randrange(1, 5)
        self.table.archive(keep_min=kept, keep_max=kept + 1)

    def compact(self) -> None:
        """Compact, or only plan a compaction; no row changes."""
        if self.shape.merges_on_read:
            schedule_only = self.random.random() < 0.3
            self.log.append(f"  schedule_only={schedule_only}")
            files = self.random.choice([1, 1, 2])
            self.table.compact(min_log_files=files, schedule_only=schedule_only)

    # What must hold.

    def check(self) -> None:
        """Read the whole table, then do a random check."""
        self._check_buckets(self._read())
        found, held = bl.open_table(self.path).position(SOURCE), self._position()
        assert (found and found.last) == (None if held is None else {"p": held}), (found, held)
        checks: list[Callable[[], None]] = [self._check_where]
        if self.commits:
            checks += [self._check_past, self._check_range]
        self.random.choice(checks)()
        if self.random.random() < 0.05:  # Rarely, because it reads all files.
            found = bl.open_table(self.path).doctor(
                check_keys=True, check_files=True, min_age_seconds=0
            )
            # Some of the drawn keys hold the name of the next field.
            allowed = (FindingKind.LEFTOVER_OUTCOME, FindingKind.KEYS_AMBIGUOUS)
            wrong = [one for one in found if one.kind not in allowed]
            assert not wrong, f"the doctor finds {wrong}"

    def _read(self) -> list[Row]:
        table = bl.open_table(self.path)
        rows: list[Row] = table.to_arrow(columns=[*table.schema().names, *META]).to_pylist()
        for row in rows:
            self.folders[self.shape.partition_of(row)] = row[PARTITION_PATH]
        self._require_same(rows, self._state(), "the table")
        return rows

    def _check_buckets(self, rows: list[Row]) -> None:
        """Check that each row is in the bucket that the index computes, and is found there."""
        table = bl.open_table(self.path)
        found = table.doctor(check_keys=True, min_age_seconds=0)
        misplaced = [one for one in found if one.kind in MISPLACED]
        assert not misplaced, f"the doctor finds {misplaced}"
        for row in rows[:1]:
            assert len(table.locate(row[RECORD_KEY], row[PARTITION_PATH])) == 1, row

    def _check_where(self, as_of: str | None = None) -> None:
        text, holds = Conditions(self.random, self.shape.values).draw()
        found = bl.open_table(self.path).to_arrow(where=text, as_of=as_of).to_pylist()
        state = self._state(lambda one: as_of is None or one.instant <= as_of)
        then = {key: held for key, held in state.items() if holds(held[0])}
        self._require_same(found, then, f"as of {as_of} where {text}")

    def _check_past(self) -> None:
        """Read as of a commit; this may fail only after a clean, and never for a savepoint."""
        instant = self.random.choice(self.commits).instant
        state = self._state(lambda one: one.instant <= instant)
        try:
            found = bl.open_table(self.path).to_arrow(as_of=instant).to_pylist()
        except TimelineError:
            if not self.is_cleaned or instant in self.saved:
                raise
        else:
            self._require_same(found, state, f"as of {instant}")
            self._check_where(instant)

    def _check_range(self) -> None:
        """Read the changes between two times; a rescale may also return rows that it moved."""
        times = [BEGINNING, *[one.completed_at for one in self.commits]]
        since = self.random.choice(times)
        until = self.random.choice([None, *[time for time in times if time > since]])
        try:
            found = bl.open_table(self.path).to_arrow(since=since, until=until).to_pylist()
        except TimelineError:
            if not self.is_cleaned:
                raise
            return
        state = self._state(lambda one: until is None or one.completed_at <= until)
        instants = {one.instant for one in self.commits if one.completed_at > since}
        changed = {key: held for key, held in state.items() if held[1] in instants}
        what = f"since {since} until {until}"
        if any(one.rescales for one in self.commits):
            strange = [row for row in found if self.shape.key_of(row) not in state]
            assert not strange, f"{what}: {strange}"
            found = [row for row in found if self.shape.key_of(row) in changed]
        self._require_same(found, changed, what)

    def _state(self, counts: Callable[[Commit], bool] = lambda _: True) -> State:
        """Return the rows after the commits for which ``counts`` is true."""
        state: State = {}
        for one in filter(counts, self.commits):
            state = one.after(state, one.instant)
        return {key: held for key, held in state.items() if key[0] != GONE}

    def _require_same(self, found: list[Row], state: State, what: str) -> None:
        seen = {self.shape.key_of(row): row for row in found}
        assert len(seen) == len(found), f"{what}: a row is there twice: {found}"
        missing, extra = state.keys() - seen.keys(), seen.keys() - state.keys()
        assert not missing | extra, f"{what}: {missing} are missing, {extra} too many"
        for key, (row, _) in state.items():
            for name in row.keys() | seen[key].keys() - {*META}:
                held, meant = seen[key].get(name), row.get(name)
                if name in self.shape.partitions:  # Null and empty text share a folder.
                    held, meant = (None if v == "" else v for v in (held, meant))
                assert held == meant, f"{what}: {name} of {key} is {held}, not {meant}"
