"""Which tables bucketlake can read and write; others raise an error that names the feature.

A read is rejected if rows would be wrong or missing. A write is also rejected if it would leave the
table in a state that its other writers or readers do not expect.
"""

from __future__ import annotations

from collections.abc import Iterator

from bucketlake.config.merge_entries import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_keys import META_COLUMNS_OFF
from bucketlake.config.table_version import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    WRITTEN_VERSIONS,
)
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.model.keys import KeyGenerator
from bucketlake.model.table_type import MergeMode, TableType

_FILES = "files"  # The partition of the metadata table that all others need.
_WRITTEN = ", ".join(map(str, WRITTEN_VERSIONS))
_READ_WITH_HUDI = "read it with Hudi"
_WRITE_WITH_HUDI = "write it with Hudi"


def check_readable(config: TableConfig, where: str) -> None:
    """Raise an error for a table that bucketlake cannot read correctly.

    Parameters
    ----------
    config : TableConfig
    where : str
        The table's address, for the error.

    Raises
    ------
    UnsupportedFeatureError
        If there is a reason; the error has the first one.
    """
    _raise_first(where, _unreadable(config))


def check_writable(config: TableConfig, where: str) -> None:
    """Raise an error for a table that bucketlake cannot read, or cannot write correctly.

    Parameters
    ----------
    config : TableConfig
    where : str
        The table's address, for the error.

    Raises
    ------
    UnsupportedFeatureError
        If there is a reason; the error has the first one.
    """
    check_readable(config, where)
    _raise_first(where, _unwritable(config))


def _raise_first(where: str, reasons: Iterator[tuple[str, str]]) -> None:
    for feature, next_step in reasons:
        raise UnsupportedFeatureError(feature, where, next_step)


def _unreadable(config: TableConfig) -> Iterator[tuple[str, str]]:
    """Yield (feature, next step) for each feature that prevents reading."""
    version, layout = config.version, config.layout_version
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        served = f"versions {OLDEST_VERSION} to {NEWEST_VERSION} are supported"
        newer = version > NEWEST_VERSION
        step = "use a newer bucketlake" if newer else "let a Hudi release between upgrade it"
        yield f"table version {version}", f"{served}; {step}"
    if layout != config.layout.number:
        yield f"timeline layout {layout} under table version {version}", _READ_WITH_HUDI
    if config.table_format != "native":
        yield f"table format {config.table_format!r}", _READ_WITH_HUDI
    if config.base_file_format != "PARQUET":
        yield f"base file format {config.base_file_format}", _READ_WITH_HUDI
    if config.multiple_base_file_formats:
        yield "a mix of base file formats", _READ_WITH_HUDI
    if config.bootstrap_base_path is not None:
        yield f"a bootstrap from {config.bootstrap_base_path}", _READ_WITH_HUDI
    if not config.populate_meta_fields:
        yield from _unmakeable_keys(config)
    if config.drop_partition_columns:
        yield from _untold_columns(config)
    if config.table_type is TableType.MERGE_ON_READ:
        yield from _own_merging(config)


def _unmakeable_keys(config: TableConfig) -> Iterator[tuple[str, str]]:
    """Yield (feature, next step) if a table stores no keys and they cannot be made either."""
    table = f"a table without meta columns ({META_COLUMNS_OFF})"
    if config.foreign_key_generator is not None:
        yield f"{table} with key generator {config.foreign_key_generator}", _READ_WITH_HUDI
    if not config.key_spec.record_key_fields:
        yield f"{table} without record key fields", _READ_WITH_HUDI


def _untold_columns(config: TableConfig) -> Iterator[tuple[str, str]]:
    """Yield (feature, next step) if the values of partition columns that files lack are unknown."""
    generator = config.key_spec.generator
    name = config.foreign_key_generator or generator.value
    if config.table_type is TableType.MERGE_ON_READ or not config.populate_meta_fields:
        kind = (
            "merge-on-read table" if config.populate_meta_fields else "table without meta columns"
        )
        yield f"a {kind} whose files lack the partition columns", _READ_WITH_HUDI
    if not config.paths_follow_keys or generator not in (KeyGenerator.SIMPLE, KeyGenerator.COMPLEX):
        table = "a table whose files lack the partition columns"
        yield f"{table}, with key generator {name}", _READ_WITH_HUDI


def _own_merging(config: TableConfig) -> Iterator[tuple[str, str]]:
    """Yield (feature, next step) for each merge setting that is not supported."""
    if config.merge_mode is MergeMode.CUSTOM:
        merger = config.payload_class or config.merge_strategy_id or "a custom merger"
        yield f"custom merging ({merger})", "read it with Hudi, which has that Java class"
    if config.partial_update_mode not in (None, IGNORE_DEFAULTS, FILL_UNAVAILABLE):
        yield f"partial update mode {config.partial_update_mode}", _READ_WITH_HUDI
    if (config.delete_field is None) is not (config.delete_marker is None):
        yield (
            f"half a delete marker ({config.delete_field or config.delete_marker})",
            _READ_WITH_HUDI,
        )


def _unwritable(config: TableConfig) -> Iterator[tuple[str, str]]:
    """Yield (feature, next step) for each feature that prevents writing."""
    if not config.rules.is_written:
        step = f"let Hudi 1.0 or newer upgrade it to one of versions {_WRITTEN}"
        yield f"writing table version {config.version}", step
    yield from _own_merging(config)
    orders_rows = config.merge_mode is MergeMode.EVENT_TIME and len(config.ordering_fields) == 1
    if config.ordering_groups and not orders_rows:
        yield "writing orderings of columns without one ordering of the rows", _WRITE_WITH_HUDI
    if not config.populate_meta_fields:
        yield f"writing a table without meta columns ({META_COLUMNS_OFF})", _WRITE_WITH_HUDI
    if config.drop_partition_columns:
        yield "writing a table whose files lack the partition columns", _WRITE_WITH_HUDI
    if config.foreign_key_generator is not None:
        yield f"writing with key generator {config.foreign_key_generator}", _WRITE_WITH_HUDI
    if not config.paths_follow_keys:
        yield "writing partition paths that the properties do not tell", _WRITE_WITH_HUDI
    yield from _metadata_table(config)


def _metadata_table(config: TableConfig) -> Iterator[tuple[str, str]]:
    """Yield (feature, next step) for each metadata table that cannot be written."""
    names = sorted(config.written_metadata_partitions)
    if names and _FILES not in names:
        yield (
            f"writing beside a metadata table without a list of files ({', '.join(names)})",
            "remove it with table.drop_metadata_table() (bucketlake metadata --drop --run), or "
            "write with Hudi",
        )
