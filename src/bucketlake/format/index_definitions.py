"""The file ``index.json`` of a table, which describes its indexes in the metadata table.

Readers take from it which columns have statistics. Hudi's SQL lists and drops indexes with it. The
entry of a dropped index may be left behind, so the properties of the table decide which indexes are
valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from bucketlake.errors import FormatError
from bucketlake.format.json_fields import parse_checked, render_checked

_DEFINITIONS = "indexDefinitions"
_IS_PARTITIONED = "isPartitioned"


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """The definition of one index.

    Attributes
    ----------
    name, kind, function : str
        Name of the index, its type and its function in Hudi's spelling.
    source_fields : tuple of str
        The indexed columns.
    options : mapping of str to str
        Options of the index.
    version : str or None
        Version of the index's records; None in old tables.
    extra : mapping of str to object
        Other fields of a definition, which are kept.
    """

    name: str
    kind: str
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_partitioned(self) -> bool:
        """Whether a record-level index is unique in each data partition only."""
        return self.options.get(_IS_PARTITIONED) == "true"

    @classmethod
    def of_column_stats(cls, columns: tuple[str, ...], version: str) -> Self:
        """Return the definition of statistics of columns, in files and in partitions."""
        return cls("column_stats", "column_stats", "column_stats", columns, version=version)

    @classmethod
    def of_record_index(cls, *, is_partitioned: bool) -> Self:
        """Return the definition of a record-level index."""
        options = {_IS_PARTITIONED: "true"} if is_partitioned else {}
        return cls("record_index", "record_index", options=options, version="V1")


def decode_index_definitions(data: bytes, path: str) -> dict[str, IndexDefinition]:
    """Decode the file: definitions by name.

    Raises
    ------
    FormatError
        If the bytes are not definitions.
    """
    try:
        found: Mapping[str, Any] = parse_checked(data, path)[_DEFINITIONS]
        return {name: _decode(name, dict(fields)) for name, fields in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found_bytes = f"{type(error).__name__} ({error}) in bytes {data[:32]!r}"
        raise FormatError(path, "definitions of indexes as JSON", found_bytes) from error


def encode_index_definitions(definitions: Mapping[str, IndexDefinition]) -> bytes:
    """Encode the file."""
    fields = {name: _encode(definition) for name, definition in definitions.items()}
    return render_checked({_DEFINITIONS: fields}, partial(json.dumps, indent=2))


def _decode(name: str, fields: dict[str, Any]) -> IndexDefinition:
    return IndexDefinition(
        name=fields.pop("indexName", None) or name,
        kind=fields.pop("indexType", None) or "",
        function=fields.pop("indexFunction", None) or "",
        source_fields=tuple(str(column) for column in fields.pop("sourceFields", None) or ()),
        options=dict(fields.pop("indexOptions", None) or {}),
        version=fields.pop("version", None),
        extra=fields,
    )


def _encode(definition: IndexDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "indexName": definition.name,
        "indexType": definition.kind,
        "indexFunction": definition.function,
        "sourceFields": list(definition.source_fields),
        "indexOptions": dict(definition.options),
    }
    if definition.version is not None:
        fields["version"] = definition.version
    return fields | dict(definition.extra)
