"""Translates Java patterns to patterns that match the same partitions, in bounded time.

Hudi evaluates partition rules with Java's ``Matcher.find``. Most syntax is the same in Python.
Syntax with another meaning is translated; if that is impossible, a ``ConfigError`` names it.

Python tries all ways in which a pattern may match, which takes years for ``(a+)+$`` and 40 letters.
So each pattern is translated twice, and the walk over it bounds the number of ways. If they are
few, Python searches. Else Arrow searches, whose engine (RE2) takes time in proportion to the text;
it knows no lookaround, back references and atomic groups. A pattern that has both raises
``ConfigError`` (``docs/decisions/0026-rules-in-bounded-time.md``).
"""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError

_LINE_END = r"\n\r\u0085\u2028\u2029"
_ANY = f"[^{_LINE_END}]"
_AT_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)"  # Also before a last line end.

_STEPS_FEW = 1_000_000  # Python takes some milliseconds for them.
_STEPS_MAX = 100_000_000  # About a second.
_LINE_ENDS = frozenset("\n\r\u0085\u2028\u2029")

_LINEAR = {"z": r"\z", "Z": r"\z", "e": r"\x1b"}
_LINEAR_SPACE = r"\t\n\x0b\f\r "
_LINEAR_NOT_SPACE = r"\x00-\x08\x0e-\x1f\x21-\x{10ffff}"
"""What RE2 has for Java's syntax, in texts without a line end."""

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


