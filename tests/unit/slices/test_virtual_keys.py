"""How keys and other meta values are made in a table without meta columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.log_data import encode_avro_block
from bucketlake.model.file_name import InstantTime, LogFileName
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.schema import META_NAMES, RECORD_KEY, with_meta
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.snapshot import Snapshot
from bucketlake.slices.stored_keys import RowOrigin, VirtualKeys
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.open_table import opened_table
from tests.golden.objects import objects_of_table
from tests.storages import memory_of
from tests.unit.format.log_rows import partial

SCHEMA = pa.schema(
    [("geo", pa.struct([("cell", pa.int64())])), ("id", pa.int64()), ("v", pa.int32())]
)
AT_HOME = RowOrigin("eu/file", "eu", "group-0", InstantTime("20240102030405006"))


def virtual(
    spec: KeySpec, *, initial_version: int | None = 9, populate_meta_fields: bool = False
) -> VirtualKeys | None:
    config = TableConfig(
        "trips",
        TableType.MERGE_ON_READ,
        spec,
        MergeMode.COMMIT_TIME,
        initial_version=initial_version,
        populate_meta_fields=populate_meta_fields,
    )
    timeline = Timeline((), ".hoodie/timeline", LAYOUT_2, None, ".hoodie/timeline/history")
    text = avro_from_arrow(SCHEMA, "trips")
    return Snapshot(opened_table(memory_of(), config), timeline, text).virtual_keys


SIMPLE = KeySpec(("id",), ("region",), KeyGenerator.SIMPLE)
COMPLEX = replace(SIMPLE, generator=KeyGenerator.COMPLEX)
NESTED = KeySpec(("geo.cell", "id"), (), KeyGenerator.NON_PARTITION)
ROWS = pa.table(
    [[{"cell": 5}, None], pa.array([7, 8], pa.int32()), pa.array([1, 2], pa.int32())],
    names=SCHEMA.names,
)


def test_a_table_that_stores_its_keys_makes_none() -> None:
    assert virtual(SIMPLE, populate_meta_fields=True) is None


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (SIMPLE, ["7", "8"]),
        (COMPLEX, ["id:7", "id:8"]),
        (NESTED, ["geo.cell:5,id:7", "geo.cell:__null__,id:8"]),
    ],
)
def test_keys_are_made_of_the_columns_whatever_the_meta_columns_hold(
    spec: KeySpec, keys: list[str]
) -> None:
    maker = virtual(spec)
    assert maker is not None
    wanted = pa.schema([(RECORD_KEY, pa.string()), ("v", pa.int32())])
    read = maker.stored(wanted)
    assert RECORD_KEY not in read.names
    assert set(read.names) == {"v", *(f.partition(".")[0] for f in spec.record_key_fields)}
    made = maker.completed(ROWS.select(read.names), wanted, AT_HOME)
    assert made.to_pydict() == {RECORD_KEY: keys, "v": [1, 2]}


def test_meta_values_tell_where_a_row_was_read_and_a_commit_if_it_is_known() -> None:
    maker = virtual(SIMPLE)
    assert maker is not None
    rows = ROWS.select(["id"]).slice(0, 1)
    wanted = with_meta(pa.schema([]))
    of_log = maker.completed(rows, wanted, AT_HOME)
    assert list(of_log.to_pylist()[0].values()) == [AT_HOME.instant, None, "7", "eu", "group-0"]
    of_base = maker.completed(rows, wanted, replace(AT_HOME, instant=None))
    assert of_base["_hoodie_commit_time"].to_pylist() == [None]
    assert tuple(of_base.column_names) == META_NAMES


def test_a_row_without_a_key_names_the_file_and_the_column() -> None:
    maker = virtual(SIMPLE)
    assert maker is not None
    rows = pa.table({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(FormatError, match=r"eu/file: expected rows with a record key.*1 of 2"):
        maker.keys_of(rows, "eu/file")


def test_keys_of_deletes_are_taken_in_either_spelling_before_version_9_and_in_one_since() -> None:
    stored = pa.array(["7", "id:8", "idea"])
    for spec, version in ((COMPLEX, 9), (SIMPLE, 6), (NESTED, None)):
        maker = virtual(spec, initial_version=version)
        assert maker is not None
        assert maker.canonical(stored) is stored
        assert maker.spellings(stored) == [stored]
    for version in (6, 8, None):
        maker = virtual(COMPLEX, initial_version=version)
        assert maker is not None
        canonical = maker.canonical(stored)
        assert canonical.to_pylist() == ["id:7", "id:8", "id:idea"]
        assert [s.to_pylist() for s in maker.spellings(canonical)] == [
            ["id:7", "id:8", "id:idea"],
            ["7", "8", "idea"],
        ]


def test_a_partial_update_without_its_key_is_refused() -> None:
    """Hudi refuses to write one."""
    objects = objects_of_table("virtual_mor_logs")
    path = max(path for path in objects if LogFileName.from_file_name(path.split("/")[-1]))
    name = LogFileName.from_file_name(path.split("/")[-1])
    assert name is not None
    schema = avro_from_arrow(with_meta(pa.schema([("qty", pa.int32())])), "part")
    meta = {column: pa.nulls(1, pa.string()) for column in META_NAMES}
    rows = pa.table({**meta, "qty": pa.array([1], pa.int32())})
    block = partial(encode_avro_block(rows, schema, instant=name.instant))
    storage = memory_of(objects | {path: block})
    with pytest.raises(UnsupportedFeatureError, match=r"partial update .* without meta columns"):
        bl.open_table(storage.root).to_arrow()
