"""The ``hoodie.*`` options of an existing Hudi job.

``config/hudi_options.py`` has the table of all options, and refuses what cannot be followed. This
module interprets the options that are used. Unknown options are returned to the caller, who warns
about them. Keys and defaults are those of Hudi's configuration reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bucketlake.config import record_options as record
from bucketlake.config import resize_options as resizing
from bucketlake.config import table_keys as keys
from bucketlake.config.entries import ConfigEntries
from bucketlake.config.hudi_options import accepted_options, hudi_options, unknown_option
from bucketlake.config.key_entries import key_generator_of, key_spec_of
from bucketlake.config.merge_entries import DELETE_FIELD, MergeSettings, merge_settings_of_job
from bucketlake.config.table_version import check_version
from bucketlake.errors import ConfigError, IndexStateError, InputError, UnsupportedFeatureError
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.names import one_of
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.table_type import (
    CDC_MODE_DEFAULT,
    ChangeLogMode,
    DuplicatePolicy,
    LogFormat,
    Operation,
    TableType,
)

_RECORD_KEY = "hoodie.datasource.write.recordkey.field"
_PARTITION_PATH = "hoodie.datasource.write.partitionpath.field"
TABLE_TYPE_OPTION = "hoodie.datasource.write.table.type"
OPERATION = "hoodie.datasource.write.operation"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
RECONCILE_SCHEMA = "hoodie.datasource.write.reconcile.schema"
FILL_MISSING = "hoodie.write.set.null.for.missing.columns"
MERGE_SCHEMA = "mergeSchema"
METADATA_ENABLE = "hoodie.metadata.enable"
SERVICES = "hoodie.table.services.enabled"
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

DROP_DUPLICATES = "hoodie.datasource.write.insert.drop.duplicates"
DUPLICATE_POLICY = "hoodie.datasource.insert.dup.policy"
_SYNCS = ("hoodie.datasource.hive_sync.enable", "hoodie.datasource.meta.sync.enable")

_NUMBERS = (COMPACT_AFTER, KEEP_MIN, KEEP_MAX, *(key for key, _ in CLEAN_COUNTS.values()))

_ENGINES = ("SIMPLE", resizing.ENGINE, resizing.EXTENDIBLE_ENGINE)

_LAYOUT = "hoodie.storage.layout.type"

_OPERATIONS = {op.value.lower(): op for op in Operation}

_STORED = {
    _RECORD_KEY: keys.RECORD_KEY_FIELDS,
    _PARTITION_PATH: keys.PARTITION_FIELDS,
    "hoodie.datasource.write.keygenerator.type": keys.KEY_GENERATOR_TYPE,
    "hoodie.datasource.write.keygenerator.class": keys.KEY_GENERATOR_CLASS,
}
"""Options of a writer, and the entries of ``hoodie.properties`` that store them."""


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
    merging : MergeSettings
        Which record of a key wins, and which records are deletes.
    index_options : mapping of str to str
        The options of the index, for ``index_from_options``.
    partitions_to_delete : tuple of str
        For ``delete_partition``.
    lock_options : mapping of str to str
        The options of the lock, for ``lock_from_options``.
    cdc : str or None
        What the table keeps of each change; None if the options do not turn this on.
    version : int or None
        Version of a new table, which an existing table must have; None if the options do not say.
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
    duplicates : DuplicatePolicy or None
        What an insert does with records whose key is stored; None to update the stored record.
    syncs : tuple of str
        Options that ask to register the table in a catalog, for a warning.
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
    merging: MergeSettings
    index_options: Mapping[str, str]
    partitions_to_delete: tuple[str, ...]
    lock_options: Mapping[str, str]
    cdc: str | None
    version: int | None
    metadata_table: bool | None
    table_type: TableType | None
    log_format: LogFormat
    compact_after: int | None
    archive_limits: tuple[int, int] | None
    retention: Retention | None
    merge: SchemaMerge
    resize: resizing.ResizeOptions | None
    duplicates: DuplicatePolicy | None
    syncs: tuple[str, ...]
    unknown: tuple[str, ...]


def parse_job_options(options: Mapping[str, str]) -> JobOptions:
    """Parse the options of a Hudi write.

    Raises
    ------
    ConfigError
        If bucketlake cannot follow an option and ignoring it would change the result.
    """
    given = accepted_options({_spelling(key): str(value) for key, value in options.items()})
    kind = record.index_type(given)
    if kind and kind not in record.INDEX_TYPES:
        raise ConfigError(
            record.INDEX_TYPE, given[record.INDEX_TYPE], one_of(kind, record.INDEX_TYPES)
        )
    for key, only in _options_beside(kind).items():
        if given.get(key, only).strip().upper() != only.upper():
            under = f", under {record.INDEX_TYPE}={kind}" if kind else ""
            raise ConfigError(
                key, given[key], f"leave it out, or set it to {only or 'no value'}{under}"
            )
    stored = {_STORED.get(key, key): value for key, value in given.items()}
    entries = ConfigEntries(stored)
    for key in _NUMBERS:  # Also if the service that uses the number is off.
        entries.option(key, 1, least=1)
    entries.one_of(resizing.ENGINE_OPTION, _ENGINES)
    spec = key_spec_of(
        ConfigEntries({k: v for k, v in stored.items() if k != keys.KEY_GENERATOR_TYPE})
    )
    resize = resizing.resize_options(given)
    return JobOptions(
        operation=_operation(given, entries),
        table_name=given.get(keys.NAME),
        key_spec=spec,
        generator=_generator(entries, spec.generator),
        partition_fields=spec.partition_fields if keys.PARTITION_FIELDS in stored else None,
        hive_style=spec.hive_style if keys.HIVE_STYLE in given else None,
        url_encode=spec.url_encode if keys.URL_ENCODE in given else None,
        merging=merge_settings_of_job(entries),
        index_options={k: v for k, v in given.items() if "index" in k or k in record.SIZES},
        partitions_to_delete=_partitions_to_delete(given, entries),
        lock_options={k: v for k, v in given.items() if k.startswith("hoodie.write.")},
        cdc=_cdc(entries),
        version=_version(entries),
        metadata_table=None
        if entries.text(METADATA_ENABLE) is None
        else entries.boolean(METADATA_ENABLE),
        table_type=entries.member(TABLE_TYPE_OPTION, TableType, None),
        log_format=entries.member(LOG_FORMAT, LogFormat, LogFormat.PARQUET),
        compact_after=_compact_after(entries),
        archive_limits=_archive_limits(given, entries),
        retention=_retention(entries),
        merge=_schema_merge(entries),
        resize=resize if _serves(entries) else None,
        duplicates=_duplicates(entries),
        syncs=tuple(key for key in _SYNCS if entries.boolean(key)),
        unknown=tuple(sorted(_unknown(given))),
    )


def _options_beside(kind: str) -> dict[str, str]:
    """Return the values that some options must have, if at all, beside an index type or none."""
    if kind in record.RECORD_TYPES:
        return {_LAYOUT: "DEFAULT", METADATA_ENABLE: "true"}
    layout = "BUCKET" if kind else "DEFAULT"
    return {_LAYOUT: layout, **dict.fromkeys(record.ENABLE, "false")}


def _spelling(key: str) -> str:
    if key.lower() == MERGE_SCHEMA.lower():  # Spark ignores the case of its options.
        return MERGE_SCHEMA
    return key


def _unknown(given: Mapping[str, str]) -> Iterator[str]:
    """Yield options that nobody has, and those of a bucket engine that the job does not name."""
    for key in given:
        if key not in hudi_options():
            yield unknown_option(key)
        elif resizing.is_without_effect(key, given):
            yield key


def _generator(entries: ConfigEntries, used: KeyGenerator) -> KeyGenerator | None:
    """Return the key generator that the options name; None if they name none.

    Hudi's Spark writer follows the class. It ignores the type, and infers the generator from the
    columns: a type that would change the result is an error here.
    """
    names = [entries.text(key) for key in (keys.KEY_GENERATOR_CLASS, keys.KEY_GENERATOR_TYPE)]
    for name in names:
        if name is not None and key_generator_of(name) is None:
            known = [known.value for known in KeyGenerator]
            raise UnsupportedFeatureError(
                f"key generator {name}", keys.KEY_GENERATOR_CLASS, f"use {one_of(name, known)}"
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


def _serves(entries: ConfigEntries) -> bool:
    """Return whether the job runs table services after its write."""
    return entries.boolean(SERVICES, default=True)


def _cdc(entries: ConfigEntries) -> str | None:
    mode = entries.member(keys.CDC_MODE, ChangeLogMode, CDC_MODE_DEFAULT)
    return mode.value if entries.boolean(keys.CDC_ENABLED) else None


def _version(entries: ConfigEntries) -> int | None:
    version = entries.integer(keys.WRITE_VERSION, None)
    if version is not None:
        check_version(version)
    return version


def _compact_after(entries: ConfigEntries) -> int | None:
    if not _serves(entries) or not entries.boolean(COMPACT_INLINE, default=True):
        return None
    return entries.option(COMPACT_AFTER, _COMPACT_AFTER_DEFAULT, least=1)


def _archive_limits(given: Mapping[str, str], entries: ConfigEntries) -> tuple[int, int] | None:
    """Return how many commits stay; None if the job has no option of archival."""
    asked = {ARCHIVE, KEEP_MIN, KEEP_MAX}.intersection(given)
    if not _serves(entries) or not entries.boolean(ARCHIVE, default=True) or not asked:
        return None
    keep_min = entries.option(KEEP_MIN, _KEEP_MIN_DEFAULT, least=1)
    keep_max = entries.option(KEEP_MAX, _KEEP_MAX_DEFAULT, least=1)
    if keep_max <= keep_min:
        raise ConfigError(KEEP_MAX, keep_max, f"more than {KEEP_MIN}, which is {keep_min}")
    return keep_min, keep_max


def _retention(entries: ConfigEntries) -> Retention | None:
    """Return what a clean retains; None unless the job switches automatic cleaning on."""
    policy = entries.member(CLEAN_POLICY, CleanPolicy, CleanPolicy.COMMITS)
    if not _serves(entries) or not entries.boolean(CLEAN_AUTOMATIC):
        return None
    key, default = CLEAN_COUNTS[policy]
    return Retention(policy, entries.option(key, default, least=1))


def _schema_merge(entries: ConfigEntries) -> SchemaMerge:
    merges = [entries.boolean(key) for key in (RECONCILE_SCHEMA, MERGE_SCHEMA)]
    fills = SchemaMerge(fill_missing=entries.boolean(FILL_MISSING))
    return SchemaMerge.of(any(merges)) | fills


def _duplicates(entries: ConfigEntries) -> DuplicatePolicy | None:
    """Return the policy of inserts; the older option means that duplicates are dropped."""
    policies = {policy.value: policy for policy in DuplicatePolicy}
    text = (entries.text(DUPLICATE_POLICY) or "none").strip().lower()
    if text not in {"none", *policies}:
        raise ConfigError(DUPLICATE_POLICY, text, one_of(text, ["none", *policies]))
    drops = entries.boolean(DROP_DUPLICATES)
    return policies.get(text, DuplicatePolicy.DROP if drops else None)


def _operation(given: Mapping[str, str], entries: ConfigEntries) -> Operation:
    """Return the operation; as in Hudi, an upsert that must not update anything is an insert."""
    found = _named_operation(given)
    is_insert = found is Operation.UPSERT and _duplicates(entries) is not None
    return Operation.INSERT if is_insert else found


def _named_operation(given: Mapping[str, str]) -> Operation:
    text = given.get(OPERATION, "upsert").lower()
    if text not in _OPERATIONS:
        raise ConfigError(OPERATION, text, one_of(text, _OPERATIONS))
    return _OPERATIONS[text]


def _partitions_to_delete(given: Mapping[str, str], entries: ConfigEntries) -> tuple[str, ...]:
    if _named_operation(given) is not Operation.DELETE_PARTITION:
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


# ---- Errors in the words of a Hudi job: the options that stand for the arguments of a hint -------
#
# The parts of bucketlake that check a table and its records do not know whether a caller passed
# arguments or options. ``save`` adds the options to what they say.

OPTION_OF_ARGUMENT = {
    "record_key": _RECORD_KEY,
    "partition_by": _PARTITION_PATH,
    "ordering": keys.ORDERING_FIELDS,
    "delete_marker": DELETE_FIELD,
    "table_type": TABLE_TYPE_OPTION,
    "name": keys.NAME,
    "hive_style": keys.HIVE_STYLE,
    "url_encode": keys.URL_ENCODE,
    "metadata_table": METADATA_ENABLE,
    "cdc": keys.CDC_MODE,
    "version": keys.WRITE_VERSION,
    "hash_fields": "hoodie.bucket.index.hash.field",
    "max_file_size": "hoodie.bucket.index.ext.max.file.size",
    "timestamp_partition": f"{keys.TIMESTAMP_PREFIX}timestamp.type",
}
"""The option for each argument of ``create_table`` that a job can give."""

_ADVISED = re.compile(
    rf"\b(?:(?P<argument>{'|'.join(OPTION_OF_ARGUMENT)})(?:=(?P<value>True|False)\b|(?= names ))"
    r"|merge_schema=(?P<change>'\w+'|\[[^]]*\]))"
)


@contextmanager
def naming_options() -> Iterator[None]:
    """Add the options of a job to an error that names arguments."""
    try:
        yield
    except (ConfigError, InputError, IndexStateError, UnsupportedFeatureError) as error:
        facts: list[Any] = [_with_options(fact) for fact in error.args]  # An error of them is made.
        if isinstance(error, ConfigError) and error.key in OPTION_OF_ARGUMENT:
            facts[0] = OPTION_OF_ARGUMENT[error.key]
        if tuple(facts) == error.args:
            raise
        raise type(error)(*facts).with_traceback(error.__traceback__) from error.__cause__


def _with_options(fact: Any) -> Any:
    return _ADVISED.sub(_and_option, fact) if isinstance(fact, str) else fact


def _and_option(found: re.Match[str]) -> str:
    """Return an argument and its option.

    >>> _with_options("create the table with url_encode=True")
    'create the table with url_encode=True (hoodie.datasource.write.partitionpath.urlencode=true)'
    """
    if found["argument"] is None:
        option = FILL_MISSING if found["change"] == "'fill_missing'" else MERGE_SCHEMA
        option = f"{option}=true"
    else:
        value = found["value"]
        option = OPTION_OF_ARGUMENT[found["argument"]] + (f"={value.lower()}" if value else "")
    return f"{found[0]} ({option})"
