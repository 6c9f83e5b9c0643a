"""Field paths: columns, and fields inside struct columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.model.field_path import (
    column_of,
    columns_at,
    field_at,
    spelled,
    why_missing,
)

INNER = pa.struct([("x", pa.string())])
HEADER = pa.struct([pa.field("eid", pa.int64(), nullable=False), ("in", INNER)])
SCHEMA = pa.schema([pa.field("header", HEADER), pa.field("v", pa.int32(), nullable=False)])
# The second struct is null, and hides values.
HIDDEN = pa.StructArray.from_arrays(
    [pa.array([1, 2, 3])], ["eid"], mask=pa.array([False, True, False])
)


def test_path_is_the_column_of_that_name_or_a_field_inside_a_struct() -> None:
    table = pa.table({"header": pa.array([{"eid": 1, "in": {"x": "a"}}, None]), "v": [7, 8]})
    assert column_of(table, "v", "key").to_pylist() == [7, 8]
    assert column_of(table, "header.eid", "key").to_pylist() == [1, None]
    assert column_of(table, "header.in.x", "key").to_pylist() == ["a", None]


def test_column_of_a_batch_with_a_dot_in_its_name_holds_the_values_of_that_path() -> None:
    both = pa.table({"n": pa.array([{"id": "u"}]), "n.id": ["flat"]})
    assert column_of(both, "n.id", "key").to_pylist() == ["flat"]


@pytest.mark.parametrize("chunks", [[HIDDEN], [HIDDEN.slice(0, 1), HIDDEN.slice(1)]])
def test_values_that_a_null_struct_hides_are_null(chunks: list[pa.Array]) -> None:
    table = pa.table({"n": pa.chunked_array(chunks)})
    assert column_of(table, "n.eid", "key").to_pylist() == [1, None, 3]


def test_field_is_nullable_if_a_struct_around_it_is() -> None:
    assert field_at(SCHEMA, "header.eid") == pa.field("header.eid", pa.int64(), nullable=True)
    assert field_at(SCHEMA, "v") == SCHEMA.field("v")
    required = pa.schema([pa.field("header", HEADER, nullable=False)])
    assert field_at(required, "header.eid") == pa.field("header.eid", pa.int64(), nullable=False)


def test_columns_at_paths_have_the_paths_as_their_names() -> None:
    table = pa.table([[{"eid": 1, "in": {"x": "a"}}], pa.array([7], pa.int32())], schema=SCHEMA)
    flat = columns_at(table, ["header.in.x", "v"])
    assert flat.to_pydict() == {"header.in.x": ["a"], "v": [7]}
    assert columns_at(flat, flat.column_names) == flat


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("w", "has no such column; its columns are 'header', 'v'"),
        ("haeder.eid", r"no column 'haeder'.*did you mean 'header'\?"),
        (
            "header.eld",
            r"no field 'eld' in column 'header'.*'eid', 'in'; did you mean 'header.eid'",
        ),
        ("header.in.y", "no field 'y' in column 'header.in'; its fields are 'x'"),
        ("header.eid.z", "column 'header.eid' as int64, not as a struct with a field 'z'"),
        ("v.x", "column 'v' as int32, not as a struct"),
    ],
)
def test_missing_path_is_explained_by_the_first_step_that_is_missing(path: str, why: str) -> None:
    assert field_at(SCHEMA, path) is None
    with pytest.raises(InputError, match=why):
        column_of(SCHEMA.empty_table(), path, "record key")
    assert why_missing(SCHEMA, path)


def test_column_that_occurs_twice_has_no_values_at_its_paths() -> None:
    column = pa.array([{"eid": 1}])
    twice = pa.table([column, column], names=["n", "n"])
    with pytest.raises(InputError, match="several columns 'n'"):
        column_of(twice, "n.eid", "key")


def test_spelling_of_a_path_ignores_case_in_each_step() -> None:
    assert spelled(SCHEMA, "HEADER.In.X") == "header.in.x"
    assert spelled(SCHEMA, "header.x") is None
    assert spelled(SCHEMA, "v.x") is None
