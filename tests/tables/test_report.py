"""``Table.report``: the page is whole, loads nothing, and its numbers are those of the table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, StorageError, UnsupportedFeatureError
from bucketlake.model.text_table import cell_text
from bucketlake.read.buckets import Buckets
from bucketlake.report.page import ROWS_MAX, render_page, table_report
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import forget
from bucketlake.table import handle_of
from tests.ring_tables import SPLIT_ALL

SCHEMA = pa.schema(
    [("device", pa.string()), ("n", pa.int64()), ("day", pa.string()), ("noise", pa.binary())]
)
_NUMBERS = count()


@pytest.fixture
def path() -> Iterator[str]:
    name = f"report-{next(_NUMBERS)}"
    yield f"memory://{name}"
    forget(name)


def make(path: str, index: Any = None, **given: Any) -> bl.Table:
    given = {"partition_by": "day", "record_key": ["device", "n"]} | given
    return bl.create_table(path, schema=SCHEMA, index=index or bl.DynamicBucket(), **given)


def rows(devices: int, day: str, *, each: int = 1, noise_bytes: int = 20) -> pa.Table:
    draw = np.random.default_rng(devices)
    made = [
        {"device": f"d{number}", "n": n, "day": day, "noise": draw.bytes(noise_bytes)}
        for number in range(devices)
        for n in range(each)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


# ---- one table of each kind ---------------------------------------------------------------------


def dynamic(path: str) -> bl.Table:
    table = make(path, bl.DynamicBucket(max_records=100))
    for number, day in enumerate(["2024-01-01", "2024-01-02", "2024-01-03"]):
        table.upsert(rows(150 + 100 * number, day))
    table.upsert(rows(30, "2024-01-02"))
    return table


def skewed(path: str) -> bl.Table:
    table = make(path, bl.SimpleBucket(8, hash_fields=["device"]))
    table.upsert(rows(1, "hot", each=800, noise_bytes=1_500))
    table.upsert(rows(100, "even"))
    return table


def ring(path: str) -> bl.Table:
    table = make(path, bl.ConsistentBucket(4), table_type="merge_on_read")
    table.upsert(rows(200, "a"))
    table.upsert(rows(90, "b"))
    table.resize(**SPLIT_ALL, max_groups=3)
    return table


def directory(path: str) -> bl.Table:
    table = make(path, bl.ExtendibleBucket(2, max_depth=2))
    table.upsert(rows(200, "a"))
    table.resize(**SPLIT_ALL, max_groups=1)
    return table


def waiting(path: str) -> bl.Table:
    table = make(path, bl.SimpleBucket(2), table_type="merge_on_read", partition_by=[])
    table.upsert(rows(100, "a"))
    table.upsert(rows(40, "b"))
    table.delete(rows(3, "a").select(["device", "n"]))
    return table


def empty(path: str) -> bl.Table:
    return make(path, bl.SimpleBucket(4))


KINDS: list[Callable[[str], bl.Table]] = [dynamic, skewed, ring, directory, waiting, empty]


# ---- reading a page -----------------------------------------------------------------------------


class Page:
    """A page, read as XML, which browsers read alike."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ElementTree.fromstring(text)

    def section(self, anchor: str) -> str:
        """Return all text of a section; empty if there is no such section."""
        return "".join(
            "".join(found.itertext())
            for found in self.root.iter("section")
            if found.get("id") == anchor
        )

    def table(self, caption: str) -> list[dict[str, str]]:
        """Return the rows of the table whose caption begins so."""
        [found] = [
            table
            for table in self.root.iter("table")
            if "".join(next(table.iter("caption")).itertext()).startswith(caption)
        ]
        titles = ["".join(cell.itertext()) for cell in found.iter("th")]
        lines = [[*line.iter("td")] for line in found.iter("tr")]
        return [
            dict(zip(titles, ("".join(cell.itertext()) for cell in line), strict=True))
            for line in lines
            if line
        ]

    def attributes(self) -> Iterator[tuple[str, str]]:
        for element in self.root.iter():
            yield from element.items()


def page_of(table: bl.Table) -> Page:
    target = f"memory://report-pages/{next(_NUMBERS)}.html"
    assert table.report(target) == target
    folder, _, name = target.rpartition("/")
    return Page(open_storage(folder).read(name).decode())


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


