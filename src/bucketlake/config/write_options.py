"""The ``hoodie.*`` options of an existing Hudi job.

There are four kinds of options. *Used* options are followed. *Checked* options raise an error for
every value but one, because another value would change the result. *Ignored* options tune Hudi's
engine and change no result. *Unknown* options are returned to the caller, who warns about them.
Keys and defaults are those of Hudi's configuration reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bucketlake.config import record_options as record
from bucketlake.config import resize_options as resizing
from bucketlake.config import table_keys as keys
from bucketlake.config.entries import Entries
from bucketlake.config.key_entries import key_generator_of, key_spec_of
from bucketlake.config.sql_options import SAFE_SQL
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.model.schema_merge import SchemaMerge
from bucketlake.model.table_type import LogFormat, MergeMode, Operation, TableType

_ALIASES = {
    "hoodie.datasource.write.table.name": keys.NAME,
    "hoodie.datasource.write.table.type": keys.TABLE_TYPE,
    "hoodie.datasource.write.recordkey.field": keys.RECORD_KEY_FIELDS,
    "hoodie.datasource.write.partitionpath.field": keys.PARTITION_FIELDS,
    "hoodie.datasource.write.precombine.field": keys.ORDERING_FIELDS,
    "hoodie.table.precombine.field": keys.ORDERING_FIELDS,
    "hoodie.datasource.write.keygenerator.type": keys.KEY_GENERATOR_TYPE,
    "hoodie.datasource.write.keygenerator.class": keys.KEY_GENERATOR_CLASS,
    "hoodie.cleaner.policy": "hoodie.clean.policy",
    "hoodie.cleaner.commits.retained": "hoodie.clean.commits.retained",
    "hoodie.cleaner.hours.retained": "hoodie.clean.hours.retained",
    "hoodie.cleaner.fileversions.retained": "hoodie.clean.fileversions.retained",
    "hoodie.write.record.merge.mode": keys.MERGE_MODE,
    "hoodie.datasource.write.record.merge.mode": keys.MERGE_MODE,
    "hoodie.datasource.write.payload.class": keys.PAYLOAD_CLASS,
}

OPERATION = "hoodie.datasource.write.operation"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
RECONCILE_SCHEMA = "hoodie.datasource.write.reconcile.schema"
FILL_MISSING = "hoodie.write.set.null.for.missing.columns"
MERGE_SCHEMA = "mergeSchema"
METADATA_ENABLE = "hoodie.metadata.enable"
COMPACT_INLINE = "hoodie.compact.inline"
LOG_FORMAT = "hoodie.logfile.data.block.format"
COMPACT_AFTER = "hoodie.compact.inline.max.delta.commits"
_COMPACT_AFTER_DEFAULT = 5
ARCHIVE = "hoodie.archive.automatic"
KEEP_MIN = "hoodie.keep.min.commits"
KEEP_MAX = "hoodie.keep.max.commits"
_KEEP_MIN_DEFAULT, _KEEP_MAX_DEFAULT = 20, 30
CLEAN_AUTOMATIC = "hoodie.clean.automatic"
CLEAN_POLICY = "hoodie.clean.policy"
CLEAN_COUNTS = {
    CleanPolicy.COMMITS: ("hoodie.clean.commits.retained", 10),
    CleanPolicy.HOURS: ("hoodie.clean.hours.retained", 24),
    CleanPolicy.VERSIONS: ("hoodie.clean.fileversions.retained", 3),
}

_NUMBERS = (COMPACT_AFTER, KEEP_MIN, KEEP_MAX, *(key for key, _ in CLEAN_COUNTS.values()))

_ENGINES = ("SIMPLE", resizing.ENGINE, resizing.EXTENDIBLE_ENGINE)

# What each option means and its default; docs/reference.md shows the texts.
_USED = {
    keys.NAME: "Name of the table. Default: the last part of the path.",
    keys.DATABASE: "Accepted, has no effect.",
    keys.TABLE_TYPE: "`COPY_ON_WRITE` (default) or `MERGE_ON_READ`.",
    keys.RECORD_KEY_FIELDS: "Columns of the record key. No default.",
    keys.PARTITION_FIELDS: "Partition columns. Default: none.",
    keys.ORDERING_FIELDS: "Columns whose greater value wins. Default: none, the later commit wins.",
    keys.KEY_GENERATOR_TYPE: "Only the type that follows from the class, or from the columns: "
    "Hudi's Spark writer ignores this option.",
    keys.KEY_GENERATOR_CLASS: "Key generator, as a Java class. Default: it follows from the "
    "columns.",
    keys.HIVE_STYLE: "Whether partition folders are named `column=value`. Default: `false`.",
    keys.URL_ENCODE: "Whether special characters of folders are encoded. Default: `false`.",
    keys.MERGE_MODE: "`EVENT_TIME_ORDERING` or `COMMIT_TIME_ORDERING`. Default: the first, "
    "if there are ordering columns.",
    keys.PAYLOAD_CLASS: "The same, as one of three payload classes.",
    OPERATION: "`upsert` (default), `insert`, `bulk_insert`, `delete`, `insert_overwrite`, "
    "`insert_overwrite_table` or `delete_partition`.",
    PARTITIONS_TO_DELETE: "Partition paths for the operation `delete_partition`.",
    RECONCILE_SCHEMA: "Whether the batch may add columns, widen types and lack nullable columns, "
    "as `merge_schema=True`. Default: `false`; without the option Hudi adds and widens, too.",
    FILL_MISSING: "Whether columns that the batch lacks become null, as "
    '`merge_schema="fill_missing"`. Default: `false`.',
    MERGE_SCHEMA: "Delta's word for `merge_schema=True`. Default: `false`.",
    METADATA_ENABLE: "Whether the table has a metadata table: `false` removes it before the write, "
    "`true` builds a missing one. Default: a new table gets one, other tables stay as they are.",
    COMPACT_INLINE: "Whether a write to a merge-on-read table may compact it. Default: `true`.",
    COMPACT_AFTER: "Number of delta commits after which it compacts. Default: 5.",
    ARCHIVE: "Whether to archive after the write. Default: `true` if one of `hoodie.keep.*` is "
    "set, else `false`.",
    KEEP_MIN: "Commits that archival leaves. Default: 20.",
    KEEP_MAX: "Number of commits above which archival starts. Default: 30.",
    LOG_FORMAT: "Format of log files: `parquet` (default) or `avro`.",
    "hoodie.write.concurrency.mode": "`SINGLE_WRITER` (default) takes no lock, "
    "`OPTIMISTIC_CONCURRENCY_CONTROL` takes one.",
    CLEAN_AUTOMATIC: "Whether to clean after the write. Default: `false`.",
    CLEAN_POLICY: "`KEEP_LATEST_COMMITS` (default), `KEEP_LATEST_BY_HOURS` or "
    "`KEEP_LATEST_FILE_VERSIONS`.",
    CLEAN_COUNTS[CleanPolicy.COMMITS][0]: "Commits that a clean retains. Default: 10.",
    CLEAN_COUNTS[CleanPolicy.HOURS][0]: "Hours that a clean retains. Default: 24.",
    CLEAN_COUNTS[CleanPolicy.VERSIONS][0]: "File versions that a clean retains. Default: 3.",
    record.INDEX_TYPE: "`BUCKET`, `RECORD_LEVEL_INDEX` or `GLOBAL_RECORD_LEVEL_INDEX` (also "
    "`RECORD_INDEX`). No default.",
    resizing.ENGINE_OPTION: "`SIMPLE` (default), `CONSISTENT_HASHING` or `EXTENDIBLE_HASHING`, "
    "which only bucketlake has.",
    "hoodie.bucket.index.num.buckets": "Bucket count of each partition, or of partitions without "
    "a rule; the number with which a hash ring or a directory begins. No default.",
    "hoodie.bucket.index.hash.field": "Record key columns to hash. Default: all.",
    "hoodie.bucket.index.ext.max.file.size": "Bytes of a file group at which a bucket gets another "
    "one; only bucketlake has this option. Default: none.",
    "hoodie.bucket.index.partition.expressions": "Partition rules: `pattern,count;pattern,count`. "
    "Default: none.",
    "hoodie.bucket.index.partition.rule.type": "Kind of the rules: `regex` (default) or `range`.",
    "hoodie.bucket.index.partition.rule": "The same, in the spelling of RFC-89's draft.",
}

_LAYOUT = "hoodie.storage.layout.type"

_ONLY_VALUE = {
    keys.BASE_FILE_FORMAT: "PARQUET",
    keys.POPULATE_META_FIELDS: "true",
    keys.DROP_PARTITION_COLUMNS: "false",
    keys.CDC_ENABLED: "false",
    keys.SLASH_SEPARATED_DATES: "false",
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "false",
    "hoodie.write.table.version": "9",
    "hoodie.datasource.write.insert.drop.duplicates": "false",
    "hoodie.datasource.insert.dup.policy": "none",
    "hoodie.combine.before.upsert": "true",
    "hoodie.schema.on.read.enable": "false",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "false",
    "hoodie.allow.operation.metadata.field": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.datasource.write.streaming.disable.compaction": "true",
}

_BUCKET_ONLY = {
    record.INDEX_TYPE: "BUCKET",
    _LAYOUT: "BUCKET",
    **dict.fromkeys(record.ENABLE, "false"),
}
_RECORD_ONLY = {_LAYOUT: "DEFAULT", METADATA_ENABLE: "true"}

_TUNING = re.compile(
    r"hoodie\.("
    r".*\.parallelism|parquet\..*|clean\..*|cleaner\..*|archive\..*|"
    r"compact\..*|compaction\.(?!payload).*|embed\.timeline\..*|memory\..*|bulkinsert\..*|"
    r"combine\.before\.insert|copyonwrite\..*|filesystem\.view\..*|write\.markers\..*|"
    r"write\.lock\..*|write\.buffer\..*|write\.status\..*|write\.auto\.upgrade|auto\.commit|"
    r"metadata\.(?!enable$|record|global).*|datasource\.(hive_sync|meta\.sync)\.(?!enable$).*|"
    r"datasource\.write\.row\.writer\.enable|finalize\..*|rollback\..*|markers\..*|"
    r"client\..*|consistency\..*|bloom\..*|index\.bloom\..*|storage\.layout\.partitioner\.class|"
    r"datasource\.write\.commitmeta\.key\.prefix|datasource\.compaction\..*|"
    r"bucket\.index\.query\.pruning|bucket\.index\.remote\.partitioner\.enable|"
    r"logfile\..*|timeline\..*|table\.services\.enabled|write\.executor\..*)"
)

_OPERATIONS = {op.value.lower(): op for op in Operation}

_PAYLOAD_MODES = {
    "OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME,
    "DefaultHoodieRecordPayload": MergeMode.EVENT_TIME,
    "EventTimeAvroPayload": MergeMode.EVENT_TIME,
}


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The parsed options of a Hudi job.

    Attributes
    ----------
    operation : Operation
        Hudi's default is upsert.
    table_name : str or None
        None if the options have none.
    key_spec : KeySpec
        Keys and partitions.
    generator : KeyGenerator or None
    partition_fields, hive_style, url_encode : tuple of str, bool, bool; or None
        As in ``key_spec``; None if the options do not have them.
    ordering_fields : tuple of str
        Empty for commit-time ordering.
    index_options : mapping of str to str
        The options of the index, for ``index_from_options``.
    partitions_to_delete : tuple of str
        For ``delete_partition``.
    lock_options : mapping of str to str
        The options of the lock, for ``lock_from_options``.
    metadata_table : bool or None
        Whether the table is to have a metadata table; None if the options do not say.
    table_type : TableType or None
        None if the options have none; the default for a new table is copy-on-write, as in Hudi.
    log_format : LogFormat
        Format of log files; default Parquet.
    compact_after : int or None
        Number of delta commits after which a write compacts a merge-on-read table; None: never.
        Default five, as in Hudi's Spark writer.
    archive_limits : tuple of int, or None
        Least and greatest number of commits on the active timeline; None: no archival.
    retention : Retention or None
        What a clean after the write retains; None: no clean.
    merge : SchemaMerge
        Changes that the write may make to the table's schema.
    resize : ResizeOptions or None
        The resize of hash rings after the write; None: no resize.
    unknown : tuple of str
        Unknown options, for a warning.
    """

    operation: Operation
    table_name: str | None
    key_spec: KeySpec
    generator: KeyGenerator | None
    partition_fields: tuple[str, ...] | None
    hive_style: bool | None
    url_encode: bool | None
    ordering_fields: tuple[str, ...]
    index_options: Mapping[str, str]
    partitions_to_delete: tuple[str, ...]
    lock_options: Mapping[str, str]
    metadata_table: bool | None
    table_type: TableType | None
    log_format: LogFormat
    compact_after: int | None
    archive_limits: tuple[int, int] | None
    retention: Retention | None
    merge: SchemaMerge
    resize: resizing.ResizeOptions | None
    unknown: tuple[str, ...]


