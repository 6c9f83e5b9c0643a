"""JSON with a checksum, and JSON of hashing metadata: its fields, and how Hudi prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.checksum import BLANK, DIGITS, is_sealed, seal
from bucketlake.model.bounded_json import parse_json

# ---- JSON objects with a checksum as their last member -------------------------------------------
#
# bucketlake writes its settings, outcomes, hash rings, rules, manifests and definitions of indexes
# as JSON. Hudi reads some of these files, too; its readers ignore members that they do not know. A
# file that Hudi wrote has no such member and is not checked.

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
    ValueError
        If the text is not JSON.
    FormatError
        If the content does not have its checksum.
    """
    loaded = parse_json(data)
    told = loaded.pop(CHECKSUM_MEMBER, None) if isinstance(loaded, dict) else None
    if told is not None:
        place = data.rfind(str(told).encode())
        if len(str(told)) != DIGITS or place < 0 or not is_sealed(data, place):
            raise FormatError(
                path, "content with its checksum", f"another checksum than {told!r}: it is damaged"
            )
    return loaded


@contextmanager
def parsing(path: str, expected: str, data: bytes | str) -> Iterator[None]:
    """Turn what the body raises, because data are not what is expected, into a FormatError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(path, expected, f"{data[:80]!r} ({error!r})") from error


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


_PREFIX = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_FOUND_MAX = 200  # Characters of bad content that an error shows.


def is_prefix(text: str | None) -> bool:
    """Return whether a text can be the prefix of a file id: a UUID."""
    return text is not None and _PREFIX.fullmatch(text) is not None


def load_json(data: bytes | str, path: str) -> Any:
    """Parse JSON; raise FormatError if it is none."""
    with parsing(path, "JSON", data):
        return parse_checked(data, path) if isinstance(data, bytes) else parse_json(data)


def load_version(data: bytes, path: str, name: str, version: int, next_step: str) -> dict[str, Any]:
    """Parse a JSON object with a version.

    Parameters
    ----------
    data, path
        The file.
    name : str
        What it is, for messages.
    version : int
        The version that is supported.
    next_step : str
        What to do about another version.

    Raises
    ------
    FormatError
        If the bytes are no such object, or do not have their checksum.
    UnsupportedFeatureError
        If the version is another one.
    """
    loaded = load_json(data, path)
    if not isinstance(loaded, dict):
        raise FormatError(path, f"{name} as a JSON object", shown(loaded))
    found = number_of(loaded, "version", path)
    if found != version:
        raise UnsupportedFeatureError(f"version {found} of {name}", path, next_step)
    return loaded


def list_of(entries: Mapping[str, Any], name: str, path: str) -> list[Any]:
    """Return a field that is an array; raise FormatError for anything else."""
    value = entries.get(name)
    if not isinstance(value, list):
        raise FormatError(path, f"{name} as a JSON array", shown(value))
    return value


def prefix_of(entries: Mapping[str, Any], path: str) -> str | None:
    """Return the file id prefix of a bucket, or None; raise FormatError if it is no text."""
    prefix = entries.get("fileIdPrefix")
    if prefix is not None and type(prefix) is not str:
        raise FormatError(path, "fileIdPrefix as text", shown(entries))
    return prefix


def number_of(entries: Mapping[str, Any], name: str, path: str) -> int:
    """Return a field that is a number of at least 0; raise FormatError for anything else."""
    value = entries.get(name)
    if type(value) is not int or value < 0:
        raise FormatError(path, f"{name} as a number", shown(value))
    return value


def text_of(entries: Mapping[str, Any], name: str, path: str) -> str:
    """Return a field that is a text; raise FormatError for anything else."""
    value = entries.get(name)
    if type(value) is not str:
        raise FormatError(path, f"{name} as text", shown(value))
    return value


def shown(found: object) -> str:
    """Return bad content for a message, cut off if it is long."""
    return repr(found)[:_FOUND_MAX]


def render_json(value: Any, indent: str = "") -> str:
    """Print JSON as Jackson's default pretty printer does: arrays break no line.

    Examples
    --------
    >>> print(render_json({"a": [{"b": 1}, {}], "c": None}))
    {
      "a" : [ {
        "b" : 1
      }, { } ],
      "c" : null
    }
    """
    if isinstance(value, list):
        elements = [render_json(item, indent) for item in value]
        return f"[ {', '.join(elements)} ]" if elements else "[ ]"
    if isinstance(value, dict):
        inner = indent + "  "
        lines = [
            f"{inner}{render_json(name)} : {render_json(item, inner)}"
            for name, item in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}" if lines else "{ }"
    return json.dumps(value, ensure_ascii=False)