class JavaPattern:
    r"""A Java pattern, translated by one walk from left to right.

    Parameters
    ----------
    pattern : str
        A pattern for ``java.util.regex.Pattern``, without flags.

    Attributes
    ----------
    pattern : str
        As in Java.
    python : re.Pattern
        Finds the same, perhaps not within years.
    linear : str or None
        For Arrow; finds the same in texts without a line end. None if RE2 has no such syntax.
    repetitions : float
        Each may end at every letter; infinite if the ways to match double with each letter.
    choices : int
        Alternatives and optional parts: each doubles the number of ways.

    Raises
    ------
    ConfigError
        If the pattern is not valid, or has a construct that Python does not support.

    Examples
    --------
    >>> JavaPattern(r"dt=2024-\p{Digit}+").search("dt=2024-06/h=1")
    True
    """

    def __init__(self, pattern: str) -> None:
        self.pattern, self._at = pattern, 0
        self.repetitions: float = 0
        self.choices = 0
        self._python, self._linear = list[str](), list[str]()
        self._branching = [False]  # Of each open group.
        self._closed = False  # Whether a group that branches ends here.
        if pattern.startswith("(?i)"):
            self._take("(?i)")
        while self._at < len(pattern):
            self._step()
        try:
            self.python = re.compile("".join(self._python), re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            problem = f"it is not a regular expression: {error}"
            raise ConfigError("pattern", pattern, problem) from None
        linear = "".join(self._linear)
        self.linear = linear if _is_linear(linear) else None

    def search(self, text: str) -> bool:
        """Return whether ``Matcher.find`` finds the pattern in a text.

        Raises
        ------
        ConfigError
            If the search may take too long.
        """
        steps = self._steps(len(text))
        if steps > _STEPS_FEW and self.linear is not None and self._is_same_in_linear(text):
            return bool(pc.match_substring_regex(pa.array([text]), self.linear)[0].as_py())
        if steps > _STEPS_MAX:
            raise ConfigError(
                "pattern",
                self.pattern,
                f"a search in {text!r} may never end; give a pattern without repetitions within "
                "repetitions, or without lookaround, back references, atomic groups and "
                "possessive repetitions",
            )
        return self.python.search(text) is not None

    def _steps(self, length: int) -> float:
        """Return a bound of the ways in which a pattern may match; a search tries every begin."""
        if self.repetitions + self.choices > 200:  # Floats end there; so do searches.
            return float("inf")
        return math.pow(length + 1, 1 + self.repetitions) * math.pow(2, self.choices)

    def _is_same_in_linear(self, text: str) -> bool:
        """Return whether both engines find the same in a text."""
        # RE2 ignores the case of all letters, Java only that of ASCII letters.
        is_plain = text.isascii() or not (
            self.pattern.startswith("(?i)") or any("\ud800" <= c <= "\udfff" for c in text)
        )
        return is_plain and _LINE_ENDS.isdisjoint(text)

    # ---- The walk: each part of the pattern, for Python and for RE2 ------------------------------

    def _step(self) -> None:
        char = self.pattern[self._at]
        closed, self._closed = self._closed, False
        if char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._group()
            self._branching.append(False)
        elif char == ")":
            self._take(char)
            self._close()
        elif char in "*+":
            self._take(char)
            self._repeat(closed=closed)
        elif char in "?|":
            self._take(char)
            self._choose()
        elif char == "{":
            found = _REPEAT.match(self.pattern, self._at)
            if found is None:
                raise self._refused("'{' without a number of repetitions")
            self._take(found[0])
            if closed or "," in found[0]:
                self._repeat(closed=closed)
        elif char == ".":
            self._take(char, _ANY, ".")
        elif char == "$":
            self._take(char, _AT_END, r"\z")
        else:
            self._take(char)

    def _close(self) -> None:
        """Close a group; what branches in it branches in the group around it."""
        if len(self._branching) > 1:
            self._closed = self._branching.pop()
            self._branching[-1] |= self._closed

    def _repeat(self, *, closed: bool) -> None:
        """Count a repetition; ``closed`` says whether it repeats a group that branches."""
        self._branching[-1] = True
        self.repetitions += float("inf") if closed else 1

    def _choose(self) -> None:
        self._branching[-1] = True
        self.choices += 1

    def _escape(self) -> None:
        rest = self.pattern[self._at + 1 :]
        if rest.startswith("Q"):
            literal, _, _ = rest[1:].partition("\\E")
            end = "\\E" if "\\E" in rest else ""
            self._take(f"\\Q{literal}{end}", re.escape(literal))
        elif (found := _REFERENCE.match(rest)) is not None:
            name, number = found["name"], found["number"]
            self._take("\\" + found[0], f"(?P={name})" if name else f"(?:\\{number})")
            self._repeat(closed=False)  # Its text may be long.
        elif rest[:1] in _OTHER:
            self._take("\\" + rest[0], _OTHER[rest[0]], _LINEAR[rest[0]])
        else:
            self._escape_of_a_character(rest, _SAME, in_class=False)

    def _escape_of_a_character(self, rest: str, same: frozenset[str], *, in_class: bool) -> None:
        if (found := _PROPERTY.match(rest)) is not None and found["name"] in _POSIX:
            ranges = _POSIX[found["name"]]
            self._take("\\" + found[0], ranges if in_class else f"[{ranges}]")
        elif (found := _HEX.match(rest)) is not None:
            self._take("\\" + found[0], None, f"\\x{{{found[0][1:]}}}")
        elif rest[:1] in ("s", "S"):
            ranges = _LINEAR_SPACE if rest[0] == "s" else _LINEAR_NOT_SPACE
            self._take("\\" + rest[0], None, ranges if in_class else f"[{ranges}]")
        elif rest[:1] in same and rest:
            self._take("\\" + rest[0])
        elif rest and not (rest[0].isascii() and rest[0].isalnum()):
            self._take("\\" + rest[0], re.escape(rest[0]))
        else:
            raise self._refused(f"\\{rest[:1]}")

    def _class(self) -> None:
        opening = "[^" if self.pattern.startswith("[^", self._at) else "["
        self._take(opening)
        if self.pattern.startswith("]", self._at):
            raise self._refused("']' first in a class")
        while self._at < len(self.pattern) and self.pattern[self._at] != "]":
            char = self.pattern[self._at]
            if char == "\\":
                rest = self.pattern[self._at + 1 :]
                self._escape_of_a_character(rest, _SAME_IN_CLASS, in_class=True)
            elif char == "[":
                raise self._refused("a class within a class")
            elif self.pattern.startswith("&&", self._at):
                raise self._refused("an intersection of classes (&&)")
            else:  # Python reserves these characters when they are doubled.
                self._take(char, f"\\{char}" if char in "&|~" else char)
        if self._at == len(self.pattern):
            raise self._refused("a class without an end")
        self._take("]")

    def _group(self) -> None:
        found = _GROUP.match(self.pattern, self._at)
        assert found is not None
        if found[0] == "(" and self.pattern.startswith("(?", self._at):
            raise self._refused(self.pattern[self._at : self._at + 4])
        self._take(found[0], f"(?P<{found['name']}>" if found["name"] else None)

    def _take(self, text: str, python: str | None = None, linear: str | None = None) -> None:
        """Take a part of the pattern; the others are its translations, if they differ."""
        self._at += len(text)
        self._python.append(text if python is None else python)
        self._linear.append(self._python[-1] if linear is None else linear)

    def _refused(self, what: str) -> ConfigError:
        return ConfigError(
            "pattern", self.pattern, f"a pattern without {what}, which Python reads in another way"
        )


def _is_linear(pattern: str) -> bool:
    """Return whether Arrow can search for a pattern."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return False
    return True
