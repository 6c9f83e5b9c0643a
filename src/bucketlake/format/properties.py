"""Java ``.properties`` text: the format of ``hoodie.properties`` and partition markers.

``parse_properties(render_properties(p))`` is ``p`` for every mapping of strings. Parsing a file of
Hudi and rendering it with the same comments gives the same bytes. ``config`` interprets the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from bucketlake.model.file_name import InstantTime, file_path

_BLANK = " \t\f"
_SHORT_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED_CHARACTERS = {value: f"\\{key}" for key, value in _SHORT_ESCAPES.items()} | {
    character: f"\\{character}" for character in "\\:=#!"
}
_TO_ESCAPE = re.compile(r"[\\:=#!]|[^ -~]")
LINE_END = re.compile(r"\r\n|\r|\n")
"""The line ends of Java text; ``str.splitlines`` also splits at other characters."""

_KEY = re.compile(rf"(?:[^\\=:{_BLANK}]+|\\.?)*", re.DOTALL)


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Parse Java properties text; if a key occurs twice, the later entry counts.

    Parameters
    ----------
    data : bytes
        ISO-8859-1 text with ``\uXXXX`` escapes. Any bytes can be parsed, because the format has no
        invalid text; a broken ``\u`` escape is read as the letter u.

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
    """Render Java properties text with the escapes of Java's own writer.

    Parameters
    ----------
    properties : mapping of str to str
        Entries, in the order of the mapping.
    header_comment : str
        Lines at the top, each after a ``#``; none if empty.
    """
    comment = [f"#{line}" for line in header_comment.splitlines()]
    entries = [f"{_escape_key(key)}={_escape_value(value)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in comment + entries).encode("latin-1", "replace")


def java_date(at_ms: int) -> str:
    """Return a time in UTC as Java's ``Date`` prints it, for comments as in Hudi's files.

    Examples
    --------
    >>> java_date(1_795_219_140_000)
    'Fri Nov 20 23:59:00 UTC 2026'
    """
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    text = at.ctime()  # No strftime, because its names depend on the locale of the process.
    return f"{text[:8]}{at.day:02d}{text[10:20]}UTC {text[20:]}"


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, blank lines and leading blanks; join continued lines."""
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
    assert key is not None, "the pattern also matches the empty text"
    end = key.end()
    value = line[end:].lstrip(_BLANK)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANK)
    return _unescape(line[:end]), _unescape(value)


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)


def _unescape(text: str) -> str:
    r"""Replace escapes; a pair ``\uD8xx\uDCxx``, Java's form, becomes one character."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(
        lambda match: (
            chr(int(match[1], 16)) if match[1] else _SHORT_ESCAPES.get(match[2], match[2])
        ),
        text,
    )
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _escape_key(key: str) -> str:
    return _escape(key).replace(" ", "\\ ")


def _escape_value(value: str) -> str:
    blanks = len(value) - len(value.lstrip(" "))
    return "\\ " * blanks + _escape(value[blanks:])


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: _escape_character(match[0]), text)


def _escape_character(character: str) -> str:
    short = _ESCAPED_CHARACTERS.get(character)
    if short is not None:
        return short
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# ---- The partition marker .hoodie_partition_metadata, which makes a folder a partition -----------
#
# Readers without a metadata table find partitions by the name of this file. Without it Spark
# returns no rows and no error. The content is two Java properties; some writers leave it empty.

PARTITION_METADATA_FILE = ".hoodie_partition_metadata"
PARTITION_METADATA_PREFIX = PARTITION_METADATA_FILE  # Hudi also has a form that ends in .parquet.

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"


def partition_marker_path(partition_path: str) -> str:
    """Return the path of the marker of a partition, relative to the table."""
    return file_path(partition_path, PARTITION_METADATA_FILE)


def render_partition_metadata(commit_time: InstantTime, partition_path: str) -> bytes:
    r"""Encode a partition marker. It has no date, so equal arguments give equal bytes.

    The marker tells the instant that first wrote into the partition, and the number of segments of
    the partition path; that is 0 for a table without partitions.

    Examples
    --------
    >>> render_partition_metadata(InstantTime("20240102030405678"), "2024/01")
    b'#partition metadata\ncommitTime=20240102030405678\npartitionDepth=2\n'
    """
    return _rendered(commit_time, len(partition_path.split("/")) if partition_path else 0)


@lru_cache(maxsize=1)  # A commit may open many partitions.
def _rendered(commit_time: InstantTime, depth: int) -> bytes:
    entries = {_COMMIT_TIME: commit_time, _DEPTH: str(depth)}
    return render_properties(entries, "partition metadata")
