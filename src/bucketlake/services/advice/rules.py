"""The rules of advice: from the facts of a workload to what should be changed, and why.

Each rule is a function of the facts and of the conditions, and returns one advice. It never advises
what a table cannot do: a kind that its version or its Hudi writers do not know, a conversion that
does not exist. That all is well is an advice too. ``index_rules.py`` has the rules of the index.
"""

from __future__ import annotations

from collections.abc import Iterator

from bucketlake.config.table_config import AUTO, OFF
from bucketlake.index.setting import TableIndex, without_state
from bucketlake.model.table_type import TableType
from bucketlake.read.handle import Handle
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.advice import steps
from bucketlake.services.advice.advice import Advice, AdviceList, change, keep
from bucketlake.services.advice.facts_of_table import conditions_of_table, workload_of_table
from bucketlake.services.advice.index_rules import (
    APPENDS_MIN,
    SMALL_PART,
    advise_index,
    index_of_new_table,
)
from bucketlake.services.advice.workload import Conditions, Workload, counted, size_text
from bucketlake.services.upkeep import Waiting

AMPLIFICATION_MAX = 10.0
"""A log file is cheaper from here on: copy-on-write writes ten rows for each row that changes."""

HUGE_FILES = 1_000
"""A partition of so many files is too large for one listing, one rescale and one hash."""

MANY_PARTITIONS = 100
"""Fewer small partitions are no burden: each is a folder to list, and a file to open."""

DELETES_MIN = 0.5
"""From this share of deletes on, a table shrinks."""

_WRITE_ANEW = (
    "this cannot be changed in place: make a new table, and write the rows to it with bulk_insert"
)


def advice_for(work: Workload, given: Conditions) -> list[Advice]:
    """Return the advice of all rules."""
    return [
        advise_index(work, given),
        advise_table_type(work, given),
        advise_partitions(work, given),
        advise_upkeep(work, given),
        *_services_due(work, given),
        *_ordering(work, given),
    ]


def advise_table_type(work: Workload, given: Conditions) -> Advice:
    """Copy-on-write, unless each commit writes far more rows than it changes."""
    subject, now = "table type", None if given.is_new else _words(given.table_type)
    cow = _words(TableType.COPY_ON_WRITE)
    if now is None:
        reason = (
            "it is read fastest, and needs no compaction; how much an upsert rewrites is known "
            "after some commits: ask again then"
        )
        step = steps.create_step(given, index_of_new_table(work, given).index)
        return change(subject, None, cow, reason, step)
    if given.table_type is TableType.MERGE_ON_READ:
        reason = "an upsert appends log files, whatever the size of the files that it touches"
        return keep(subject, now, reason)
    ratio = work.amplification
    if ratio is None:
        return keep(subject, now, "no commit has rewritten a stored file yet")
    told = (
        f"in the last {counted(work.commits, 'commit')}, {ratio:.1f} rows were written for each "
        f"changed row, and a commit rewrote {size_text(work.rewritten_bytes)} of stored files "
        f"({work.rewritten_share:.0%} of the file groups)"
    )
    if ratio < AMPLIFICATION_MAX:
        return keep(subject, now, f"{told}; log files pay from {AMPLIFICATION_MAX:.0f} rows on")
    if work.rewritten_bytes < given.target_bytes:
        least = size_text(given.target_bytes)
        return keep(subject, now, f"{told}; less than {least} is rewritten in no time")
    if (work.inserts or 0.0) >= APPENDS_MIN:
        return keep(subject, now, f"{told}; but nearly all are new, so that the index decides")
    if work.late_partitions:
        late = counted(work.late_partitions, "partition")
        told += f"; {late} got late data: less than 1 % of the rewritten rows"
    mor = TableType.MERGE_ON_READ
    made = None
    # No command names a rule of the table's own.
    if given.is_usual and given.index is not None and given.index.own_rule is None:
        made = steps.create_step(given, given.index, mor)
    return change(subject, now, _words(mor), f"{told}; {_WRITE_ANEW}", made)


