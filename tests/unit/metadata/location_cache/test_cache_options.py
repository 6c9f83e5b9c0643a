"""The environment variables of the location cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake.errors import ConfigError
from bucketlake.metadata.location_cache.cache import (
    BYTES,
    CACHE_BYTES_MAX,
    EVICTION,
    FOLDER,
    EvictionPolicy,
    LocationCache,
    chosen_cache,
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (FOLDER, BYTES, EVICTION):
        monkeypatch.delenv(name, raising=False)


def test_without_variables_each_host_has_a_folder_of_its_own() -> None:
    cache = chosen_cache()
    assert cache == LocationCache(None, CACHE_BYTES_MAX, EvictionPolicy.LRU)


def test_a_folder_that_is_not_chosen_follows_from_the_host_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = chosen_cache()
    assert cache is not None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # The driver has another one.
    assert cache.root.parent == tmp_path


def test_variables_choose_folder_size_and_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "new" / "cache"))
    monkeypatch.setenv(BYTES, "1000")
    monkeypatch.setenv(EVICTION, "checkpoint")
    found = chosen_cache()
    assert found == LocationCache(str(tmp_path / "new" / "cache"), 1000, EvictionPolicy.CHECKPOINT)
    assert list(tmp_path.iterdir()) == [], "tasks create the folder on their hosts"


def test_size_0_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BYTES, "0")
    assert chosen_cache() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((FOLDER, value) for value in ("cache", "./cache", "~/cache")),
        *((BYTES, value) for value in ("4 GB", "-1", "1e9", "²", "4_000")),
        *((EVICTION, value) for value in ("LRU", "none", "lru ")),
    ],
)
def test_value_that_cannot_be_used_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name) as error:
        chosen_cache()
    assert (error.value.key, error.value.value) == (name, value)


def test_each_variable_is_documented() -> None:
    page = Path(__file__).parents[4] / "docs" / "how-to" / "dynamic-buckets.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in (FOLDER, BYTES, EVICTION) if f"| `{name}` |" not in text] == []
    assert f"`{CACHE_BYTES_MAX}`" in text
    assert all(f"`{policy.value}`" in text for policy in EvictionPolicy)


def test_folder_that_others_can_write_to_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, link, file = (tmp_path / name for name in ("shared", "link", "file"))
    shared.mkdir()
    shared.chmod(0o775)
    link.symlink_to(tmp_path)
    file.touch()
    for path in (shared, link, file):
        monkeypatch.setenv(FOLDER, str(path))
        with pytest.raises(ConfigError, match=FOLDER):
            chosen_cache()
