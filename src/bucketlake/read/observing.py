"""What a call wrote, told when it has ended: to OpenTelemetry, and as lineage to OpenLineage.

OpenLineage gets an event for the begin and one for the end of each call that changed a table.
Nothing is imported and nothing is sent unless the environment names where to, as OpenLineage's own
client reads it. Both events are sent when the call has ended, with their own times; a client that
fails gives a warning, since the table has changed by then.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from bucketlake.errors import ServiceWarning
from bucketlake.flow.call import Call, add_facts, count, is_watched
from bucketlake.format.commit_metadata import decode_commit_metadata

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient


@dataclass(frozen=True, slots=True)
class WrittenSums:
    """Sums over the files that the commits of a call wrote."""

    inserted: int
    updated: int
    deleted: int
    files: int
    bytes: int

    @classmethod
    def of(cls, call: Call) -> WrittenSums:
        """Return the sums of a call."""
        commits = [decode_commit_metadata(each, "") for each in call.changes.values() if each]
        stats = [stat for commit in commits for stat in commit.stats]
        return cls(
            sum(stat.insert_count for stat in stats),
            sum(stat.update_count for stat in stats),
            sum(stat.delete_count for stat in stats),
            len(stats),
            sum(stat.file_size_bytes for stat in stats),
        )


def tell_written(call: Call) -> None:
    """Tell OpenTelemetry what a call wrote."""
    if not call.changes or not is_watched():
        return
    written = WrittenSums.of(call)
    add_facts(instant=[*call.changes][-1], **asdict(written))
    for change in ("inserted", "updated", "deleted"):
        count("rows", getattr(written, change), change=change)
    count("files", written.files)
    count("bytes", written.bytes)


# ---- OpenLineage ---------------------------------------------------------------------------------

_SETTINGS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")


@contextmanager
def lineage_told(call: Call, schema: Callable[[], pa.Schema | None]) -> Iterator[None]:
    """Tell what the body did with a table, if it put an instant on the timeline.

    Parameters
    ----------
    call : Call
        What is noted of the call.
    schema : callable
        Returns the columns of the table, after the call.
    """
    if not any(name in os.environ for name in _SETTINGS):
        yield
        return
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        ended_at = datetime.now(UTC)
        if call.changes or (error and call.instants):
            try:
                _emit(call, schema, error, ended_at)
            except Exception as problem:  # Of the client, or of the package that is not there.
                warnings.warn(
                    f"the call has ended, but its lineage could not be told: {problem}; check "
                    f"{', '.join(_SETTINGS)} and that openlineage-python is installed",
                    ServiceWarning,
                    stacklevel=4,
                )


def dataset_name(address: str) -> tuple[str, str]:
    """Return namespace and name of a dataset, by OpenLineage's rules.

    >>> dataset_name("s3://lake/sales/orders"), dataset_name("/lake/orders")
    (('s3://lake', 'sales/orders'), ('file', '/lake/orders'))
    """
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")


def _emit(
    call: Call,
    schema: Callable[[], pa.Schema | None],
    error: BaseException | None,
    ended_at: datetime,
) -> None:
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets
    from openlineage.client.uuid import generate_new_uuid

    namespace, name = dataset_name(call.table)
    run = events.Run(str(generate_new_uuid(call.began_at)), _run_facets(facets, error))
    job = events.Job(
        os.environ.get("OPENLINEAGE_NAMESPACE", "default"),
        f"bucketlake.{call.name}.{name.rpartition('/')[2]}",
    )
    inputs = [events.InputDataset(*dataset_name(address)) for address, _ in call.inputs]
    columns = schema()
    output = events.OutputDataset(
        namespace,
        name,
        facets=_output_facets(facets, call, columns, has_failed=error is not None),
        outputFacets={} if error else {"outputStatistics": _statistics(facets, call)},
    )
    state = events.RunState.COMPLETE
    if error is not None:
        state = events.RunState.FAIL if isinstance(error, Exception) else events.RunState.ABORT
    own = {key: text for key, text in os.environ.items() if key.startswith("OPENLINEAGE")}
    client = _client(tuple(sorted(own.items())))
    for kind, at in ((events.RunState.START, call.began_at), (state, ended_at)):
        event = events.RunEvent(
            eventType=kind,
            eventTime=at.isoformat(),
            run=run,
            job=job,
            producer=_producer(),
            inputs=inputs,
            outputs=[output],
        )
        client.emit(event)


@cache
def _client(_settings: tuple[tuple[str, str], ...]) -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


@cache
def _producer() -> str:
    from importlib import metadata

    return f"urn:bucketlake:{metadata.version('bucketlake')}"


def _run_facets(facets: Any, error: BaseException | None) -> dict[str, Any]:
    told: dict[str, Any] = {}
    parent = os.environ.get("OPENLINEAGE_PARENT_ID", "").split("/")
    if len(parent) == 3:
        namespace, job, run = parent
        told["parent"] = facets.parent_run.ParentRunFacet(
            facets.parent_run.Run(run), facets.parent_run.Job(namespace, job)
        )
    if error is not None:
        told["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(str(error), "Python")
    return told


def _output_facets(
    facets: Any, call: Call, columns: pa.Schema | None, *, has_failed: bool
) -> dict[str, Any]:
    versions, symlinks = facets.dataset_version_dataset, facets.symlinks_dataset
    told = {"version": versions.DatasetVersionDatasetFacet([*(call.changes or call.instants)][-1])}
    if columns is not None:
        schemas, lineage = facets.schema_dataset, facets.column_lineage_dataset
        stored = {*columns.names}
        fields = [schemas.SchemaDatasetFacetFields(each.name, str(each.type)) for each in columns]
        told["schema"] = schemas.SchemaDatasetFacet(fields)
        sources: dict[str, list[Any]] = {}
        for address, names in [] if has_failed else call.inputs:
            for column in filter(stored.__contains__, names()):
                given = lineage.InputField(*dataset_name(address), column)
                sources.setdefault(column, []).append(given)
        if sources:
            by_column = {column: lineage.Fields(given) for column, given in sources.items()}
            told["columnLineage"] = lineage.ColumnLineageDatasetFacet(by_column)
    if call.entries:
        aliases = [
            symlinks.Identifier(
                address.partition(",")[0].replace("thrift://", "hive://"), name, "TABLE"
            )
            for address, name in call.entries
        ]
        told["symlinks"] = symlinks.SymlinksDatasetFacet(aliases)
    return told


def _statistics(facets: Any, call: Call) -> Any:
    written = WrittenSums.of(call)
    return facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=written.inserted + written.updated, size=written.bytes, fileCount=written.files
    )
