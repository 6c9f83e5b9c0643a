"""For all histories, the metadata table lists the files that a plain dict of them has.

The history has commits that complete in any order, some that died in between, a compaction, and a
log compaction. The dict is changed commit by commit, in order of completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.metadata.entry_reader import read_all, read_keys
from bucketlake.metadata.file_listing import FileChanges, listed_files, listed_partitions
from tests.metadata_tables import (
    FIRST,
    Entries,
    MadeTable,
    at,
    data_block,
    delete_block,
    partition_list,
    sizes_of,
)

PARTITIONS = ("a", "b", "c")
FILES = tuple(f"f{i}-0_1-0-1_{at(1)}.parquet" for i in range(3))

Sizes = dict[str, int | None]
Model = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Commit:
    """What a commit changes: files by partition, and partitions that it removes."""

    changes: Mapping[str, Sizes]
    removed: frozenset[str]
    counts: bool

    @property
    def entries(self) -> Entries:
        listed = partition_list(*self.changes, removed=sorted(self.removed))
        return listed | {k: v for p, s in self.changes.items() for k, v in sizes_of(p, s).items()}

    def apply(self, model: Model) -> None:
        for partition, sizes in self.changes.items():
            files = model.setdefault(partition, {})
            for name, size in sizes.items():
                if size is None:
                    files.pop(name, None)
                else:
                    files[name] = max(size, files.get(name, 0))
        for partition in self.removed:
            model.pop(partition, None)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    sizes = st.dictionaries(st.sampled_from(FILES), st.none() | st.integers(1, 9))
    changes = draw(st.dictionaries(st.sampled_from(PARTITIONS), sizes))
    removed = draw(st.frozensets(st.sampled_from(PARTITIONS), max_size=1)) - changes.keys()
    return Commit(changes, removed, draw(st.sampled_from([True, True, True, False])))


def base_of(model: Model) -> Entries:
    listed = partition_list(*model)
    return listed | {k: v for p, s in model.items() for k, v in sizes_of(p, {**s}).items()}


@st.composite
def histories(draw: st.DrawFn) -> tuple[MadeTable, Model]:
    made, model = MadeTable(), Model()
    made.initialise(partition_list())
    held: Sequence[Commit] = draw(st.lists(commits(), max_size=6))
    order = draw(st.permutations(range(len(held))))
    compacted_after = draw(st.integers(-1, len(held)))
    for place, number in enumerate(order):
        commit, instant = held[number], at(100 + number)
        completed = at(200 + 10 * place)
        made.commit(instant, completed)
        made.data(instant, completed if commit.counts else None)
        blocks = [data_block(commit.entries, instant)]
        blocks += [delete_block(sorted(commit.removed), instant)] if commit.removed else []
        made.log(instant, *blocks)
        if commit.counts:
            commit.apply(model)
        if place == compacted_after:
            # All older commits completed before it, and all later ones complete after it.
            made.commit(at(205 + 10 * place), at(400), action="compaction", operation="COMPACT")
            made.base(at(205 + 10 * place), base_of(model))
    return made, model


@given(history=histories())
def test_listing_is_that_of_a_dict(history: tuple[MadeTable, Model]) -> None:
    made, model = history
    table = made.open()
    assert listed_partitions(table) == sorted(model)
    expected = {f"{p}/{name}": size for p, files in model.items() for name, size in files.items()}
    assert {file.path: file.size_bytes for file in listed_files(table)} == expected
    for partition in PARTITIONS:
        found = {file.path: file.size_bytes for file in listed_files(table, [partition])}
        own = {path: size for path, size in expected.items() if path.startswith(f"{partition}/")}
        assert found == own


KEYS = [f"k{i}" for i in range(8)]


@given(
    layers=st.lists(
        st.tuples(st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=3)), st.booleans()),
        max_size=6,
    ),
    wanted=st.lists(st.sampled_from(KEYS)),
)
def test_newest_entries_are_those_of_a_dict(
    layers: Sequence[tuple[dict[str, bytes], bool]], wanted: Sequence[str]
) -> None:
    """A layer puts its entries, or deletes their keys."""
    made, model = MadeTable(), dict[str, bytes]()
    made.initialise({})
    for number, (held, is_delete) in enumerate(layers, start=10):
        made.both(at(number), at(number + 20))
        block = delete_block(list(held), at(number)) if is_delete else data_block(held, at(number))
        made.log(at(number), block)
        model = {k: v for k, v in model.items() if k not in held} if is_delete else model | held
    for found, keys in (
        (read_all(made.open(), "files"), KEYS),
        (read_keys(made.open(), "files", pa.array(wanted, pa.string())), wanted),
    ):
        newest = [entries.newest() for entries in found]
        pairs = {
            key.decode(): value
            for entries in newest
            for key, value in zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
        }
        assert pairs == {key: value for key, value in model.items() if key in keys}
        assert sum(len(entries.keys) for entries in newest) == len(pairs)
    assert FIRST


CHANGES = st.lists(
    # Few files, so that a file is often removed and written again.
    st.tuples(st.integers(0, 1), st.sampled_from(FILES[:2]), st.none() | st.integers(0, 9)),
    max_size=16,
)


@given(changes=CHANGES)
def test_live_files_are_those_of_a_dict(changes: Sequence[tuple[int, str, int | None]]) -> None:
    model: dict[tuple[int, str], int] = {}
    for place, name, size in changes:
        if size is None:
            model.pop((place, name), None)
        else:
            model[place, name] = max(size, model.get((place, name), 0))
    live = FileChanges(
        np.array([place for place, _, _ in changes], np.int64),
        pa.array([name for _, name, _ in changes], pa.string()),
        np.array([size or 0 for _, _, size in changes], np.int64),
        np.array([size is None for _, _, size in changes], np.bool_),
    ).live()
    columns = live.places.tolist(), live.names.to_pylist(), live.sizes_bytes.tolist()
    assert {(p, n): size for p, n, size in zip(*columns, strict=True)} == model
    assert len(live.names) == len(model)
