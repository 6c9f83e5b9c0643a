"""Lookups through the cache: the answers of the metadata table, whatever happens to either."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake.errors import MetadataTableError
from bucketlake.format.metadata_record.record_schema import IndexedLocation, encode_locations
from bucketlake.metadata.location_cache import refreshing
from bucketlake.metadata.location_cache.cache import CachedLookup, LocationCache
from bucketlake.metadata.location_cache.refreshing import Served
from bucketlake.metadata.record_index.locations import NOT_FOUND
from bucketlake.metadata.record_index.shards import IndexShards
from bucketlake.model.file_name import FileId
from bucketlake.timeline import active
from tests.cached_index import PlannedIndex, folder_of, look
from tests.metadata_tables import at, data_block
from tests.spies import breaks, spy, spy_answers
from tests.unit.metadata.record_index.test_locations import texts

ONE_SHARD = IndexShards(None, {"eu": 1})
NAMES = [f"k{number}" for number in range(40)]
AS_IT_WAS, EXTENDED, BUILT, BYPASSED = Served


@pytest.fixture
def cache(tmp_path: Path) -> LocationCache:
    return LocationCache(str(tmp_path / "cache"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many entries the cache reads from log files, each time that it does."""
    return spy_answers(monkeypatch, refreshing, "read_key_changes", lambda changes: changes.count)


def found_count(found: CachedLookup) -> int:
    """Return how many keys a lookup found."""
    return int((found.codes != NOT_FOUND).sum())


def seen(index: PlannedIndex, cache: LocationCache, names: list[str] = NAMES) -> CachedLookup:
    """Look keys up in the only shard at the current state."""
    reader = index.open()
    (held,) = index.slices(reader)
    return look(cache, reader, held, names)


