"""A merge that Spark joins: the clauses as SQL, counts and looked-up keys as small jobs.

The source is spooled if it may change between two evaluations, as are the rows that the merge
writes. The job that packs the rows joins them, and tells their counts and hashes of their keys.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.config.paths_of_table import SPOOL_FOLDER
from bucketlake.errors import InputError, StorageError
from bucketlake.model.cast import cast_table, selectable
from bucketlake.model.column_type import type_name
from bucketlake.model.field_path import steps_of
from bucketlake.model.names import quoted
from bucketlake.model.schema import IS_DELETED, cast_batch
from bucketlake.read.read_plan import ReadPlan
from bucketlake.spark.arrow_tasks import map_in_arrow, rows_of_work
from bucketlake.spark.frame_source import SparkSource, Spool, few_rows, is_repeatable
from bucketlake.spark.read import (
    has_usual_settings,
    read_files,
    read_parquet,
    refusing,
    spark_address,
)
from bucketlake.spark.reports import collect_noted, noting
from bucketlake.spark.spark_schema import (
    arrow_from_spark,
    assigned_column,
    columns_named,
    exactly,
    nested_columns,
    schema_of,
    spark_from_arrow,
)
from bucketlake.storage.base import Storage
from bucketlake.write.by_condition import require_assignable
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.input_files.pieces import Piece
from bucketlake.write.merge_binding import VALUES_MAX, BoundClause, BoundMerge, Values
from bucketlake.write.merge_statement import Effect, Match
from bucketlake.write.merge_write import (
    COUNT,
    IDENTITY,
    INSERTS,
    UNFIT,
    UNSURE,
    Identities,
    ambiguous,
    distinct_lists,
    identified,
    may_repeat,
    old_name,
    source_schema,
    tell,
    written_columns,
)
from bucketlake.write.pack import ArrowSource, RecordSource
from bucketlake.write.tag import EFFECT
from bucketlake.write.target import Target

_STORED = "_bucketlake_stored"
_GIVEN = "_bucketlake_given"
_CLAUSE = "_bucketlake_clause"
_SHOWN = pa.field("_bucketlake_shown", pa.string())
_DECIDED = "_bucketlake_decided"
_JOINS = {  # By whether rows of the table, and rows of the source, that match nothing are needed.
    (False, False): "inner",
    (True, False): "left",
    (False, True): "right",
    (True, True): "full",
}


class SparkMerge:
    """The source of a merge, for a session that joins it with the table.

    Parameters
    ----------
    session : SparkSession
        The session.
    given : DataFrame, pa.Table or FileSource
        The rows.
    storage : Storage
        The table's storage.
    root : str
        The table's path, as the user passed it.
    """

    def __init__(
        self,
        session: SparkSession,
        given: DataFrame | pa.Table | FileSource,
        storage: Storage,
        root: str,
    ) -> None:
        self._session, self._given = session, given
        self._storage, self._root = storage, root
        self._spool = Spool(storage, root)
        self.time_zone = session.conf.get("spark.sql.session.timeZone")
        self._frame: DataFrame | None = None
        self._records: RecordSource | None = given if isinstance(given, FileSource) else None
        self._copy: str | None = None
        self._has_few = self._is_upsert = False

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the source."""
        given = self._given
        if isinstance(given, pa.Table | FileSource):
            return source_schema(given.schema)
        return source_schema(arrow_from_spark(schema_of(given)))

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert, the same for each attempt."""
        if self._records is None:
            given = self._given
            assert not isinstance(given, FileSource), "files are records from the start"
            is_arrow = isinstance(given, pa.Table)
            self._records = ArrowSource(given) if is_arrow else SparkSource(given, self._spool)
        return self._records

    def close(self) -> None:
        """Drop the copies of the source."""
        if self._records is not None:
            self._records.close()
        self._spool.drop()
        if self._copy is not None:
            with suppress(StorageError):  # A leftover copy is not part of the table.
                self._storage.delete_folder(self._copy)

    def values(self, bound: BoundMerge) -> Values | None:
        """Return the distinct values by which the table is pruned, of one job.

        None if settings of the session change what a text means.
        """
        self._is_upsert = False
        if not has_usual_settings(self._session):
            return None
        texts = bound.pruning_fields()
        decided = bound.decided_by_source
        if decided is not None:
            # A condition may fail for a row of which the join does not ask it.
            with suppress(Exception):
                found = self._values_of(bound, {**texts, _DECIDED: decided})
                self._is_upsert = found.pop(_DECIDED) == [True]
                return found
        return self._values_of(bound, texts) if texts else {}

    def _values_of(self, bound: BoundMerge, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the distinct values of texts over the source; None if they are too many."""
        source = self._source().alias(bound.source_alias)
        given = source.select([F.expr(text).alias(field) for field, text in texts.items()])
        known = arrow_from_spark(given.schema)
        lists = pa.schema([(field.name, pa.list_(field.type)) for field in known])
        tell_values, few = partial(distinct_lists, lists, VALUES_MAX), few_rows(given)
        self._has_few = few is not None
        if few is None:
            rows = collect_noted(map_in_arrow(given, noting(tell_values), lists))
        else:
            (rows,) = (told.to_pylist() for told in tell_values(iter(few.to_batches())))
        found = dict[str, Any]()
        for field in texts:
            # A task with too many values says so by a list that is null.
            is_small = all(row[field] is not None for row in rows)
            values = {value for row in rows for value in row[field]} if is_small else ()
            found[field] = [*values] if is_small and len(values) <= VALUES_MAX else None
        return found

    def upserted(self, bound: BoundMerge) -> RecordSource | None:
        """Return the rows that an upsert writes, if the job of the values found that it is one."""
        if not self._is_upsert or bound.upserts is None:
            return None
        source = self._source().alias(bound.source_alias)
        with _naming_texts(bound):
            rows = source.where(bound.upserts[0]).select(columns_named(bound.columns))
        if not is_repeatable(rows):
            return None
        spool = Spool(self._storage, self._root)
        return SparkSource(rows, spool, None if self._has_few else rows)

    def rows(self, bound: BoundMerge, target: Target, plan: ReadPlan) -> RecordSource:
        """Join the source with the stored rows of a plan, and apply the clauses."""
        self._bound, self._target = bound, target
        with _naming_texts(bound):
            self._both = self._joined(bound, plan)
            found = _found(bound, target, self._both)
            found = _deleted_once(found, target) if bound.deletes_once else found
        spool = Spool(self._storage, self._root)
        try:
            # The driver writes a copy of few rows; many are joined by the job that packs them.
            rows = spool.stable(found, may_join=not self._has_few)
            identities = Identities.of(target, bound.ordering)
            self._keys = _identified(rows, identities, COUNT)
        except BaseException:
            spool.drop()
            raise
        about = partial(tell, identities, not bound.inserts_new)
        written = columns_named(written_columns(rows.columns))
        self._written = SparkSource(rows.select(written), spool, rows, about)
        return self._written

    def counts(self) -> Mapping[int, int]:
        """Return the number of rows of each effect, and of those whose key may be stored."""
        kinds = [kinds for kinds, _ in self._written.told()]
        return {each: sum(int(of_task[each]) for of_task in kinds) for each in (*Effect, UNSURE)}

    def ambiguity(self) -> InputError | None:
        """Return the error that two rows have one key.

        The step that packed the rows has told the hashes of their keys.
        """
        if not may_repeat([hashes for _, hashes in self._written.told()]):
            return None
        by_key = self._keys.groupBy("key", "path").agg(F.sum(COUNT.name).alias("rows"))
        (most,) = collect_noted(by_key.select(F.max(F.struct("rows", "key", "path")).alias("most")))
        found = most["most"]
        if found is None or found["rows"] < 2:
            return None
        key, path = found["key"], found["path"]
        return ambiguous(self._target, key, path, self._two_of(key, path))

    def _two_of(self, key: str, path: str) -> list[tuple[int, Mapping[str, object] | None]]:
        """Return effects and rows of the source of two rows with a key, an insert first."""
        alias = self._bound.source_alias
        given = F.struct(*(F.col(quoted([alias, name])) for name in self.schema.names))
        text = F.when(F.col(_GIVEN), F.to_json(given, {"ignoreNullFields": "false"}))
        found = _found(self._bound, self._target, self._both, text.alias(_SHOWN.name))
        rows = _identified(found, Identities.of(self._target), _SHOWN)
        is_same = (F.col("key") == key) & (F.col("path") == path)
        first = rows.where(is_same).orderBy(~F.col("effect").isin(*INSERTS)).limit(2)
        return [(row["effect"], json.loads(row[_SHOWN.name] or "null")) for row in first.collect()]

    def stored_among(self, plan: ReadPlan) -> tuple[str, str] | None:
        """Return key and partition path of an inserted row that stored rows have."""
        stored = _identified(
            read_files(self._session, self._root, plan), Identities.of(self._target)
        ).select("key", "path")
        inserted = self._keys.where(F.col("effect").isin(*INSERTS))
        both = inserted.join(stored, ["key", "path"], "left_semi")
        return next(((row["key"], row["path"]) for row in both.limit(1).collect()), None)

    def _source(self) -> DataFrame:
        """Return the source as a DataFrame that gives the same rows at every evaluation."""
        if self._frame is None:
            given = self._given
            if isinstance(given, FileSource):
                frame = _frame_of_files(self._session, given)
            else:
                frame = self._copied(given) if isinstance(given, pa.Table) else given
            frame = frame.select(columns_named(self.schema.names))
            self._frame = self._spool.stable(frame)
        return self._frame

    def _copied(self, rows: pa.Table) -> DataFrame:
        """Return Arrow rows as a DataFrame: by a file, which Spark 3.5 and Connect can read."""
        schema = self.schema
        held = cast_batch(
            selectable(rows.select(schema.names)), schema, where="source of the merge"
        )
        sink = io.BytesIO()
        pq.write_table(held, sink)
        self._copy = f"{SPOOL_FOLDER}/{uuid.uuid4()}"
        self._storage.put(f"{self._copy}/rows.parquet", sink.getvalue())
        path = f"{spark_address(self._root).rstrip('/')}/{self._copy}"
        return read_parquet(self._session, spark_from_arrow(schema), [path])

    def _joined(self, bound: BoundMerge, plan: ReadPlan) -> DataFrame:
        """Return the rows of both sides side by side, with the number of the clause of each."""
        stored = read_files(self._session, self._root, plan).withColumn(_STORED, F.lit(True))
        given = self._source().withColumn(_GIVEN, F.lit(True))
        how = _JOINS[Match.BY_SOURCE in bound.matches, Match.NOT_MATCHED in bound.matches]
        both = stored.alias(bound.alias).join(
            given.alias(bound.source_alias), F.expr(bound.on), how
        )
        chosen = both.select("*", _number_of_clause(bound).alias(_CLAUSE))
        return chosen.where(F.col(_CLAUSE).isNotNull())


