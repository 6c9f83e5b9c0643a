"""Where things lie below a table: the fixed paths of Hudi's layout, and of bucketlake's part in it.

Paths are relative to the table. Those that a table may move (its timeline and archive) follow from
its properties and are told by :class:`~bucketlake.config.table_config.TableConfig`.
"""

from __future__ import annotations

HOODIE_FOLDER = ".hoodie"

PROPERTIES_FILE = f"{HOODIE_FOLDER}/hoodie.properties"
PROPERTIES_BACKUP_FILE = f"{PROPERTIES_FILE}.backup"

MARKER_FOLDER = f"{HOODIE_FOLDER}/.temp"  # One folder per instant below it.
HEARTBEAT_FOLDER = f"{HOODIE_FOLDER}/.heartbeat"
KEPT_FOLDER_FILE = ".keep"  # Empty, in a folder that must be there.
METADATA_TABLE_FOLDER = f"{HOODIE_FOLDER}/metadata"

EXTENSION_FOLDER = f"{HOODIE_FOLDER}/.bucket_index/ext"  # Ours alone; Hudi leaves it untouched.
OUTCOME_FOLDER = f"{EXTENSION_FOLDER}/outcome"
COMMIT_ORDER_FOLDER = f"{EXTENSION_FOLDER}/commit_order"
QUARANTINE_FOLDER = f"{EXTENSION_FOLDER}/quarantine"  # Files that a repair took out of the table.
