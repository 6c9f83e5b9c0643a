"""Versions of a table's index kind: a conversion puts a table under another kind.

``index_kinds/<instant>.json`` in the extension folder holds the kind since the commit of that
instant (``index/setting_versions.py``). The commit changes no file; it also says in its metadata
that it is a conversion. So a write that began under the earlier kind finds the conversion among the
commits since its begin, and does not commit (``actions/conflict.py``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Final

from bucketlake.errors import FormatError
from bucketlake.format.checked_json import parse_checked, render_checked, require_version
from bucketlake.index.setting_versions import SettingVersions
from bucketlake.index.stored_kind import StoredKind, kind_entries, parse_kind
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

KINDS: Final = SettingVersions("index_kinds")

_VERSION = 1
_CONVERSION = "bucketlake.conversion"
"""Key in the extra metadata of a commit; its value is the engine of the new kind."""


@dataclass(frozen=True, slots=True)
class KindVersion:
    """One version of the kind.

    Attributes
    ----------
    index : SimpleBucket, ConsistentBucket, ExtendibleBucket, RecordIndex or DynamicBucket
        The kind.
    instant : InstantTime
        The commit that set it.
    """

    index: StoredKind
    instant: InstantTime

    def to_metadata(self) -> dict[str, str]:
        """Return the entry in the extra metadata of the commit."""
        return {_CONVERSION: str(kind_entries(self.index)["engine"])}


def is_conversion(commit: CommitMetadata) -> bool:
    """Return whether a commit put the table under another kind of index."""
    return _CONVERSION in commit.extra


def save_kind(storage: Storage, kind: KindVersion) -> None:
    """Save a new version; raise AlreadyExistsError if its instant already has a version."""
    entries = {"version": _VERSION, "index": kind_entries(kind.index)}
    data = render_checked(entries, partial(json.dumps, indent=2))
    KINDS.save(storage, kind.instant, data)


def latest_kind(storage: Storage, timeline: Timeline) -> KindVersion | None:
    """Return the newest valid version; None if there is none."""
    instant = KINDS.latest(storage, timeline)
    if instant is None:
        return None
    path = KINDS.path(instant)
    data = storage.read(path)
    try:
        held = parse_checked(data, path)
        require_version(held["version"], _VERSION, "index kinds", path)
        return KindVersion(parse_kind(held["index"], storage.root), instant)
    except (ValueError, KeyError, TypeError) as error:
        expected = f"an index kind of version {_VERSION} as JSON"
        raise FormatError(path, expected, f"{data[:80]!r} ({error!r})") from None
