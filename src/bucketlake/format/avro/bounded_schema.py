"""Avro schemas of files: which of them a decoder may follow.

A schema of 2 kB can make a decoder in C run for ever or end its process: a record inside itself
nests as deep as the data says, an array of nulls has as many items as its count says, and records
that use each other twice double with each level. So a schema is read only if its types do not
contain themselves, every item takes at least one byte, and all its types, with names replaced by
what they mean, are not too many. Then time and memory follow from the bytes that are there.
"""

from __future__ import annotations

from typing import Any, Final

from bucketlake.model.bounded_json import parse_json

TYPES_MAX: Final = 20_000
"""Types of a schema, each counted as often as it is used. Hudi's largest schema has about 500."""

_NAMED = frozenset({"record", "error", "enum", "fixed"})
_SIZES = {"null": 0, "float": 4, "double": 8}  # In bytes; all others take at least one.


def parse_avro_schema(text: bytes | str) -> Any:
    """Parse the JSON of an Avro schema.

    Raises
    ------
    ValueError
        If the text is no JSON, or the schema cannot be followed in bounds.
    """
    schema = parse_json(text)
    require_bounded(schema)
    return schema


def require_bounded(schema: Any) -> None:
    """Raise ValueError if a parsed schema cannot be followed in bounds."""
    _Bounds().of(schema, "")


def full_name(name: str, namespace: str) -> str:
    """Return the full name of a type; a name with a dot is full and ignores the namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Bounds:
    """Follows one schema; it knows the named types so far."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int] | None] = {}  # None while it is being followed.

    def of(self, part: Any, namespace: str) -> tuple[int, int]:
        """Return how many types a type has, with itself, and the fewest bytes of its values."""
        if isinstance(part, list):
            found = [self.of(branch, namespace) for branch in part]
            return self._counted(sum(count for count, _ in found)), 1
        if isinstance(part, str):
            return self._used(part, namespace)
        if not isinstance(part, dict):
            raise ValueError(f"no Avro type: {part!r:.80}")
        kind = part.get("type")
        if not isinstance(kind, str):
            return self.of(kind, namespace)
        if kind in _NAMED:
            return self._defined(part, kind, namespace)
        if kind in ("array", "map"):
            count, size = self.of(part.get("items" if kind == "array" else "values"), namespace)
            if kind == "array" and size == 0:
                raise ValueError("an array whose items take no bytes")
            return self._counted(count), 1
        return self._used(kind, namespace)

    def _used(self, name: str, namespace: str) -> tuple[int, int]:
        full = full_name(name, namespace)
        for known in (full, name):
            if known in self._known:
                found = self._known[known]
                if found is None:
                    raise ValueError(f"type {name[:80]} inside itself")
                return found
        return 1, _SIZES.get(name, 1)  # What is no type at all, the decoder says.

    def _defined(self, part: dict[str, Any], kind: str, namespace: str) -> tuple[int, int]:
        namespace = str(part.get("namespace", namespace))
        name = str(part.get("name", ""))
        full = full_name(name, namespace)
        self._known[full] = None
        count, size = 1, 1
        if kind == "fixed":
            size = part["size"] if isinstance(part.get("size"), int) else 0
        elif kind != "enum":
            fields = part.get("fields")
            inner = full.rpartition(".")[0]
            found = [
                self.of(field.get("type") if isinstance(field, dict) else field, inner)
                for field in (fields if isinstance(fields, list) else ())
            ]
            count = self._counted(sum(each for each, _ in found))
            size = sum(each for _, each in found)
        self._known[full] = count, size
        return count, size

    def _counted(self, inner: int) -> int:
        if inner >= TYPES_MAX:
            raise ValueError(f"a schema of more than {TYPES_MAX} types")
        return inner + 1
