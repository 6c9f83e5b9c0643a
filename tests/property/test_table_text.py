"""For all inputs: what is printed parses back, and the other way round."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config.table_version import LAYOUT_2
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.format.properties import parse_properties, render_properties
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.timeline.instant import (
    Action,
    Instant,
    State,
    instant_from_ms,
    instant_to_ms,
)
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.timeline.outcome import Outcome, Publication
from bucketlake.timeline.read_time import read_time

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.from_regex("[0-9]{14}|[0-9]{17}", fullmatch=True).map(InstantTime)
COUNTS = st.integers(0, 2**63 - 1)
EARLIEST_MS, LATEST_MS = -30_610_224_000_000, 253_402_300_799_999  # Years 1000 to 9999.


@given(st.dictionaries(TEXT, TEXT), TEXT)
def test_properties_come_back_from_their_text(properties: dict[str, str], comment: str) -> None:
    assert parse_properties(render_properties(properties, comment)) == properties


@given(st.binary())
def test_any_bytes_are_some_properties_and_those_are_stable(data: bytes) -> None:
    properties = parse_properties(data)
    assert parse_properties(render_properties(properties)) == properties


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    action, state = draw(st.sampled_from(Action)), draw(st.sampled_from(State))
    if state is State.COMPLETED:
        return Instant(draw(TIMES), action.completes_as, state, draw(st.none() | TIMES))
    return Instant(draw(TIMES), action, state)


@given(instants())
def test_instant_comes_back_from_its_name(instant: Instant) -> None:
    assert Instant.from_file_name(instant.to_file_name(LAYOUT_2)) == instant


@given(TEXT)
def test_text_is_either_no_instant_or_prints_itself(text: str) -> None:
    instant = Instant.from_file_name(text)
    assert instant is None or instant.to_file_name(LAYOUT_2) == text


@given(st.integers(EARLIEST_MS, LATEST_MS))
def test_time_comes_back_from_its_digits(at_ms: int) -> None:
    instant = instant_from_ms(at_ms, "UTC")
    assert instant_to_ms(instant, "UTC") == at_ms
    assert read_time(instant) == instant


@given(st.integers(EARLIEST_MS, LATEST_MS), st.integers(EARLIEST_MS, LATEST_MS))
def test_digits_order_as_times_do(first_ms: int, second_ms: int) -> None:
    first, second = (instant_from_ms(ms, "UTC") for ms in (first_ms, second_ms))
    assert (first < second) == (first_ms < second_ms)


INNER = st.text("aä=_- .%1", min_size=1, max_size=6).filter(lambda name: name.strip(" ."))
"""Names of files and folders inside a table."""

STATS = st.builds(
    WriteStat,
    file_id=INNER.map(FileId),
    path=INNER,
    partition_path=INNER,
    previous_commit=TEXT.filter(bool),
    previous_base_file=st.none() | TEXT,
    record_count=COUNTS,
    insert_count=COUNTS,
    update_count=COUNTS,
    delete_count=COUNTS,
    file_size_bytes=COUNTS,
)
COMMITS = st.builds(
    CommitMetadata,
    operation=st.sampled_from(["UPSERT", "INSERT_OVERWRITE", "CLUSTER", "SOMETHING_NEW"]),
    write_stats=st.dictionaries(INNER, st.lists(STATS, max_size=3).map(tuple), max_size=3),
    extra=st.dictionaries(TEXT, TEXT, max_size=3),
    replaced_file_ids=st.dictionaries(INNER, st.lists(INNER.map(FileId)).map(tuple), max_size=3),
    compacted=st.booleans(),
)


@given(COMMITS)
def test_commit_metadata_comes_back_from_its_bytes(metadata: CommitMetadata) -> None:
    assert decode_commit_metadata(encode_commit_metadata(metadata), "f") == metadata


NAMES = TEXT.filter(lambda name: name and "/" not in name and not set(name) & set("\n\r"))


@given(st.lists(NAMES, max_size=3).map("/".join), NAMES, st.sampled_from(MarkerType))
def test_marker_comes_back_from_its_text(
    partition_path: str, file_name: str, kind: MarkerType
) -> None:
    marker = Marker(partition_path, file_name, kind)
    assert Marker.from_text(marker.to_text()) == marker


@given(TEXT, st.none() | st.builds(Publication, TIMES, st.sampled_from(Action), st.binary()))
def test_outcome_comes_back_from_its_json(claim: str, publication: Publication | None) -> None:
    outcome = Outcome(claim, publication)
    assert Outcome.from_json(outcome.to_json(), "f") == outcome
