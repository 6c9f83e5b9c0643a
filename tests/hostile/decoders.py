"""What reads each kind of file, with valid content of the kind."""

from __future__ import annotations

import gzip
import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

import bucketlake as bl
from bucketlake.config.table_config import TableConfig
from bucketlake.format.archive_file import (
    COMPLETED,
    ArchivedInstant,
    ArchivedState,
    decode_archive_file,
    decode_archive_log,
    decode_manifest,
    encode_archive_file,
    encode_archive_log,
)
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.avro.tree import avro_tree
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.clean_metadata import (
    CleanPlan,
    decode_clean,
    decode_clean_plan,
    encode_clean,
    encode_clean_plan,
)
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
from bucketlake.format.hashing_metadata import (
    decode_directory_metadata,
    decode_hashing_metadata,
    encode_hashing_metadata,
)
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.index_definitions import (
    IndexDefinition,
    decode_index_definitions,
    encode_index_definitions,
)
from bucketlake.format.log_block import BlockKind, log_blocks_of
from bucketlake.format.log_data import decode_data_block, encode_avro_block
from bucketlake.format.log_deletes import Deletes, decode_delete_block, encode_delete_block
from bucketlake.format.metadata_record.record_schema import (
    IndexedLocation,
    RecordKind,
    decode_file_maps,
    decode_locations,
    encode_locations,
    resolver,
)
from bucketlake.format.properties import parse_properties
from bucketlake.format.rollback_metadata import (
    RestorePlan,
    RollbackPlan,
    decode_restore_plan,
    decode_rollback_plan,
    decode_savepoint,
    encode_restore_plan,
    encode_rollback_plan,
    encode_savepoint,
)
from bucketlake.index.rings import first_version
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import META_NAMES
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import Action
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.outcome import Outcome, Publication
from tests.metadata_tables import file_map

PATH = "the/file"
T = InstantTime("20260101000000000")
GROUP = FileId("00000000-0000-4000-8000-000000000000-0")
SCHEMA = pa.schema([("v", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.string()))])
AVRO = avro_from_arrow(SCHEMA, "t")
ROWS = pa.table({"v": [1, 2], "text": ["a", None], "list": [["x"], []]}, schema=SCHEMA)
STORED = pa.table(
    {**{name: [f"{name}{n}" for n in range(9)] for name in META_NAMES}, "v": [*range(9)]}
)
STAT = WriteStat(GROUP, f"p/{GROUP}_1-0-1_{T}.parquet", "p", record_count=3, file_size_bytes=99)
COMMIT = CommitMetadata("UPSERT", {"p": (STAT,)}, {"schema": AVRO})
CLEAN = CleanPlan("KEEP_LATEST_COMMITS", {"p": ("a.parquet",)}, T)
RESIZE = ClusteringGroup.of_resize((), 2, ResizeFacts("p", "[]", 0))
MADE = encode_commit_metadata(COMMIT)
PROPERTIES = (
    b"#\nhoodie.table.name=t\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
    b"hoodie.timeline.layout.version=2\nhoodie.table.recordkey.fields=id\n"
)


@dataclass(frozen=True)
class Decoder:
    """Reads bytes as a file of a kind; ``valid`` is the content of such files."""

    decode: Callable[[bytes], object]
    valid: tuple[bytes, ...]


def _blocks(data: bytes) -> list[object]:
    found: list[object] = []
    for block in log_blocks_of(data, PATH):
        block.require_whole()
        if block.kind is BlockKind.DELETE:
            found.append(decode_delete_block(block))
        elif block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.HFILE_DATA):
            found.append(decode_data_block(block))
    return found


def _parquet(data: bytes) -> object:
    with BaseFileReader.of_bytes(data, PATH) as reader:
        return reader.read()


def _markers(data: bytes) -> object:
    storage = MemoryStorage.fresh()
    storage.put(f".hoodie/.temp/{T}/MARKERS0", data)
    return read_markers(storage, T)


def _schema(data: bytes) -> object:
    return str(avro_tree(data.decode("utf-8", "replace"), PATH)[0])


def _resolved(data: bytes) -> object:
    convert = resolver(data.decode("utf-8", "replace"), PATH)
    return None if convert is None else convert(pa.array([b"\x00" * 9, b"x"], pa.binary()))


def _input(name: str) -> Callable[[bytes], object]:
    """Return what writes a file of a landing folder to a table."""

    def decode(data: bytes) -> object:
        folder = f"memory://{uuid.uuid4()}"
        table = bl.create_table(
            f"{folder}/t",
            schema=SCHEMA,
            record_key="v",
            index=bl.SimpleBucket(1),
            metadata_table=False,
        )
        open_storage(folder).put(name, data)
        return table.upsert(bl.files(f"{folder}/{name}"), merge_schema=True)

    return decode


def _parquet_file() -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink)
    return sink.getvalue()