def index_of(count: int = 20) -> PlannedIndex:
    index = PlannedIndex(ONE_SHARD)
    index.commit({("eu", "f1"): NAMES[: count // 2], ("eu", "f2"): NAMES[count // 2 : count]})
    return index


def test_second_lookup_reads_nothing_of_the_metadata_table(
    cache: LocationCache, read: list[int]
) -> None:
    index = index_of()
    for served in (BUILT, AS_IT_WAS):
        found = seen(index, cache)
        assert (found.served, found_count(found), len(found.codes)) == (served, 20, 40)
        assert read == [20]


def test_later_commits_are_read_from_their_log_files_only(
    cache: LocationCache, read: list[int]
) -> None:
    index = index_of(36)
    seen(index, cache)
    index.commit({("eu", "f3"): [NAMES[36], NAMES[0]]}, {"eu": [NAMES[1], "never there"]})
    assert seen(index, cache).served is EXTENDED
    assert read == [36, 4]
    assert seen(index, cache).served is AS_IT_WAS


def test_removed_key_that_comes_back_is_found(cache: LocationCache) -> None:
    index = index_of()
    seen(index, cache)
    index.commit({}, {"eu": NAMES[:3]})
    assert found_count(seen(index, cache)) == 17
    index.commit({("eu", "f9"): NAMES[:1]})
    assert found_count(seen(index, cache)) == 18


def test_compaction_of_what_is_cached_needs_no_read(cache: LocationCache, read: list[int]) -> None:
    index = index_of()
    seen(index, cache)
    index.compact()
    assert seen(index, cache).served is AS_IT_WAS
    assert read == [20]


def test_log_files_that_were_compacted_meanwhile_are_read_instead_of_the_base_file(
    cache: LocationCache, read: list[int]
) -> None:
    index = index_of(30)
    seen(index, cache)
    for number in range(30, 34):  # Two compactions, with commits before and after each.
        index.commit({("eu", "f3"): [NAMES[number]]}, {"eu": [NAMES[number - 30]]})
        if number % 2:
            index.compact()
    index.commit({("eu", "f4"): [NAMES[34]]})
    assert seen(index, cache).served is EXTENDED
    assert read == [30, 9]


def test_lookups_in_many_shards_read_the_plan_of_a_compaction_once(
    cache: LocationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PlannedIndex(IndexShards(None, {"eu": 5, "us": 3}))
    index.commit({("eu", "f1"): NAMES[:20], ("us", "f2"): NAMES[20:]})

    def look_everywhere() -> list[Served]:
        reader = index.open()
        return [look(cache, reader, held, NAMES).served for held in index.slices(reader)]

    assert look_everywhere() == [BUILT] * 8
    index.compact()
    plans = spy(monkeypatch, active, "decode_compaction_plan", lambda _, path: path)
    assert look_everywhere() == [AS_IT_WAS] * 8
    assert len(plans) == 1


def test_compacted_log_files_that_a_clean_deleted_make_the_cache_read_the_base_file(
    cache: LocationCache,
) -> None:
    index = index_of()
    seen(index, cache)
    index.commit({("eu", "f3"): [NAMES[21]]})
    gone = [log.path for log in index.slices(index.open())[0].log_files[-1:]]
    index.compact()
    for path in gone:
        index.made.storage.delete(f".hoodie/metadata/{path}")
    assert seen(index, cache).served is BUILT


def test_restore_of_a_cached_commit_invalidates_the_cache(cache: LocationCache) -> None:
    index = index_of()
    index.commit({("eu", "f3"): [NAMES[30]]}, {"eu": [NAMES[0]]})
    assert found_count(seen(index, cache)) == 20
    index.undo_last_commit()
    found = seen(index, cache)
    assert (found.served, found_count(found)) == (BUILT, 20)


def test_commit_after_a_restore_does_not_stand_in_for_the_restored_commit(
    cache: LocationCache,
) -> None:
    index = index_of()
    index.commit({("eu", "f3"): [NAMES[30]]})
    seen(index, cache)
    index.undo_last_commit()
    index.commit({("eu", "f4"): [NAMES[31]]})  # There are as many log files as before.
    assert seen(index, cache).served is BUILT


def test_reader_of_an_older_state_uses_the_table_and_keeps_the_newer_cache(
    cache: LocationCache,
) -> None:
    index = index_of()
    older = index.open()
    (held,) = index.slices(older)
    index.commit({("eu", "f3"): [NAMES[30], NAMES[0]]})
    seen(index, cache)
    assert look(cache, older, held, NAMES).served is BYPASSED
    assert seen(index, cache).served is AS_IT_WAS


def test_uncommitted_entries_are_never_cached(cache: LocationCache) -> None:
    index = index_of()
    seen(index, cache)
    index.commit({("eu", "f3"): [NAMES[30]]})
    pending = [
        stored.path
        for stored in index.made.storage.list(".hoodie/timeline")
        if stored.path.endswith("_20240101000000026.commit")
    ]
    assert len(pending) == 1
    content = index.made.storage.read(pending[0])
    index.made.storage.delete(pending[0])  # The commit is complete in the metadata table alone.
    assert seen(index, cache).served is AS_IT_WAS
    index.made.storage.put(pending[0], content)
    assert seen(index, cache).served is EXTENDED


def test_index_that_was_built_anew_under_the_same_names_is_read_anew(cache: LocationCache) -> None:
    index = PlannedIndex(ONE_SHARD)

    def size_with(key: str, completed: int) -> int:
        index.model = {("eu", key): "f1"}
        index.build_anew(at(completed))
        (held,) = index.slices(index.open())
        return held.base_file.size_bytes if held.base_file else 0

    size = size_with("k2", 1)
    assert found_count(seen(index, cache)) == 1
    same = next(key for key in map("k{}".format, range(3, 10)) if size_with(key, 2) == size)
    # Only the completion time tells the files apart.
    found = seen(index, cache, [same, "k2"])
    assert (found.served, found_count(found)) == (BUILT, 1)


def test_log_compaction_that_replaces_cached_blocks_makes_the_cache_read_anew(
    cache: LocationCache,
) -> None:
    index = index_of()
    index.commit({("eu", "f2"): [NAMES[0]]})
    seen(index, cache)
    # It replaces both commits and leaves one key.
    instant = at(90)
    (value,) = encode_locations([IndexedLocation("eu", FileId("f9"), 0)]).to_pylist()
    block = data_block({NAMES[3]: value}, instant, replaces=[at(11), at(21)])
    index.made.log(instant, block, file_id="record-index-eu-0000-0", folder="record_index")
    index.made.both(instant, at(91))
    found = seen(index, cache)
    assert (found.served, found_count(found)) == (BUILT, 1)


def test_damaged_base_file_raises_the_error_of_a_lookup_without_cache(
    cache: LocationCache,
) -> None:
    index = index_of()
    index.compact()
    reader = index.open()
    (held,) = index.slices(reader)
    assert held.base_file is not None
    path = f".hoodie/metadata/{held.base_file.path}"
    content = index.made.storage.read(path)
    index.made.storage.put(path, b"\0" * 40 + content[40:])
    with pytest.raises(MetadataTableError, match=r"\.hfile at byte 0: .*rebuild"):
        cache.find(reader, held, texts(NAMES))


@pytest.mark.parametrize("kept", [0, 1, 100, 200])
def test_cut_file_is_noticed_and_made_again(cache: LocationCache, kept: int) -> None:
    index = index_of()
    for pattern in ("state", "*.part"):
        seen(index, cache)
        reader = index.open()
        (path,) = folder_of(cache, reader, index.slices(reader)[0]).glob(pattern)
        path.write_bytes(path.read_bytes()[:kept])
        assert seen(index, cache).served is BUILT, pattern
        assert seen(index, cache).served is AS_IT_WAS, pattern
        assert len([*path.parent.iterdir()]) == 3, "the state, its use, and no part of before"


def test_every_changed_byte_of_a_part_is_noticed(cache: LocationCache) -> None:
    index = index_of(4)
    seen(index, cache)
    reader = index.open()
    folder = folder_of(cache, reader, index.slices(reader)[0])
    (path,) = folder.glob("*.part")
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        seen(index, cache, NAMES[:5])
        (path,) = folder.glob("*.part")
        content = path.read_bytes()


def test_deleting_any_file_changes_no_answer(cache: LocationCache) -> None:
    index = index_of(36)
    seen(index, cache)
    index.commit({("eu", "f3"): [NAMES[37]]})
    seen(index, cache)
    reader = index.open()
    folder = folder_of(cache, reader, index.slices(reader)[0])
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 4  # The state, its use, and two parts.
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    for name in names:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(copy, folder)
        (folder / name).unlink()
        seen(index, cache)
        assert seen(index, cache).served is AS_IT_WAS
    shutil.rmtree(cache.root)
    assert seen(index, cache).served is BUILT


def test_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    index = index_of()
    assert seen(index, LocationCache(str(shared))).served is BYPASSED
    assert list(shared.iterdir()) == []
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert seen(index, LocationCache(str(link))).served is BYPASSED


def test_full_disk_costs_only_time(cache: LocationCache, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, refreshing.ShardFolder, "add_part", OSError(28, "No space left on device"))
    index = index_of()
    for _ in range(2):
        assert seen(index, cache).served is BUILT
        assert not [path for path in cache.root.rglob("*") if path.is_file()]


def test_few_keys_of_a_large_shard_are_looked_up_in_the_table(cache: LocationCache) -> None:
    names = [f"key{number * 7919 % 10**8:08d}" for number in range(60_000)]
    index = PlannedIndex(ONE_SHARD)
    index.commit({("eu", "f1"): names})
    index.compact()
    assert seen(index, cache, names[:1]).served is BYPASSED
    assert seen(index, cache, names[:100]).served is BUILT
    assert seen(index, cache, names[:1]).served is AS_IT_WAS


def test_cache_travels_to_tasks(cache: LocationCache) -> None:
    assert pickle.loads(pickle.dumps(cache)) == cache


# Any history.

paths = st.just("eu")
keys = st.sampled_from([f"k{number}" for number in range(30)] + ["", "ключ", "k🙂", "long" * 40])
steps = st.one_of(
    st.tuples(
        st.just("commit"),
        st.dictionaries(keys, st.sampled_from(["f1", "f2", "f3"]), max_size=12),
        st.sets(keys, max_size=5),
    ),
    st.tuples(st.just("compact"), st.none(), st.none()),
    st.tuples(st.just("look"), st.none(), st.none()),
    st.tuples(st.just("undo"), st.none(), st.none()),
    st.tuples(st.just("delete"), st.integers(0, 5), st.none()),
    st.tuples(st.just("damage"), st.integers(0, 5), st.integers(0, 2**12)),
)


@settings(deadline=None)
@given(st.sampled_from([ONE_SHARD, IndexShards(2)]), st.lists(steps, max_size=12))
def test_cache_equals_the_table_after_any_history(
    shards: IndexShards, history: list[tuple[str, object, object]]
) -> None:
    index = PlannedIndex(shards)
    asked = [f"k{number}" for number in range(31)] + ["", "ключ", "k🙂", "long" * 40]
    may_undo = False
    with tempfile.TemporaryDirectory() as folder:
        cache = LocationCache(folder + "/cache")
        for step, first, second in [*history, ("look", None, None)]:
            files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            if step == "commit":
                new: dict[tuple[str, str], list[str]] = defaultdict(list)
                for key, file_id in first.items():  # type: ignore[attr-defined]
                    new["eu", file_id].append(key)
                index.commit(new, {"eu": sorted(second)})  # type: ignore[call-overload]
                may_undo = True
            elif step == "compact":
                index.compact()
                may_undo = False
            elif step == "undo" and may_undo:
                index.undo_last_commit()
                may_undo = False
            elif step == "delete" and files:
                files[int(first) % len(files)].unlink()  # type: ignore[call-overload]
            elif step == "damage" and files:
                path = files[int(first) % len(files)]  # type: ignore[call-overload]
                content = bytearray(path.read_bytes())
                if content:
                    content[int(second) % len(content)] ^= 0x10  # type: ignore[call-overload]
                    path.write_bytes(content)
            elif step == "look":
                reader = index.open()
                for held in index.slices(reader):
                    look(cache, reader, held, asked)
