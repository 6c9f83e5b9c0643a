"""JSON of hashing metadata: its fields, and how Hudi prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.checked_json import parse_checked

_PREFIX = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_FOUND_MAX = 200  # Characters of bad content that an error shows.


def is_prefix(text: str | None) -> bool:
    """Return whether a text can be the prefix of a file id: a UUID."""
    return text is not None and _PREFIX.fullmatch(text) is not None


def load_json(data: bytes | str, path: str) -> Any:
    """Parse JSON; raise FormatError if it is none."""
    try:
        return parse_checked(data, path) if isinstance(data, bytes) else json.loads(data)
    except (ValueError, RecursionError):
        raise FormatError(path, "JSON", repr(data[:80])) from None


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
    """Print JSON as Jackson's default pretty printer does: an array goes on in the same line."""
    if isinstance(value, list):
        return f"[ {', '.join(render_json(item, indent) for item in value)} ]"
    if isinstance(value, dict):
        inner = indent + "  "
        lines = [
            f"{inner}{render_json(name)} : {render_json(item, inner)}"
            for name, item in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return json.dumps(value, ensure_ascii=False)
