"""Java ``.properties`` text: what ``hoodie.properties`` and partition markers are written in.

Parse and render stand side by side and undo each other: ``parse_properties(render_properties(p))``
is ``p`` for every mapping of strings, and rendering what was parsed from a file of Hudi's, under
the same comments, gives the same bytes. What the keys mean is ``config``'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

_BLANK = " \t\f"
_SHORT_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED_CHARACTERS = {value: f"\\{key}" for key, value in _SHORT_ESCAPES.items()} | {
    character: f"\\{character}" for character in "\\:=#!"
}
LINE_END = re.compile(r"\r\n|\r|\n")
"""What ends a line in text that Java wrote; ``str.splitlines`` knows more characters."""

_KEY = re.compile(rf"(?:[^\\=:{_BLANK}]+|\\.?)*", re.DOTALL)
_LONE_SURROGATES = re.compile("[\ud800-\udfff]+")


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Read Java properties text; of two entries with one key the later one counts.

    Parameters
    ----------
    data : bytes
        ISO-8859-1 text with ``\uXXXX`` escapes. Bytes of any kind parse to something: the format
        has no invalid text; a broken ``\u`` escape is read as the letter u.

    Returns
    -------
    dict of str to str
        Entries in the order of the text.

    Examples
    --------
    >>> parse_properties(b'# comment\nname = trips\nschema={"type"\\:1}\npath : a\\\n   b\n')
    {'name': 'trips', 'schema': '{"type":1}', 'path': 'ab'}
    """
    return dict(_split_entry(line) for line in _logical_lines(data.decode("latin-1")))


def render_properties(properties: Mapping[str, str], header_comment: str = "") -> bytes:
    """Write Java properties text the way Java's own writer escapes it.

    Parameters
    ----------
    properties : mapping of str to str
        Entries, written in the mapping's order.
    header_comment : str
        Lines put on top, each after a ``#``; none where it is empty.
    """
    comment = [f"#{line}" for line in header_comment.splitlines()]
    entries = [f"{_escape_key(key)}={_escape_value(value)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in comment + entries).encode("latin-1", "replace")


def java_date(at_ms: int) -> str:
    """Print a time in UTC as Java's ``Date`` prints itself, as comments of Hudi's files hold it.

    Examples
    --------
    >>> java_date(1_795_219_140_000)
    'Fri Nov 20 23:59:00 UTC 2026'
    """
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    # Not strftime: the names must not follow the process's locale.
    return (
        f"{days[at.weekday()]} {months[at.month - 1]} {at.day:02d} {at:%H:%M:%S} UTC {at.year:04d}"
    )


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, blank lines and leading blanks; continued lines as one."""
    pending = ""
    continues = False
    for natural in LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not continues and (not line or line[0] in "#!"):
            continue
        continues = _ends_in_open_escape(line)
        pending += line[:-1] if continues else line
        if not continues:
            yield pending
            pending = ""
    if pending:
        yield pending


def _ends_in_open_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_entry(line: str) -> tuple[str, str]:
    """Split at the first ``=`` or ``:`` that is not escaped, or at the first blank."""
    key = _KEY.match(line)
    assert key is not None, "it matches nothing, too"
    end = key.end()
    value = line[end:].lstrip(_BLANK)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANK)
    return _unescape(line[:end]), _unescape(value)


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(
        lambda match: (
            chr(int(match[1], 16)) if match[1] else _SHORT_ESCAPES.get(match[2], match[2])
        ),
        text,
    )
    return _join_surrogates(plain)


def _join_surrogates(text: str) -> str:
    r"""Make one character of each pair of ``\uD8xx\uDCxx`` escapes, as Java's strings hold it."""
    return _LONE_SURROGATES.sub(
        lambda match: (
            match[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
        ),
        text,
    )


def _escape_key(key: str) -> str:
    return _escape(key).replace(" ", "\\ ")


def _escape_value(value: str) -> str:
    blanks = len(value) - len(value.lstrip(" "))
    return "\\ " * blanks + _escape(value[blanks:])


def _escape(text: str) -> str:
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    short = _ESCAPED_CHARACTERS.get(character)
    if short is not None:
        return short
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
