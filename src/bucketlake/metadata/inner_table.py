"""The metadata table as a table inside its data table: its folder and its properties.

Hudi gives every metadata table the same properties, except for name and checksum. So a writer need
not read them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_config import NEWEST_VERSION, TableConfig, table_checksum
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.storage.subfolder import Subfolder
from bucketlake.timeline.instant import Instant
from bucketlake.timeline.outcome import Publication
from bucketlake.timeline.transitions import publish_completed


@dataclass(frozen=True, slots=True)
class InnerTable:
    """A metadata table of table version 9, as writers need it.

    Attributes
    ----------
    storage : Subfolder
        Its folder, as a storage.
    config : TableConfig
        Its properties, with the time zone of the data table.
    """

    storage: Subfolder
    config: TableConfig

    def complete(
        self, pending: Instant, publication: Publication, outcomes: Storage | None = None
    ) -> None:
        """Complete an instant of the metadata table; all of them are completed here.

        Readers do not use the instant before an instant of the data table with the same time is
        completed, if there is one.

        Parameters
        ----------
        pending : Instant
            The pending instant.
        publication : Publication
            Its completed file.
        outcomes : Storage, optional
            The storage that decided it, if that is the data table.

        Raises
        ------
        CommitConflictError, StorageError
            As ``publish_completed``.
        """
        publish_completed(self.storage, self.config, pending, publication, outcomes=outcomes)


def inner_table(storage: Storage, config: TableConfig) -> InnerTable:
    """Return the metadata table of a table, which need not exist; nothing is read.

    Parameters
    ----------
    storage, config
        The data table.
    """
    own = TableConfig.from_properties(inner_properties(config))
    return InnerTable(
        Subfolder(storage, METADATA_TABLE_FOLDER),
        replace(own, timeline_timezone=config.timeline_timezone),
    )


def inner_properties(config: TableConfig) -> dict[str, str]:
    """Return the properties of a table's metadata table: the entries that Hudi writes.

    Parameters
    ----------
    config : TableConfig
        The data table.
    """
    entries = {
        keys.NAME: f"{config.name}_metadata",
        keys.TABLE_TYPE: TableType.MERGE_ON_READ.value,
        keys.VERSION: str(NEWEST_VERSION),
        keys.INITIAL_VERSION: str(NEWEST_VERSION),
        keys.LAYOUT_VERSION: "2",
        keys.TIMELINE_PATH: "timeline",
        keys.HISTORY_PATH: "history",
        keys.ARCHIVE_FOLDER: "history",
        keys.BASE_FILE_FORMAT: "HFILE",
        keys.RECORD_KEY_FIELDS: "key",
        keys.KEY_GENERATOR_TYPE: "HOODIE_TABLE_METADATA",
        keys.POPULATE_META_FIELDS: "false",  # Hudi builds the table anew otherwise.
        keys.DROP_PARTITION_COLUMNS: "false",
        keys.PAYLOAD_CLASS: "org.apache.hudi.metadata.HoodieMetadataPayload",
        keys.MERGE_MODE: MergeMode.CUSTOM.value,
        keys.MERGE_STRATEGY: "00000000-0000-0000-0000-000000000000",  # The payload class merges.
    }
    return entries | {keys.CHECKSUM: table_checksum(entries)}