def parse_job_options(options: Mapping[str, str]) -> JobOptions:
    """Parse the options of a Hudi write.

    Raises
    ------
    ConfigError
        If bucketlake cannot follow an option and ignoring it would change the result.
    """
    given = {_spelling(key): str(value) for key, value in options.items()}
    of_index = _RECORD_ONLY if record.names_record_index(given) else _BUCKET_ONLY
    for key, only in {**_ONLY_VALUE, **of_index}.items():
        if given.get(key, only).strip().upper() != only.upper():
            raise ConfigError(key, given[key], f"bucketlake only supports {only or 'no value'!r}")
    entries = Entries(given)
    for key in _NUMBERS:  # Also if the service that uses the number is off.
        entries.option(key, 1, least=1)
    entries.one_of(resizing.ENGINE_OPTION, _ENGINES)
    spec = key_spec_of(Entries({k: v for k, v in given.items() if k != keys.KEY_GENERATOR_TYPE}))
    return JobOptions(
        operation=_operation(given),
        table_name=given.get(keys.NAME),
        key_spec=spec,
        generator=_generator(entries, spec.generator),
        partition_fields=spec.partition_fields if keys.PARTITION_FIELDS in given else None,
        hive_style=spec.hive_style if keys.HIVE_STYLE in given else None,
        url_encode=spec.url_encode if keys.URL_ENCODE in given else None,
        ordering_fields=_ordering(given, entries),
        index_options={k: v for k, v in given.items() if "index" in k or k in record.SIZES},
        partitions_to_delete=_partitions_to_delete(given, entries),
        lock_options={k: v for k, v in given.items() if k.startswith("hoodie.write.")},
        metadata_table=None
        if entries.text(METADATA_ENABLE) is None
        else entries.boolean(METADATA_ENABLE),
        table_type=_table_type(given),
        log_format=_log_format(given),
        compact_after=_compact_after(entries),
        archive_limits=_archive_limits(given, entries),
        retention=_retention(entries),
        merge=_schema_merge(entries),
        resize=resizing.resize_options(given),
        unknown=tuple(sorted(key for key in given if not _understood(key, given))),
    )


