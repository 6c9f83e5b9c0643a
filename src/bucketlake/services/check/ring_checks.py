"""Checks of hash rings (RFC-42): whether they can be read, and each version is of a commit.

Hudi may take a version of no commit for the ring of its partition, and then writes keys twice. A
partition with rows and no ring at all is written by the ring that it would begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bucketlake.errors import FormatError
from bucketlake.index.hashing_config import INITIAL_INSTANT
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.rings import StoredVersion, counts, metadata_path, stored_versions
from bucketlake.services.check.examination import Examination
from bucketlake.services.check.findings import Finding, FindingKind
from bucketlake.timeline.active import load_timeline


def _broken(table: Examination) -> Iterator[Finding]:
    """Find rings that cannot be read."""
    for partition, error in sorted(table.broken_rings.items()):
        problem = (
            error.problem
            if isinstance(error, FormatError)
            else f"expected {error.expected}, but {error.held}"
        )
        yield Finding(
            FindingKind.UNREADABLE,
            f"{problem}; no bucket of the partition can be found, and writes fail",
            partition,
            (error.path,),
        )


def _of_no_commit(table: Examination) -> Iterator[Finding]:
    """Find versions of no commit: Hudi may use them nevertheless."""
    suspects = [v for v in stored_versions(table.storage) if _is_stray(table, v)]
    if not suspects:
        return
    newer = load_timeline(table.opened)
    known = {instant.requested_at for instant in newer.instants}
    for version in suspects:
        if version.instant in known or counts(table.storage, newer, version):
            continue  # Its writer began after the first listing, or it was archived meanwhile.
        path = metadata_path(version.partition_path, version.instant, version.engine)
        if table.storage.stat(path) is not None:  # A rollback may have deleted it meanwhile.
            yield Finding(
                FindingKind.RING_OF_NO_COMMIT,
                f"a version of the {version.engine.ring_word} has the instant {version.instant}, "
                "but there is no such commit; "
                + (
                    "Hudi may write by it, and then keys occur twice"
                    if version.engine is CONSISTENT
                    else "no program writes by it"
                ),
                version.partition_path,
                (path,) if version.marker is None else (version.marker, path),
            )


def _is_stray(table: Examination, version: StoredVersion) -> bool:
    known = any(instant.requested_at == version.instant for instant in table.timeline.instants)
    if known or not table.is_old(version.stored):
        return False
    return not counts(table.storage, table.timeline, version)


def _missing(table: Examination) -> Iterator[Finding]:
    """Find partitions with rows that have no ring, and whose file groups fit the first one."""
    kind = table.index.resized if table.index is not None else None
    if kind is None:
        return
    layout = kind.layout()
    for partition in sorted({file_slice.partition_path for file_slice in table.placed}):
        if not layout.state(partition).is_stored:
            yield Finding(
                FindingKind.RING_MISSING,
                _missing_text(layout, partition),
                partition,
                (metadata_path(partition, INITIAL_INSTANT, layout.engine),),
            )


def _missing_text(layout: RingLayout, partition: str) -> str:
    engine, count = layout.engine, layout.slot_count(partition)
    if engine is CONSISTENT:
        return (
            "the hash ring of the partition is missing; bucketlake takes the ring that a "
            f"partition begins with, of {count} nodes, and a writer of Hudi makes one of its own "
            "number of buckets"
        )
    return (
        f"the {engine.ring_word} of the partition is missing; bucketlake takes the one that a "
        f"partition begins with, of {count} {engine.bucket_word}s"
    )


RING_CHECKS: tuple[Callable[[Examination], Iterator[Finding]], ...] = (
    _broken,
    _of_no_commit,
    _missing,
)
