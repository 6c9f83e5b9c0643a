"""Settings of a session are what they were, whoever changed them at once."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from bucketlake.spark.flow import PIECE_SETTINGS, changed_settings, row_settings


class Session:
    """A session as far as its settings go."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self

    def get(self, key: str, default: Any = None) -> Any:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def unset(self, key: str) -> None:
        self.settings.pop(key, None)


@pytest.mark.parametrize("held", [{}, {"rows": "10"}])
def test_overlapping_steps_see_the_change_to_their_end_and_leave_nothing(
    held: dict[str, str],
) -> None:
    session, other = Session(**held), Session(**held)
    first = changed_settings(cast(SparkSession, session), {"rows": "2"})
    second = changed_settings(cast(SparkSession, session), {"rows": "2", "more": "1"})
    with changed_settings(cast(SparkSession, other), {"rows": "2"}):
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert session.settings == {"rows": "2", "more": "1"}
    assert other.settings == held
    assert session.settings == {"rows": "2", "more": "1"}
    second.__exit__(None, None, None)
    assert session.settings == held


def test_settings_are_put_back_where_a_step_fails() -> None:
    session = Session(rows="10")
    with (
        pytest.raises(KeyError),
        changed_settings(cast(SparkSession, session), {"rows": "2"}),
    ):
        raise KeyError
    assert session.settings == {"rows": "10"}


@pytest.mark.parametrize(
    ("schema", "is_binary"),
    [
        (StructType().add("image", BinaryType()), True),
        (StructType().add("images", ArrayType(BinaryType())), True),
        (StructType().add("images", MapType(StringType(), BinaryType())), True),
        (StructType().add("s", StructType().add("binary", BinaryType())), True),
        (StructType().add("binary", StringType()).add("is_binary", StringType()), False),
        (StructType().add("s", StructType().add("binary", StringType())), False),
    ],
)
def test_records_with_binary_values_come_in_small_batches(
    schema: StructType, *, is_binary: bool
) -> None:
    assert (row_settings(schema) == PIECE_SETTINGS) == is_binary
