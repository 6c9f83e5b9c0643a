"""Ways to damage a table, and the findings of the doctor for each.

Each table has keys in the partitions a and b. The damages in :data:`COMMON` apply to tables of all
index kinds; the other groups apply to some kinds, see ``kinds.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

import bucketlake as bl
from bucketlake.config.paths_of_table import (
    COMMIT_ORDER_FOLDER,
    HEARTBEAT_FOLDER,
    PROPERTIES_BACKUP_FILE,
    PROPERTIES_FILE,
)
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    encode_clustering_plan,
)
from bucketlake.format.parquet_checksums import CHECKSUMS
from bucketlake.index.hashing_config import HashingConfig, config_path, save_config
from bucketlake.index.ring_engine import ENGINES, new_prefix
from bucketlake.index.rings import metadata_path, ring_after
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.check.findings import FindingKind
from bucketlake.services.check.findings import FindingKind as Found
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action
from bucketlake.timeline.locks import FILE_LOCK, STORAGE_LOCK
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import Publication, claim_commit
from bucketlake.timeline.table_properties import table_at
from tests.broken_tables import (
    base_file,
    commit_by_hand,
    complete_by_hand,
    copied,
    later,
    newest,
    objects,
    storage_of,
)
from tests.edited_json import edited_json

LONG_AGO = InstantTime("20200101000000000")
_OTHER_ID = "-0000-4000-8000-00000000000a-0"


@dataclass(frozen=True)
class Damage:
    """One way to damage a table.

    Attributes
    ----------
    name : str
        Description of the damage.
    do : callable
        Damages a table.
    found : frozenset of FindingKind
        Findings of the doctor with all checks.
    in_index : frozenset of FindingKind
        Findings that may come with them if keys are in a record-level index; a repair removes them.
    is_repaired : bool
        Whether a repair removes all findings and keeps all rows.
    for_logs_only : bool
        Whether the damage needs a merge-on-read table.
    needs_base_file : bool
        Whether the damage needs a base file.
    """

    name: str
    do: Callable[[bl.Table], object]
    found: frozenset[FindingKind]
    is_repaired: bool = True
    for_logs_only: bool = False
    needs_base_file: bool = False
    in_index: frozenset[FindingKind] = frozenset()


def _damage(
    do: Callable[[bl.Table], object],
    *found: FindingKind,
    is_repaired: bool = True,
    for_logs_only: bool = False,
    needs_base_file: bool = False,
    in_index: frozenset[FindingKind] = frozenset(),
) -> Damage:
    name = do.__name__.strip("_")
    return Damage(name, do, frozenset(found), is_repaired, for_logs_only, needs_base_file, in_index)


def _file_of_bucket_by_hand(table: bl.Table, file_id: str) -> None:
    """Commit a copy of a base file as another file group."""
    instant = later(newest(table), 10)
    _, stat = copied(table, base_file(table), instant=instant, file_id=file_id)
    commit_by_hand(table, instant, stat)


# ---- Files --------------------------------------------------------------------------------------


def _a_file_of_no_commit(table: bl.Table) -> None:
    copied(table, base_file(table), instant=later(newest(table)))


def _a_file_older_than_the_timeline(table: bl.Table) -> None:
    copied(table, base_file(table), instant=LONG_AGO)


def _a_file_that_its_commit_does_not_name(table: bl.Table) -> None:
    held = base_file(table)
    bucket = next(b.bucket_id for b in table.buckets() if b.path == held)
    instant = min(i.requested_at for i in table.timeline())
    copied(table, held, instant=instant, file_id=f"{bucket or 0:08d}{_OTHER_ID}")


def _a_partition_without_its_marker(table: bl.Table) -> None:
    storage_of(table).delete("a/.hoodie_partition_metadata")


def _a_base_file_is_gone(table: bl.Table) -> None:
    storage_of(table).delete(base_file(table))


def _log_file(table: bl.Table) -> str:
    return next(path for path in objects(table) if ".log." in path and path.startswith("a/"))


def _a_log_file_is_gone(table: bl.Table) -> None:
    storage_of(table).delete(_log_file(table))


def _a_planned_compaction_lacks_a_file(table: bl.Table) -> None:
    table.compact(schedule_only=True)
    _a_log_file_is_gone(table)


def _a_base_file_was_cut_off(table: bl.Table) -> None:
    path = base_file(table)
    storage_of(table).put(path, storage_of(table).read(path)[:-100])


def _spoil(table: bl.Table, path: str) -> None:
    storage_of(table).put(path, b"\0" * len(storage_of(table).read(path)))


def _a_base_file_holds_nonsense(table: bl.Table) -> None:
    _spoil(table, base_file(table))


def _a_log_file_holds_nonsense(table: bl.Table) -> None:
    _spoil(table, _log_file(table))


def _a_schema_that_the_files_do_not_fit(table: bl.Table) -> None:
    schema = table.schema().set(2, pa.field("v", pa.list_(pa.int64())))
    other = bl.create_table(
        f"{table.path}-other", schema=schema, record_key=["id"], index=bl.SimpleBucket(1)
    )
    text = other.config().create_schema
    commit_by_hand(table, later(newest(table), 10), extra={"schema": text or ""})


# ---- The timeline, and leftovers ----------------------------------------------------------------


def _deed_name(table: bl.Table) -> str:
    return "commit" if "COPY" in table.config().table_type.value else "deltacommit"


def _a_writer_died(table: bl.Table) -> None:
    instant, action = later(newest(table)), _deed_name(table)
    inflight = "inflight" if action == "commit" else f"{action}.inflight"
    path, _ = copied(table, base_file(table), instant=instant)
    storage = storage_of(table)
    storage.put(f".hoodie/timeline/{instant}.{action}.requested", b"")
    storage.put(f".hoodie/timeline/{instant}.{inflight}", b"")
    storage.put(f".hoodie/.temp/{instant}/{path}.marker.MERGE", b"")


def _a_writer_died_and_its_markers_are_gone(table: bl.Table) -> None:
    instant = later(newest(table))
    copied(table, base_file(table), instant=instant)
    storage_of(table).put(f".hoodie/timeline/{instant}.{_deed_name(table)}.requested", b"")


def _a_clustering_of_hudi_is_pending(table: bl.Table) -> None:
    snapshot = load_snapshot(opened_table(storage_of(table), table.config()))
    groups = tuple(ClusteringGroup((held,), 1) for held in snapshot.partition_slices(["a"]))
    content = encode_clustering_plan(ClusteringPlan(groups, "org.example.Sort"), table.path)
    storage_of(table).put(f".hoodie/timeline/{later(newest(table))}.clustering.requested", content)


def _a_commit_cannot_be_read(table: bl.Table) -> None:
    last = newest(table)
    [path] = [p for p in objects(table) if p.startswith(f".hoodie/timeline/{last}_")]
    storage_of(table).put(path, b"Obj")


def _markers_of_an_instant_that_has_ended(table: bl.Table) -> None:
    storage_of(table).put(f".hoodie/.temp/{newest(table)}/a/x_0-0-0_1.parquet.marker.CREATE", b"")


def _a_heartbeat_of_an_instant_that_has_ended(table: bl.Table) -> None:
    storage, instant = storage_of(table), newest(table)
    path = f"{HEARTBEAT_FOLDER}/{instant}"
    with beating(storage, instant):
        content = storage.read(path)
    storage.put(path, content)


def _a_lock_file_of_nobody(table: bl.Table) -> None:
    storage_of(table).put(FILE_LOCK, b"")


def _a_storage_lock_cut_off(table: bl.Table) -> None:
    storage_of(table).put(STORAGE_LOCK, b'{"expired": false')


def _an_outcome_of_a_commit_long_ago(table: bl.Table) -> None:
    publication = Publication(later(LONG_AGO), Action.COMMIT, b"")
    claim_commit(storage_of(table), LONG_AGO, publication)


def _turns_that_should_have_been_dropped(table: bl.Table) -> None:
    for number in range(100, 110):
        storage_of(table).put(f"{COMMIT_ORDER_FOLDER}/{number:012d}", f"{number} x".encode())


def _a_turn_cannot_be_read(table: bl.Table) -> None:
    storage_of(table).put(f"{COMMIT_ORDER_FOLDER}/{999:012d}", b"")


# ---- The properties -----------------------------------------------------------------------------


def _an_update_of_the_properties_died(table: bl.Table) -> None:
    storage = storage_of(table)
    storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
    storage.put(PROPERTIES_FILE, storage.read(PROPERTIES_FILE)[:40])


def _properties_were_cut_off(table: bl.Table) -> None:
    storage = storage_of(table)
    data = storage.read(PROPERTIES_FILE)
    storage.put(PROPERTIES_FILE, data[: data.index(b"hoodie.table.ordering.fields") + 20])


def _properties_lost_their_checksum(table: bl.Table) -> None:
    storage = storage_of(table)
    lines = storage.read(PROPERTIES_FILE).splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(b"hoodie.table.checksum")]
    storage.put(PROPERTIES_FILE, b"".join(kept))


def _the_record_key_was_edited(table: bl.Table) -> None:
    _edit(table, b"hoodie.table.recordkey.fields", b"v")


def _the_ordering_field_was_removed(table: bl.Table) -> None:
    _edit(table, b"hoodie.table.ordering.fields", b"")


def _edit(table: bl.Table, key: bytes, value: bytes) -> None:
    storage = storage_of(table)
    lines = storage.read(PROPERTIES_FILE).splitlines()
    edited = [key + b"=" + value if line.startswith(key + b"=") else line for line in lines]
    assert edited != lines
    storage.put(PROPERTIES_FILE, b"\n".join([*edited, b""]))


_DEAD = frozenset({Found.INDEX_ENTRIES_DEAD})

COMMON = (
    _damage(_a_file_of_no_commit, Found.ORPHAN_FILE, needs_base_file=True),
    _damage(_a_file_older_than_the_timeline, Found.ORPHAN_SHOWN, needs_base_file=True),
    _damage(_a_partition_without_its_marker, Found.PARTITION_NOT_MARKED, in_index=_DEAD),
    _damage(
        _a_base_file_is_gone,
        Found.FILE_MISSING,
        is_repaired=False,
        needs_base_file=True,
        in_index=_DEAD,
    ),
    _damage(_a_log_file_is_gone, Found.FILE_MISSING, is_repaired=False, for_logs_only=True),
    _damage(
        _a_planned_compaction_lacks_a_file,
        Found.PLAN_BROKEN,
        Found.FILE_MISSING,
        is_repaired=False,
        for_logs_only=True,
    ),
    _damage(
        _a_base_file_was_cut_off,
        Found.FILE_SIZE_DIFFERS,
        Found.FILE_CORRUPT,
        is_repaired=False,
        needs_base_file=True,
    ),
    _damage(
        _a_base_file_holds_nonsense, Found.FILE_CORRUPT, is_repaired=False, needs_base_file=True
    ),
    _damage(_a_log_file_holds_nonsense, Found.FILE_CORRUPT, is_repaired=False, for_logs_only=True),
    _damage(_a_schema_that_the_files_do_not_fit, Found.SCHEMA_UNFIT, is_repaired=False),
    _damage(_a_writer_died, Found.PENDING_DEAD, needs_base_file=True),
    _damage(_a_writer_died_and_its_markers_are_gone, Found.PENDING_DEAD, needs_base_file=True),
    _damage(_a_clustering_of_hudi_is_pending, Found.PENDING_OF_HUDI, is_repaired=False),
    _damage(_a_commit_cannot_be_read, Found.UNREADABLE, is_repaired=False),
    _damage(_markers_of_an_instant_that_has_ended, Found.LEFTOVER_MARKERS),
    _damage(_a_heartbeat_of_an_instant_that_has_ended, Found.LEFTOVER_HEARTBEAT),
    _damage(_a_lock_file_of_nobody, Found.LEFTOVER_LOCK),
    _damage(_a_storage_lock_cut_off, Found.UNREADABLE, is_repaired=False),
    _damage(_an_outcome_of_a_commit_long_ago, Found.LEFTOVER_OUTCOME),
    _damage(_turns_that_should_have_been_dropped, Found.LEFTOVER_TURN),
    _damage(_a_turn_cannot_be_read, Found.UNREADABLE, is_repaired=False),
    _damage(_an_update_of_the_properties_died, Found.PROPERTIES_BACKUP),
    _damage(_properties_were_cut_off, Found.PROPERTIES_BROKEN),
    _damage(_properties_lost_their_checksum, Found.PROPERTIES_BROKEN),
    _damage(_the_record_key_was_edited, Found.PROPERTIES_BROKEN),
    _damage(_the_ordering_field_was_removed, Found.PROPERTIES_BROKEN),
)
"""Damages that do not depend on the index kind."""


# ---- Kinds with hash buckets, whose file ids contain the bucket ---------------------------------


def _a_bucket_beyond_the_count(table: bl.Table) -> None:
    _file_of_bucket_by_hand(table, f"00000099{_OTHER_ID}")


def _a_file_group_that_names_no_bucket(table: bl.Table) -> None:
    _file_of_bucket_by_hand(table, f"abcdef01{_OTHER_ID}")


def _keys_lie_in_two_file_groups_of_their_bucket(table: bl.Table) -> None:
    held = base_file(table)
    bucket = next(b.bucket_id for b in table.buckets() if b.path == held)
    _file_of_bucket_by_hand(table, f"{bucket or 0:08d}{_OTHER_ID}")


FOREIGN_BUCKETS = (
    _damage(
        _a_bucket_beyond_the_count,
        Found.BUCKET_UNKNOWN,
        Found.KEYS_IN_WRONG_BUCKET,
        Found.KEYS_TWICE,
    ),
    _damage(_a_file_group_that_names_no_bucket, Found.BUCKET_UNKNOWN, Found.KEYS_TWICE),
)
"""File groups that belong to no bucket of the partition."""

SECOND_GROUPS = (
    _damage(
        _a_file_that_its_commit_does_not_name,
        Found.FILE_NOT_COMMITTED,
        Found.BUCKET_TWICE,
        Found.KEYS_TWICE,
    ),
    _damage(_keys_lie_in_two_file_groups_of_their_bucket, Found.BUCKET_TWICE, Found.KEYS_TWICE),
)
"""A second file group in a bucket that may have only one."""


def _rewritten(
    table: bl.Table, file_id: str, to: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    """Commit a base file of partition a with changed rows: in a file group, of a partition."""
    instant, storage = later(newest(table), 10), storage_of(table)
    path, stat = copied(table, base_file(table), instant=instant, file_id=file_id)
    stored = pq.read_table(pa.BufferReader(storage.read(path)))
    sink = pa.BufferOutputStream()
    kept = {
        name: text for name, text in stored.schema.metadata.items() if name.decode() != CHECKSUMS
    }
    pq.write_table(change(stored).replace_schema_metadata(kept), sink)
    storage.delete(path)
    target = f"{to}/{path.rpartition('/')[2]}"
    storage.put(target, data := sink.getvalue().to_pybytes())
    stat = replace(stat, path=target, partition_path=to, file_size_bytes=len(data))
    commit_by_hand(table, instant, stat)


def _older(found: pa.Table, *, day: str = "a") -> pa.Table:
    """Return rows with an older ordering value, and another value, so that they give way."""
    other = {"at": -1, "v": -1, "day": day, "_hoodie_partition_path": day}
    for name, value in other.items():
        field = found.schema.field(name)
        column = pa.array([value] * len(found), field.type)
        found = found.set_column(found.schema.get_field_index(name), field, column)
    return found


def _older_rows_lie_in_another_file_group(table: bl.Table) -> None:
    _rewritten(table, f"00000000{_OTHER_ID}", "a", _older)


def _a_key_is_twice_in_its_file(table: bl.Table) -> None:
    file_id = next(b.file_id for b in table.buckets() if b.path == base_file(table))
    assert file_id is not None
    _rewritten(table, file_id, "a", lambda held: pa.concat_tables([held, _older(held.slice(0, 1))]))


def _keys_lie_in_two_partitions(table: bl.Table) -> None:
    file_id = f"00000000{_OTHER_ID}"
    _rewritten(table, file_id, "b", lambda held: _older(held, day="b"))


def _a_key_of_two_file_groups_was_updated(table: bl.Table) -> None:
    _older_rows_lie_in_another_file_group(table)
    table.upsert(table.to_arrow(where="at >= 0").slice(0, 1))


KEYS_IN_TWO_GROUPS = (
    _damage(_keys_lie_in_two_file_groups_of_their_bucket, Found.KEYS_TWICE),
    _damage(_a_file_that_its_commit_does_not_name, Found.FILE_NOT_COMMITTED, Found.KEYS_TWICE),
)
"""A key in two file groups of a bucket that may have several."""

_WRONG = frozenset({Found.INDEX_ENTRIES_WRONG})

INDEXED = (
    _damage(
        _keys_lie_in_two_file_groups_of_their_bucket,
        Found.KEYS_TWICE,
        needs_base_file=True,
        in_index=_WRONG,
    ),
    _damage(
        _older_rows_lie_in_another_file_group,
        Found.KEYS_TWICE,
        needs_base_file=True,
        in_index=_WRONG,
    ),
    _damage(
        _a_key_of_two_file_groups_was_updated,
        Found.KEYS_TWICE,
        needs_base_file=True,
        in_index=_WRONG,
    ),
    _damage(_a_key_is_twice_in_its_file, Found.KEYS_TWICE, needs_base_file=True),
)
"""A key that is stored twice, where a record-level index has one place for it."""

GLOBAL = (
    *INDEXED,
    _damage(_keys_lie_in_two_partitions, Found.KEYS_TWICE, needs_base_file=True, in_index=_WRONG),
)
"""The same where a key is unique in the whole table."""


# ---- The record-level index of kinds that need it -----------------------------------------------


def _is_missing(table: bl.Table) -> None:
    list_partitions_as(storage_of(table), lost=["record_index"])


def _was_half_built_by_a_dead_process(table: bl.Table) -> None:
    storage = storage_of(table)
    list_partitions_as(storage, building=["record_index"])
    for path in [p for p in objects(table) if _OF_INDEX in p][::2]:
        storage.delete(path)


def _cannot_be_read(table: bl.Table) -> None:
    for path in [p for p in objects(table) if _OF_INDEX in p and not p.endswith("metadata")]:
        _spoil(table, path)


def _is_gone_with_the_metadata_table(table: bl.Table) -> None:
    table.drop_metadata_table()


def _is_of_the_other_kind(table: bl.Table) -> None:
    assert isinstance(table.index, bl.RecordIndex | bl.DynamicBucket)
    storage, is_partitioned = storage_of(table), not table.index.partitioned
    build_metadata_table(
        table_at(storage), ["record_index"], is_partitioned=is_partitioned, keeps_one=True
    )


_OF_INDEX = ".hoodie/metadata/record_index/"

INDEX_STATES = (
    _is_missing,
    _was_half_built_by_a_dead_process,
    _cannot_be_read,
    _is_gone_with_the_metadata_table,
    _is_of_the_other_kind,
)
"""Ways in which a table may lose the record-level index that its kind needs."""


# ---- Kinds with rules ---------------------------------------------------------------------------


def _rules_that_a_recorded_count_does_not_follow_from(table: bl.Table) -> None:
    table.rescale({"a": 4}, dry_run=False)
    storage, path = storage_of(table), config_path(table.rule_versions()[-1].instant)
    content = storage.read(path)
    expressions = str(json.loads(content)["expressions"]).replace("a,4", "a,5")
    storage.put(path, edited_json(content, expressions=expressions))


def _rules_of_no_commit(table: bl.Table) -> None:
    instant = later(newest(table))
    save_config(storage_of(table), HashingConfig("c,9", 4, "regex", instant))
    table.upsert(table.to_arrow().slice(0, 1))  # The timeline becomes newer than the rules.


def _rules_that_cannot_be_parsed(table: bl.Table) -> None:
    storage_of(table).put(config_path(table.rule_versions()[-1].instant), b"{")


RULES = (
    _damage(
        _rules_that_a_recorded_count_does_not_follow_from,
        Found.COUNT_OUT_OF_STEP,
        is_repaired=False,
    ),
    _damage(_rules_of_no_commit, Found.RULES_OUT_OF_STEP, is_repaired=False),
    _damage(_rules_that_cannot_be_parsed, Found.UNREADABLE, is_repaired=False),
)
"""Rules and recorded counts of a partition-level index (RFC-89)."""


# ---- Kinds with hash rings ----------------------------------------------------------------------


def _ring(table: bl.Table) -> str:
    folders = tuple(f"{engine.folder}/a/" for engine in ENGINES)
    [path] = [path for path in objects(table) if path.startswith(folders)]
    return path


def _a_ring_was_cut_off(table: bl.Table) -> None:
    storage = storage_of(table)
    storage.put(_ring(table), storage.read(_ring(table))[:-100])


def _a_ring_with_two_nodes_of_one_value(table: bl.Table) -> None:
    storage, path = storage_of(table), _ring(table)
    content = storage.read(path)
    nodes = [{**node, "value": 5} for node in json.loads(content)["nodes"]]
    storage.put(path, edited_json(content, nodes=nodes))


def _a_ring_lost_a_node(table: bl.Table) -> None:
    storage, path = storage_of(table), _ring(table)
    content = storage.read(path)
    storage.put(path, edited_json(content, nodes=json.loads(content)["nodes"][:-1]))


def _a_directory_with_two_buckets_of_one_suffix(table: bl.Table) -> None:
    storage, path = storage_of(table), _ring(table)
    content = storage.read(path)
    buckets = [{**bucket, "suffix": 0} for bucket in json.loads(content)["buckets"]]
    storage.put(path, edited_json(content, buckets=buckets))


def _a_directory_lost_a_bucket(table: bl.Table) -> None:
    storage, path = storage_of(table), _ring(table)
    content = storage.read(path)
    storage.put(path, edited_json(content, buckets=json.loads(content)["buckets"][:-1]))


def _a_ring_is_missing(table: bl.Table) -> None:
    storage_of(table).delete(_ring(table))


def _a_ring_of_no_commit(table: bl.Table) -> None:
    """Leave the ring of a split that was rolled back by a program that forgot it."""
    storage, instant = storage_of(table), later(newest(table))
    [engine] = [engine for engine in ENGINES if _ring(table).endswith(engine.ending)]
    metadata = engine.decode(storage.read(_ring(table)), _ring(table))
    ring = metadata.ring
    value = int(ring.values[0])
    middle = ring.middle(value)
    assert middle is not None
    prefixes = [new_prefix(instant, "a", point, engine) for point in (middle, value)]
    orphan = ring_after(metadata, ring.split(value, [middle], prefixes), instant)
    storage.put(metadata_path("a", instant, engine), engine.encode(orphan))


def _a_file_group_that_is_not_on_its_ring(table: bl.Table) -> None:
    """Replace a file group by one with a random id, as a clustering without index options does."""
    if "MERGE" in table.config().table_type.value:
        table.compact()
    storage, instant = storage_of(table), later(newest(table), 10)
    held = load_snapshot(opened_table(storage, table.config())).partition_slices(["a"])[0]
    assert held.base_file is not None
    _, stat = copied(table, held.base_file.path, instant=instant, file_id=f"abcdef01{_OTHER_ID}")
    metadata = CommitMetadata("CLUSTER", {"a": (stat,)}, {}, {"a": (held.file_id,)})
    complete_by_hand(table, instant, "replacecommit", metadata)


def _a_planned_resize_lacks_a_file(table: bl.Table) -> None:
    table.resize(schedule_only=True, max_file_size=1)
    _a_base_file_is_gone(table)


_OF_RINGS = (
    _damage(_a_ring_was_cut_off, Found.UNREADABLE, is_repaired=False),
    _damage(_a_ring_was_cut_off, Found.UNREADABLE, is_repaired=False, for_logs_only=True),
    _damage(_a_ring_is_missing, Found.RING_MISSING),
    _damage(_a_ring_is_missing, Found.RING_MISSING, for_logs_only=True),
    _damage(_a_ring_of_no_commit, Found.RING_OF_NO_COMMIT),
    _damage(_a_ring_of_no_commit, Found.RING_OF_NO_COMMIT, for_logs_only=True),
    _damage(_a_file_group_that_is_not_on_its_ring, Found.BUCKET_UNKNOWN, needs_base_file=True),
    _damage(
        _a_planned_resize_lacks_a_file,
        Found.PLAN_BROKEN,
        Found.FILE_MISSING,
        is_repaired=False,
        needs_base_file=True,
    ),
)
RINGS = (
    *_OF_RINGS,
    _damage(_a_ring_with_two_nodes_of_one_value, Found.UNREADABLE, is_repaired=False),
    _damage(_a_ring_lost_a_node, Found.BUCKET_UNKNOWN, for_logs_only=True),
)
"""Hash rings (RFC-42)."""

DIRECTORIES = (
    *_OF_RINGS,
    _damage(_a_directory_with_two_buckets_of_one_suffix, Found.UNREADABLE, is_repaired=False),
    _damage(_a_directory_lost_a_bucket, Found.UNREADABLE, is_repaired=False, for_logs_only=True),
)
"""Directories of extendible hashing (RFC-29)."""
