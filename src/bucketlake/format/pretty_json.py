"""JSON in the form in which Hudi prints it up to table version 7."""

from __future__ import annotations

import json
from collections.abc import Mapping


def print_json(value: object, indent: str = "") -> str:
    """Print a value with a line for each member of an object; arrays break no line.

    Examples
    --------
    >>> print(print_json({"a": [{"b": 1}, {}], "c": None}))
    {
      "a" : [ {
        "b" : 1
      }, { } ],
      "c" : null
    }
    """
    if isinstance(value, Mapping):
        inner = f"{indent}  "
        members = [f"{inner}{_text(name)} : {print_json(value[name], inner)}" for name in value]
        lines = ",\n".join(members)
        return f"{{\n{lines}\n{indent}}}" if members else "{ }"
    if isinstance(value, list):
        elements = [print_json(element, indent) for element in value]
        return f"[ {', '.join(elements)} ]" if elements else "[ ]"
    return _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
