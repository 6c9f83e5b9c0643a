"""JSON objects with a checksum as their last member.

bucketlake writes its settings, outcomes, hash rings, rules, manifests and definitions of indexes as
JSON. Hudi reads some of these files, too; its readers ignore members that they do not know. A file
that Hudi wrote has no such member and is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.checksum import BLANK, DIGITS, is_sealed, seal

CHECKSUM_MEMBER: Final = "checksum"


def render_checked(
    entries: Mapping[str, Any], render: Callable[[dict[str, Any]], str] = json.dumps
) -> bytes:
    """Print a JSON object with its checksum.

    Parameters
    ----------
    entries : mapping
        The members.
    render : callable
        Prints JSON in the form of the file.

    Examples
    --------
    >>> render_checked({"engine": "SIMPLE"})
    b'{"engine": "SIMPLE", "checksum": "faeaf6aa"}'
    """
    text = render({**entries, CHECKSUM_MEMBER: BLANK.decode()}).encode()
    return seal(text, text.rindex(BLANK))


def parse_checked(data: bytes, path: str) -> Any:
    """Parse JSON; the result does not have the checksum.

    Raises
    ------
    ValueError, RecursionError
        If the text is not JSON.
    FormatError
        If the content does not have its checksum.
    """
    loaded = json.loads(data)
    told = loaded.pop(CHECKSUM_MEMBER, None) if isinstance(loaded, dict) else None
    if told is not None:
        place = data.rfind(str(told).encode())
        if len(str(told)) != DIGITS or place < 0 or not is_sealed(data, place):
            raise FormatError(
                path, "content with its checksum", f"another checksum than {told!r}: it is damaged"
            )
    return loaded


def require_version(found: object, known: int, name: str, path: str) -> None:
    """Raise UnsupportedFeatureError if a newer bucketlake wrote a file; ValueError if nobody did.

    Parameters
    ----------
    found : object
        The version that the file tells.
    known : int
        The version that is read.
    name : str
        What the file holds, for the message.
    path : str
        The file.
    """
    if type(found) is int and found > known:
        raise UnsupportedFeatureError(f"version {found} of {name}", path, "use a newer bucketlake")
    if found != known:
        raise ValueError(f"version {found}")
