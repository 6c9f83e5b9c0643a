"""The lists of partitions of the metadata table, in the properties of the data table.

Readers use the valid partitions only. Writers maintain those that are being built as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import INDEX_DEFINITIONS_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.storage.base import Storage
from bucketlake.timeline.table_properties import update_table_properties


def list_partitions_as(
    storage: Storage,
    *,
    valid: Collection[str] = (),
    building: Collection[str] = (),
    lost: Collection[str] = (),
    check: Callable[[Collection[str]], None] = lambda _: None,
) -> tuple[str, ...]:
    """Move partitions of the metadata table into a list, or take them off both lists.

    Parameters
    ----------
    storage : Storage
        The data table.
    valid, building, lost : collection of str
        Partitions that are valid from now on, that are being built, and that do not count any more.
        All others stay in their list.
    check : callable
        Gets the partitions of both lists, and raises an error if nothing may change.

    Returns
    -------
    tuple of str
        The valid partitions after the change, in order.

    Raises
    ------
    AlreadyExistsError, StorageError
        As ``update_table_properties``.
    """
    moved = {*valid, *building, *lost}

    def change(entries: dict[str, str]) -> dict[str, str]:
        lists = keys.METADATA_PARTITIONS, keys.METADATA_PARTITIONS_INFLIGHT
        check({name for key in lists for name in _names(entries.get(key, ""))})
        for key, added in (
            (keys.METADATA_PARTITIONS, valid),
            (keys.METADATA_PARTITIONS_INFLIGHT, building),
        ):
            names = (_names(entries.pop(key, "")) - moved) | {*added}
            if names:
                entries[key] = ",".join(sorted(names))
                entries.setdefault(keys.INDEX_DEFINITIONS_PATH, INDEX_DEFINITIONS_FILE)
        return entries

    entries = update_table_properties(storage, change)
    return TableConfig.from_properties(entries).metadata_partitions


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")} - {""}
