"""Translates Java patterns to Python patterns that match the same partitions.

Hudi evaluates partition rules with Java's ``Matcher.find``. Most syntax is the same in both
languages. Syntax with another meaning in Python is translated; if that is impossible, a
``ConfigError`` names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bucketlake.errors import ConfigError

_LINE_END = r"\n\r\u0085\u2028\u2029"
_ANY = f"[^{_LINE_END}]"
_AT_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)"  # Also before a last line end.

_SAME = frozenset("dDwWsStnrfaA")  # With re.ASCII, the same as in Java.
_SAME_IN_CLASS = _SAME - {"A"}
_OTHER = {"z": r"\Z", "Z": _AT_END, "e": r"\x1b"}
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
}

_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|>|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>))?")
_REPEAT = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_HEX = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_PROPERTY = re.compile(r"p\{(?P<name>\w+)\}")
_REFERENCE = re.compile(r"k<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|(?P<number>[1-9])(?![0-9])")


def compile_java(pattern: str) -> re.Pattern[str]:
    r"""Compile a Java pattern; ``search`` of the result finds what ``Matcher.find`` finds.

    Parameters
    ----------
    pattern : str
        A pattern for ``java.util.regex.Pattern``, without flags.

    Raises
    ------
    ConfigError
        If the pattern is not valid, or has a construct that Python does not support.

    Examples
    --------
    >>> bool(compile_java(r"dt=2024-\p{Digit}+").search("dt=2024-06/h=1"))
    True
    """
    python = _Translation(pattern).run()
    try:
        return re.compile(python, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ConfigError("pattern", pattern, f"it is not a regular expression: {error}") from None


@dataclass(slots=True)
class _Translation:
    """One walk over a pattern, from left to right."""

    pattern: str
    at: int = 0
    out: list[str] = field(default_factory=list)

    def run(self) -> str:
        if self.pattern.startswith("(?i)"):
            self._take("(?i)")
        while self.at < len(self.pattern):
            self._step()
        return "".join(self.out)

    def _step(self) -> None:
        char = self.pattern[self.at]
        if char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._group()
        elif char == "{":
            self._as_it_is(_REPEAT, "'{' without a number of repetitions")
        elif char == ".":
            self._take(char, _ANY)
        elif char == "$":
            self._take(char, _AT_END)
        else:
            self._take(char)

    def _escape(self) -> None:
        rest = self.pattern[self.at + 1 :]
        if rest.startswith("Q"):
            literal, _, _ = rest[1:].partition("\\E")
            end = "\\E" if "\\E" in rest else ""
            self._take(f"\\Q{literal}{end}", re.escape(literal))
        elif (found := _REFERENCE.match(rest)) is not None:
            name, number = found["name"], found["number"]
            self._take("\\" + found[0], f"(?P={name})" if name else f"(?:\\{number})")
        elif rest[:1] in _OTHER:
            self._take("\\" + rest[0], _OTHER[rest[0]])
        else:
            self._escape_of_a_character(rest, _SAME, in_class=False)

    def _escape_of_a_character(self, rest: str, same: frozenset[str], *, in_class: bool) -> None:
        if (found := _PROPERTY.match(rest)) is not None and found["name"] in _POSIX:
            ranges = _POSIX[found["name"]]
            self._take("\\" + found[0], ranges if in_class else f"[{ranges}]")
        elif (found := _HEX.match(rest)) is not None:
            self._take("\\" + found[0])
        elif rest[:1] in same and rest:
            self._take("\\" + rest[0])
        elif rest and not (rest[0].isascii() and rest[0].isalnum()):
            self._take("\\" + rest[0], re.escape(rest[0]))
        else:
            raise self._refused(f"\\{rest[:1]}")

    def _class(self) -> None:
        opening = "[^" if self.pattern.startswith("[^", self.at) else "["
        self._take(opening)
        if self.pattern.startswith("]", self.at):
            raise self._refused("']' first in a class")
        while self.at < len(self.pattern) and self.pattern[self.at] != "]":
            char = self.pattern[self.at]
            if char == "\\":
                rest = self.pattern[self.at + 1 :]
                self._escape_of_a_character(rest, _SAME_IN_CLASS, in_class=True)
            elif char == "[":
                raise self._refused("a class within a class")
            elif self.pattern.startswith("&&", self.at):
                raise self._refused("an intersection of classes (&&)")
            else:  # Python reserves these characters when they are doubled.
                self._take(char, f"\\{char}" if char in "&|~" else char)
        if self.at == len(self.pattern):
            raise self._refused("a class without an end")
        self._take("]")

    def _group(self) -> None:
        found = _GROUP.match(self.pattern, self.at)
        assert found is not None
        if found[0] == "(" and self.pattern.startswith("(?", self.at):
            raise self._refused(self.pattern[self.at : self.at + 4])
        self._take(found[0], f"(?P<{found['name']}>" if found["name"] else None)

    def _as_it_is(self, form: re.Pattern[str], what: str) -> None:
        found = form.match(self.pattern, self.at)
        if found is None:
            raise self._refused(what)
        self._take(found[0])

    def _take(self, text: str, python: str | None = None) -> None:
        self.at += len(text)
        self.out.append(text if python is None else python)

    def _refused(self, what: str) -> ConfigError:
        return ConfigError(
            "pattern", self.pattern, f"a pattern without {what}, which Python reads in another way"
        )
