"""The lists of partitions of the metadata table, in the properties of the data table.

Readers use the valid partitions only. Writers maintain those that are being built as well. Two
updates of the properties at once destroy each other's work, so the caller holds the table lock, or
tries again after an AlreadyExistsError.
"""

from __future__ import annotations

from collections.abc import Collection

from bucketlake.config import table_keys as keys
from bucketlake.config.table_config import TableConfig
from bucketlake.storage.base import Storage
from bucketlake.timeline.table_properties import update_table_properties


def set_listed_partitions(
    storage: Storage, valid: Collection[str], building: Collection[str]
) -> None:
    """Replace the lists of valid partitions, and of those being built.

    Raises
    ------
    AlreadyExistsError, StorageError
        As ``update_table_properties``.
    """
    lists = {
        keys.METADATA_PARTITIONS: valid,
        keys.METADATA_PARTITIONS_INFLIGHT: building,
    }
    update_table_properties(
        storage,
        {key: ",".join(sorted(names)) for key, names in lists.items() if names},
        [key for key, names in lists.items() if not names],
    )


def take_off_partitions(storage: Storage, config: TableConfig, names: Collection[str]) -> None:
    """Take partitions off both lists.

    Parameters
    ----------
    storage : Storage
        The data table.
    config : TableConfig
        Its properties as they are now.
    names : collection of str
        Partitions of the metadata table.

    Raises
    ------
    AlreadyExistsError, StorageError
        As ``update_table_properties``.
    """
    set_listed_partitions(
        storage,
        [name for name in config.metadata_partitions if name not in names],
        [name for name in config.metadata_partitions_inflight if name not in names],
    )