LINES = b'{"v": 1, "text": "a", "new": {"x": [1]}}\n{"v": 2, "text": null}\n'
OUTCOME = Outcome("c", Publication(T, Action.COMMIT, b"content"))

DECODERS: dict[str, Decoder] = {
    "commit": Decoder(
        lambda data: decode_commit_metadata(data, PATH),
        (MADE, b'{"partitionToWriteStats":{"p":[{"fileId":"f","path":"p/f","numWrites":3}]}}'),
    ),
    "clean plan": Decoder(
        lambda data: decode_clean_plan(data, PATH), (encode_clean_plan(CLEAN, "/t"),)
    ),
    "clean": Decoder(
        lambda data: decode_clean(data, PATH), (encode_clean(CLEAN, started_at=T, duration_ms=1),)
    ),
    "rollback plan": Decoder(
        lambda data: decode_rollback_plan(data, PATH),
        (encode_rollback_plan(RollbackPlan(T, "commit", {"p": ("a.parquet",)}), "/t"),),
    ),
    "restore plan": Decoder(
        lambda data: decode_restore_plan(data, PATH),
        (encode_restore_plan(RestorePlan(T, ((T, "commit"),))),),
    ),
    "savepoint": Decoder(
        lambda data: decode_savepoint(data, PATH),
        (encode_savepoint({"p": ("a.parquet",)}, at_ms=1, comment="why"),),
    ),
    "compaction plan": Decoder(
        lambda data: decode_compaction_plan(data, PATH),
        (encode_compaction_plan([FileSlice("p", GROUP, T, None, ())]),),
    ),
    "clustering plan": Decoder(
        lambda data: [group.resize for group in decode_clustering_plan(data, PATH).groups],
        (encode_clustering_plan(ClusteringPlan((RESIZE,), "Executor"), "/t"),),
    ),
    "archive": Decoder(
        lambda data: decode_archive_file(data, PATH),
        (encode_archive_file([ArchivedInstant(T, T, "commit", MADE)]),),
    ),
    "archive log": Decoder(
        lambda data: decode_archive_log(data, PATH),
        (encode_archive_log([ArchivedState(T, "commit", COMPLETED, T, MADE)]),),
    ),
    "manifest": Decoder(
        lambda data: decode_manifest(data, PATH),
        (b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": 3}]}',),
    ),
    "log file": Decoder(
        _blocks,
        (
            encode_avro_block(ROWS, AVRO, instant=T),
            encode_delete_block(Deletes.of_keys(pa.array(["a", "b"]), "p"), instant=T),
        ),
    ),
    "HFile": Decoder(
        lambda data: [(hfile := HFileReader.of_bytes(data, PATH)).info, hfile.read()],
        (encode_hfile(pa.array([b"a", b"b"]), pa.array([b"1" * 99, b"2"]), AVRO, created_at_ms=0),),
    ),
    "base file": Decoder(
        _parquet, (bytes(encode_base_file([STORED], pa.schema([("v", pa.int64())])).data),)
    ),
    "properties": Decoder(
        lambda data: TableConfig.from_properties(parse_properties(data)), (PROPERTIES,)
    ),
    "ring": Decoder(
        lambda data: decode_hashing_metadata(data, PATH),
        (encode_hashing_metadata(first_version("p", 4)),),
    ),
    "directory": Decoder(
        lambda data: decode_directory_metadata(data, PATH),
        (encode_hashing_metadata(first_version("p", 4)),),
    ),
    "outcome": Decoder(lambda data: Outcome.from_json(data, PATH), (OUTCOME.to_json(),)),
    "index definitions": Decoder(
        lambda data: decode_index_definitions(data, PATH),
        (encode_index_definitions({"files": IndexDefinition("files", "files")}),),
    ),
    "markers": Decoder(_markers, (f"p/{GROUP}_1-0-1_{T}.parquet.marker.CREATE\n".encode(),)),
    "table schema": Decoder(_schema, (AVRO.encode(),)),
    "schema of records": Decoder(_resolved, (AVRO.encode(),)),
    "files of a partition": Decoder(
        lambda data: decode_file_maps(pa.array([data], pa.binary()), PATH)[1].to_pylist(),
        (file_map(RecordKind.FILES, {"a.parquet": 3}),),
    ),
    "location": Decoder(
        lambda data: decode_locations(pa.array([data], pa.binary()), PATH),
        (encode_locations([IndexedLocation("p", GROUP, 1)])[0].as_py(),),
    ),
    "CSV": Decoder(_input("a.csv"), (b"v,text\n1,a\n2,\n",)),
    "JSON lines": Decoder(_input("a.jsonl"), (LINES,)),
    "JSON": Decoder(_input("a.json"), (b"[" + b",".join(LINES.splitlines()) + b"]",)),
    "packed JSON lines": Decoder(_input("a.jsonl.gz"), (gzip.compress(LINES, mtime=0),)),
    "Parquet of a landing folder": Decoder(_input("a.parquet"), (_parquet_file(),)),
}
