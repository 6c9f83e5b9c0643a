"""The metadata table as a table inside its data table: its folder and its properties.

Hudi gives every metadata table the same properties, except for name and checksum. So a writer need
not read them.
"""

from __future__ import annotations

from dataclasses import replace

from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import MERGER_OF_HUDI_0
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig, table_checksum
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.subfolder import Subfolder
from bucketlake.timeline.open_table import OpenTable


def inner_table(table: OpenTable) -> OpenTable:
    """Return the metadata table of a table, which need not exist; nothing is read.

    It has the clock and the lock of the data table. All its instants are completed with
    ``publish_completed``: readers do not use one before the instant of the data table with the same
    time is completed, if there is one.

    Parameters
    ----------
    table : OpenTable
        The data table.
    """
    own = TableConfig.from_properties(inner_properties(table.config))
    config = replace(own, timeline_timezone=table.config.timeline_timezone)
    return replace(table, storage=Subfolder(table.storage, METADATA_TABLE_FOLDER), config=config)


def inner_properties(config: TableConfig) -> dict[str, str]:
    """Return the properties of a table's metadata table: the entries that Hudi writes.

    Parameters
    ----------
    config : TableConfig
        The data table.
    """
    rules = config.rules
    entries = {
        keys.NAME: f"{config.name}_metadata",
        keys.TABLE_TYPE: TableType.MERGE_ON_READ.value,
        keys.VERSION: str(config.version),
        keys.LAYOUT_VERSION: str(config.layout.number),
        keys.BASE_FILE_FORMAT: "HFILE",
        keys.RECORD_KEY_FIELDS: "key",
        keys.POPULATE_META_FIELDS: "false",  # Hudi builds the table anew otherwise.
        keys.DROP_PARTITION_COLUMNS: "false",
        keys.PAYLOAD_CLASS: "org.apache.hudi.metadata.HoodieMetadataPayload",
    }
    if rules.has_names_of_hudi_1:
        entries |= {
            keys.INITIAL_VERSION: str(config.version),
            keys.TIMELINE_PATH: "timeline",
            keys.HISTORY_PATH: "history",
            keys.ARCHIVE_FOLDER: rules.layout.archive_folder,
            keys.KEY_GENERATOR_TYPE: "HOODIE_TABLE_METADATA",
            keys.MERGE_MODE: MergeMode.CUSTOM.value,
            keys.MERGE_STRATEGY: "00000000-0000-0000-0000-000000000000",  # The payload merges.
        }
    else:
        generator = "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator"
        entries |= {
            # Hudi 1.2.0, which names none, has the folder of its data tables.
            keys.ARCHIVE_FOLDER: config.archive_folder,
            keys.KEY_GENERATOR_CLASS: generator,
            keys.MERGE_STRATEGY_OLD: MERGER_OF_HUDI_0,
        }
    return entries | {keys.CHECKSUM: table_checksum(entries)}
