"""Facts about a table and its instants, ready to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import bucketlake as bl
from bucketlake.cli.output import Output
from bucketlake.index.setting import TableIndex
from bucketlake.model.file_name import InstantTime
from bucketlake.read.history import TimelineEntry
from bucketlake.timeline.instant import Action, State


def table_facts(table: bl.Table) -> dict[str, object]:
    """Return the facts of a table: name and type, keys, index, columns, and newest commit."""
    config = table.config()
    spec, index = config.key_spec, table.index
    commits = [i for i in table.timeline() if i.action.writes_data and i.state is State.COMPLETED]
    return {
        "path": table.path,
        "name": config.name,
        "table_type": config.table_type.value.lower(),
        "table_version": config.version,
        "record_key": list(spec.record_key_fields),
        "partition_by": list(spec.partition_fields),
        "ordering": list(config.ordering_fields),
        **({"ordering_groups": config.groups_text} if config.ordering_groups else {}),
        **({} if config.custom_marker is None else {"delete_marker": config.marker_text}),
        "merge_mode": config.merge_mode.value.lower(),
        **({"index": None} if index is None else index.facts()),
        **_rule_facts(table),
        **_ring_facts(table, index),
        "commits": len(commits),
        "last_commit": commits[-1].requested_at if commits else None,
        "columns": [
            {"name": field.name, "nullable": field.nullable, "type": str(field.type)}
            for field in table.schema()
        ],
    }


def _rule_facts(table: bl.Table) -> dict[str, object]:
    versions = [asdict(version) for version in table.rule_versions()]
    if not versions:
        return {}
    return {"rule_versions": versions, "recorded_partitions": len(table.recorded_counts())}


def _ring_facts(table: bl.Table, index: TableIndex | None) -> dict[str, object]:
    if index is None or index.resized is None:
        return {}
    return {"pending_resizes": pending_of(table, Action.CLUSTERING)}


def show_service(
    output: Output,
    table: bl.Table,
    action: Action,
    facts: Mapping[str, object],
    completed: Sequence[InstantTime],
    *,
    ran: bool,
    found: Sequence[object],
) -> None:
    """Show what a service that carries out plans did, or would do, and which plans wait."""
    waiting = [] if ran else pending_of(table, action)
    pending = {"pending": waiting} if waiting else {}
    facts = {**facts, "completed": [*completed], **pending}
    output.outcome(facts, ran=ran, idle=not (found or completed or waiting))


def pending_of(table: bl.Table, action: Action) -> list[InstantTime]:
    """Return the pending instants of an action: plans that the next run carries out."""
    return [
        instant.requested_at
        for instant in table.timeline()
        if instant.action is action and not instant.completed_at
    ]


def history_facts(entry: TimelineEntry) -> dict[str, object]:
    """Return the facts of an instant, and what its commit wrote."""
    return entry.facts() | {name: getattr(entry, name) for name in _OF_COMMITS}


_OF_COMMITS = (
    *("operation", "written", "deleted", "files", "written_bytes", "partitions", "seconds"),
)
