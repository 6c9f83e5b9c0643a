"""The file of a data table that describes its indexes in the metadata table.

Two changes at once destroy each other's work, so the caller holds the table lock, as for
``hoodie.properties``. ``format/index_definitions.py`` has the content.
"""

from __future__ import annotations

from collections.abc import Iterable

from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import (
    INDEX_DEFINITIONS_FILE,
    PROPERTIES_FILE,
    require_inner_path,
)
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import OLDEST_STATISTICS
from bucketlake.format.index_definitions import (
    IndexDefinition,
    decode_index_definitions,
    encode_index_definitions,
)
from bucketlake.storage.base import read_if_there
from bucketlake.timeline.open_table import OpenTable


def read_index_definitions(table: OpenTable) -> dict[str, IndexDefinition]:
    """Return the definitions of a table's indexes by name; empty without the file.

    Raises
    ------
    FormatError
        If the file is broken, or the properties of the table name a file outside of the table.
    """
    path = index_definitions_path(table.config)
    data = read_if_there(table.storage, path)
    return {} if data is None else decode_index_definitions(data, path)


def update_index_definitions(table: OpenTable, add: Iterable[IndexDefinition]) -> None:
    """Add or replace definitions; definitions of others are kept.

    Raises
    ------
    FormatError
        As :func:`read_index_definitions`.
    """
    current = read_index_definitions(table)
    changed = current | {definition.name: definition for definition in add}
    if changed != current:
        table.storage.put(index_definitions_path(table.config), encode_index_definitions(changed))


def columns_with_statistics(table: OpenTable) -> tuple[str, ...]:
    """Return the columns of which the metadata table has statistics."""
    definition = read_index_definitions(table).get("column_stats")
    return () if definition is None else definition.source_fields


def statistics_version(table: OpenTable) -> str:
    """Return the index version of the statistics of columns that a table has.

    An upgrade of a table keeps its statistics as they are.
    """
    config = table.config
    usual = config.rules.statistics_version
    if (config.initial_version or 0) >= config.version:
        return usual
    definition = read_index_definitions(table).get("column_stats")
    return usual if definition is None else definition.version or OLDEST_STATISTICS


def index_definitions_path(config: TableConfig) -> str:
    """Return the path of the file, relative to the table."""
    path = config.extra.get(keys.INDEX_DEFINITIONS_PATH)
    if not path:
        return INDEX_DEFINITIONS_FILE
    require_inner_path(path, PROPERTIES_FILE, keys.INDEX_DEFINITIONS_PATH)
    return path
