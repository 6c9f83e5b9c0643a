"""The keys of ``hoodie.properties`` that bucketlake knows.

``config/table_config.py`` interprets them. Other modules use a key from here to change a single
entry (``timeline/table_properties.py`` works on raw entries).
"""

from __future__ import annotations

from typing import Final

NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
TABLE_TYPE: Final = "hoodie.table.type"
VERSION: Final = "hoodie.table.version"
WRITE_VERSION: Final = "hoodie.write.table.version"  # An option of a writer.
INITIAL_VERSION: Final = "hoodie.table.initial.version"
CHECKSUM: Final = "hoodie.table.checksum"
TABLE_FORMAT: Final = "hoodie.table.format"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"

LAYOUT_VERSION: Final = "hoodie.timeline.layout.version"
TIMELINE_PATH: Final = "hoodie.timeline.path"
HISTORY_PATH: Final = "hoodie.timeline.history.path"
ARCHIVE_FOLDER: Final = "hoodie.archivelog.folder"
TIMELINE_TIMEZONE: Final = "hoodie.table.timeline.timezone"

RECORD_KEY_FIELDS: Final = "hoodie.table.recordkey.fields"
PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
KEY_GENERATOR_TYPE: Final = "hoodie.table.keygenerator.type"
KEY_GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"  # Before table version 8.
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
SLASH_SEPARATED_DATES: Final = "hoodie.datasource.write.slash.separated.date.partitioning"
PARTITION_EXTRACTOR: Final = "hoodie.table.partition_extractor_class"
TIMESTAMP_PREFIX: Final = "hoodie.keygen.timebased."

MERGE_MODE: Final = "hoodie.record.merge.mode"
MERGE_STRATEGY: Final = "hoodie.record.merge.strategy.id"
MERGE_STRATEGY_OLD: Final = "hoodie.compaction.record.merger.strategy"
PAYLOAD_CLASS: Final = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD_CLASS: Final = "hoodie.table.legacy.payload.class"  # Since table version 9.
ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
ORDERING_FIELDS_OLD: Final = "hoodie.table.precombine.field"
PARTIAL_UPDATE_MODE: Final = "hoodie.table.partial.update.mode"
UNAVAILABLE_VALUE: Final = (
    "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
)
STORED_DELETE_FIELD: Final = "hoodie.record.merge.property.hoodie.payload.delete.field"
STORED_DELETE_MARKER: Final = "hoodie.record.merge.property.hoodie.payload.delete.marker"

BASE_FILE_FORMAT: Final = "hoodie.table.base.file.format"
BASE_FILE_FORMAT_OLD: Final = "hoodie.table.ro.file.format"
MULTIPLE_BASE_FILE_FORMATS: Final = "hoodie.table.multiple.base.file.formats.enable"
POPULATE_META_FIELDS: Final = "hoodie.populate.meta.fields"
META_COLUMNS_OFF: Final = f"{POPULATE_META_FIELDS}=false"  # For messages.
DROP_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
METAFILE_AS_BASE_FORMAT: Final = "hoodie.partition.metafile.use.base.format"
CDC_ENABLED: Final = "hoodie.table.cdc.enabled"
CDC_MODE: Final = "hoodie.table.cdc.supplemental.logging.mode"
BOOTSTRAP_BASE_PATH: Final = "hoodie.bootstrap.base.path"

METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
INDEX_DEFINITIONS_PATH: Final = "hoodie.table.index.defs.path"
UPKEEP: Final = "bucketlake.upkeep"
SYNC: Final = "bucketlake.sync"
KEEP_DELETES: Final = "bucketlake.keep.deletes"
ORDERING_GROUPS: Final = "bucketlake.ordering.groups"  # JSON: the ordering of some columns.
UNBUILT_PARTITIONS: Final = "bucketlake.metadata.partitions.unbuilt"  # After a version change.
TIMELINE_MOVED: Final = "bucketlake.timeline.moved"  # When, in ms since 1970 UTC.
