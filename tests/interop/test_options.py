"""The options of real Hudi: our list of them is whole, and payload classes mean the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.golden.options.make_config_properties import LISTING, render
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, Writer

pytestmark = pytest.mark.interop

WRITE = "hoodie.datasource.write."
MODEL = "org.apache.hudi.common.model."
WORDS = ("merge", "payload", "ordering", "partial")

Change = tuple[str, bool, int, int]
"""Key, whether it is a delete, ordering value, value."""

FIRST: list[Change] = [(key, False, 5, 1) for key in "abcd"]
SECOND: list[Change] = [
    ("a", True, 6, 2), ("b", True, 5, 2), ("c", True, 4, 2), ("f", True, 5, 2), ("g", False, 5, 2),
]  # fmt: skip
THIRD: list[Change] = [
    ("a", False, 5, 3), ("b", False, 1, 3), ("c", False, 5, 3), ("g", True, 7, 3),
]  # fmt: skip
BY_COMMIT_TIME = {"a": 3, "b": 3, "c": 3, "d": 1}
BY_EVENT_TIME = {
    # A log file remembers the ordering value of a delete, a base file does not.
    "COPY_ON_WRITE": {"a": 3, "b": 3, "c": 3, "d": 1},
    "MERGE_ON_READ": {"c": 3, "d": 1},
}


@dataclass(frozen=True)
class Case:
    """Options that say who wins, and the columns that they need."""

    options: dict[str, str]
    field: str
    marker: str
    ordering: str
    by_event_time: bool

    def rows(self, changes: Iterable[Change]) -> pa.Table:
        rows = [
            {
                "id": key,
                self.field: self.marker if deletes else "other",
                "_event_bin_file": "f",
                self.ordering: at,
                "v": value,
            }
            for key, deletes, at, value in changes
        ]
        return pa.Table.from_pylist(rows)

    def left(self, table_type: str) -> dict[str, int]:
        return BY_EVENT_TIME[table_type] if self.by_event_time else BY_COMMIT_TIME


MARKER = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"}
PRECOMBINE = {f"{WRITE}precombine.field": "ts"}
PAYLOAD = f"{WRITE}payload.class"
CASES = {
    "default": Case(
        MARKER | PRECOMBINE | {PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload"},
        "op", "D", "ts", by_event_time=True,
    ),
    "overwrite": Case(
        MARKER | PRECOMBINE | {PAYLOAD: f"{MODEL}OverwriteWithLatestAvroPayload"},
        "op", "D", "ts", by_event_time=False,
    ),
    "dms": Case(
        PRECOMBINE | {PAYLOAD: f"{MODEL}AWSDmsAvroPayload"}, "Op", "D", "ts", by_event_time=False
    ),
    "mysql": Case(
        {PAYLOAD: f"{MODEL}debezium.MySqlDebeziumAvroPayload"},
        "_change_operation_type", "d", "_event_pos", by_event_time=True,
    ),
}  # fmt: skip


def options_of(case: Case, path: Path, table_type: str) -> dict[str, str]:
    return case.options | {
        "hoodie.table.name": path.name,
        f"{WRITE}recordkey.field": "id",
        f"{WRITE}partitionpath.field": "",
        f"{WRITE}table.type": table_type,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
        "hoodie.metadata.enable": "false",
        "hoodie.compact.inline": "false",
    }


def stored_settings(path: Path) -> list[str]:
    lines = (path / ".hoodie" / "hoodie.properties").read_text().splitlines()
    return sorted(line for line in lines if any(word in line.partition("=")[0] for word in WORDS))


def values_of(table: pa.Table) -> dict[str, int]:
    assert table.num_rows == len({*table["id"].to_pylist()})
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def test_list_of_options_is_that_of_real_hudi(hudi: HudiPeer) -> None:
    assert render(hudi.config_properties()) + "\n" == LISTING.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "table_type", "begins"),
    [
        ("default", "COPY_ON_WRITE", BUCKETLAKE),
        ("default", "MERGE_ON_READ", HUDI),
        ("overwrite", "COPY_ON_WRITE", HUDI),
        ("dms", "MERGE_ON_READ", BUCKETLAKE),
        ("mysql", "MERGE_ON_READ", BUCKETLAKE),
    ],
)
def test_payload_class_and_delete_marker_mean_the_same_in_turns(
    hudi: HudiPeer, tmp_path: Path, name: str, table_type: str, begins: Writer
) -> None:
    case, settings = CASES[name], []
    for first in (begins, HUDI if begins is BUCKETLAKE else BUCKETLAKE):
        path = tmp_path / first.value
        options = options_of(case, path, table_type)
        batches = (FIRST, SECOND, THIRD) if first is begins else (FIRST,)
        for number, batch in enumerate(batches):
            if (first is BUCKETLAKE) is (number % 2 == 0):
                bl.save(case.rows(batch), str(path), options=options)
            else:
                hudi.write(path, case.rows(batch), options)
            ours = values_of(bl.open_table(str(path), index=bl.SimpleBucket(1)).to_arrow())
            assert ours == values_of(hudi.read(path))
        if first is begins:
            assert ours == case.left(table_type)
        settings.append(stored_settings(path))
    assert settings[0] == settings[1]
