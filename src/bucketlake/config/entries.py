"""Typed access to the entries of ``hoodie.properties``; it records which keys were read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar

from bucketlake.errors import ConfigError
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.names import one_of

_T = TypeVar("_T")
_Member = TypeVar("_Member", bound=Enum)
_DIGITS_MAX = 9
_DIGITS_OF_LONG = 18
_FACTOR = re.compile(r"\d{1,9}(\.\d{0,9})?", re.ASCII)


def split_list(text: str | None) -> tuple[str, ...]:
    """Split a comma list as Hudi does: without surrounding blanks and empty parts."""
    return tuple(part for part in map(str.strip, (text or "").split(",")) if part)


def is_number(text: str, digits_max: int = _DIGITS_OF_LONG) -> bool:
    """Return whether text is a whole number without a sign; ``int`` fails on very long texts."""
    return text.isascii() and text.isdecimal() and len(text) <= digits_max


class ConfigEntries:
    """Properties of a table; an empty value means a missing entry.

    Parameters
    ----------
    properties : mapping of str to str
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._asked: set[str] = set()

    def text(self, *alternatives: str) -> str | None:
        """Return the value of the first key that has a value; None if no key has."""
        self._asked.update(alternatives)
        values = (self._properties.get(key, "").strip() for key in alternatives)
        return next(filter(None, values), None)

    def required(self, key: str) -> str:
        """Return a value; raise ConfigError if there is none."""
        value = self.text(key)
        if value is None:
            raise ConfigError(key, None, "every table must have it")
        return value

    def integer(self, key: str, default: _T) -> int | _T:
        """Return an integer, or the default if there is no value."""
        return default if self.text(key) is None else self.option(key, 0)

    def option(
        self, key: str, default: int, *, least: int = 0, digits_max: int = _DIGITS_MAX
    ) -> int:
        """Return the number of a job's option; raise ConfigError for an empty value."""
        if key not in self._properties:
            return default
        value = self.text(key) or ""
        if not is_number(value, digits_max) or int(value) < least:
            allowed = f"it must be a whole number, {least} or more, of at most {digits_max} digits"
            raise ConfigError(key, value[:80], allowed)
        return int(value)

    def factor(self, key: str) -> float:
        """Return the number of a job's option, which may have a fraction and no sign."""
        value = self.text(key) or ""
        if not _FACTOR.fullmatch(value):
            raise ConfigError(key, value[:80], "it must be a number such as 2.0")
        return float(value)

    def one_of(self, key: str, allowed: Sequence[str]) -> str:
        """Return one of the allowed words, ignoring case; the first if there is no value."""
        value = self.text(key)
        for word in allowed:
            if value is None or value.upper() == word.upper():
                return word
        raise ConfigError(key, value, f"it must be {one_of(value, allowed)}")

    def member(self, key: str, kind: type[_Member], default: _T) -> _Member | _T:
        """Return the member of an enumeration that a value names, in any case.

        Raises
        ------
        ConfigError
            If the value names no member.
        """
        value = self.text(key)
        if value is None:
            return default
        return kind(self.one_of(key, [member.value for member in kind]))

    def boolean(self, key: str, *, default: bool = False) -> bool:
        """Return a boolean, or the default if there is no value."""
        words = ("true", "false")
        return self.one_of(key, words if default else words[::-1]) == "true"

    def fields(self, *alternatives: str) -> tuple[str, ...]:
        """Return the parts of a comma list; empty if there is no value."""
        return split_list(self.text(*alternatives))

    def mapping(self, key: str) -> dict[str, str]:
        """Return a mapping of texts, from JSON; empty if there is no value."""
        try:
            held = parse_json(self.text(key) or "{}")
        except ValueError:
            held = None
        if isinstance(held, dict) and all(isinstance(value, str) for value in held.values()):
            return held
        raise ConfigError(key, self.text(key), "it must be a JSON object of texts")

    def not_asked(self) -> dict[str, str]:
        """Return the entries that were not read."""
        return {key: text for key, text in self._properties.items() if key not in self._asked}