def _spelling(key: str) -> str:
    if key.lower() == MERGE_SCHEMA.lower():  # Spark ignores the case of its options.
        return MERGE_SCHEMA
    return _ALIASES.get(key, key)


def _generator(entries: Entries, used: KeyGenerator) -> KeyGenerator | None:
    """Return the key generator that the options name; None if they name none.

    Hudi's Spark writer follows the class. It ignores the type, and infers the generator from the
    columns: a type that would change the result is an error here.
    """
    names = [entries.text(key) for key in (keys.KEY_GENERATOR_CLASS, keys.KEY_GENERATOR_TYPE)]
    for name in names:
        if name is not None and key_generator_of(name) is None:
            known = ", ".join(known.value for known in KeyGenerator)
            raise UnsupportedFeatureError(
                f"key generator {name}", keys.KEY_GENERATOR_CLASS, f"use one of {known}"
            )
    kind = names[-1]
    if kind is not None and key_generator_of(kind) is not used:
        raise ConfigError(
            "hoodie.datasource.write.keygenerator.type",
            kind,
            f"Hudi's Spark writer ignores this option, and would use {used.value}; name the class "
            "in hoodie.datasource.write.keygenerator.class, or leave the option out",
        )
    return None if names == [None, None] else used


def _table_type(given: Mapping[str, str]) -> TableType | None:
    text = given.get(keys.TABLE_TYPE)
    if text is None:
        return None
    known = {kind.value: kind for kind in TableType}
    if text.strip().upper() not in known:
        raise ConfigError(keys.TABLE_TYPE, text, f"one of {', '.join(known)}")
    return known[text.strip().upper()]


