"""Parts of a shard after any changes of log files, compared with a dict."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.hashing.texts import TextHashes, Texts, hash_texts
from bucketlake.metadata.location_cache import cached_shard
from bucketlake.metadata.location_cache.cached_shard import changed_parts, find_codes
from bucketlake.metadata.location_cache.key_codes import KeyCodes, ShardChanges
from bucketlake.metadata.location_cache.part import Part


def changes_of(put: dict[str, int], removed: set[str]) -> ShardChanges:
    keys = pa.array(list(put), pa.large_string())
    gone = pa.array(sorted(removed - set(put)), pa.large_string())
    return ShardChanges(KeyCodes(keys, np.array(list(put.values()), np.uint32)), gone, False)


def after(parts: list[Part], changes: ShardChanges) -> list[Part]:
    kept, added = changed_parts(parts, changes)
    return [*parts[:kept], *added]


def require_model(parts: list[Part], model: dict[str, int], asked: list[str]) -> None:
    codes = find_codes(parts, pa.array(asked, pa.string()))
    assert codes.tolist() == [model.get(key, -1) for key in asked]


names = st.sampled_from([f"k{number}" for number in range(60)])
histories = st.lists(
    st.tuples(
        st.dictionaries(names, st.sampled_from([0, 1, 7, 65_534, 65_535, 10**6]), max_size=40),
        st.sets(names, max_size=6),
    ),
    max_size=8,
)


@given(histories, st.sampled_from([0, 3, 2**64 - 1]))
def test_parts_equal_a_dict_after_any_changes_whatever_the_hash(
    history: list[tuple[dict[str, int], set[str]]], mask: int
) -> None:
    def weak(texts: Texts) -> TextHashes:
        return hash_texts(texts) & np.uint64(mask)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_shard, "hash_texts", weak)
        parts: list[Part] = []
        model: dict[str, int] = {}
        for put, removed in history:
            parts = after(parts, changes_of(put, removed))
            for key in removed:
                model.pop(key, None)
            model.update(put)
            require_model(parts, model, [f"k{number}" for number in range(61)])
            if len(parts) == 1:
                assert len(parts[0]) == len(model)  # Removed keys take no space.


def test_small_commits_make_few_parts_and_take_eight_bytes_a_key() -> None:
    parts: list[Part] = []
    model: dict[str, int] = {}
    written = 0
    for number in range(150):
        count = 20_000 if number == 0 else 200
        put = {f"key-{len(model) + n:08d}": number for n in range(count)}
        model.update(put)
        kept = parts
        parts = after(parts, changes_of(put, set()))
        written += sum(len(part) for part in parts if part not in kept)
        assert len(parts) <= 4
        assert all(len(a) >= 8 * len(b) for a, b in pairwise(parts))
        assert sum(part.resident_bytes for part in parts) <= 8 * len(model) + 1000
    assert written < 20 * len(model)
    require_model(parts, model, [*list(model)[::97], "new"])
