"""The harness itself: what one peer writes, it and the other peer read back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop.peer.client import HudiPeer, PeerError, read_with_hudi_rs

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.decimal128(18, 4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
}


def trips(ids: range, ts: int) -> pa.Table:
    rows = [
        {
            "id": f"trip-{i}",
            "region": ("eu", "日本")[i % 2],
            "ts": ts,
            "price": None if i == 3 else Decimal(i).scaleb(-4),
            "day": dt.date(2024, 2, 29),
            "at": dt.datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=dt.UTC),
            "tags": ["ä", "b"][: i % 3],
        }
        for i in ids
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def by_id(table: pa.Table) -> list[dict[str, object]]:
    return table.select(SCHEMA.names).sort_by("id").to_pylist()


@pytest.fixture(scope="module")
def trips_path(hudi_peer: HudiPeer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy-on-write table of real Hudi's: six trips, then one of them changed and two more."""
    path = tmp_path_factory.mktemp("peers") / "trips"
    hudi_peer.write(path, trips(range(6), ts=1), OPTIONS)
    hudi_peer.write(path, trips(range(5, 8), ts=2), OPTIONS)
    return path


@pytest.fixture(scope="module")
def commit_times(hudi_peer: HudiPeer, trips_path: Path) -> list[str]:
    shown = hudi_peer.sql(f"CALL show_timeline(path => '{trips_path}')")
    return sorted(row["instant_time"] for row in shown if row["action"] == "commit")


def test_hudi_reads_back_what_it_wrote(hudi: HudiPeer, trips_path: Path) -> None:
    expected = by_id(pa.concat_tables([trips(range(5), ts=1), trips(range(5, 8), ts=2)]))
    assert by_id(hudi.read(trips_path)) == expected


def test_hudi_rs_reads_what_hudi_wrote(hudi: HudiPeer, trips_path: Path) -> None:
    assert by_id(read_with_hudi_rs(trips_path)) == by_id(hudi.read(trips_path))


def test_both_peers_travel_to_the_first_commit(
    hudi: HudiPeer, trips_path: Path, commit_times: list[str]
) -> None:
    first = by_id(trips(range(6), ts=1))
    assert by_id(hudi.time_travel(trips_path, commit_times[0])) == first
    assert by_id(read_with_hudi_rs(trips_path, as_of=commit_times[0])) == first


def test_hudi_reads_only_the_rows_of_the_second_commit(
    hudi: HudiPeer, trips_path: Path, commit_times: list[str]
) -> None:
    rows = hudi.incremental(trips_path, since=commit_times[1], columns=["id"])
    assert sorted(rows["id"].to_pylist()) == ["trip-5", "trip-6", "trip-7"]


def test_columns_are_read_as_asked(hudi: HudiPeer, trips_path: Path) -> None:
    rows = hudi.read(trips_path, columns=["_hoodie_record_key", "at"])
    assert rows.schema.names == ["_hoodie_record_key", "at"]
    assert rows.schema.field("at").type == pa.timestamp("us", tz="UTC")


def test_an_error_of_hudi_reaches_the_test_and_the_peer_goes_on(
    hudi: HudiPeer, trips_path: Path
) -> None:
    with pytest.raises(PeerError, match=r"hoodie\.table\.name"):
        hudi.write(trips_path, trips(range(1), ts=3), OPTIONS | {"hoodie.table.name": "other"})
    assert hudi.sql("SELECT 1 AS one") == [{"one": 1}]