def advise_partitions(work: Workload, given: Conditions) -> Advice:
    """Partitions of a size that one listing and one bucket count can serve."""
    subject = "partitions"
    columns = ", ".join(given.partition_by) or "none"
    now = f"by {columns}" if given.partition_by else columns
    count = counted(len(work.partitions), "partition")
    if not work.is_full:
        return keep(subject, now, "the size of full partitions is not known: give rows= (--rows)")
    huge = HUGE_FILES * given.target_bytes
    if work.largest_bytes > huge:
        files = -(-work.largest_bytes // given.target_bytes)
        reason = (
            f"the largest of {count} has {size_text(work.largest_bytes)}, which is "
            f"{files:,} files of {size_text(given.target_bytes)}; a column of time or region, such "
            "as a day, makes partitions that a batch leaves alone"
        )
        return change(subject, now, "by a finer column", _moved(reason, given))
    small = given.target_bytes * SMALL_PART
    if len(work.partitions) >= MANY_PARTITIONS and work.median_bytes < small:
        reason = (
            f"half of {count} have less than {size_text(work.median_bytes + 1)}, and each is a "
            "folder with files of its own; a coarser column, such as a month in place of a day, "
            f"makes files of {size_text(given.target_bytes)}"
        )
        return change(subject, now, "by a coarser column", _moved(reason, given))
    reason = (
        f"{count}, the largest has {size_text(work.largest_bytes)}, the median "
        f"{size_text(work.median_bytes)}"
    )
    return keep(subject, now, reason)


def advise_upkeep(work: Workload, given: Conditions) -> Advice:
    """Let writes run the services, unless Hudi's writers do."""
    subject, now = "upkeep", None if given.is_new else given.upkeep
    deleted = ""
    if (work.deletes or 0.0) >= DELETES_MIN:
        deleted = (
            f"; {work.deletes:.0%} of the changed rows are deletes, and old versions of files keep "
            "the deleted rows until a clean"
        )
    if given.hudi_writers:
        reason = "Hudi's writers run the services of their options, and do not see the setting"
        return keep(subject, given.upkeep, reason + deleted)
    if now is None:
        reason = "writes then clean and archive the table when that is due"
        step = steps.create_step(given, index_of_new_table(work, given).index)
        return change(subject, None, AUTO, reason + deleted, step)
    if given.upkeep == AUTO:
        return keep(subject, AUTO, f"writes run the services when they are due{deleted}")
    due = [f"{held.service} ({held.commits} commits)" for held in _due(work, given)]
    if not due:
        return keep(subject, OFF, f"no service is due yet{deleted}")
    reason = f"due: {', '.join(due)}; with auto, writes run services when they are due{deleted}"
    return change(subject, OFF, AUTO, reason, steps.keep_up(given))


def _due(work: Workload, given: Conditions) -> list[Waiting]:
    """Return the services that are due and have something to do.

    Whether a resize has, the rule of the index tells.
    """
    is_mor = given.table_type is TableType.MERGE_ON_READ
    has_work = {
        "compact": work.log_bytes > 0,
        "clean": is_mor or work.amplification is not None,
        "archive": True,
    }
    return [held for held in given.waiting if held.is_due and has_work.get(held.service)]


def _services_due(work: Workload, given: Conditions) -> Iterator[Advice]:
    """Yield the services that nobody has run although they are due."""
    for waited in _due(work, given):
        # A write runs a service that it finds due, so twice the time means that none does.
        patience = 1 if given.upkeep == OFF else 2
        if waited.commits < patience * waited.first:
            continue
        now = f"{waited.commits} commits"
        why = {
            "compact": "delta commits since the last compaction; readers merge their log files",
            "clean": "commits since the last clean; old versions of their files are still stored",
            "archive": "commits on the active timeline, which each open of the table lists",
        }[waited.service]
        reason = f"{waited.commits} {why}; it is due from {waited.first} on"
        step = steps.run_service(given, waited.service)
        yield change(waited.service, now, "run it", reason, step)


def _ordering(work: Workload, given: Conditions) -> Iterator[Advice]:
    """Yield the advice to name an ordering column, if a sample has a key twice."""
    if given.is_new and work.repeated and not given.ordering:
        reason = (
            f"{work.repeated:.1%} of the rows of the sample have the key of another row; without "
            "an ordering column the later row of a batch wins, and late data replaces newer data"
        )
        yield change("ordering", None, "a column that grows with each change", reason)


def _moved(reason: str, given: Conditions) -> str:
    return reason if given.is_new else f"{reason}; {_WRITE_ANEW}"


def _words(table_type: TableType) -> str:
    return table_type.value.lower()


# ---- Advice about a table -----------------------------------------------------------------------


def advise_table(
    handle: Handle, snapshot: Snapshot, index: TableIndex | None, target_bytes: int
) -> AdviceList:
    """Return the advice about a pinned table; no data file is read.

    Parameters
    ----------
    handle : Handle
        The table as the caller knows it.
    snapshot : Snapshot
        The table.
    index : TableIndex or None
        Its index, if it is known.
    target_bytes : int
        Bytes that a file should have.
    """
    index = None if index is None else without_state(index)
    work = workload_of_table(snapshot, index)
    conditions = conditions_of_table(snapshot, handle.address, index, handle.index, target_bytes)
    return AdviceList(advice_for(work, conditions), work)
