"""The check that a path from a table's files leads into the table.

Properties, plans, markers, manifests and outcomes name folders, files and instants that are then
read, written or deleted. So each of these texts is checked here when it is parsed. A path that
leads out of the table raises FormatError, which names the file that contains it. Nothing is
decoded: ``%2e%2e`` is the name of a folder. ``docs/spec/paths.md`` lists all such texts.

In addition, each storage rejects every path that is not inside its root (``storage/paths.py``).
"""

from __future__ import annotations

from bucketlake.config.paths_of_table import HOODIE_FOLDER
from bucketlake.errors import FormatError

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


def require_data_place(partition_path: str, file_name: str, said_by: str) -> None:
    """Raise FormatError if partition and name cannot be those of a data file."""
    what = "the partition path of a data file"
    if partition_path:
        require_inner_path(partition_path, said_by, what)
        if partition_path.split("/")[0] == HOODIE_FOLDER:
            raise _outside(partition_path, said_by, what)
    require_inner_name(file_name, said_by, "the name of a data file")


def require_instant(text: str, said_by: str) -> None:
    """Raise FormatError if an instant is not only digits; file names are made from it."""
    if not (text.isascii() and text.isdigit()):
        raise FormatError(said_by, "the digits of an instant", repr(text)[:_FOUND_LENGTH_MAX])


def _outside(text: str, said_by: str, what: str) -> FormatError:
    expected = f"{what}, inside the table and without '.', '..' or empty parts"
    return FormatError(said_by, expected, repr(text)[:_FOUND_LENGTH_MAX])
