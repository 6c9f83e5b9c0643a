"""Damaged bytes of every small format: a value, or an error that names the file; nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import BucketLakeError
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ResizeFacts,
    decode_clustering_plan,
    decode_compaction_plan,
    encode_clustering_plan,
    encode_compaction_plan,
)
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.format.properties import parse_properties
from bucketlake.format.rollback_metadata import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback_plan,
)
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import META_NAMES
from bucketlake.model.write_stat import CommitMetadata, WriteStat

PATH = "the/file"
GROUP = FileId("00000000-0000-4000-8000-000000000000-0")
T = InstantTime("20260101000000000")

SLICE = FileSlice(
    "p", GROUP, T,
    DataFile("p", BaseFileName(GROUP, "1-0-1", T), 9),
    (DataFile("p", LogFileName(GROUP, T, 1, "1-0-1"), 7),),
)  # fmt: skip
STAT = WriteStat(GROUP, f"p/{GROUP}_1-0-1_{T}.parquet", "p", record_count=3, file_size_bytes=99)
RESIZE = ClusteringGroup.of_resize((SLICE,), 2, ResizeFacts("p", "[]", 0))
COMMIT = CommitMetadata("UPSERT", {"p": (STAT,)}, {"schema": "{}"}, {"q": (GROUP,)})

DECODERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "commit metadata": (
        encode_commit_metadata(COMMIT),
        lambda data: decode_commit_metadata(data, PATH),
    ),
    "commit metadata in JSON": (
        b'{"partitionToWriteStats":{"p":[{"fileId":"f","path":"p/f","numWrites":3}]},"extraMetadata":{}}',
        lambda data: decode_commit_metadata(data, PATH),
    ),
    "compaction plan": (
        encode_compaction_plan([SLICE]),
        lambda data: decode_compaction_plan(data, PATH),
    ),
    "clustering plan": (
        encode_clustering_plan(ClusteringPlan((RESIZE,), "Executor"), "/t"),
        lambda data: [group.resize for group in decode_clustering_plan(data, PATH).groups],
    ),
    "rollback plan": (
        encode_rollback_plan(RollbackPlan(T, "commit", {"p": ("a.parquet",)}), "/t"),
        lambda data: decode_rollback_plan(data, PATH),
    ),
}


def error_of(action: Callable[[], object]) -> BucketLakeError | None:
    """Return the error of ours that an action raises, if it does; any other one fails the test."""
    try:
        action()
    except BucketLakeError as error:
        return error
    return None


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Change, drop or add a few bytes."""
    content = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.sampled_from(["change", "cut", "drop", "add"])):
            case "change" if content:
                content[place] = draw(st.integers(0, 255))
            case "cut":
                del content[place:]
            case "drop":
                del content[place : place + draw(st.integers(1, 8))]
            case "add":
                content[place:place] = draw(st.binary(max_size=8))
    return bytes(content)


@pytest.mark.parametrize("name", DECODERS)
@given(data=st.data())
def test_damaged_metadata_gives_a_value_or_an_error_that_names_the_file(
    name: str, data: st.DataObject
) -> None:
    valid, decode = DECODERS[name]
    decode(valid)
    content = data.draw(damaged(valid))
    refused = error_of(lambda: decode(content))
    assert refused is None or PATH in str(refused)


@given(content=st.binary(max_size=300))
def test_garbage_as_properties_gives_text_or_an_error(content: bytes) -> None:
    try:
        found = parse_properties(content)
    except BucketLakeError:
        return
    assert all(isinstance(text, str) for entry in found.items() for text in entry)


ROWS = pa.table(
    {
        **{name: [f"{name}{n}" for n in range(50)] for name in META_NAMES},
        "v": pa.array(range(50), pa.int64()),
        "text": [f"some text {n}" for n in range(50)],
    }
)
BASE_FILE = bytes(
    encode_base_file([ROWS], pa.schema([("v", pa.int64()), ("text", pa.string())])).data
)
FOOTER_BYTES = int.from_bytes(BASE_FILE[-8:-4], "little")


@given(data=st.data())
def test_a_damaged_footer_gives_the_columns_of_a_schema_or_an_error_that_names_the_file(
    data: st.DataObject,
) -> None:
    start = len(BASE_FILE) - 8 - FOOTER_BYTES
    content = bytearray(BASE_FILE)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(start, len(content) - 1))] = data.draw(st.integers(0, 255))

    def read() -> None:
        with BaseFileReader.of_bytes(bytes(content), PATH) as reader:
            reader.read().validate(full=True)

    refused = error_of(read)
    assert refused is None or PATH in str(refused)


@given(cut=st.integers(0, len(BASE_FILE) - 1))
def test_a_base_file_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(BucketLakeError, match=PATH):
        BaseFileReader.of_bytes(BASE_FILE[:cut], PATH)
