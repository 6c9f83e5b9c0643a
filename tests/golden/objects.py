"""Files of the golden tables in memory, for tests that only read them: unpacked once a run."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fastavro

from bucketlake.format.avro.timeline_records import CONTAINER_MAGIC

TABLES_FOLDER = Path(__file__).parent / "tables"
MORE_TABLES_FOLDER = TABLES_FOLDER / "more"
MOR_TABLES_FOLDER = TABLES_FOLDER / "mor"
VIRTUAL_TABLES_FOLDER = TABLES_FOLDER / "virtual"


def table_names(folder: Path) -> list[str]:
    """Return the names of the tables that lie packed in a folder."""
    return sorted(path.name.removesuffix(".tar.gz") for path in folder.glob("*.tar.gz"))


@cache
def objects_of_table(name: str) -> dict[str, bytes]:
    """Return the files of a table by path."""
    (archive,) = TABLES_FOLDER.rglob(f"{name}.tar.gz")
    with tarfile.open(archive) as packed:
        files = ((member, packed.extractfile(member)) for member in packed)
        return {member.name.removeprefix(f"{name}/"): file.read() for member, file in files if file}


def containers_of_table(name: str) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Yield the Avro containers of a table's timelines: path, content, and schema as written."""
    for path, data in sorted(objects_of_table(name).items()):
        if path.startswith(".hoodie/") and data.startswith(CONTAINER_MAGIC):
            header = fastavro.reader(io.BytesIO(data)).metadata["avro.schema"]
            yield path, data, _bare(json.loads(header))


def _bare(part: Any) -> Any:
    """Take documentation off, and a default that stands where Avro knows none."""
    if isinstance(part, dict):
        is_collection = part.get("type") in ("map", "array")
        stray = {"doc", "default"} if is_collection else {"doc"}
        return {key: _bare(value) for key, value in part.items() if key not in stray}
    return [_bare(one) for one in part] if isinstance(part, list) else part