def _log_format(given: Mapping[str, str]) -> LogFormat:
    text = given.get(LOG_FORMAT, LogFormat.PARQUET.value).strip().lower()
    known = {kind.value: kind for kind in LogFormat}
    if text not in known:
        raise ConfigError(LOG_FORMAT, text, f"one of {', '.join(known)}")
    return known[text]


def _compact_after(entries: Entries) -> int | None:
    if not entries.boolean(COMPACT_INLINE, default=True):
        return None
    return entries.option(COMPACT_AFTER, _COMPACT_AFTER_DEFAULT, least=1)


def _archive_limits(given: Mapping[str, str], entries: Entries) -> tuple[int, int] | None:
    """Return how many commits stay; None if the job has no option of archival."""
    asked = {ARCHIVE, KEEP_MIN, KEEP_MAX}.intersection(given)
    if not entries.boolean(ARCHIVE, default=True) or not asked:
        return None
    keep_min = entries.option(KEEP_MIN, _KEEP_MIN_DEFAULT, least=1)
    keep_max = entries.option(KEEP_MAX, _KEEP_MAX_DEFAULT, least=1)
    if keep_max <= keep_min:
        raise ConfigError(KEEP_MAX, keep_max, f"more than {KEEP_MIN}, which is {keep_min}")
    return keep_min, keep_max


