"""Lookups in the record-level index, compared with a dict of what was written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import IndexStateError, MetadataTableError
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.metadata_record.record_schema import record_schema_json
from bucketlake.metadata.log_files import EntryEncoder, GroupEntries
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.metadata.record_index.entries_of_write import NewKeys, entries_of_shard
from bucketlake.metadata.record_index.locations import KeyLocations, RecordIndexReader
from bucketlake.metadata.record_index.shards import IndexShards, Shard, rows_by_number
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.timeline.open_table import opened_table
from tests.faulty_storage import FaultyStorage
from tests.metadata_tables import FIRST, MadeTable, at, partition_list

Group = tuple[str, str]  # Data partition and file id.
Entries = Mapping[Group, list[str]]


class MadeIndex:
    """A record-level index, made commit by commit, and a dict of what it has to hold."""

    def __init__(self, shards: IndexShards) -> None:
        self.shards = shards
        self.made = MadeTable().with_partitions("files", "record_index")
        self.made.initialise(partition_list())
        self.model: dict[tuple[str, str], str] = {}  # File ids by data partition and key.
        self._number = 1
        for shard in shards.shards():
            self._log(shard, FIRST, encode_birth_block(FIRST), "0-0-0")

    def base(self, instant: InstantTime) -> None:
        """Compact all shards: their base files hold the model."""
        by_group: dict[Group, list[str]] = defaultdict(list)
        for (path, key), file_id in self.model.items():
            by_group[path, file_id].append(key)
        for shard, entries in self._entries(by_group, {}).items():
            data = encode_hfile(entries.keys, entries.values, record_schema_json(), created_at_ms=0)
            name = f"record_index/{shard.file_id}_1-0-1_{instant}.hfile"
            self.made.storage.put(f"{METADATA_TABLE_FOLDER}/{name}", data)
        self.made.commit(instant, at(int(instant[-6:]) + 1), action="commit")

    def commit(self, new: Entries, gone: Mapping[str, list[str]] | None = None) -> None:
        """Complete a commit that inserts keys into file groups, and deletes keys."""
        self._number += 10
        instant = at(self._number)
        for shard, entries in self._entries(new, gone or {}).items():
            data = EntryEncoder(instant, self._number).log_file("record_index", entries)
            self._log(shard, instant, data, "1-0-1")
        self.made.both(instant, at(self._number + 5))
        for path, names in (gone or {}).items():
            for key in names:
                self._forget(path, key)
        for (path, file_id), names in new.items():
            for key in names:
                self._forget(path, key)
                self.model[path, key] = file_id

    def compact(self) -> None:
        self.base(at(self._number + 7))

    def open(self) -> RecordIndexReader:
        return RecordIndexReader(self.made.open())

    def _forget(self, path: str, key: str) -> None:
        paths = [path] if self.shards.is_partitioned else [p for p, k in self.model if k == key]
        for held in paths:
            self.model.pop((held, key), None)

    def _entries(self, new: Entries, gone: Mapping[str, list[str]]) -> dict[Shard, GroupEntries]:
        put: dict[Shard, list[NewKeys]] = defaultdict(list)
        for (path, file_id), names in new.items():
            for shard, keys in self._by_shard(path, names):
                put[shard].append(NewKeys(keys, path, FileId(file_id)))
        removed: dict[Shard, list[pa.Array]] = defaultdict(list)
        for path, names in gone.items():
            for shard, keys in self._by_shard(path, names):
                removed[shard].append(keys)
        return {
            shard: entries_of_shard(put[shard], removed[shard], self._number)
            for shard in {*put, *removed}
        }

    def _by_shard(self, path: str, names: list[str]) -> Iterator[tuple[Shard, pa.Array]]:
        keys = texts(names)
        for number, rows in rows_by_number(self.shards.numbers_of(keys, path)):
            yield self.shards.shard(number, path), keys.take(pa.array(rows))

    def _log(self, shard: Shard, instant: InstantTime, data: bytes, token: str) -> None:
        self.made.log(instant, data, file_id=shard.file_id, folder="record_index", token=token)


PARTITIONED = IndexShards(None, {"eu": 1, "us": 3})
GLOBAL = IndexShards(2)


def facts(located: KeyLocations) -> dict[tuple[str, str], str]:
    rows = located.found.to_table().to_pylist()
    return {(row["partition_path"], row["record_key"]): row["file_id"] for row in rows}


def found_in(reader: RecordIndexReader, path: str, keys: pa.Array) -> dict[tuple[str, str], str]:
    """Look up keys of a data partition; a global index finds those of others, too."""
    found = [facts(each) for each in reader.find_everywhere(keys, [path])]
    return {pair: held[pair] for held in found for pair in held if pair[0] == path}


def texts(names: list[str]) -> pa.Array:
    return pa.array(names, pa.string())


@pytest.mark.parametrize("shards", [PARTITIONED, GLOBAL], ids=["partitioned", "global"])
def test_newest_entry_of_a_key_counts(shards: IndexShards) -> None:
    index = MadeIndex(shards)
    index.commit({("eu", "f1"): ["a", "b"], ("us", "f2"): ["c", "d"]})
    index.compact()
    index.commit({("eu", "f3"): ["a"]}, {"us": ["c"]})
    index.commit({("us", "f4"): ["c"]}, {"eu": ["b"]})
    reader = index.open()
    (found,) = reader.find_everywhere(texts(["b", "a", "no such key"]), ["eu"])
    assert [row["file_id"] for row in found.to_table().to_pylist()] == [None, "f3", None]
    assert found_in(reader, "us", texts(["c", "d"])) == {("us", "c"): "f4", ("us", "d"): "f2"}
    assert found_in(reader, "eu", texts(["c"])) == {}
    assert facts(reader.read_partition("us")) == {("us", "c"): "f4", ("us", "d"): "f2"}
    assert reader.read_partition("nowhere").keys.to_pylist() == []


def test_key_in_two_data_partitions_is_found_in_both() -> None:
    index = MadeIndex(PARTITIONED)
    index.commit({("eu", "f1"): ["a"], ("us", "f2"): ["a"]})
    found = index.open().find_everywhere(texts(["a", "b"]))
    assert [facts(each) for each in found] == [{("eu", "a"): "f1"}, {("us", "a"): "f2"}]
    assert [each.codes[1] for each in found] == [-1, -1]
    assert [facts(f) for f in index.open().find_everywhere(texts(["a"]), ["us"])] == [
        {("us", "a"): "f2"}
    ]
    assert index.open().find_everywhere(texts(["a"]), ["nowhere"]) == []


def test_lookup_in_a_global_index_tells_the_data_partition() -> None:
    index = MadeIndex(GLOBAL)
    index.commit({("eu", "f1"): ["a"]})
    index.commit({("us", "f2"): ["a"]}, {"eu": ["a"]})
    (found,) = index.open().find_everywhere(texts(["a", "b"]))
    assert facts(found) == {("us", "a"): "f2"}


def test_lookup_of_no_keys_reads_nothing() -> None:
    index = MadeIndex(PARTITIONED)
    index.commit({("eu", "f1"): ["a"]})
    assert index.open().find_everywhere(texts([])) == []
    (found,) = MadeIndex(GLOBAL).open().find_everywhere(texts([]))
    assert found.codes.tolist() == []


def test_table_of_locations_has_each_file_id_once() -> None:
    index = MadeIndex(PARTITIONED)
    index.commit({("us", "f1"): ["a", "b"], ("us", "f2"): ["c"]})
    table = index.open().read_partition("us").to_table()
    assert sorted(table["file_id"].chunk(0).dictionary.to_pylist()) == ["f1", "f2"]
    assert {time.timestamp() for time in table["inserted_at"].to_pylist()} == {0.011}


def test_lookup_of_one_key_reads_only_its_shard() -> None:
    names = [f"k{number:05d}" for number in range(20_000)]
    index = MadeIndex(IndexShards(None, {f"p{number}": 2 for number in range(5)}))
    index.commit({(f"p{number}", "f"): names for number in range(5)})
    index.compact()
    index.commit({(f"p{number}", "g"): ["x", "y"] for number in range(5)})
    storage = FaultyStorage(index.made.storage)
    table = open_metadata_table(opened_table(storage, index.made.config), index.made.timeline)
    reader = RecordIndexReader(table)
    assert reader.shards.count("p3") == 2
    opened = len(storage.trace)
    assert found_in(reader, "p3", texts(["k00077"])) == {("p3", "k00077"): "f"}
    asked = [step for step in storage.trace[opened:] if step.operation.startswith("read")]
    number = int(PARTITIONED.with_partitions(["p3"], 2).numbers_of(texts(["k00077"]), "p3")[0])
    assert all(Shard(number, "p3").file_id in step.path for step in asked)
    assert len(asked) == 2  # The base file and the log file of the shard.


def test_damaged_file_is_named_with_its_byte_and_the_next_step() -> None:
    index = MadeIndex(GLOBAL)
    index.commit({("eu", "f1"): [f"k{number}" for number in range(100)]})
    index.compact()
    storage = index.made.storage
    for stored in list(storage.list(f"{METADATA_TABLE_FOLDER}/record_index")):
        if stored.path.endswith(".hfile"):
            storage.put(stored.path, b"\0" * 40 + storage.read(stored.path)[40:])
    with pytest.raises(MetadataTableError, match=r"\.hfile at byte 0: .*rebuild"):
        index.open().find_everywhere(texts(["k1", "k2", "k3"]))


def test_shards_of_both_kinds_are_refused() -> None:
    index = MadeIndex(GLOBAL)
    index.made.log(
        FIRST,
        encode_birth_block(FIRST),
        file_id="record-index-eu-0000-0",
        folder="record_index",
        token="0-0-0",
    )
    with pytest.raises(IndexStateError, match="'eu' has shards of its own"):
        index.open().find_everywhere(texts(["k"]))


# Any sequence of commits.

paths, file_ids = st.sampled_from(["eu", "us"]), st.sampled_from(["f1", "f2", "f3"])
names = st.sampled_from([f"k{number}" for number in range(12)] + ["", "ключ", "k\uffee", "k🙂"])
commits = st.tuples(
    st.dictionaries(st.tuples(paths, names), file_ids, max_size=8),
    st.sets(st.tuples(paths, names), max_size=6),
    st.booleans(),
)


@given(st.sampled_from([PARTITIONED, GLOBAL]), st.lists(commits, max_size=6))
def test_index_equals_a_dict_after_any_commits(
    shards: IndexShards,
    history: list[tuple[dict[tuple[str, str], str], set[tuple[str, str]], bool]],
) -> None:
    index = MadeIndex(shards)
    for added, removed, compacts in history:
        new: dict[Group, list[str]] = defaultdict(list)
        seen: set[str] = set()
        for (path, key), file_id in added.items():
            if shards.is_partitioned or key not in seen:
                new[path, file_id].append(key)
            seen.add(key)
        gone: dict[str, list[str]] = defaultdict(list)
        for path, key in sorted(removed):
            gone[path].append(key)
        index.commit(new, gone)
        if compacts:
            index.compact()
    reader = index.open()
    for path in ("eu", "us"):
        expected = {pair: file_id for pair, file_id in index.model.items() if pair[0] == path}
        assert facts(reader.read_partition(path)) == expected
        everything = texts(sorted({key for _, key in index.model} | {"absent"}))
        assert found_in(reader, path, everything) == expected
    shards_held = [reader.slices[s.data_partition][s.number] for s in reader.shards.shards()]
    read = [reader.read_slice(held) for held in shards_held]
    assert sum(len(each.keys) for each in read) == len(index.model)
