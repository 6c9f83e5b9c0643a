"""Rows followed through base files by their commit times, against states compared whole."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake.config.table_config import TableConfig
from bucketlake.format.base_file import encode_base_file
from bucketlake.merge.row_changes import row_changes
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.file_slice import DataFile
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.schema import META_NAMES, RECORD_KEY, with_meta
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.change_reader import versions_by_times
from bucketlake.read.slice_reader import ALL_KEYS, KeyShare, SliceReader
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from tests.faulty_storage import FaultyStorage
from tests.meta_columns import meta_columns

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
NEEDED = pa.schema([(RECORD_KEY, pa.string()), ("v", pa.int64())])
COMPARED = pa.schema([("k", pa.string()), ("v", pa.int64())])
SPEC = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
CONFIG = TableConfig("t", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)

Row = tuple[str, int, int]  # Key, value, and the step that wrote it.
State = list[Row] | None


def files_of(states: list[State], storage: Storage) -> list[DataFile | None]:
    """Write each state as a base file."""
    files: list[DataFile | None] = []
    for step, state in enumerate(states):
        if state is None:
            files.append(None)
            continue
        keys = pa.array([key for key, _, _ in state], pa.string())
        instant = InstantTime(f"2026{step:013}")
        name = BaseFileName(FileId("f-0"), "0-1-2", instant)
        meta = meta_columns(instant, 0, keys, "", name.to_file_name())
        meta[META_NAMES[0]] = pa.array([f"2026{at:013}" for _, _, at in state], pa.string())
        rows = pa.table({**meta, "id": keys, "v": pa.array([v for _, v, _ in state], pa.int64())})
        storage.put(name.to_file_name(), encode_base_file([rows] if state else [], SCHEMA).data)
        size = len(storage.read(name.to_file_name()))
        files.append(DataFile("", name, size))
    return files


def reader_of(storage: Storage) -> SliceReader:
    return SliceReader(storage, load_timeline(opened_table(storage, CONFIG)), with_meta(SCHEMA), ())


def found_in(
    storage: Storage, files: list[DataFile | None], share: KeyShare = ALL_KEYS
) -> list[tuple[int, Row | None, Row | None]] | None:
    """Return the changes of each step, with key and value of both sides."""
    found = versions_by_times(reader_of(storage), files, NEEDED, share)
    if found is None:
        return None
    rows, changes, steps = found
    changes, steps = changes.chosen(differ := changes.differ(rows, rows)), steps[differ]
    held = [*zip(*rows.to_pydict().values(), strict=True), None]
    sides = zip(steps.tolist(), changes.before.tolist(), changes.after.tolist(), strict=True)
    return sorted(((step, held[old], held[new]) for step, old, new in sides), key=str)


def expected_of(states: list[State]) -> list[tuple[int, Row | None, Row | None]]:
    """Compare the states whole."""
    found = []
    for step, (before, after) in enumerate(itertools.pairwise(states), 1):
        tables = [
            pa.table({"k": [row[0] for row in held], "v": [row[1] for row in held]}, COMPARED)
            for held in (before or [], after or [])
        ]
        changes = row_changes(*(pa.concat_arrays(table["k"].chunks) for table in tables))
        changes = changes.chosen(changes.differ(*tables))
        held = [[*zip(*table.to_pydict().values(), strict=True), None] for table in tables]
        found += [
            (step, held[0][old], held[1][new])
            for old, new in zip(changes.before.tolist(), changes.after.tolist(), strict=True)
        ]
    return sorted(found, key=str)


@st.composite
def histories(draw: st.DrawFn) -> list[State]:
    """Draw the files of a group: updates, inserts and deletes, some by a writer that sorts."""
    state: list[Row] = [(f"k{n}", n, 0) for n in range(draw(st.integers(0, 6)))]
    states: list[State] = [state or None]
    for step in range(1, draw(st.integers(1, 6)) + 1):
        numbers = st.lists(st.integers(0, 8), max_size=4, unique=True)
        batch = {f"k{n}": (f"k{n}", draw(st.integers(0, 2)), step) for n in draw(numbers)}
        gone = {f"k{n}" for n in draw(numbers)} - batch.keys()
        held = {key for key, _, _ in state}
        state = [batch.get(row[0], row) for row in state if row[0] not in gone]
        state += [row for key, row in batch.items() if key not in held]
        if draw(st.integers(0, 7)) == 0:
            state = draw(st.permutations(state))
        states.append(state)
    return states


@settings(max_examples=150)
@given(states=histories(), count=st.integers(1, 3))
def test_changes_are_those_of_states_compared_whole(states: list[State], count: int) -> None:
    storage = MemoryStorage.fresh()
    files = files_of(states, storage)
    shares = [KeyShare(number, count) for number in range(count)]
    parts = [found_in(storage, files, share) for share in shares]
    assert sorted((one for part in parts for one in part or ()), key=str) == expected_of(states)


def test_deletes_that_later_inserts_hide_are_found() -> None:
    """All files have as many rows, and each row its first commit time."""
    states: list[State] = [
        [("a", 1, 0), ("b", 2, 0), ("c", 3, 0)],
        [("b", 2, 0), ("c", 3, 0), ("d", 4, 1)],
        [("c", 3, 0), ("d", 4, 1), ("b", 9, 2)],
        [("c", 5, 3), ("d", 4, 1), ("b", 9, 2)],
    ]
    storage = MemoryStorage.fresh()
    assert found_in(storage, files_of(states, storage)) == expected_of(states)


def test_files_with_a_key_twice_are_left_to_others_if_rows_vanish() -> None:
    """Their first rows may be those that are left."""
    twice: State = [("a", 1, 0), ("a", 2, 0), ("b", 3, 0)]
    storage = MemoryStorage.fresh()
    added = [twice, [*twice, ("a", 4, 1)]]
    assert found_in(storage, files_of(added, storage)) == expected_of(added)
    assert found_in(storage, files_of([twice, twice[1:]], storage)) is None


def test_a_version_is_read_from_one_file_that_has_it() -> None:
    """The files between are opened for commit times alone, however many commits there are."""
    rng = np.random.default_rng(3)
    for count in (8, 32):
        state: list[Row] = [(f"k{n:05}", n, 0) for n in range(2_000)]
        states: list[State] = [state]
        for step, chosen in enumerate(rng.permutation(2_000)[: 10 * count].reshape(count, 10), 1):
            state = [*state]
            for n in chosen:
                state[n] = (f"k{n:05}", -step, step)
            states.append(state)
        storage = FaultyStorage(MemoryStorage.fresh())
        files = files_of(states, storage.inner)
        found = found_in(storage, files)
        assert found == expected_of(states)
        reads = [step.path for step in storage.trace if step.operation == "read"]
        paths = [file.path for file in files if file is not None]
        assert sorted(reads) == sorted([*paths, paths[0], paths[-1]])


def test_a_row_that_changed_often_is_read_from_each_file() -> None:
    states: list[State] = [[("a", step, step), ("b", 0, 0)] for step in range(5)]
    storage = MemoryStorage.fresh()
    assert found_in(storage, files_of(states, storage)) == expected_of(states)


@pytest.mark.parametrize("lacks", ["times", "columns"])
def test_files_without_commit_times_or_with_other_columns_are_left_to_others(lacks: str) -> None:
    storage = MemoryStorage.fresh()
    files = files_of([[("a", 1, 0)], [("a", 2, 1)]], storage)
    assert files[1] is not None
    keys = pa.array(["a"])
    rows = pa.table({**meta_columns(InstantTime("1"), 0, keys, "", "f"), "id": keys})
    if lacks == "times":
        rows = rows.set_column(0, META_NAMES[0], pa.array([None], pa.string()))
        rows = rows.append_column("v", pa.array([2]))
    schema = SCHEMA if lacks == "times" else SCHEMA.remove(1)
    content = encode_base_file([rows], schema).data
    storage.put(files[1].path, content)
    files[1] = DataFile("", files[1].name, len(content))
    assert found_in(storage, files) is None