def _frame_of_files(session: SparkSession, files: FileSource) -> DataFrame:
    """Return the rows of files, without meta columns of Hudi, as the source of a merge."""
    reader, pieces = files.reading()
    schema = source_schema(reader.schema)

    def read(piece: Piece) -> Iterator[pa.Table]:
        return (cast_table(rows.select(schema.names), schema) for rows in reader.read(piece))

    return rows_of_work(session, pieces, [piece.size_bytes for piece in pieces], read, schema)


def _number_of_clause(bound: BoundMerge) -> Column:
    """Return the number of the first clause that holds for a row; null if none does."""
    is_stored, is_given = F.col(_STORED).isNotNull(), F.col(_GIVEN).isNotNull()
    kinds = {
        Match.MATCHED: is_stored & is_given,
        Match.NOT_MATCHED: ~is_stored & is_given,
        Match.BY_SOURCE: is_stored & ~is_given,
    }
    chosen = F.when(F.lit(False), F.lit(-1))
    for number, clause in enumerate(bound.clauses):
        holds = kinds[clause.match]
        if clause.condition is not None:
            holds = holds & F.expr(clause.condition)
        chosen = chosen.when(holds, F.lit(number))
    return chosen


def _found(bound: BoundMerge, target: Target, joined: DataFrame, *more: Column) -> DataFrame:
    """Return the rows that the merge writes, with hidden columns."""
    schema, values = bound.schema, {name: list[Column]() for name in bound.schema.names}
    unfit = []
    for clause in bound.clauses:
        given = joined.select([_value(text).alias(name) for name, text in clause.values.items()])
        held = arrow_from_spark(given.schema)
        require_assignable(schema, held, clause.role, Identities.of(target).fields)
        problems = []
        for field in schema:
            types = held.field(field.name).type, field.type
            value, problem = exactly(
                assigned_column(_value(clause.values[field.name]), *types), *types
            )
            values[field.name].append(value)
            if problem is not None:
                words = F.lit(
                    f"column {field.name}: a value does not fit {type_name(field.type)}: "
                )
                problems.append(F.concat(words, problem))
        unfit.append(F.coalesce(F.lit(None).cast("string"), *problems))
    columns = [_by_clause(values[name]).alias(name) for name in schema.names if name != IS_DELETED]
    effects = [F.lit(clause.effect.value) for clause in bound.clauses]
    flags = [_flag(clause) for clause in bound.clauses]
    old = [
        F.col(quoted([bound.alias, *field.split(".")])).alias(old_name(number))
        for number, field in enumerate(bound.ordering)
    ]
    return joined.select(
        *columns,
        _by_clause(flags).alias(IS_DELETED),
        _by_clause(effects).alias(EFFECT),
        F.lit(1).cast("long").alias(COUNT.name),
        _by_clause(unfit).alias(UNFIT),
        *old,
        *more,
    )


