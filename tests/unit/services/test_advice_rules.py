"""The rules of advice: they answer for every workload, and only what a table can do."""

from __future__ import annotations

import ast
import inspect
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.model.table_type import TableType
from bucketlake.services.advice import index_rules, steps
from bucketlake.services.advice.advice import Advice, AdviceList
from bucketlake.services.advice.rules import advice_for
from bucketlake.services.advice.workload import Conditions, HotValue, PartitionFacts, Workload
from bucketlake.services.upkeep import Waiting

MB = 1_000_000
TARGET = 100 * MB
SHARES = st.none() | st.floats(0, 1)
PATHS = st.sampled_from(["", "city=Bonn", "a,b;c", "x(y", "2026/11", "Köln", "50%"])

INDEXES: Any = st.sampled_from(
    [
        None,
        bl.SimpleBucket(1),
        bl.SimpleBucket(16),
        bl.SimpleBucket(16, ["id"]),
        bl.SimpleBucket(4, max_file_size=TARGET),
        bl.PartitionBucket({"Bonn": 8}, default=2),
        bl.PartitionBucket({"2026..2027": 8}, default=2, rule="range"),
        bl.ConsistentBucket(4),
        bl.ExtendibleBucket(4),
        bl.RecordIndex(),
        bl.RecordIndex(partitioned=False),
        bl.DynamicBucket(),
        bl.DynamicBucket(max_records=10),
        bl.DynamicBucket(max_records=10**9, assigners=1),
    ]
)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[PartitionFacts, ...]:
    names = draw(st.lists(PATHS, unique=True, max_size=5))
    names += [f"d={n}" for n in range(draw(st.sampled_from([0, 0, 30, 200])))]
    sizes = st.integers(0, 10**13)
    found = []
    for name in names:
        size, groups = draw(sizes), draw(st.integers(1, 500))
        largest = draw(st.integers(size // groups, size))
        found.append(PartitionFacts(name, size, groups, largest, draw(st.booleans())))
    return tuple(found)


WORKLOADS = st.builds(
    Workload,
    partitions(),
    is_full=st.booleans(),
    bytes_per_row=st.none() | st.floats(0.1, 1e6),
    commits=st.integers(0, 10),
    inserts=SHARES,
    deletes=SHARES,
    amplification=st.none() | st.floats(1, 1e6),
    rewritten_bytes=st.integers(0, 10**12),
    rewritten_share=st.floats(0, 1),
    log_bytes=st.integers(0, 10**9),
    late_partitions=st.integers(0, 50),
    repeated=st.floats(0, 0.9),
    hot_value=st.none() | st.builds(HotValue, st.just("id=7"), st.floats(0, 1)),
)
WAITING = st.builds(
    Waiting,
    st.sampled_from(["compact", "resize", "clean", "archive"]),
    st.integers(0, 100),
    st.just(10),
    st.just(10),
)


@st.composite
def conditions(draw: st.DrawFn) -> Conditions:
    is_new = draw(st.booleans())
    version = draw(st.sampled_from([6, 8, 9]))
    index = None if is_new else draw(INDEXES)
    if index is not None and index.first_version > version:
        version = 9
    can_log = version > 6 and not is_new
    return Conditions(
        None if is_new else "some table's",
        ("id", "at"),
        draw(st.sampled_from([(), ("city",)])),
        draw(st.sampled_from([(), ("at",)])),
        version=version,
        hudi_writers=draw(st.booleans()),
        index=index,
        hash_fields=draw(st.sampled_from([None, ("id",)])) if is_new else None,
        table_type=draw(st.sampled_from(TableType)) if can_log else TableType.COPY_ON_WRITE,
        is_usual=draw(st.booleans()),
        upkeep=draw(st.sampled_from(["auto", "off"])) if not is_new else "off",
        waiting=tuple(draw(st.lists(WAITING, max_size=4, unique_by=lambda w: w.service))),
        target_bytes=draw(st.sampled_from([1, 20_000, TARGET, 10**12])),
    )


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "sample.parquet"
    pq.write_table(pa.table({"id": ["a"], "at": [1], "city": ["Bonn"]}), path)
    return path


def require_call(text: str) -> None:
    """Check that a call names a function of the library with its parameters."""
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Attribute)
    owner, name = ast.unparse(tree.func.value), tree.func.attr
    function = getattr({"bl": bl, "table": bl.Table}[owner], name)
    receiver = [None] if owner == "table" else []
    keywords: dict[str, Any] = {word.arg or "": None for word in tree.keywords}
    inspect.signature(function).bind(*receiver, *tree.args, **keywords)


def require_command(text: str, sample_file: Path) -> None:
    """Check that a command can be parsed."""
    program, name, *words = shlex.split(text)
    assert program == "bucketlake"
    words = [str(sample_file) if word == "FILE" else word for word in words]
    main.commands[name].make_context(name, words, **main.context_settings)


@given(WORKLOADS, conditions())
def test_advice_is_given_for_every_workload_and_can_be_followed(
    sample_file: Path, work: Workload, asked: Conditions
) -> None:
    found = AdviceList(advice_for(work, asked), work)
    assert [own.subject for own in found[:4]] == ["index", "table type", "partitions", "upkeep"]
    assert len({own.subject for own in found}) == len(found)
    for own in found:
        assert own.reason
        assert (own.call is None) == (own.command is None)
        if own.call is not None:
            assert own.command is not None
            assert own.changes
            require_call(own.call)
            require_command(own.command, sample_file)
    require_allowed(found[0], asked)


def require_allowed(advice: Advice, asked: Conditions) -> None:
    """Check that the advised index is one that the table can have."""
    if advice.call is None:
        return
    if advice.call.startswith("table.rescale"):
        assert asked.version >= 9
    named = [text for text in (advice.advised,) if text.startswith("bl.")]
    for text in named:
        index = eval(text, {"bl": bl})
        assert index.first_version <= asked.version
        if asked.hudi_writers:  # Hudi's bucket index writes no bucket of several groups.
            assert isinstance(index, bl.SimpleBucket | bl.PartitionBucket)
            assert index.max_file_size is None


def table(*sizes: int, index: Any, groups: int | None = None, **facts: Any) -> Workload:
    """Return a table of some partitions, of sizes in MB, with a file group in each bucket."""
    found = []
    for number, size in enumerate(sizes):
        count = groups or index.count_of(str(number))
        found.append(PartitionFacts(str(number), size * MB, count, size * MB // count))
    return Workload(tuple(found), **({"commits": 10} | facts))


def of_table(index: Any, **given: Any) -> Conditions:
    return Conditions("t", ("id",), ("day",), ("at",), index=index, **given)


def of_sample(**given: Any) -> Conditions:
    return Conditions(None, ("id",), ("day",), ("at",), **given)


def full(*sizes: int, **facts: Any) -> Workload:
    return Workload(tuple(PartitionFacts(f"p{n}", s * MB) for n, s in enumerate(sizes)), **facts)


def index_of(work: Workload, **given: Any) -> Any:
    return index_rules.index_of_new_table(work, of_sample(**given)).index


@pytest.mark.parametrize(
    ("work", "index"),
    [
        (full(40, 60, 100), bl.SimpleBucket(1)),
        (full(1000, 1100, 900), bl.SimpleBucket(11)),
        (full(1000, 1001), bl.SimpleBucket(11)),
        (
            full(3000, 150, 160, 170, 2000),
            bl.PartitionBucket({"^p0$": 30, "^p4$": 20}, default=2),
        ),
        (full(50_000), bl.DynamicBucket(assigners=16)),
        (full(*[3000] * 21, *[100] * 40), bl.DynamicBucket()),
        (full(50, is_full=False), bl.DynamicBucket()),
    ],
)
def test_index_of_a_new_table_is_the_cheapest_for_its_sizes(work: Workload, index: Any) -> None:
    assert index_of(work) == index


@pytest.mark.parametrize(
    ("work", "given_", "index"),
    [
        (full(3000, 100, 100), {"version": 8}, bl.SimpleBucket(1, max_file_size=TARGET)),
        (full(50, is_full=False), {"version": 6}, bl.SimpleBucket(4, max_file_size=TARGET)),
        (full(50, is_full=False), {"hudi_writers": True}, bl.SimpleBucket(4)),
        (full(3000, 100, 100), {"hudi_writers": True, "version": 8}, bl.SimpleBucket(30)),
        (full(50_000), {"hudi_writers": True}, bl.SimpleBucket(128)),
    ],
)
def test_index_of_a_new_table_is_one_that_its_version_and_writers_know(
    work: Workload, given_: dict[str, Any], index: Any
) -> None:
    assert index_of(work, **given_) == index


def test_hash_fields_stay_unless_a_value_of_theirs_is_hot() -> None:
    even = full(5000, hot_value=HotValue("device=d7", 0.01))
    hot = full(5000, hot_value=HotValue("device=d7", 0.3))
    small = full(500, hot_value=HotValue("device=d7", 0.3))
    fields = {"hash_fields": ("device",)}
    assert index_of(even, **fields) == bl.SimpleBucket(50, ["device"])
    assert index_of(hot, **fields) == bl.SimpleBucket(50)
    assert index_of(small, **fields) == bl.SimpleBucket(5, ["device"])
    advice = index_rules.advise_index(hot, of_sample(**fields))
    assert advice.reason.startswith("device=d7 has 30% of the rows (1.5 GB of the largest")


SIMPLE = bl.SimpleBucket(4)


@pytest.mark.parametrize(
    ("work", "index", "call"),
    [
        (table(400, 300, index=SIMPLE), SIMPLE, None),
        (
            table(1600, 300, index=SIMPLE),
            SIMPLE,
            "table.rescale(add={'^0$': 16})",
        ),
        (table(1600, 1200, index=SIMPLE), SIMPLE, "table.rescale({'.*': 16}, default=16)"),
        (table(*[8] * 4, index=SIMPLE), SIMPLE, "table.rescale({'.*': 1}, default=1)"),
        (table(8, 8, index=SIMPLE), SIMPLE, None),  # Six files more than needed are no burden.
        (table(*[8] * 4, index=SIMPLE, commits=2), SIMPLE, None),  # They may grow.
        (table(400, index=bl.ConsistentBucket(4), groups=1), bl.ConsistentBucket(4),
         "table.resize(max_file_size=100000000)"),
        (table(20, index=bl.ConsistentBucket(4), groups=4), bl.ConsistentBucket(4),
         "table.resize(max_file_size=100000000)"),
        (table(400, index=bl.ConsistentBucket(4), groups=4), bl.ConsistentBucket(4), None),
        (table(8, index=bl.DynamicBucket(), groups=4), bl.DynamicBucket(), None),
        (table(800, index=bl.DynamicBucket(), groups=1, bytes_per_row=100.0),
         bl.DynamicBucket(max_records=50_000_000),
         "bl.open_table('t', index=bl.DynamicBucket(max_records=1000000))"),
        (table(800, index=bl.DynamicBucket(), groups=8, bytes_per_row=100.0),
         bl.DynamicBucket(max_records=1_200_000), None),
        (table(index=SIMPLE), SIMPLE, None),
        (table(100, index=SIMPLE), None, None),
    ],
)  # fmt: skip
def test_index_of_a_table_is_changed_only_where_its_files_are_wrong(
    work: Workload, index: Any, call: str | None
) -> None:
    assert index_rules.advise_index(work, of_table(index)).call == call


def growing(index: Any, **facts: Any) -> Workload:
    work = table(400, 100, index=index, **facts)
    return replace(work, partitions=(replace(work.partitions[0], grows=True), work.partitions[1]))


@pytest.mark.parametrize(
    ("inserts", "given_", "call"),
    [
        (0.5, {}, "table.convert(bl.DynamicBucket())"),
        (0.99, {}, "table.convert(table.index.with_max_file_size(100000000))"),
        (0.5, {"version": 8}, "table.convert(table.index.with_max_file_size(100000000))"),
        (0.5, {"hudi_writers": True}, "table.rescale(add={'^0$': 8})"),
        (0.5, {"hudi_writers": True, "version": 8}, None),
    ],
)
def test_buckets_of_a_table_that_grows_get_room_without_a_rewrite(
    inserts: float, given_: dict[str, Any], call: str | None
) -> None:
    advice = index_rules.advise_index(growing(SIMPLE, inserts=inserts), of_table(SIMPLE, **given_))
    assert advice.call == call


def test_a_partition_that_grows_up_to_those_at_rest_is_just_not_full() -> None:
    work = table(80, 320, 310, 300, index=SIMPLE, inserts=0.5)
    today, *resting = work.partitions
    today = replace(today, grows=True, size_bytes=250 * MB, largest_bytes=70 * MB)
    of_days = replace(work, partitions=(today, *resting))
    assert not index_rules.advise_index(of_days, of_table(SIMPLE)).changes
    larger = replace(today, size_bytes=700 * MB, largest_bytes=190 * MB)
    of_days = replace(work, partitions=(larger, *resting))
    assert index_rules.advise_index(of_days, of_table(SIMPLE)).changes


def test_more_buckets_than_a_fixed_count_serves_are_never_advised() -> None:
    most = bl.SimpleBucket(index_rules.COUNT_MAX)
    assert not index_rules.advise_index(table(90_000, index=most), of_table(most)).changes
    some = index_rules.advise_index(table(90_000, index=SIMPLE), of_table(SIMPLE))
    assert some.call == "table.rescale({'.*': 128}, default=128)"
    grown = replace(table(1, index=most), partitions=growing(most).partitions)
    hudi = of_table(most, hudi_writers=True, target_bytes=1000)
    assert "more than 128 buckets are slow" in index_rules.advise_index(grown, hudi).reason


def test_files_of_a_size_that_is_too_large_get_another_size() -> None:
    index = bl.SimpleBucket(1, max_file_size=1000 * MB)
    work = Workload((PartitionFacts("", 1800 * MB, 2, 1000 * MB),), commits=5)
    advice = index_rules.advise_index(work, of_table(index))
    assert advice.advised == "bl.SimpleBucket(1, max_file_size=100000000)"
    assert not index_rules.advise_index(
        work, of_table(replace(index, max_file_size=TARGET))
    ).changes


@pytest.mark.parametrize(
    ("index", "told"),
    [(bl.DynamicBucket(), False), (bl.DynamicBucket(assigners=1), False),
     (bl.DynamicBucket(assigners=4), True)],
)  # fmt: skip
def test_many_assigners_of_small_partitions_are_named(index: bl.DynamicBucket, told: bool) -> None:
    advice = index_rules.advise_index(table(*[4] * 10, index=index, groups=4), of_table(index))
    assert not advice.changes
    assert ("a new table with DynamicBucket() or" in advice.reason) == told


def test_many_partitions_that_need_other_counts_get_dynamic_buckets() -> None:
    work = table(*[1600] * 25, 100, index=SIMPLE)
    advice = index_rules.advise_index(work, of_table(SIMPLE))
    assert advice.call == "table.convert(bl.DynamicBucket())"
    hudi = index_rules.advise_index(work, of_table(SIMPLE, hudi_writers=True))
    assert not hudi.changes
    assert hudi.reason.endswith("write rules that match several")


def test_rules_of_another_kind_are_left_to_their_writer() -> None:
    index = bl.PartitionBucket({"0..5": 2}, default=2, rule="range")
    advice = index_rules.advise_index(table(1600, 200, index=index), of_table(index))
    assert not advice.changes
    assert advice.reason.endswith("by rules of kind range")


def test_a_hot_bucket_gets_several_files_unless_hudi_writes_it() -> None:
    index = bl.SimpleBucket(16, ["device"])
    hot = Workload((PartitionFacts("", 1000 * MB, 16, 600 * MB),), commits=10)
    advice = index_rules.advise_index(hot, of_table(index))
    assert advice.command == "bucketlake convert t --max-file-size 100000000 --run"
    assert "600.0 MB, 9.6 times the mean of 16 buckets" in advice.reason
    assert not index_rules.advise_index(hot, of_table(index, hudi_writers=True)).changes


def subjects(work: Workload, asked: Conditions) -> dict[str, Advice]:
    return {own.subject: own for own in advice_for(work, asked)}


@pytest.mark.parametrize(
    ("facts", "version", "advised"),
    [
        ({"amplification": 50.0, "rewritten_bytes": TARGET}, 9, "merge_on_read"),
        ({"amplification": 50.0, "rewritten_bytes": TARGET}, 8, "merge_on_read"),
        ({"amplification": 50.0, "rewritten_bytes": TARGET}, 6, "merge_on_read"),
        ({"amplification": 5.0, "rewritten_bytes": TARGET}, 9, "copy_on_write"),
        ({"amplification": 50.0, "rewritten_bytes": MB}, 9, "copy_on_write"),
        ({"amplification": 50.0, "rewritten_bytes": TARGET, "inserts": 0.97}, 9, "copy_on_write"),
        ({}, 9, "copy_on_write"),
    ],
)
def test_table_type_follows_what_a_commit_rewrites(
    facts: dict[str, Any], version: int, advised: str
) -> None:
    found = subjects(table(400, index=SIMPLE, **facts), of_table(SIMPLE, version=version))
    assert found["table type"].advised == advised
    assert found["table type"].changes == (advised == "merge_on_read")


def test_partitions_that_are_huge_or_many_and_small_are_to_be_cut_otherwise() -> None:
    huge, many = full(200_000), full(*[1] * 150)
    assert subjects(huge, of_sample())["partitions"].advised == "by a finer column"
    assert subjects(many, of_sample())["partitions"].advised == "by a coarser column"
    assert not subjects(full(*[1] * 50), of_sample())["partitions"].changes
    assert not subjects(full(*[90] * 150), of_sample())["partitions"].changes
    unknown = replace(many, is_full=False)
    assert not subjects(unknown, of_sample())["partitions"].changes


CLEAN_DUE = (Waiting("clean", 12, 10, 10), Waiting("archive", 12, 31, 1))


def test_services_that_are_due_are_advised_until_writes_run_them() -> None:
    work = table(400, index=SIMPLE, amplification=2.0)
    found = subjects(work, of_table(SIMPLE, waiting=CLEAN_DUE))
    assert found["upkeep"].call == "table.set_upkeep('auto')"
    assert found["clean"].command == "bucketlake clean t --run"
    assert "archive" not in found
    kept = subjects(work, of_table(SIMPLE, waiting=CLEAN_DUE, upkeep="auto"))
    assert not kept["upkeep"].changes
    assert "clean" not in kept
    stuck = (Waiting("clean", 25, 10, 10),)
    assert "clean" in subjects(work, of_table(SIMPLE, waiting=stuck, upkeep="auto"))
    nothing = table(400, index=SIMPLE)  # No commit rewrote a file, so no file is old.
    assert "clean" not in subjects(nothing, of_table(SIMPLE, waiting=CLEAN_DUE))


def test_hudi_writers_run_their_own_services() -> None:
    work = table(400, index=SIMPLE, amplification=2.0)
    assert not subjects(work, of_table(SIMPLE, hudi_writers=True))["upkeep"].changes
    made = subjects(full(100), of_sample(hudi_writers=True))
    assert "upkeep" not in (made["index"].call or "upkeep")


def test_a_key_that_comes_twice_asks_for_an_ordering_column() -> None:
    twice = full(100, repeated=0.2)
    asked = replace(of_sample(), ordering=())
    assert "20.0% of the rows" in subjects(twice, asked)["ordering"].reason
    assert "ordering" not in subjects(twice, of_sample())
    assert "ordering" not in subjects(full(100), asked)


@pytest.mark.parametrize(
    "index",
    [
        bl.SimpleBucket(3),
        bl.SimpleBucket(3, ["id"], 1000),
        bl.PartitionBucket({"a": 2, "b": 3}, default=1, hash_fields=["id"]),
        bl.ConsistentBucket(4, max=8),
        bl.ExtendibleBucket(4, max_depth=3),
        bl.DynamicBucket(),
        bl.DynamicBucket(max_records=5, assigners=1),
        bl.RecordIndex(partitioned=False),
    ],
)
def test_an_index_is_spelled_as_python_reads_it(index: Any) -> None:
    assert eval(steps.index_in_python(index), {"bl": bl}) == index


@pytest.mark.parametrize("path", ["", "a=b", "x(y)", "a.b", "50%/c d", "Köln*", "a,b;c", "[1]\\d"])
def test_rule_of_a_partition_matches_it_and_no_other(path: str) -> None:
    index = bl.PartitionBucket(steps.rules_of({path: 7}), default=1)
    assert index.count_of(path) == 7
    assert index.count_of(f"{path}x") == index.count_of(f"x{path}") == 1


@pytest.mark.parametrize(
    ("work", "given_"),
    [
        (full(3000, 150, 160, 170), {}),
        (full(50, is_full=False), {}),
        (full(500), {"hash_fields": ("id",)}),
        (full(500), {"version": 8}),
        (full(500), {"version": 6}),
    ],
)
def test_call_and_command_make_the_same_table(
    sample_file: Path, work: Workload, given_: dict[str, Any], tmp_path: Path
) -> None:
    asked = Conditions(None, ("id", "at"), ("city",), ("at",), **given_)
    advice = index_rules.advise_index(work, asked)
    assert advice.call is not None
    assert advice.command is not None
    names = {"bl": bl, "path": str(tmp_path / "call"), "sample": pq.read_table(sample_file)}
    by_call = eval(advice.call, names)
    place = {"PATH": str(tmp_path / "command"), "FILE": str(sample_file)}
    words = [place.get(word, word) for word in shlex.split(advice.command)[1:]]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    by_command = bl.open_table(place["PATH"])
    assert eval(advice.advised, {"bl": bl}) == by_call.index == by_command.index
    properties = [replace(t.config(), name="") for t in (by_call, by_command)]
    assert properties[0].key_spec == properties[1].key_spec
    assert properties[0].version == properties[1].version
    assert properties[0].upkeep == properties[1].upkeep == "auto"
