"""Rewriting slices: the new base file has what a reader of the slice sees, for each kind."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import FormatError
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import BLOCK_BYTES
from bucketlake.format.log_block import BlockKind, HeaderKey, encode_block
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    ALL_PARTITIONS,
    IndexedLocation,
    decode_column_stats,
    decode_file_maps,
    decode_locations,
    encode_locations,
    record_schema_json,
)
from bucketlake.metadata.log_files import EntryEncoder
from bucketlake.metadata.rewrite import Rewritten, rewrite_slice
from bucketlake.metadata.statistics.merged import entries_of_statistics
from bucketlake.model.file_name import FileId
from tests.metadata_tables import (
    FILES_ID,
    FIRST,
    Entries,
    MadeTable,
    at,
    data_block,
    delete_block,
    partition_list,
    sizes_of,
)
from tests.unit.format.hfiles import encode_hfile
from tests.unit.format.older_records import as_written_before, older_schema
from tests.unit.metadata.test_changes import stats_of
from tests.written_metadata import FILES, PARTITION_STATS, RECORD_INDEX

INDEX_ID = "record-index-0000-0"


@dataclass
class Slice:
    """A slice in the making: a base file and log files, each with entries and removals."""

    partition: MetadataPartition
    file_id: str
    base: Entries | None = None
    logs: list[tuple[Entries, Sequence[str]]] = field(default_factory=list)
    made: MadeTable = field(default_factory=MadeTable)

    def __post_init__(self) -> None:
        self.made.with_partitions(str(self.partition))

    def rewritten(self) -> Rewritten | None:
        made, folder = self.made, str(self.partition)
        made.commit(FIRST, at(1), partitions=(folder,))
        if self.base is not None:
            made.base(FIRST, self.base, self.file_id, folder=folder)
        for number, (entries, removed) in enumerate(self.logs, 1):
            instant = at(10 * number)
            made.both(instant, at(10 * number + 5))
            blocks = [data_block(entries, instant)] if entries else []
            if removed:
                blocks.append(delete_block(removed, instant, folder))
            made.log(instant, *blocks, file_id=self.file_id, folder=folder)
        table = made.open()
        (held,) = table.slices(folder)
        encoder = EntryEncoder(at(9), 7, table.config.rules.has_value_types)
        return rewrite_slice(table, held, encoder)

    def result(self) -> dict[str, bytes]:
        done = self.rewritten()
        assert done is not None
        hfile = HFileReader.of_bytes(done.data, "new")
        assert hfile.entry_count == done.entry_count
        content = hfile.read()
        keys = [key.decode() for key in content.keys.to_pylist()]
        assert keys == sorted(set(keys), key=str.encode)
        if keys:  # Hudi finds no key after this one.
            assert hfile.info["hfile.LASTKEY"][2:] == keys[-1].encode()
        return dict(zip(keys, content.values.to_pylist(), strict=True))


def index_of(base: Entries | None = None) -> Slice:
    return Slice(RECORD_INDEX, INDEX_ID, base)


@cache
def location(number: int) -> bytes:
    (value,) = encode_locations([IndexedLocation("eu", FileId(f"group {number}"), 10)]).to_pylist()
    return bytes(value)


def many(count: int, number: int = 0) -> dict[str, bytes]:
    """Return entries of several blocks."""
    return {f"k{n:06d}": location(number) for n in range(count)}


def hudi_hfile(blocks: Sequence[Sequence[tuple[bytes, bytes]]]) -> bytes:
    """Return an HFile of blocks in any order, with the schema of records."""
    return encode_hfile(blocks, compressed=True, schema_json=record_schema_json())


LARGE = 3000


def test_large_entries_have_several_blocks() -> None:
    assert LARGE * 60 > 2 * BLOCK_BYTES


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(["k000000"], id="first key"),
        pytest.param(["k002999"], id="last key"),
        pytest.param(["a"], id="before all"),
        pytest.param(["z"], id="after all"),
        pytest.param(["k001500", "k001500a"], id="inside"),
        pytest.param(["k000000", "k002999", "k001000", "k000999z"], id="in several blocks"),
    ],
)
@pytest.mark.parametrize("is_removal", [False, True])
def test_locations_are_replaced_and_removed_wherever_they_are(
    changed: list[str], is_removal: bool
) -> None:
    entries = index_of(many(LARGE))
    expected = many(LARGE)
    if is_removal:
        entries.logs = [({}, changed)]
        expected = {key: value for key, value in expected.items() if key not in changed}
    else:
        puts = {key: location(1) for key in changed}
        entries.logs = [(puts, ())]
        expected |= puts
    assert entries.result() == expected


def test_blocks_without_changes_are_copied_as_they_are() -> None:
    entries = index_of(many(LARGE))
    entries.logs = [({"k001500": location(1)}, ())]
    done = entries.rewritten()
    assert done is not None
    (path,) = [o.path for o in entries.made.storage.list("") if o.path.endswith(".hfile")]
    old, new = (
        HFileReader.of_bytes(data, "f") for data in (entries.made.storage.read(path), done.data)
    )
    stored = [
        [without_position(block) for block in reader.stored_blocks(reader.data_blocks())]
        for reader in (old, new)
    ]
    assert len(stored[0]) == len(stored[1]) == 3
    assert [a == b for a, b in zip(*stored, strict=True)].count(False) == 1


def without_position(block: memoryview) -> bytes:
    return bytes(block[:16]) + bytes(block[24:])


def test_last_block_that_is_emptied_gives_its_end_to_the_block_before() -> None:
    """Hudi would not find keys after the last key of the file info."""
    entries = index_of(many(LARGE))
    entries.logs = [({}, [key for key in many(LARGE) if key >= "k001500"])]
    assert entries.result() == {k: v for k, v in many(LARGE).items() if k < "k001500"}


def test_all_entries_may_be_removed() -> None:
    entries = index_of(many(10))
    entries.logs = [({}, list(many(10)))]
    assert entries.result() == {}


def test_newest_of_several_log_files_wins_and_a_removed_key_may_come_back() -> None:
    entries = index_of({"a": location(0), "b": location(0), "c": location(0)})
    entries.logs = [
        ({"a": location(1), "d": location(1)}, ["b", "c"]),
        ({"b": location(2)}, ["a", "d"]),
        ({"d": location(3)}, ()),
    ]
    assert entries.result() == {"b": location(2), "d": location(3)}


def test_slice_without_base_file_gets_one() -> None:
    entries = index_of()
    entries.logs = [({"b": location(1), "a": location(1)}, ()), ({}, ["b"])]
    assert entries.result() == {"a": location(1)}


def test_log_files_without_content_change_nothing() -> None:
    entries = index_of(many(3))
    entries.made.log(FIRST, encode_birth_block(FIRST), file_id=INDEX_ID, folder="record_index")
    assert entries.rewritten() is None


def test_base_file_in_the_order_of_java_is_put_into_the_order_of_bytes() -> None:
    """Hudi sorts by UTF-16 units: a character beyond U+FFFF before one from U+E000 on."""
    in_java = [(key.encode(), location(0)) for key in ("a😀", "a～")]
    entries = index_of()
    entries.logs = [({"b": location(1)}, ())]
    path = f"{METADATA_TABLE_FOLDER}/record_index/{INDEX_ID}_1-0-1_{FIRST}.hfile"
    entries.made.storage.put(path, hudi_hfile([in_java]))
    assert list(entries.result()) == ["a～", "a😀", "b"]


def test_uncompressed_base_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = index_of(many(5))
    entries.logs = [({"a": location(1)}, ())]
    monkeypatch.setattr(HFileReader, "is_gzip", False)
    assert entries.result() == many(5) | {"a": location(1)}


# The list of files.


def test_files_are_added_removed_and_counted_once() -> None:
    slice_ = Slice(FILES, FILES_ID)
    slice_.base = {
        **partition_list("eu", "us"),
        **sizes_of("eu", {"a": 1, "b": 2}),
        **sizes_of("us", {"c": 3}),
    }
    slice_.logs = [
        (
            {
                **partition_list("eu", "asia"),
                **sizes_of("eu", {"d": 4}),
                **sizes_of("asia", {"e": 5}),
            },
            (),
        ),
        (sizes_of("eu", {"a": None, "d": 9, "unknown": None}), ()),
        ({**partition_list(removed=["us"])}, ["us"]),
    ]
    found = {
        key: {name: entry["size_bytes"] for name, entry in entries}
        for key, entries in maps_in(slice_.result()).items()
    }
    assert found == {
        ALL_PARTITIONS: {"asia": 0, "eu": 0},
        "asia": {"e": 5},
        "eu": {"b": 2, "d": 9},
    }


def maps_in(content: Mapping[str, bytes]) -> dict[str, list[tuple[str, dict[str, int]]]]:
    values = pa.array(list(content.values()), pa.binary())
    kinds, maps = decode_file_maps(values, "f")
    lists = [key for key, kind in zip(content, kinds.tolist(), strict=True) if kind == 1]
    assert set(lists) <= {ALL_PARTITIONS}
    return dict(zip(content, maps.to_pylist(), strict=True))


def test_partition_without_files_keeps_its_record() -> None:
    slice_ = Slice(FILES, FILES_ID, {**partition_list("eu"), **sizes_of("eu", {"a": 1})})
    slice_.logs = [(sizes_of("eu", {"a": None}), ())]
    assert maps_in(slice_.result())["eu"] == []


def test_records_that_no_log_file_names_keep_their_bytes() -> None:
    base = {**partition_list("eu", "us"), **sizes_of("us", {"c": 3})}
    slice_ = Slice(FILES, FILES_ID, base)
    slice_.logs = [(sizes_of("eu", {"a": 1}), ())]
    assert slice_.result() == base | sizes_of("eu", {"a": 1})


# Statistics: the rules are those of merged_statistics; here it matters that each entry counts once.


def test_statistics_of_many_log_files_are_united() -> None:
    def bounds(low: int, high: int) -> bytes:
        entries = entries_of_statistics({"eu": stats_of({"f": {"id": (low, high)}})})
        (value,) = entries[MetadataPartition(PARTITION_STATS)].values.to_pylist()
        return bytes(value)

    slice_ = Slice(
        PARTITION_STATS, "partition-stats-0000-0", {"x": bounds(5, 6), "y": bounds(1, 1)}
    )
    slice_.logs = [({"x": bounds(n, n)}, ()) for n in (7, 3, 4)]
    slice_.logs += [({"z": bounds(2, 2)}, ["y"]), ({"y": bounds(9, 9)}, ())]
    content = slice_.result()
    _, stats = decode_column_stats(pa.array(list(content.values()), pa.binary()), "f")
    lows = stats.minima.parts[3][1].to_pylist()
    highs = stats.maxima.parts[3][1].to_pylist()
    counts = stats.value_counts.to_pylist()
    rows = zip(content, lows, highs, counts, strict=True)
    assert list(rows) == [("x", 3, 7, 40), ("y", 9, 9, 10), ("z", 2, 2, 10)]


def test_key_that_is_not_text_raises_an_error_with_the_file_group() -> None:
    entries = index_of()
    entries.made.both(at(9), at(9))
    headers = {HeaderKey.INSTANT_TIME: str(at(9)), HeaderKey.SCHEMA: record_schema_json()}
    block = encode_block(BlockKind.HFILE_DATA, headers, hudi_hfile([[(b"\xff", location(1))]]))
    entries.made.log(at(9), block, file_id=INDEX_ID, folder="record_index")
    with pytest.raises(FormatError, match=r"record-index-0000-0.*keys in UTF-8"):
        entries.rewritten()


@given(seed=st.integers(0, 2**32))
def test_rewritten_index_is_that_of_a_dictionary(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([0, 1, 50, 4000])
    expected = {f"k{n:05d}": location(0) for n in range(0, 2 * size, 2)}
    entries = index_of(dict(expected) if rng.random() < 0.8 else None)
    if entries.base is None:
        expected = {}
    for number in range(1, rng.randint(1, 4) + 1):
        keys = rng.sample(range(2 * size + 10), rng.randint(0, min(2 * size, 60)))
        names = [f"k{n:05d}" for n in keys]
        cut = rng.randint(0, len(names))
        puts = {name: location(number) for name in names[:cut]}
        if puts or names[cut:]:
            entries.logs.append((puts, names[cut:]))
        expected |= puts
        for name in names[cut:]:
            expected.pop(name, None)
    if entries.logs:
        found = entries.result()
        assert found == expected
        decode_locations(pa.array(list(found.values()), pa.binary()), "f")


def test_base_file_of_an_older_hudi_is_rewritten_with_the_schema_of_today() -> None:
    """Its blocks cannot be copied: their records have another schema than the new file says."""
    older = older_schema()
    entries = index_of()
    entries.logs = [({"k001500": location(1)}, ())]
    values = pa.array(many(LARGE).values(), pa.binary())
    pairs = zip(many(LARGE), as_written_before(values, older).to_pylist(), strict=True)
    content = encode_hfile(
        [[(key.encode(), value) for key, value in pairs]],
        compressed=True,
        schema_json=json.dumps(older),
    )
    path = f"{METADATA_TABLE_FOLDER}/record_index/{INDEX_ID}_1-0-1_{FIRST}.hfile"
    entries.made.storage.put(path, content)
    assert entries.result() == many(LARGE) | {"k001500": location(1)}
