"""How a table's schema grows, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.model.column_type import COMMENT, list_type, map_of
from bucketlake.model.evolution import evolve
from bucketlake.model.row_merge import NO_CHANGE, SchemaMerge

ALL = SchemaMerge.of(True)
POINT = pa.struct({"x": pa.int32()})
POINT_3D = pa.struct({"x": pa.int32(), "z": pa.int32()})


def common(
    table: pa.DataType, incoming: pa.DataType, merge: SchemaMerge = NO_CHANGE
) -> pa.DataType:
    return evolve(pa.schema({"c": table}), pa.schema({"c": incoming}), merge=merge).field("c").type


@pytest.mark.parametrize(
    ("table", "incoming", "expected"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int8(), pa.int64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float32(), pa.int64(), pa.float32()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.float64(), pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(8, 2), pa.decimal128(10, 4), pa.decimal128(10, 4)),
        (pa.decimal128(12, 4), pa.decimal128(8, 2), pa.decimal128(12, 4)),
        (pa.decimal128(10, 2), pa.decimal128(10, 4), pa.decimal128(10, 2)),
        (pa.decimal128(38, 2), pa.decimal128(38, 10), pa.decimal128(38, 2)),
        (pa.decimal128(10, 2), pa.int32(), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.int64(), pa.decimal128(10, 2)),
        (POINT, POINT_3D, POINT_3D),
        (list_type(POINT), list_type(POINT_3D), list_type(POINT_3D)),
        (map_of(POINT), map_of(POINT_3D), map_of(POINT_3D)),
        (pa.struct({"x": pa.int64()}), POINT, pa.struct({"x": pa.int64()})),
        (list_type(pa.int64()), pa.large_list(pa.int16()), list_type(pa.int64())),
    ],
    ids=str,
)
def test_common_type_holds_the_values_of_both(
    table: pa.DataType, incoming: pa.DataType, expected: pa.DataType
) -> None:
    assert common(table, incoming, ALL).equals(expected)


@pytest.mark.parametrize(
    ("table", "incoming", "path"),
    [
        (pa.int32(), pa.string(), "c"),
        (pa.string(), pa.int32(), "c"),
        (pa.string(), pa.binary(), "c"),
        (pa.binary(), pa.string(), "c"),
        (pa.int64(), pa.timestamp("us", "UTC"), "c"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "c"),
        (pa.date32(), pa.timestamp("us"), "c"),
        (pa.bool_(), pa.int32(), "c"),
        (POINT, pa.int32(), "c"),
        (list_type(POINT), list_type(pa.struct({"x": pa.string()})), "c[].x"),
    ],
    ids=str,
)
def test_types_that_do_not_mix_are_refused_with_the_path(
    table: pa.DataType, incoming: pa.DataType, path: str
) -> None:
    with pytest.raises(InputError) as caught:
        evolve(pa.schema({"c": table}), pa.schema({"c": incoming}), where="orders", merge=ALL)
    assert caught.value.where == f"orders, column {path}"


def test_refusal_names_both_types_and_the_next_step() -> None:
    with pytest.raises(InputError) as caught:
        common(pa.int64(), pa.string())
    assert str(caught.value) == (
        "table, column c: the table holds bigint, the batch string; "
        "cast the batch's column to bigint, or give it another name"
    )


@pytest.mark.parametrize("merge", [NO_CHANGE, ALL])
@pytest.mark.parametrize(
    ("table", "incoming"),
    [
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.float32()),
        (pa.int64(), pa.decimal128(10, 2)),
        (pa.float64(), pa.decimal128(10, 2)),
        (pa.float32(), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.float64()),
        (POINT, pa.struct({"x": pa.int64()})),
        (list_type(pa.int32()), list_type(pa.int64())),
        (map_of(pa.int32()), map_of(pa.int64())),
    ],
    ids=str,
)
def test_a_column_of_numbers_stays_where_no_type_holds_both_or_it_is_nested(
    table: pa.DataType, incoming: pa.DataType, merge: SchemaMerge
) -> None:
    assert common(table, incoming, merge).equals(table)


def test_key_of_numbers_takes_no_floating_numbers() -> None:
    for table in (pa.int64(), pa.float32(), pa.decimal128(10, 2)):
        with pytest.raises(InputError, match="the batch double, and a column of the key keeps its"):
            evolve(pa.schema({"c": table}), pa.schema({"c": pa.float64()}), keys=("c",))


@pytest.mark.parametrize(
    ("table", "incoming"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.decimal128(10, 2), pa.int64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4)),
        (list_type(pa.decimal128(10, 2)), list_type(pa.decimal128(12, 4))),
    ],
    ids=str,
)
def test_numbers_are_taken_by_their_values_without_a_change(
    table: pa.DataType, incoming: pa.DataType
) -> None:
    assert common(table, incoming).equals(table)


@pytest.mark.parametrize(
    ("table", "incoming", "word", "problem"),
    [
        (POINT, POINT_3D, "add_columns", "column c.z: the table has no such column, the batch "),
        (POINT_3D, POINT, "fill_missing", "column c.z: the table has it as int, the batch lacks"),
    ],
)
def test_each_change_is_refused_until_its_word_is_given(
    table: pa.DataType, incoming: pa.DataType, word: str, problem: str
) -> None:
    others = SchemaMerge.of({"add_columns", "widen_types", "fill_missing"} - {word})
    with pytest.raises(InputError) as caught:
        common(table, incoming, others)
    assert problem in str(caught.value)
    assert f"merge_schema={word!r} (command line: --{word.replace('_', '-')})" in str(caught.value)
    common(table, incoming, SchemaMerge.of(word))


def test_all_refused_changes_are_named_at_once_with_what_was_meant() -> None:
    table = pa.schema({"id": pa.string(), "fare": pa.int32(), "n": pa.int32()})
    batch = pa.schema({"id": pa.string(), "fair": pa.int32()})
    with pytest.raises(InputError) as caught:
        evolve(table, batch, where="write to trips")
    assert str(caught.value) == (
        "write to trips: column fare: the table has it as int, the batch lacks it; column n: the "
        "table has it as int, the batch lacks it; column fair: the table has no such column, the "
        "batch has it as int (did you mean 'fare'?); correct the batch, or allow the change with "
        "merge_schema=['fill_missing', 'add_columns'] (command line: --fill-missing "
        "--add-columns), which writes nulls, also into stored "
        "records; an upsert with missing='keep' (--missing keep) keeps stored values there"
    )


def test_new_columns_come_last_and_nullable_and_the_order_stays() -> None:
    table = pa.schema([pa.field("id", pa.string(), False), ("n", pa.int32())])
    batch = pa.schema([pa.field("tag", pa.int8(), False), ("n", pa.int32()), ("id", pa.string())])
    expected = pa.schema([*table, ("tag", pa.int32())])
    assert evolve(table, batch, merge=ALL).equals(expected)


def test_required_columns_and_comments_of_the_table_stay() -> None:
    table = pa.schema([pa.field("n", pa.int32(), False, {COMMENT: b"why"})])
    grown = evolve(table, pa.schema({"n": pa.int64()}), merge=ALL)
    expected = pa.schema([pa.field("n", pa.int64(), False, {COMMENT: b"why"})])
    assert grown.equals(expected, check_metadata=True)


def test_missing_column_is_refused_unless_nulls_are_asked_for() -> None:
    table = pa.schema({"id": pa.string(), "n": pa.int32()})
    batch = pa.schema({"id": pa.string()})
    with pytest.raises(InputError, match=r"column n: the table has it as int, the batch lacks it"):
        evolve(table, batch)
    assert evolve(table, batch, merge=SchemaMerge.of("fill_missing")).equals(table)


def test_missing_required_column_is_refused_always() -> None:
    table = pa.schema([("id", pa.string()), pa.field("n", pa.int32(), False)])
    with pytest.raises(InputError, match=r"column n: the table has it as required int"):
        evolve(table, pa.schema({"id": pa.string()}), merge=ALL)


@pytest.mark.parametrize(
    ("table", "batch"),
    [
        (pa.schema({"id": pa.string()}), pa.schema({"ID": pa.string()})),
        (pa.schema({"a": pa.struct({"id": POINT})}), pa.schema({"a": pa.struct({"Id": POINT})})),
    ],
)
def test_name_that_differs_by_case_alone_is_refused(table: pa.Schema, batch: pa.Schema) -> None:
    with pytest.raises(InputError, match=r"Spark ignores case; rename it to id"):
        evolve(table, batch)
