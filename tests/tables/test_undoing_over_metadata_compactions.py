"""Restores and rollbacks of commits that a compaction of the metadata table includes.

A record-level index cannot take back the entries of such a commit, so it is built again. All table
versions and kinds with an index give the same answers afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import table_at

SCHEMA = pa.schema([("id", pa.string()), ("g", pa.string()), ("v", pa.int64())])
Rows = dict[str, tuple[str, int]]


class Indexed:
    """A table with a record-level index, and the rows that it must have."""

    def __init__(self, path: str, kind: Kind, table_type: str) -> None:
        version, index, self.kept = kind
        self.table = bl.create_table(
            path,
            schema=SCHEMA,
            record_key="id",
            partition_by="g",
            index=index,
            table_type=table_type,
            version=version,
        )
        if self.kept is not None:
            self.build_kept()
        self.moves = isinstance(index, bl.RecordIndex) and not index.partitioned
        self.rows: Rows = {}

    def build_kept(self) -> None:
        self.table.rebuild_metadata_table(["record_index"], partitioned=self.kept == "partitioned")

    def write(self, v: int, *keys: str) -> str:
        """Upsert rows; under a global index, those of odd numbers move between partitions."""
        places = {key: f"g{v % 2 if self.moves and v % 3 else len(key) % 2}" for key in keys}
        given = [{"id": key, "g": places[key], "v": v} for key in keys]
        self.rows = self.rows | {key: (places[key], v) for key in keys}
        instant = self.table.upsert(pa.Table.from_pylist(given, SCHEMA)).instant
        assert instant is not None
        return instant

    def delete(self, *keys: str) -> None:
        gone = [{"id": key, "g": self.rows[key][0]} for key in keys]
        self.table.delete(pa.Table.from_pylist(gone, pa.schema([*SCHEMA][:2])))
        self.rows = {key: row for key, row in self.rows.items() if key not in keys}

    def compact_metadata(self) -> None:
        opened = table_at(open_storage(self.table.path))
        assert compact_metadata(opened, delta_commits=1) is not None

    def check(self, gone: Iterable[str] = ()) -> None:
        """Check rows, locations and the doctor, and that further writes find the stored rows."""
        found = self.table.to_arrow().to_pylist()
        assert {row["id"]: (row["g"], row["v"]) for row in found} == self.rows
        assert len(found) == len(self.rows)
        findings = self.table.doctor(check_keys=True, check_files=True, min_age_seconds=0)
        assert not findings, findings
        for key, (g, _) in self.rows.items():
            places = self.table.locate(key, None if self.moves else g)
            assert [place.partition_path for place in places] == [g], (key, places)
        for key in {*gone} - {*self.rows}:
            assert not self.table.locate(key, None if self.moves else "g0"), key


Kind = tuple[int, object, str | None]

KINDS: dict[str, Kind] = {
    "6 global": (6, bl.RecordIndex(partitioned=False), None),
    "6 kept": (6, bl.SimpleBucket(2), "global"),
    "8 global": (8, bl.RecordIndex(partitioned=False), None),
    "8 kept": (8, bl.SimpleBucket(2), "global"),
    "9 global": (9, bl.RecordIndex(partitioned=False), None),
    "9 partitioned": (9, bl.RecordIndex(), None),
    "9 dynamic": (9, bl.DynamicBucket(max_records=3), None),
    "9 kept global": (9, bl.ConsistentBucket(2), "global"),
    "9 kept partitioned": (9, bl.SimpleBucket(2), "partitioned"),
}


COW, MOR = "copy_on_write", "merge_on_read"
CASES = [
    (undoes, kind, table_type)
    for n, kind in enumerate(KINDS)
    for m, undoes in enumerate(("restore", "rollback"))
    for table_type in ((COW, MOR) if KINDS[kind][0] == 6 else ((COW, MOR)[(n + m) % 2],))
]


@pytest.mark.parametrize(("undoes", "kind", "table_type"), CASES)
@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
def test_undoing_what_a_metadata_compaction_includes_leaves_a_right_index(
    undoes: str, kind: str, table_type: str, new_path: Callable[[], str]
) -> None:
    indexed = Indexed(new_path(), KINDS[kind], table_type)
    indexed.write(1, "a", "bb", "k")
    indexed.write(2, "a", "cc")
    before = dict(indexed.rows)
    if undoes == "restore":
        saved = indexed.table.savepoint()
        indexed.write(3, "a", "bb", "new")
        indexed.delete("cc")
        indexed.compact_metadata()
        indexed.write(4, "a", "newer")
        indexed.table.restore(saved)
    else:
        undone = indexed.write(3, "a", "bb", "new", "newer")
        indexed.compact_metadata()
        indexed.table.rollback(undone)
    indexed.rows = before
    if indexed.kept is not None:
        indexed.build_kept()
    indexed.check({"new", "newer"})
    indexed.write(5, "a", "bb", "cc", "new")
    indexed.compact_metadata()
    indexed.check({"newer"})


def test_an_index_that_is_built_without_a_key_is_whole(new_path: Callable[[], str]) -> None:
    indexed = Indexed(new_path(), KINDS["6 global"], COW)
    indexed.write(1, "a", "bb")
    indexed.compact_metadata()
    indexed.delete("a", "bb")
    indexed.table.rebuild_metadata_table(["record_index"])
    indexed.check({"a"})