# ---- the page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_one_file_without_scripts_that_loads_nothing(
    kind: Callable[[str], bl.Table], path: str
) -> None:
    page = page_of(kind(path))
    tags = {element.tag.rpartition("}")[2] for element in page.root.iter()}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "image", "base"}
    names = {name.rpartition("}")[2] for name, _ in page.attributes()}
    assert not names & {"src", "srcset", "data", "action"}
    assert not [name for name in names if name.startswith("on")]
    links = [value for name, value in page.attributes() if name.rpartition("}")[2] == "href"]
    assert all(link.startswith("#") for link in links)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page.text))
    assert "@import" not in page.text
    ids = [value for name, value in page.attributes() if name == "id"]
    assert len(ids) == len({*ids})
    assert {link[1:] for link in links} <= {*ids}
    assert {*re.findall(r"url\(#([^)]*)\)", page.text)} <= {*ids}


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_a_page_are_those_of_the_table(
    kind: Callable[[str], bl.Table], path: str
) -> None:
    table = kind(path)
    page, buckets, timeline = page_of(table), table.buckets(), table.timeline()
    if buckets:
        shown = page.table("Buckets")
        assert sorted((row["partition"], row["bucket"], row["size"], row["rows"], row["log files"])
                      for row in shown) == sorted(
            (b.partition_path or "–", number(b.bucket_id), cell_text("size_bytes", b.size_bytes),
             number(b.rows), number(b.log_files))
            for b in buckets
        )  # fmt: skip
        assert {(row["partition"], row["rows"]) for row in page.table("Partitions")} == {
            (sizes.partition_path or "–", number(sizes.rows)) for sizes in buckets.partitions
        }
        assert [row["size"] for row in page.table("Size after each commit")] == [
            cell_text("size_bytes", size.size_bytes) for size in reversed(buckets.growth)
        ]
        logs = sum(bucket.log_bytes for bucket in buckets)
        assert page.table("Sizes of the files")[1]["total"] == cell_text("log_bytes", logs)
    if timeline:
        shown = page.table("Instants")
        assert [(row["action"], row["written"], row["deleted"], row["files"]) for row in shown] == [
            (e.action.value, number(e.written), number(e.deleted), number(e.files))
            for e in reversed(timeline)
        ]
    assert f"Doctor: {table.doctor().summary}" in page.section("attention")
    changes = table.advise().changes
    if changes:
        assert [
            (row["subject"], row["reason"], row["command"]) for row in page.table("Advice")
        ] == [(advice.subject, advice.reason, advice.command or "–") for advice in changes]
    else:
        assert "Advice: change nothing." in page.section("attention")


def test_an_empty_table_has_a_page(path: str) -> None:
    page = page_of(empty(path))
    assert "The table has no files yet." in page.section("partitions")
    assert "No commit yet." in page.section("timeline")
    assert page.section("buckets") == page.section("growth") == ""


def test_a_page_says_what_needs_attention(path: str) -> None:
    table = skewed(path)
    [sizes] = [sizes for sizes in table.buckets().partitions if sizes.is_skewed]
    assert f"Skew: {sizes.skew}." in page_of(table).section("attention")


def test_log_files_and_pending_plans_are_named(path: str) -> None:
    table = make(path, bl.ConsistentBucket(2), table_type="merge_on_read")
    table.upsert(rows(30, "a"))
    table.upsert(rows(30, "a"))
    table.resize(**SPLIT_ALL, schedule_only=True)
    page = page_of(table)
    assert "2 log files of" in page.section("attention")
    assert "Pending: clustering of" in page.section("attention")
    assert {row["log files"] for row in page.table("Log files")} == {"1"}
    assert "base files" in page.section("logs"), "the legend"


