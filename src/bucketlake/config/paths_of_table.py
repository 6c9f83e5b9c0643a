"""The fixed paths below a table, of Hudi's layout and of bucketlake.

Paths are relative to the table. :class:`~bucketlake.config.table_config.TableConfig` has the
folders of timeline and archive, which the properties of a table may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bucketlake.errors import FormatError

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
TOMBSTONE_FOLDER = f"{EXTENSION_FOLDER}/tombstones"  # Deletes that later writes must remember.
LEDGER_FOLDER = f"{EXTENSION_FOLDER}/ledgers"  # Which files of a landing zone are taken.
VERSION_CHANGE_FILE = f"{EXTENSION_FOLDER}/version_change.json"  # While the timeline moves.


# ---- The check that a path from a table's files leads into the table -----------------------------
#
# Listings of the metadata table, properties, commits, plans, markers, manifests and outcomes name
# folders, files and instants that are then shown, read, written or deleted, here or by Spark. So
# each of these texts is checked here when it is parsed. A path that leads out of the table raises
# FormatError, which names the file that contains it. Nothing is decoded: ``%2e%2e`` is the name of
# a folder. ``docs/spec/paths.md`` lists all such texts.
#
# In addition, each storage rejects every path that is not inside its root (``storage/base.py``).

_NO_SEGMENTS = frozenset(("", ".", ".."))
_FOUND_LENGTH_MAX = 200


def is_inner(path: str) -> bool:
    """Return whether a relative path stays below its folder, without decoding.

    >>> [is_inner(p) for p in ("a/b", "%2e%2e/a", "..a", "/a", "a//b", "a/../b", "", ".")]
    [True, True, True, False, False, False, False, False]
    """
    return _NO_SEGMENTS.isdisjoint(path.split("/")) and "\0" not in path


def require_inner_path(text: str, said_by: str, what: str) -> None:
    """Raise FormatError if a path is not inside the table.

    Parameters
    ----------
    text : str
        The path.
    said_by : str
        The file that contains the path, for the error.
    what : str
        Meaning of the path, for the error.

    Raises
    ------
    FormatError
    """
    if not is_inner(text):
        raise _outside(text, said_by, what)


def require_inner_name(text: str, said_by: str, what: str) -> None:
    """Raise FormatError if the name of a file is empty or contains a folder."""
    if not is_inner(text) or "/" in text:
        raise _outside(text, said_by, what)


def require_data_partition(partition_path: str, said_by: str) -> None:
    """Raise FormatError if a text cannot be the path of a data partition."""
    what = "the partition path of a data file"
    if partition_path:
        require_inner_path(partition_path, said_by, what)
        if partition_path.split("/")[0] == HOODIE_FOLDER:
            raise _outside(partition_path, said_by, what)


def require_data_names(names: Mapping[str, Iterable[str]], said_by: str) -> None:
    """Raise FormatError if names, by partition path, cannot be those of data files."""
    for partition_path, held in names.items():
        require_data_partition(partition_path, said_by)
        for name in held:
            require_inner_name(name, said_by, "the name of a data file")


def require_data_place(partition_path: str, file_name: str, said_by: str) -> None:
    """Raise FormatError if partition and name cannot be those of a data file."""
    require_data_names({partition_path: (file_name,)}, said_by)


def require_instant(text: str, said_by: str) -> None:
    """Raise FormatError if an instant is not only digits; file names are made from it."""
    if not (text.isascii() and text.isdigit()):
        raise FormatError(said_by, "the digits of an instant", repr(text)[:_FOUND_LENGTH_MAX])


def _outside(text: str, said_by: str, what: str) -> FormatError:
    expected = f"{what}, inside the table and without '.', '..' or empty parts"
    return FormatError(said_by, expected, repr(text)[:_FOUND_LENGTH_MAX])
