"""The doctor's look at the catalog in which a table registers itself, and the sync of a repair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from bucketlake.catalogs.synchronize import TableSync
from bucketlake.catalogs.table_sync import Registration, SyncResult, sync_table
from bucketlake.errors import CatalogError, ConfigError, InputError
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.check.findings import Finding, FindingKind

_REFUSED = (CatalogError, ConfigError, InputError)


class EntryCheck:
    """Compares all partitions and columns, also where no commit followed the last sync."""

    def check(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Find the entries of a table that a sync would change, or why that cannot be told."""
        try:
            told = _synced(snapshot, dry_run=True)
        except _REFUSED as error:
            yield Finding(FindingKind.CATALOG_NOT_COMPARED, str(error))
            return
        for each in told.entries:
            if each.action != "unchanged":
                yield Finding(FindingKind.CATALOG_BEHIND, _meaning(each))

    def mend(self, snapshot: Snapshot) -> None:
        """Sync; what the catalog refuses remains a finding."""
        with suppress(*_REFUSED):
            _synced(snapshot, dry_run=False)


def _synced(snapshot: Snapshot, *, dry_run: bool) -> SyncResult:
    assert snapshot.config.sync is not None
    where = Registration.of_text(snapshot.config.sync)
    settings = replace(where.settings, incremental=False)
    return sync_table(snapshot, where.catalog, settings, dry_run=dry_run)


def _meaning(entry: TableSync) -> str:
    if entry.action == "created":
        return f"the catalog has no table {entry.name}"
    counts = {"missing": entry.added, "elsewhere": entry.moved, "no longer there": entry.dropped}
    differs = [f"{count} partitions {how}" for how, count in counts.items() if count]
    if entry.columns:
        differs.insert(0, f"columns {', '.join(entry.columns)}")
    return f"{entry.name} in the catalog differs: {'; '.join(differs) or 'its properties'}"
