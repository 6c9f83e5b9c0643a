"""Markers: a line for each data file of a pending write, written before the data file.

A rollback deletes the files that the markers name. It cannot find other files: a data file without
a marker would later become visible as committed data. bucketlake writes a list of markers for files
that are published together, in the form of Hudi's timeline server. It also reads Hudi's ``DIRECT``
form, an empty file for each marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Self
from zlib import crc32

from bucketlake.config.paths_of_table import MARKER_FOLDER, require_data_place
from bucketlake.config.table_version import TimelineLayout
from bucketlake.errors import AlreadyExistsError
from bucketlake.format.properties import LINE_END
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.storage.base import Storage, put_or_find

_MARKER = re.compile(  # A partition's name may hold a line break.
    r"(?:(?P<partition>.*)/)?(?P<file>[^/]+)\.marker\.(?P<type>[A-Z]+)", re.DOTALL
)
_FORM = "MARKERS.type"
_LIST_NAME = "MARKERS"
_LIST = re.compile(rf"{_LIST_NAME}\d+", re.ASCII)


class MarkerType(Enum):
    """What a write does with a file; the value is Hudi's spelling."""

    CREATE = "CREATE"  # A new base file; since table version 8 also a log file.
    MERGE = "MERGE"  # A base file that replaces an older one.
    APPEND = "APPEND"  # A log file before table version 8; in newer tables it breaks a rollback.

    @classmethod
    def of_log_file(cls, layout: TimelineLayout) -> Self:
        """Return the type for a log file that a write makes."""
        return cls.APPEND if layout.logs_name_slices else cls.CREATE


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of one data file."""

    partition_path: str
    file_name: str
    type: MarkerType

    @property
    def data_path(self) -> str:
        """Path of the data file, relative to the table."""
        return file_path(self.partition_path, self.file_name)

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Parse a path below the marker folder of an instant; None if it is not a marker.

        Examples
        --------
        >>> Marker.from_text("2024/01/f_1-0-1_20240102030405678.parquet.marker.MERGE").type
        <MarkerType.MERGE: 'MERGE'>
        """
        match = _MARKER.fullmatch(text)
        if match is None or match["type"] not in MarkerType.__members__:
            return None
        return cls(match["partition"] or "", match["file"], MarkerType(match["type"]))

    def to_text(self) -> str:
        """Return the path of the marker below the marker folder of its instant."""
        return f"{self.data_path}.marker.{self.type.value}"


def marker_folder(instant: InstantTime) -> str:
    """Return the marker folder of an instant, relative to the table."""
    return f"{MARKER_FOLDER}/{instant}"


def write_markers(storage: Storage, instant: InstantTime, markers: Iterable[Marker]) -> None:
    """Write the markers of data files before the data files; repeating it does no harm.

    The number of a list follows from its content, so attempts of a task write one list, or two if
    the second has found files of the first. A list is never replaced.
    """
    texts = sorted({marker.to_text() for marker in markers})
    if texts:
        mark_instant(storage, instant)
    for text in texts:
        if LINE_END.search(text):  # No list can hold it. Only this reader finds it beside lists.
            storage.put(f"{marker_folder(instant)}/{text}", b"")
    listed = "".join(f"{text}\n" for text in texts if not LINE_END.search(text)).encode()
    number = crc32(listed) >> 1  # Hudi parses an int of 32 bits.
    list_path = f"{marker_folder(instant)}/{_LIST_NAME}"
    while listed and not put_or_find(storage, f"{list_path}{number}", listed):
        number += 1


def mark_instant(storage: Storage, instant: InstantTime) -> None:
    """Write the file that names the form of an instant's markers, where Hudi has it.

    The folder also leads a later sweep to files of a writer that slept, was rolled back, woke up
    and died.
    """
    with suppress(AlreadyExistsError):
        storage.put_if_absent(f"{marker_folder(instant)}/{_FORM}", b"TIMELINE_SERVER_BASED")


def read_markers(storage: Storage, instant: InstantTime) -> list[Marker]:
    """Return the markers of an instant in either form, without duplicates, sorted by text.

    Raises
    ------
    FormatError
        If a marker names a path outside of the data: a rollback would delete it.
    """
    folder = marker_folder(instant)
    found = (Marker.from_text(text) for text in sorted(set(_texts(storage, folder))))
    markers = [marker for marker in found if marker is not None]
    for marker in markers:
        require_data_place(marker.partition_path, marker.file_name, folder)
    return markers


def delete_markers(storage: Storage, instant: InstantTime) -> None:
    """Delete the markers of a completed or rolled-back instant."""
    storage.delete_folder(marker_folder(instant))


def _texts(storage: Storage, folder: str) -> Iterator[str]:
    for stored in storage.list(folder):
        text = stored.path.removeprefix(f"{folder}/")
        if _LIST.fullmatch(text):
            yield from LINE_END.split(storage.read(stored.path).decode(errors="replace"))
        else:
            yield text
