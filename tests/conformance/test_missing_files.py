"""A missing file is an error for each kind and table type, whoever lists the files."""

from __future__ import annotations

from contextlib import suppress

import pytest

import bucketlake as bl
from bucketlake.errors import IndexStateError, MissingFileError
from bucketlake.model.file_slice import DataFile
from bucketlake.services.check.findings import FindingKind
from tests.conformance.cases import Checked, arrow, rows
from tests.inside import storage_of


def newest_file(table: bl.Table, partition: str) -> str:
    """Return the path of the newest data file of a partition."""
    names = [stored.path.removeprefix(f"{partition}/") for stored in storage_of(table).list("a")]
    files = [DataFile.of_name(partition, name, 0) for name in names]
    return max((f for f in files if f is not None), key=lambda file: file.name.instant).path


@pytest.mark.parametrize("lister", ["storage", "the metadata table"])
def test_missing_file_is_an_error_and_never_an_older_row(table: Checked, lister: str) -> None:
    if lister == "storage":
        table.table.drop_metadata_table()
    path = newest_file(table.table, "a")
    storage_of(table.table).delete(path)
    with pytest.raises(MissingFileError, match=path):
        table.table.to_arrow()
    with pytest.raises(MissingFileError, match=path):
        table.table.to_arrow(where="day = 'a'")
    batch = arrow(rows(range(12), 2))
    if lister == "storage":
        with pytest.raises((MissingFileError, IndexStateError)):  # Some kinds need the list.
            table.table.upsert(batch)
    else:
        with suppress(MissingFileError):  # A log file may go to a slice that lacks another file.
            table.table.upsert(batch)
        with suppress(MissingFileError):  # New keys may need none of its rows.
            table.table.insert(arrow(rows(range(100, 112), 2)))
    with pytest.raises(MissingFileError, match=path):
        table.table.to_arrow()
    found = table.table.doctor(min_age_seconds=0)
    assert [path] in [[*f.files] for f in found if f.kind is FindingKind.FILE_MISSING]
