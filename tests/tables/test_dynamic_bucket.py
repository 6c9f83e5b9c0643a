"""Tables under dynamic buckets: where new keys go, and that stored keys never move (18514)."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.errors import ConfigError, IndexStateError
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.index import groups_for_new_keys
from bucketlake.index.groups_for_new_keys import OwnBuckets, bucket_of_group, owner_of_group
from bucketlake.index.setting import index_from_options
from bucketlake.metadata.location_cache.cache import LocationCache
from bucketlake.metadata.location_cache.refreshing import Served
from bucketlake.model.file_name import FileId
from bucketlake.write.pack import PackedRecords
from tests.bounds import set_bounds
from tests.choices import DEEP
from tests.spies import spy_answers

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])
NewPath = Callable[[], str]
RECORDS, ASSIGNERS = 5, 2


def make(path: str, index: bl.DynamicBucket | None = None, **given: Any) -> bl.Table:
    defaults: dict[str, Any] = {"record_key": ["id"], "partition_by": ["day"], "ordering": "at"}
    index = index or bl.DynamicBucket(max_records=RECORDS, assigners=ASSIGNERS)
    return bl.create_table(path, schema=SCHEMA, index=index, **defaults | given)


def rows(*keys: int | str, at: int = 1, day: str = "a") -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{key}", "day": day, "at": at} for key in keys], SCHEMA)


def places(table: bl.Table, day: str = "a") -> dict[str, FileId]:
    """Return the bucket of each key, as rows say it, after a check that the index agrees."""
    found = table.to_arrow(where=f"day = '{day}'", columns=["id", "_hoodie_file_name"])
    names = found["_hoodie_file_name"].to_pylist()
    held = dict(zip(found["id"].to_pylist(), [FileId(n.split("_")[0]) for n in names], strict=True))
    assert len(held) == found.num_rows, "no key is stored twice"
    entries = {e["record_key"]: e["file_id"] for e in table.record_locations(day).to_pylist()}
    assert {key: entries[key] for key in held} == held
    return held


def numbers(table: bl.Table, day: str = "a") -> dict[int, int]:
    """Return the number of keys of each bucket."""
    counts = Counter(bucket_of_group(file_id) for file_id in places(table, day).values())
    return {number: count for number, count in sorted(counts.items()) if number is not None}


def shard_of(key: str, count: int = ASSIGNERS) -> int:
    return int(shards_of_keys(pa.array([key]), count)[0])


TYPES = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])


def test_new_table_has_dynamic_buckets_unless_another_index_is_asked_for(
    new_path: NewPath,
) -> None:
    path = new_path()
    table = bl.create_table(path, schema=SCHEMA, record_key="id", partition_by="day")
    assert table.index == bl.open_table(path).index == bl.DynamicBucket()
    assert table.upsert(rows(1, 2)).inserted == 2
    assert table.upsert(rows(2, 3)).updated == 1


def test_new_table_without_metadata_table_needs_another_index(new_path: NewPath) -> None:
    with pytest.raises(ConfigError, match=r"DynamicBucket.*SimpleBucket"):
        bl.create_table(new_path(), schema=SCHEMA, record_key="id", metadata_table=False)


# ---- Where keys go ------------------------------------------------------------------------------


@TYPES
def test_buckets_fill_in_order_and_belong_to_the_shard_of_their_keys(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    table.upsert(rows(*range(4)))
    first = numbers(table)
    assert set(first) == {0, 1}, "a partition begins with as many buckets as assigners"
    table.upsert(rows(*range(100, 140)))
    for key, file_id in places(table).items():
        number = bucket_of_group(file_id)
        assert number is not None
        assert number % ASSIGNERS == shard_of(key)
    assert {b.file_id: b.bucket_id for b in table.buckets()} == {
        file_id: bucket_of_group(file_id) for file_id in places(table).values()
    }
    if table_type == "copy_on_write":
        for shard in range(ASSIGNERS):
            *full, last = [n for b, n in numbers(table).items() if b % ASSIGNERS == shard]
            assert set(full) == {RECORDS}, "a bucket is opened when all others are full"
            assert last <= RECORDS


@TYPES
def test_a_key_never_moves(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), table_type=table_type)
    before: dict[str, FileId] = {}
    for at in range(1, 8):
        table.upsert(rows(*range(at * 6), at=at))
        now = places(table)
        assert before.items() <= now.items()
        before = now


def test_a_bucket_that_lost_rows_gets_new_keys_first(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=RECORDS, assigners=1))
    table.upsert(rows(*range(12)))
    assert numbers(table) == {0: 5, 1: 5, 2: 2}
    gone = sorted(key for key, file_id in places(table).items() if bucket_of_group(file_id) == 0)
    table.delete(rows(*(key[1:] for key in gone)).drop_columns(["at"]))
    table.upsert(rows(*range(100, 110)))
    assert numbers(table) == {0: 5, 1: 5, 2: 5, 3: 2}


def test_bytes_fill_a_bucket_too(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_file_size=1, assigners=1))
    table.upsert(rows(1, 2))
    table.upsert(rows(3))
    assert numbers(table) == {0: 1, 1: 1, 2: 1}
    wide = bl.open_table(table.path, bl.DynamicBucket(max_file_size=1 << 20, assigners=1))
    wide.upsert(rows(4, 5, 6))
    assert numbers(table) == {0: 4, 1: 1, 2: 1}, "the limits are those of the write"


def test_a_partition_that_is_written_again_has_new_numbers(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows(*range(20)))
    old = places(table)
    table.insert_overwrite(rows(*range(10), at=2))
    newer = places(table)
    assert not {*old.values()} & {*newer.values()}
    assert min(map(bucket_of_group, newer.values())) > max(map(bucket_of_group, old.values()))  # type: ignore[type-var]
    table.delete_partitions(["a"])
    assert table.to_arrow().num_rows == 0
    table.upsert(rows(1, at=3))
    assert not {*newer.values()} & {*places(table).values()}


def test_partitions_have_buckets_of_their_own(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(pa.concat_tables([rows(*range(8)), rows(*range(3), day="b")]))
    assert set(numbers(table, "b")) <= {0, 1}
    assert not {*places(table, "a").values()} & {*places(table, "b").values()}


def test_a_partition_with_too_many_buckets_is_an_error_before_anything_is_written(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, groups_for_new_keys, BUCKETS_MAX=4)
    table = make(new_path(), bl.DynamicBucket(max_records=1, assigners=2))
    with pytest.raises(IndexStateError, match=r"at most 4 dynamic buckets.*larger buckets"):
        table.upsert(rows(*range(20)))
    assert table.to_arrow().num_rows == 0
    table.upsert(rows(1, 2))


def test_groups_that_other_writers_opened_are_used_and_have_one_owner(new_path: NewPath) -> None:
    table = make(new_path(), bl.DynamicBucket(max_records=20, assigners=2))
    table.upsert(rows(*range(6)))
    as_hudi = FileId("a1b2c3d4-40ff-474c-a2dc-4dbcb6fd150c-0")
    owner = owner_of_group(as_hudi, 2)
    own = OwnBuckets(20, None)
    assert [own.pool(shard) for shard in (0, 1)] == [0, 1]
    assert owner in (0, 1)
    assert bucket_of_group(as_hudi) is None
    assert bucket_of_group(FileId("99999999-40ff-474c-a2dc-4dbcb6fd150c-0")) is None


@settings(
    max_examples=300 if DEEP else 20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=25), min_size=1, max_size=6),
    assigners=st.integers(1, 4),
    records=st.integers(1, 9),
    is_logged=st.booleans(),
)
def test_every_sequence_of_batches_keeps_every_key_in_one_bucket_of_its_shard(
    new_path: NewPath, batches: list[set[int]], assigners: int, records: int, is_logged: bool
) -> None:
    kind = "merge_on_read" if is_logged else "copy_on_write"
    index = bl.DynamicBucket(max_records=records, assigners=assigners)
    table = make(new_path(), index, table_type=kind)
    before: dict[str, FileId] = {}
    newest: dict[str, int] = {}
    for at, batch in enumerate(batches):
        table.upsert(rows(*batch, at=at))
        newest |= {f"k{key}": at for key in batch}
        now = places(table)
        assert {row["id"]: row["at"] for row in table.to_arrow().to_pylist()} == newest
        assert before.items() <= now.items(), "no key moves"
        held = defaultdict(set)
        for key, file_id in now.items():
            held[file_id].add(shard_of(key, assigners))
            assert bucket_of_group(file_id) is not None
        assert all(len(shards) == 1 for shards in held.values()), "a bucket has keys of one shard"
        if not is_logged:
            assert max(Counter(now.values()).values()) <= records
        before = now


@TYPES
def test_writes_through_the_cache_are_those_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BUCKETLAKE_CACHE_FOLDER", str(folder))
    served = spy_answers(monkeypatch, LocationCache, "find", lambda found: found.served)
    set_bounds(monkeypatch, "bucketlake.metadata.location_cache.refreshing", _LOOKUPS=1 << 30)
    tables = []
    for name, size in (("with", "1000000"), ("without", "0")):
        monkeypatch.setenv("BUCKETLAKE_CACHE_BYTES", size)
        table = make(str(tmp_path / name), table_type=table_type)
        upsert = table.upsert_batch(query_name="orders")
        for at in range(1, 7):
            if at == 4:
                shutil.rmtree(folder)
            upsert(rows(*range(0, at * 7, at), at=at), at)
        table.delete(rows(0, 7).drop_columns(["at"]))
        table.upsert(rows(0, 3, 100, at=9))
        tables.append(table)
    cached, plain = ({k: bucket_of_group(g) for k, g in places(t).items()} for t in tables)
    assert cached == plain
    assert Served.EXTENDED in served, "commits were added to the cache"
    assert served.count(Served.BUILT) >= ASSIGNERS, "it was built after its loss"


@TYPES
def test_a_write_tells_how_many_keys_the_cache_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BUCKETLAKE_CACHE_FOLDER", str(folder))
    table = make(str(tmp_path / "table"), table_type=table_type)

    def counts(result: bl.WriteResult) -> tuple[int | None, int | None, int | None]:
        return result.looked_up, result.from_cache, result.from_table

    assert counts(table.upsert(rows(*range(9)))) == (0, 0, 0), "the index has no shard yet"
    assert counts(table.upsert(rows(*range(12)))) == (12, 12, 0), "the first write noted its keys"
    assert counts(table.upsert(rows(*range(12), *range(12), at=2))) == (12, 12, 0), "keys, not rows"
    shutil.rmtree(folder)
    assert counts(table.upsert(rows(*range(12), at=3))) == (12, 0, 12)
    assert counts(table.delete(rows(1, 2, 77).drop_columns(["at"]))) == (3, 3, 0)
    monkeypatch.setenv("BUCKETLAKE_CACHE_BYTES", "0")
    assert counts(table.upsert(rows(*range(12), at=4))) == (12, 0, 12)
    assert {row["id"]: row["at"] for row in table.to_arrow().to_pylist()} == {
        f"k{n}": 4 for n in range(12)
    }


@pytest.mark.parametrize("index", [bl.SimpleBucket(2), bl.RecordIndex()])
def test_a_table_without_a_cache_has_no_hits(new_path: NewPath, index: Any) -> None:
    table = make(new_path(), index)
    table.upsert(rows(*range(9)))
    result = table.upsert(rows(*range(9)))
    expected = (9, 0, 9) if isinstance(index, bl.RecordIndex) else (None, None, None)
    assert (result.looked_up, result.from_cache, result.from_table) == expected


def test_a_lookup_that_is_repeated_without_dead_entries_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETLAKE_CACHE_FOLDER", str(tmp_path / "cache"))
    table = make(str(tmp_path / "table"))
    table.upsert(rows(*range(9)))
    shutil.rmtree(tmp_path / "cache")
    set_bounds(monkeypatch, "bucketlake.write.record_index.indexed_write", BYTES_MAX=0)
    dead = frozenset(("a", file_id) for file_id in places(table).values())
    located = spy_answers(
        monkeypatch,
        PackedRecords,
        "locate",
        lambda found: sum(result.from_cache for result in found.results()),
    )
    found = iter([dead, frozenset()])
    monkeypatch.setattr(
        "bucketlake.write.record_index.indexed_write.dead_groups", lambda *_: next(found)
    )
    result = table.upsert(rows(*range(9)))
    assert located == [0, 9]
    assert (result.looked_up, result.from_cache, result.from_table) == (9, 0, 9)


@pytest.mark.parametrize("name", ["FOLDER", "BYTES", "EVICTION"])
def test_a_wrong_variable_is_an_error_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = make(str(tmp_path / "table"))
    table.upsert(rows(1))
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv(f"BUCKETLAKE_CACHE_{name}", "wrong")
    with pytest.raises(ConfigError, match=f"BUCKETLAKE_CACHE_{name}"):
        table.upsert(rows(1, 2, at=2))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("policy", ["lru", "checkpoint"])
def test_a_stream_drops_partitions_without_new_keys_if_the_policy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setenv("BUCKETLAKE_CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setenv("BUCKETLAKE_CACHE_EVICTION", policy)
    table = make(str(tmp_path / "table"), bl.DynamicBucket(max_records=RECORDS, assigners=1))
    upsert = table.upsert_batch(query_name="orders")
    upsert(pa.concat_tables([rows(0, day="busy"), rows(0, day="idle")]), 1)
    upsert(pa.concat_tables([rows(1, day="busy"), rows(1, day="idle")]), 2)
    from_cache = [upsert(rows(batch, day="busy"), batch).from_cache for batch in range(3, 6)]
    assert from_cache == [1, 1, 1]
    kept = [*(tmp_path / "cache").glob("*/*/state")]  # One of each shard with a copy.
    assert len(kept) == (2 if policy == "lru" else 1)
    last = upsert(pa.concat_tables([rows(6, day="busy"), rows(6, day="idle")]), 6)
    assert last.looked_up == last.inserted == 2


def _always(*_: object) -> bool:
    return True


# ---- Settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"max_records": 0}, "max_records"),
        ({"max_records": True}, "max_records"),
        ({"max_file_size": -1}, "max_file_size"),
        ({"assigners": 0}, "assigners"),
        ({"assigners": 1001}, "assigners"),
    ],
)
def test_numbers_out_of_range_name_the_argument(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        bl.DynamicBucket(**arguments)


@pytest.mark.parametrize(
    "index", [bl.DynamicBucket(), bl.DynamicBucket(7, 1 << 20, 3), bl.DynamicBucket(assigners=1)]
)
def test_options_survive_both_ways(index: bl.DynamicBucket) -> None:
    assert index_from_options(index.to_options()) == index


def test_other_assigners_than_those_of_the_table_are_refused(new_path: NewPath) -> None:
    table = make(new_path())
    with pytest.raises(IndexStateError, match="assigners"):
        bl.open_table(table.path, bl.DynamicBucket(max_records=RECORDS, assigners=3)).upsert(
            rows(1)
        )


def test_a_rebuilt_index_has_as_many_shards(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows(*range(20)))
    before = places(table)
    table.rebuild_metadata_table(["record_index"])
    assert places(table) == before
    table.upsert(rows(*range(100, 130)))
    now = places(table)
    assert before.items() <= now.items()
    assert all(owner_of_group(now[key], ASSIGNERS) == shard_of(key) for key in now)
