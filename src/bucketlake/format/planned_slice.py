"""A file slice as plans of table services name it: texts that lead to its files.

Compaction plans name files by their names, clustering plans by addresses. Only the names are used
from both. So the plan of a moved table stays valid, and no plan leads out of the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from bucketlake.config.inner_path import require_data_place
from bucketlake.errors import FormatError
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice


def planned_slice(
    partition_path: str,
    file_id: str,
    base: str | None,
    logs: Iterable[str],
    path: str,
    instant: str | None = None,
) -> FileSlice:
    """Return a slice of a plan; the plan has no file sizes, so they are 0.

    Parameters
    ----------
    partition_path, file_id : str
        The file group.
    base : str or None
        Name or address of the base file; None or empty if the slice has none.
    logs : iterable of str
        Names or addresses of the log files, in any order.
    path : str
        Name of the plan's file, for the error.
    instant : str, optional
        Instant of the slice; if the plan does not name it, it follows from the files.

    Raises
    ------
    FormatError
        If a text names something that is no data file of the table.
    """
    require_data_place(partition_path, file_id, path)  # Names of new files begin with the id.
    base_file = None
    if base:
        base_name = BaseFileName.from_file_name(_bare(base))
        if base_name is None:
            raise FormatError(path, "the name of a base file", repr(base))
        base_file = DataFile(partition_path, base_name, 0)
    log_files = []
    for text in logs:
        log_name = LogFileName.from_file_name(_bare(text))
        if log_name is None:
            raise FormatError(path, "the name of a log file", repr(text))
        log_files.append(DataFile(partition_path, log_name, 0))
    log_files.sort(key=lambda file: file.order)
    if instant is None:
        named = log_files if base_file is None else [base_file]
        instant = min((file.name.instant for file in named), default="")
    return FileSlice(
        partition_path, FileId(file_id), InstantTime(instant), base_file, tuple(log_files)
    )


def _bare(text: str) -> str:
    return text.rpartition("/")[2]
