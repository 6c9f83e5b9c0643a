"""The fixed paths below a table, of Hudi's layout and of bucketlake.

Paths are relative to the table. :class:`~bucketlake.config.table_config.TableConfig` has the
folders of timeline and archive, which the properties of a table may change.
"""

from __future__ import annotations

HOODIE_FOLDER = ".hoodie"

PROPERTIES_FILE = f"{HOODIE_FOLDER}/hoodie.properties"
PROPERTIES_BACKUP_FILE = f"{PROPERTIES_FILE}.backup"

MARKER_FOLDER = f"{HOODIE_FOLDER}/.temp"  # One folder per instant below it.
HEARTBEAT_FOLDER = f"{HOODIE_FOLDER}/.heartbeat"
KEPT_FOLDER_FILE = ".keep"  # An empty file in a folder that must exist.
METADATA_TABLE_FOLDER = f"{HOODIE_FOLDER}/metadata"
INDEX_DEFINITIONS_FILE = f"{HOODIE_FOLDER}/.index_defs/index.json"

EXTENSION_FOLDER = f"{HOODIE_FOLDER}/.bucket_index/ext"  # Only bucketlake uses this folder.
OUTCOME_FOLDER = f"{EXTENSION_FOLDER}/outcome"
COMMIT_ORDER_FOLDER = f"{EXTENSION_FOLDER}/commit_order"
ARCHIVAL_FOLDER = f"{EXTENSION_FOLDER}/archivals"  # Claims of archivals in the old layout.
SPOOL_FOLDER = f"{EXTENSION_FOLDER}/spool"  # Copies of inputs, each during a write.
QUARANTINE_FOLDER = f"{EXTENSION_FOLDER}/quarantine"  # Files that a repair moved here.
VERSION_CHANGE_FILE = f"{EXTENSION_FOLDER}/version_change.json"  # While the timeline moves.
