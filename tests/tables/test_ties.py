"""Two rows of one key with equal ordering values: the later one, or an error that names both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError

TYPES = ("copy_on_write", "merge_on_read")


def made(address: str, table_type: str, **options: Any) -> bl.Table:
    return bl.create_table(
        address,
        schema="id string, at bigint, n bigint, s string",
        record_key="id",
        index=bl.SimpleBucket(1),
        table_type=table_type,
        **{"ordering": "at", **options},
    )


def rows(*given: tuple[str, int, int | None]) -> pa.Table:
    return pa.table(
        {
            "id": [key for key, _, _ in given],
            "at": [at for _, at, _ in given],
            "n": pa.array([n for _, _, n in given], pa.int64()),
            "s": ["s"] * len(given),
        }
    )


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("compacts", [False, True])
def test_the_later_of_two_rows_wins_by_default(
    new_path: Callable[[], str], table_type: str, *, compacts: bool
) -> None:
    table = made(new_path(), table_type)
    for n in (5, 9, 7):
        table.upsert(rows(("a", 1, n)))
        if compacts and table_type == "merge_on_read":
            table.compact()
    table.upsert(rows(("b", 1, 3), ("b", 1, 2)))
    assert dict(
        zip(*(table.to_arrow()[name].to_pylist() for name in ("id", "n")), strict=True)
    ) == {
        "a": 7,
        "b": 2,
    }


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("how", [{}, {"missing": "keep"}, {"nulls": "keep"}])
def test_rows_that_differ_at_one_ordering_value_are_named_and_nothing_is_written(
    new_path: Callable[[], str], table_type: str, how: dict[str, Any]
) -> None:
    table = made(new_path(), table_type)
    table.upsert(rows(("a", 1, 5), ("a", 1, 5)), on_tie="fail", **how)
    table.upsert(rows(("a", 1, 5)), on_tie="fail", **how)  # Again the same: no tie.
    table.upsert(rows(("a", 0, 8), ("b", 2, 1), ("b", 1, 4)), on_tie="fail", **how)  # An older one.
    for given in (
        [("a", 1, 6)],
        [("c", 1, 6), ("c", 1, 7)],
        [("c", 1, 1), ("c", 2, 6), ("c", 2, 6), ("c", 2, 7), ("c", 3, 1)],
    ):
        with pytest.raises(InputError, match=r"equal ordering values \(at\) and differ.*'n'.*'n'"):
            table.upsert(rows(*given), on_tie="fail", **how)
    found = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
    assert found == {"a": 5, "b": 1}


@pytest.mark.parametrize("table_type", TYPES)
def test_what_a_batch_does_not_give_is_no_difference(
    new_path: Callable[[], str], table_type: str
) -> None:
    table = made(new_path(), table_type)
    table.upsert(rows(("a", 1, 5)))
    table.upsert(rows(("a", 1, None)), nulls="keep", on_tie="fail")
    table.upsert(rows(("a", 1, 5)).drop_columns(["n"]), missing="keep", on_tie="fail")
    assert table.to_arrow()["n"].to_pylist() == [5]


@pytest.mark.parametrize("table_type", TYPES)
def test_a_delete_is_no_tie_and_wins(new_path: Callable[[], str], table_type: str) -> None:
    table = made(new_path(), table_type)
    given = rows(("a", 1, 5), ("a", 1, 6))
    for flags in ([True, False], [False, True]):
        table.upsert(given.append_column("_hoodie_is_deleted", pa.array(flags)), on_tie="fail")
        assert table.count() == 0


@pytest.mark.parametrize(
    ("ordering", "options", "problem"),
    [
        ("at", {"on_tie": "later"}, "give 'fail' or None"),
        ("at", {"on_tie": "fail", "merge": {"n": "sum"}}, "leave out merge"),
        (None, {"on_tie": "fail"}, "without an ordering column"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    new_path: Callable[[], str], ordering: str | None, options: dict[str, Any], problem: str
) -> None:
    table = made(new_path(), "copy_on_write", ordering=ordering)
    with pytest.raises(ConfigError, match=problem):
        table.upsert(rows(("a", 1, 5)), **options)
    assert table.count() == 0