def test_a_page_of_a_damaged_table_shows_the_findings(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"), bl.SimpleBucket(1))
    table.upsert(rows(3, "a"))
    group = "00000000-0000-4000-8000-000000000001-0"
    stray = tmp_path / "t" / "a" / f"{group}_0-0-0_20200101000000000.parquet"
    stray.write_bytes(b"of no commit")
    os.utime(stray, (0, 0))
    found = table.doctor()
    assert found
    page = page_of(table)
    assert [(row["kind"], row["meaning"]) for row in page.table("Findings")] == [
        (finding.kind.value, finding.meaning) for finding in found
    ]
    assert found.summary in page.section("attention")


def test_rings_and_directories_are_drawn_with_a_label_for_each_bucket(path: str) -> None:
    table = ring(path)
    text = page_of(table).section("rings")
    assert "hash ring" in text
    drawn = [bucket for bucket in table.buckets() if bucket.partition_path == "a"]
    assert all(re.search(rf"\b{bucket.bucket_id}\b", text) for bucket in drawn)


def test_a_directory_is_drawn_with_its_suffixes(path: str) -> None:
    table = directory(path)
    text = page_of(table).section("rings")
    suffixes = {bucket.hash_suffix for bucket in table.buckets()}
    assert len(suffixes) == 3
    assert all(re.search(rf"\b{suffix}\b", text) for suffix in suffixes)


def test_names_of_data_are_text_and_never_markup(path: str) -> None:
    table = make(path, bl.SimpleBucket(1))
    evil = ["<script>alert(1)", "a&amp;b", "$x^{2$", "#010101", 'q" id="x', "日本語", "url(#a)"]
    for name in evil:
        table.upsert(rows(2, name))
    page = page_of(table)
    shown = {row["partition"] for row in page.table("Partitions")}
    assert shown == {sizes.partition_path for sizes in table.buckets().partitions}
    assert "<script" not in page.text
    charts = "".join("".join(svg.itertext()) for svg in page.root.iter("svg"))
    assert all(sizes.partition_path in charts for sizes in table.buckets().partitions)


def test_a_table_of_many_partitions_has_a_small_page(path: str) -> None:
    report = table_report(handle_of(dynamic(path)))
    [sizes, *_], [bucket, *_] = report.buckets.partitions, report.buckets
    many = 3_000
    names = [f"day={number:05}" for number in range(many)]
    buckets = Buckets(
        [replace(bucket, partition_path=name, size_bytes=n + 1) for n, name in enumerate(names)],
        [replace(sizes, partition_path=name, size_bytes=n + 1, rows=2)
         for n, name in enumerate(names)],
        report.buckets.growth * 300,
    )  # fmt: skip
    text = render_page(replace(report, buckets=buckets, timeline=[*report.timeline] * 300))
    assert len(text) < 400_000
    page = Page(text)
    shown = page.table("Partitions, largest first: 50 of 3,000")
    assert len(shown) == ROWS_MAX + 1
    assert [row["partition"] for row in shown[:2]] == ["day=02999", "day=02998"]
    rest = shown[-1]
    left = many - ROWS_MAX
    assert rest["partition"] == "the other 2,950 partitions"
    assert rest["rows"] == f"{2 * left:,}"
    assert rest["size"] == cell_text("size_bytes", sum(range(1, left + 1)))
    assert len(page.table("Instants of the active timeline, newest first: 50 of")) == ROWS_MAX


def test_the_same_facts_give_the_same_page(path: str) -> None:
    report = replace(
        table_report(handle_of(dynamic(path))), made_at=datetime(2024, 1, 2, tzinfo=UTC)
    )
    assert render_page(report) == render_page(report)


def test_settings_of_the_users_matplotlib_do_not_matter(path: str) -> None:
    import matplotlib as mpl

    report = table_report(handle_of(dynamic(path)))
    before = render_page(report)
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert render_page(report) == before


# ---- the file -----------------------------------------------------------------------------------


def test_a_page_replaces_a_file_whole(tmp_path: Path, path: str) -> None:
    target = tmp_path / "report.page"
    target.write_text("before")
    target.chmod(0o640)
    assert empty(path).report(target) == str(target)
    assert Page(target.read_text(encoding="utf-8")).section("partitions")
    assert target.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [target]


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(
    tmp_path: Path, path: str
) -> None:
    table = empty(path)
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "no" / "r.html"):
        with pytest.raises(StorageError, match=re.escape(str(target))):
            table.report(target)
    with pytest.raises(ConfigError, match=r"name a file, such as report\.html"):
        table.report(f"{tmp_path}/")
    with pytest.raises(ConfigError, match="must start with s3://"):
        table.report("s3:report.html")
    assert [found.name for found in tmp_path.rglob("*")] == ["folder"]


def test_without_matplotlib_an_error_names_the_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    table = empty(path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'bucketlake\[report\]'"):
        table.report(tmp_path / "report.page")
    assert [*tmp_path.iterdir()] == []
