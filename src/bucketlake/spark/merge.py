"""A merge that Spark joins: the clauses as SQL, the checks as small jobs.

The source is spooled if it may change between two evaluations. So are the rows that the merge
writes, always: the join runs once, then the rows are checked, counted and written from the copy.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.config.paths_of_table import SPOOL_FOLDER
from bucketlake.errors import StorageError
from bucketlake.model.names import quoted
from bucketlake.model.schema import IS_DELETED, cast_batch
from bucketlake.read.read_plan import ReadPlan, plan_read
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.spark.address import spark_address
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.frame_source import SparkSource
from bucketlake.spark.parquet_files import read_parquet
from bucketlake.spark.read import has_usual_settings, read_files, refusing
from bucketlake.spark.reports import Batches, collect_noted, noting
from bucketlake.spark.spark_schema import (
    arrow_from_spark,
    nested_columns,
    schema_of,
    spark_from_arrow,
)
from bucketlake.spark.spool import Spool
from bucketlake.storage.base import Storage
from bucketlake.where.predicate import Predicate
from bucketlake.write.arrow_source import ArrowSource, selectable
from bucketlake.write.merge_binding import VALUES_MAX, BoundClause, BoundMerge, Values
from bucketlake.write.merge_rows import (
    EFFECT,
    IDENTITY,
    NULL_MARKS,
    Identities,
    MergedRows,
    MergeTarget,
    ambiguous,
    changes_of,
    old_name,
    require_types,
    source_schema,
    stored_already,
)
from bucketlake.write.merge_statement import Effect, Match
from bucketlake.write.pack import RecordSource

_STORED = "_bucketlake_stored"
_GIVEN = "_bucketlake_given"
_CLAUSE = "_bucketlake_clause"
_SHOWN = "_bucketlake_shown"
_UNSURE = len(Effect)  # The number of inserted rows whose key may be stored.
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
    given : DataFrame or pa.Table
        The rows.
    storage : Storage
        The table's storage.
    root : str
        The table's path, as the user passed it.
    """

    def __init__(
        self, session: SparkSession, given: DataFrame | pa.Table, storage: Storage, root: str
    ) -> None:
        self._session, self._given = session, given
        self._storage, self._root = storage, root
        self._spool = Spool(storage, root)
        self._frame: DataFrame | None = None
        self._records: RecordSource | None = None
        self._copy: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the source."""
        given = self._given
        found = given.schema if isinstance(given, pa.Table) else arrow_from_spark(schema_of(given))
        return source_schema(found)

    def records(self) -> RecordSource:
        """Return the rows as the records of an upsert, the same for each attempt."""
        if self._records is None:
            given = self._given
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

    def rows(self, bound: BoundMerge, target: MergeTarget) -> MergedRows:
        """Find the rows that the merge writes.

        Raises
        ------
        InputError
            If Spark cannot evaluate a text, two of the rows have one key, or the key of an
            inserted row is stored.
        """
        values = self._values(bound)
        zone = self._session.conf.get("spark.sql.session.timeZone")
        is_usual = has_usual_settings(self._session)
        predicate = bound.reads(values, zone) if is_usual else None
        plan = plan_read(PinnedRead(target.snapshot), target.index, besides=predicate)
        with _naming_texts(bound):
            found = _found(bound, target, self._joined(bound, plan))
        spool = Spool(self._storage, self._root)
        try:
            rows = spool.stable(found)
            keys = _identified(rows, target.identities(bound.ordering))
            counts = self._counted(keys, bound, target, plan)
            if counts[_UNSURE]:
                pruning = bound.holds_new_keys(values) if is_usual else None
                self._require_new(keys, pruning, target)
        except BaseException:
            spool.drop()
            raise
        written = [name for name in rows.columns if not name.startswith("_bucketlake_")]
        source = SparkSource(rows.select([F.col(quoted([name])) for name in written]), spool)
        return MergedRows(source, changes_of(counts), predicate)

    def _source(self) -> DataFrame:
        """Return the source as a DataFrame that gives the same rows at every evaluation."""
        if self._frame is None:
            given = self._given
            frame = self._copied(given) if isinstance(given, pa.Table) else given
            frame = frame.select([F.col(quoted([name])) for name in self.schema.names])
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

    def _values(self, bound: BoundMerge) -> Values:
        """Return the distinct values by which the table is pruned, of few jobs."""
        found: dict[str, Sequence[object] | None] = {}
        source = self._source().alias(bound.source_alias)
        for field, text in bound.pruning_fields().items():
            held = source.select(F.expr(text).alias("value")).distinct().limit(VALUES_MAX + 1)
            values = [row[0] for row in held.collect()]
            found[field] = values if len(values) <= VALUES_MAX else None
        return found  # type: ignore[return-value] # Spark's values are untyped.

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

    def _counted(
        self, keys: DataFrame, bound: BoundMerge, target: MergeTarget, plan: ReadPlan
    ) -> Mapping[int, int]:
        """Return the number of rows of each effect, and of inserted rows with an unsure key.

        Raises InputError if a key is there twice.
        """
        kinds = {effect.value: F.col("effect") == effect.value for effect in Effect}
        marks = [F.col(name).contains(text) for name, text in NULL_MARKS]
        is_unsure = reduce(or_, marks) if bound.inserts_new else F.lit(True)
        kinds[_UNSURE] = kinds[Effect.INSERT.value] & is_unsure
        by_key = keys.groupBy("key", "path").agg(
            F.count(F.lit(1)).alias("rows"),
            *(F.count(F.when(test, 1)).alias(f"kind{kind}") for kind, test in kinds.items()),
        )
        totals = by_key.agg(
            F.max(F.struct("rows", "key", "path")).alias("most"),
            *(F.sum(f"kind{kind}").alias(f"kind{kind}") for kind in kinds),
        )
        (told,) = collect_noted(totals)
        if told["most"] is not None and told["most"]["rows"] > 1:
            key, path = told["most"]["key"], told["most"]["path"]
            is_same = (F.col("key") == key) & (F.col("path") == path)
            effects = [row["effect"] for row in keys.where(is_same).limit(2).collect()]
            raise ambiguous(
                target, key, path, effects, self._rows_of_key(bound, target, plan, key, path)
            )
        return {kind: told[f"kind{kind}"] or 0 for kind in kinds}

    def _rows_of_key(
        self, bound: BoundMerge, target: MergeTarget, plan: ReadPlan, key: str, path: str
    ) -> list[Mapping[str, object]]:
        """Return two rows of the source that change one key, for a message."""
        given = [F.col(quoted([bound.source_alias, name])) for name in self.schema.names]
        shown = F.to_json(F.struct(*given)).alias(_SHOWN)
        found = _found(bound, target, self._joined(bound, plan), shown)
        rows = _identified(found, target.identities(), _SHOWN)
        is_same = (F.col("key") == key) & (F.col("path") == path)
        pair = rows.where(is_same).limit(2).collect()
        return [json.loads(row[_SHOWN]) for row in pair]

    def _require_new(self, keys: DataFrame, pruning: Predicate | None, target: MergeTarget) -> None:
        pinned = PinnedRead(target.snapshot, ReadRequest(columns=target.key_columns))
        plan = plan_read(pinned, target.index, besides=pruning)
        stored = _identified(read_files(self._session, self._root, plan), target.identities())
        inserted = keys.where(F.col("effect") == Effect.INSERT.value)
        both = inserted.join(stored.select("key", "path"), ["key", "path"], "left_semi")
        for row in both.limit(1).collect():
            raise stored_already(target, row["key"], row["path"])


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


def _found(bound: BoundMerge, target: MergeTarget, joined: DataFrame, *more: Column) -> DataFrame:
    """Return the rows that the merge writes, with hidden columns."""
    for clause in bound.clauses:
        values = [_value(text).alias(name) for name, text in clause.values.items()]
        require_types(arrow_from_spark(joined.select(values).schema), clause, target)
    columns = [_by_clause([_value(clause.values[name]) for clause in bound.clauses]).alias(name)
               for name in bound.schema.names if name != IS_DELETED]  # fmt: skip
    effects = [F.lit(clause.effect.value) for clause in bound.clauses]
    flags = [_flag(clause) for clause in bound.clauses]
    old = [
        F.col(quoted([bound.alias, *field.split(".")])).alias(old_name(number))
        for number, field in enumerate(bound.ordering)
    ]
    rows = joined.select(
        *columns,
        _by_clause(flags).alias(IS_DELETED),
        _by_clause(effects).alias(EFFECT),
        *old,
        *more,
    )
    if bound.deletes_once:
        return rows.dropDuplicates(list(target.key_columns))
    return rows


def _value(text: str | None) -> Column:
    return F.lit(None) if text is None else F.expr(text)


def _flag(clause: BoundClause) -> Column:
    """Return whether a row is a delete; a table that stores such a flag has a value for it."""
    if clause.effect is Effect.DELETE:
        return F.lit(True)
    text = clause.values.get(IS_DELETED)
    return F.lit(False) if text is None else F.expr(text)


def _by_clause(values: Sequence[Column]) -> Column:
    """Return the value of each row's clause."""
    chosen = F.when(F.col(_CLAUSE) == 0, values[0])
    for number, value in enumerate(values[1:], 1):
        chosen = chosen.when(F.col(_CLAUSE) == number, value)
    return chosen


def _identified(rows: DataFrame, identities: Identities, *more: str) -> DataFrame:
    """Return key, partition path and effect of rows, and more of their columns, which are texts."""
    paths = [*identities.fields, *(path for path in (EFFECT, *more) if path in rows.columns)]
    if identities.ordering:
        paths += [*identities.ordering, *map(old_name, range(len(identities.ordering)))]
    needed = rows.select(nested_columns(list(dict.fromkeys(paths)), rows.columns))
    schema = pa.schema([*IDENTITY, *(pa.field(name, pa.string()) for name in more)])

    def identify(batches: Batches) -> Batches:
        for batch in batches:
            given = pa.Table.from_batches([batch])
            found = identities.identify(given)
            columns = [*found.columns, *(given[name] for name in more)]
            yield from pa.table(columns, schema=schema).to_batches()

    return map_in_arrow(needed, noting(identify), schema)


def _naming_texts(bound: BoundMerge) -> AbstractContextManager[None]:
    """Turn Spark's refusal of a text into an InputError."""
    texts = "; ".join(clause.role for clause in bound.clauses)
    return refusing(f"merge on {bound.on}: {texts}", "correct the text")
