"""Facts for tasks come out as they went in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.spark.facts import column_facts, encode_facts


@pytest.mark.parametrize("texts", [["a"], ["it's", 'a "fact"', "\\", "${x}", "\n", "ü"]])
def test_facts_of_a_task_are_read_as_they_were_written(texts: list[str]) -> None:
    assert column_facts(pa.array([None, encode_facts(texts), encode_facts(["z"])])) == [*texts, "z"]


def test_encoded_facts_hold_nothing_that_sql_could_take_for_a_quote_or_a_variable() -> None:
    encoded = encode_facts(["'", "\\", "${spark.master}", "--", "\n"])
    assert encoded.isascii()
    assert not set(encoded) & set("'\"\\$-\n")