def _deleted_once(rows: DataFrame, target: Target) -> DataFrame:
    """Return one row of each deleted key, and of inserted rows with one key one with their count.

    Several matches of a deleted row are no ambiguity.
    """
    keys = [F.col(quoted(steps_of(path, rows.columns))) for path in Identities.of(target).fields]
    named = [key.alias(f"key{number}") for number, key in enumerate(keys)]
    kept = [F.first(quoted([name])).alias(name) for name in rows.columns if name != COUNT.name]
    inserted = F.count(F.when(F.col(EFFECT) == Effect.INSERT.value, 1))
    count = F.greatest(inserted, F.lit(1)).alias(COUNT.name)
    return rows.groupBy(*named, F.col(EFFECT).alias("kind")).agg(*kept, count).select(rows.columns)


def _value(text: str | None) -> Column:
    return F.lit(None) if text is None else F.expr(text)


def _flag(clause: BoundClause) -> Column:
    """Return whether a row is a delete; a table that stores such a flag has a value for it."""
    if clause.effect is Effect.DELETE:
        return F.lit(True)
    text = clause.values.get(IS_DELETED)
    return F.lit(False) if text is None else F.coalesce(F.expr(text), F.lit(False))


def _by_clause(values: Sequence[Column]) -> Column:
    """Return the value of each row's clause."""
    chosen = F.when(F.col(_CLAUSE) == 0, values[0])
    for number, value in enumerate(values[1:], 1):
        chosen = chosen.when(F.col(_CLAUSE) == number, value)
    return chosen


def _identified(rows: DataFrame, identities: Identities, *more: pa.Field) -> DataFrame:
    """Return key, partition path and effect of rows, and more of their columns."""
    paths = identities.needed if EFFECT in rows.columns else identities.fields
    hidden = [name for name in (UNFIT, *(each.name for each in more)) if name in rows.columns]
    needed = rows.select(nested_columns([*paths, *hidden], rows.columns))
    schema = pa.schema([*IDENTITY, *more])
    return map_in_arrow(needed, noting(partial(identified, identities, schema)), schema)


def _naming_texts(bound: BoundMerge) -> AbstractContextManager[None]:
    """Turn Spark's refusal of a text into an InputError."""
    texts = "; ".join(clause.role for clause in bound.clauses)
    return refusing(f"merge on {bound.on}: {texts}", "correct the text")
