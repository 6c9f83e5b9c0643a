"""JSON of hashing metadata: its fields, and how Hudi prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bucketlake.errors import FormatError
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
