"""Text of a table's files that becomes a path: the one check that it leads nowhere but inside.

Properties, plans, markers, manifests and outcomes name folders, files and instants, and what they
name is read, written or deleted. So each of these texts comes through here as it is parsed, before
anything is done by it; what leads elsewhere is a FormatError that names the file that says so.
Nothing is decoded: ``%2e%2e`` is the name of a folder. The places are listed in
``docs/spec/paths.md``.

Below this each storage refuses every path that is not plainly inside, whoever made it
(``storage/paths.py``).
"""

from __future__ import annotations

from bucketlake.config.layout import HOODIE_FOLDER
from bucketlake.errors import FormatError

_NO_SEGMENTS = frozenset(("", ".", ".."))
_FOUND_LENGTH_MAX = 200


def is_inner(path: str) -> bool:
    """Whether a path, taken literally, lies plainly below the folder that it is relative to.

    >>> [is_inner(p) for p in ("a/b", "%2e%2e/a", "..a", "/a", "a//b", "a/../b", "", ".")]
    [True, True, True, False, False, False, False, False]
    """
    return _NO_SEGMENTS.isdisjoint(path.split("/")) and "\0" not in path


def require_inner_path(text: str, said_by: str, what: str) -> None:
    """Refuse a path that is not plainly inside.

    Parameters
    ----------
    text : str
        The path.
    said_by : str
        The file that names it, for the error.
    what : str
        What is named, for the error.

    Raises
    ------
    FormatError
    """
    if not is_inner(text):
        raise _outside(text, said_by, what)


def require_inner_name(text: str, said_by: str, what: str) -> None:
    """Refuse the name of a file among others where it is a path, or none; FormatError."""
    if not is_inner(text) or "/" in text:
        raise _outside(text, said_by, what)


def require_data_place(partition_path: str, file_name: str, said_by: str) -> None:
    """Refuse partition and name of a data file where no data file can be; FormatError."""
    what = "the partition path of a data file"
    if partition_path:
        require_inner_path(partition_path, said_by, what)
        if partition_path.split("/")[0] == HOODIE_FOLDER:
            raise _outside(partition_path, said_by, what)
    require_inner_name(file_name, said_by, "the name of a data file")


def require_instant(text: str, said_by: str) -> None:
    """Refuse the time of an instant, which names of files are made of, without digits alone."""
    if not (text.isascii() and text.isdigit()):
        raise FormatError(said_by, "the digits of an instant", repr(text)[:_FOUND_LENGTH_MAX])


def _outside(text: str, said_by: str, what: str) -> FormatError:
    expected = f"{what}, inside the table and without '.', '..' or empty parts"
    return FormatError(said_by, expected, repr(text)[:_FOUND_LENGTH_MAX])
