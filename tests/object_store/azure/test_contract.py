"""What every backend promises, on Azure's storage."""

from __future__ import annotations

import pytest

from bucketlake.storage.base import Storage
from tests.choices import DEEP
from tests.unit.storage import test_contract
from tests.unit.storage.test_contract import *  # noqa: F403 - The same tests, with other fixtures.


def test_names_are_taken_literally(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but backslashes, which the server lists as slashes."""
    names = [name for name in test_contract.NAMES if "\\" not in name]
    monkeypatch.setattr(test_contract, "NAMES", names)
    test_contract.test_names_are_taken_literally(storage)


@pytest.mark.skipif(not DEEP, reason="it waits for 30 seconds")
def test_duplicate_over_an_object_of_another_size_is_refused(storage: Storage) -> None:
    test_contract.test_duplicate_over_an_object_of_another_size_is_refused(storage)