def _retention(entries: Entries) -> Retention | None:
    """Return what a clean retains; None unless the job switches automatic cleaning on."""
    known = {policy.value: policy for policy in CleanPolicy}
    policy = known[entries.one_of(CLEAN_POLICY, [*known])]
    if not entries.boolean(CLEAN_AUTOMATIC):
        return None
    key, default = CLEAN_COUNTS[policy]
    return Retention(policy, entries.option(key, default, least=1))


def _schema_merge(entries: Entries) -> SchemaMerge:
    merges = [entries.boolean(key) for key in (RECONCILE_SCHEMA, MERGE_SCHEMA)]
    fills = SchemaMerge(fill_missing=entries.boolean(FILL_MISSING))
    return SchemaMerge.of(any(merges)) | fills


def _operation(given: Mapping[str, str]) -> Operation:
    text = given.get(OPERATION, "upsert").lower()
    if text not in _OPERATIONS:
        raise ConfigError(OPERATION, text, f"one of {', '.join(_OPERATIONS)}")
    return _OPERATIONS[text]


def _partitions_to_delete(given: Mapping[str, str], entries: Entries) -> tuple[str, ...]:
    if _operation(given) is not Operation.DELETE_PARTITION:
        return ()
    paths: tuple[str, ...] = entries.fields(PARTITIONS_TO_DELETE)
    # Without this option Hudi deletes the partitions of the records; * matches any text.
    if not paths or any("*" in path for path in paths):
        raise ConfigError(
            PARTITIONS_TO_DELETE,
            given.get(PARTITIONS_TO_DELETE),
            "operation delete_partition needs a list of partition paths, without *",
        )
    return paths


def _ordering(given: Mapping[str, str], entries: Entries) -> tuple[str, ...]:
    fields = entries.fields(keys.ORDERING_FIELDS)
    mode = given.get(keys.MERGE_MODE)
    payload = given.get(keys.PAYLOAD_CLASS)
    if mode is None and payload is not None:
        name = payload.rpartition(".")[2]
        if name not in _PAYLOAD_MODES:
            raise UnsupportedFeatureError(
                f"payload class {payload}",
                keys.PAYLOAD_CLASS,
                f"use one of {', '.join(_PAYLOAD_MODES)}",
            )
        mode = _PAYLOAD_MODES[name].value
    if mode is None:
        return fields
    if mode.upper() == MergeMode.COMMIT_TIME.value:
        return ()
    if mode.upper() == MergeMode.EVENT_TIME.value and fields:
        return fields
    raise ConfigError(
        keys.MERGE_MODE, mode, "COMMIT_TIME_ORDERING, or EVENT_TIME_ORDERING with an ordering field"
    )


def _understood(key: str, given: Mapping[str, str]) -> bool:
    return (
        key in _USED
        or key in record.USED
        or key == _LAYOUT
        or resizing.is_understood(key, given)
        or key in _ONLY_VALUE
        or key in SAFE_SQL
        or key.startswith(keys.TIMESTAMP_PREFIX)
        or _TUNING.fullmatch(key) is not None
    )
