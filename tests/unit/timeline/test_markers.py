"""Markers of the data files of a pending write."""

from __future__ import annotations

import re

import pytest

from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.markers import (
    Marker,
    MarkerType,
    delete_markers,
    read_markers,
    write_markers,
)
from tests.storages import memory_of, objects_of

T = InstantTime("20240102030405678")
FOLDER = f".hoodie/.temp/{T}"
BASE = "00000001-aaaa-0_1-0-1_20240102030405678.parquet"
LOG = ".00000001-aaaa-0_20240102030405678.log.1_1-0-1"


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (Marker("eu", BASE, MarkerType.CREATE), f"eu/{BASE}.marker.CREATE"),
        (Marker("", BASE, MarkerType.MERGE), f"{BASE}.marker.MERGE"),
        (Marker("2024/01", LOG, MarkerType.CREATE), f"2024/01/{LOG}.marker.CREATE"),
        (Marker("eu", LOG, MarkerType.APPEND), f"eu/{LOG}.marker.APPEND"),
        *(
            (Marker(name, BASE, MarkerType.CREATE), f"{name}/{BASE}.marker.CREATE")
            for name in ("a\nb", "\n", "a\u2028b", "a\x85b", "a.marker.CREATE/b")
        ),
    ],
)
def test_marker_is_written_and_read_back(marker: Marker, text: str) -> None:
    storage = memory_of()
    write_markers(storage, T, [marker])
    found = objects_of(storage)
    assert found.pop(f"{FOLDER}/MARKERS.type") == b"TIMELINE_SERVER_BASED"
    ((path, data),) = found.items()
    if "\n" in text:  # No list can hold it.
        assert (path, data) == (f"{FOLDER}/{text}", b"")
    else:
        assert re.fullmatch(rf"{FOLDER}/MARKERS\d{{1,10}}", path)
        assert data == f"{text}\n".encode()
    assert read_markers(storage, T) == [marker]


def test_markers_of_files_that_are_published_together_are_one_list() -> None:
    storage = memory_of()
    markers = [Marker(name, BASE, MarkerType.CREATE) for name in ("eu", "us")]
    write_markers(storage, T, markers)
    write_markers(storage, T, markers)  # Another attempt.
    assert len(objects_of(storage)) == 2
    assert read_markers(storage, T) == markers


def test_a_list_never_replaces_another_with_its_number() -> None:
    markers = [Marker(name, BASE, MarkerType.CREATE) for name in ("eu", "us")]
    storage = memory_of()
    write_markers(storage, T, markers[:1])
    (path,) = {*objects_of(storage)} - {f"{FOLDER}/MARKERS.type"}
    storage = memory_of({path: f"{markers[1].to_text()}\n".encode()})
    write_markers(storage, T, markers[:1])
    assert read_markers(storage, T) == markers


def test_marker_names_its_data_file() -> None:
    assert Marker("eu", BASE, MarkerType.CREATE).data_path == f"eu/{BASE}"
    assert Marker("", BASE, MarkerType.CREATE).data_path == BASE


def test_marker_written_twice_is_one() -> None:
    storage = memory_of()
    for _ in range(2):
        write_markers(storage, T, [Marker("eu", BASE, MarkerType.CREATE)])
    assert len(read_markers(storage, T)) == 1


def test_lists_of_the_timeline_server_are_read() -> None:
    storage = memory_of(
        {
            f"{FOLDER}/MARKERS.type": b"TIMELINE_SERVER_BASED",
            f"{FOLDER}/MARKERS0": f"eu/{BASE}.marker.CREATE\n".encode(),
            f"{FOLDER}/MARKERS19": f"us/{BASE}.marker.MERGE\r\nä/{LOG}.marker.CREATE".encode(),
        }
    )
    assert read_markers(storage, T) == [
        Marker("eu", BASE, MarkerType.CREATE),
        Marker("us", BASE, MarkerType.MERGE),
        Marker("ä", LOG, MarkerType.CREATE),
    ]


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_lists_are_cut_where_java_cuts_lines(character: str) -> None:
    text = f"a{character}b/{BASE}.marker.CREATE\n"
    storage = memory_of({f"{FOLDER}/MARKERS0": text.encode()})
    assert read_markers(storage, T) == [Marker(f"a{character}b", BASE, MarkerType.CREATE)]


def test_other_files_are_no_markers() -> None:
    names = (f"eu/.{BASE}.marker.CREATE.crc", f"eu/{BASE}", f"eu/{BASE}.marker.DELETE", "MARKERS")
    assert read_markers(memory_of({f"{FOLDER}/{name}": b"" for name in names}), T) == []


def test_partition_whose_name_looks_like_a_list_is_a_partition() -> None:
    storage = memory_of()
    marker = Marker("MARKERS0", BASE, MarkerType.CREATE)
    write_markers(storage, T, [marker])
    assert read_markers(storage, T) == [marker]


def test_markers_of_other_instants_stay() -> None:
    storage = memory_of()
    other = InstantTime(f"{T}1")
    for instant in (T, other):
        write_markers(storage, instant, [Marker("eu", BASE, MarkerType.CREATE)])
    delete_markers(storage, T)
    assert read_markers(storage, T) == []
    assert len(read_markers(storage, other)) == 1
