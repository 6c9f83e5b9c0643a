"""Versions of a partition-level hashing config, in Hudi's location and format (RFC-89).

``configs/<instant>.hashing_config`` in the index folder holds the rules for bucket counts since
that instant. A version is valid unless the replace commit that wrote it is still pending. Versions
older than the active timeline move to ``archive/``. A table is partition-level if it has a version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from bucketlake.config.paths_of_table import HOODIE_FOLDER
from bucketlake.errors import AlreadyExistsError, FormatError, ObjectNotFoundError
from bucketlake.format.json_fields import load_json, render_checked
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.outcome import is_committed, is_rolled_back

META_FOLDER = f"{HOODIE_FOLDER}/.bucket_index/partition_bucket_index_meta"
CONFIGS_FOLDER = f"{META_FOLDER}/configs"
HASHING_ARCHIVE_FOLDER = f"{META_FOLDER}/archive"

DRAFT_FILE = f"{HOODIE_FOLDER}/.simple_hashing/config"
"""All versions in one file, as in the draft of RFC-89; no release of Hudi wrote this file."""

INITIAL_INSTANT = InstantTime("00000000000000")
"""Instant of the version with which a table is created: older than any other instant."""

_SUFFIX = ".hashing_config"
# In the RFC; not written by Hudi 1.2.0.
_MERGED_ARCHIVE = f"{HASHING_ARCHIVE_FOLDER}/archived{_SUFFIX}"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class HashingConfig:
    """One version of a table's rules.

    Attributes
    ----------
    expressions : str
        Expressions of the rule: ``pattern,count;pattern,count`` for ``regex``.
    default_count : int
        Bucket count of a partition that matches no expression.
    rule : str
        Name of the rule.
    instant : InstantTime
        The replace commit that wrote the version, or ``INITIAL_INSTANT``.
    """

    expressions: str
    default_count: int
    rule: str
    instant: InstantTime

    def to_json(self) -> bytes:
        """Return the version as JSON, formatted as by Hudi, with a checksum.

        Examples
        --------
        >>> config = HashingConfig("a,3", 2, "regex", InstantTime("20261120232955071"))
        >>> print(config.to_json().decode())
        {
          "expressions" : "a,3",
          "defaultBucketNumber" : 2,
          "rule" : "regex",
          "version" : 1,
          "instant" : "20261120232955071",
          "checksum" : "6640ce31"
        }
        """
        entries = {
            "expressions": self.expressions,
            "defaultBucketNumber": self.default_count,
            "rule": self.rule,
            "version": _VERSION,
            "instant": self.instant,
        }
        render = partial(json.dumps, indent=2, separators=(",", " : "), ensure_ascii=False)
        return render_checked(entries, render)


def config_path(instant: InstantTime) -> str:
    """Return the path of an active version, relative to the table."""
    return f"{CONFIGS_FOLDER}/{instant}{_SUFFIX}"


def save_config(storage: Storage, config: HashingConfig) -> None:
    """Save a new version; raise AlreadyExistsError if its instant already has a version."""
    storage.put_if_absent(config_path(config.instant), config.to_json())


def is_partition_level(storage: Storage) -> bool:
    """Return whether a table has any version of a hashing config."""
    return next(iter(storage.list(META_FOLDER)), None) is not None


def committed_configs(storage: Storage, timeline: Timeline) -> list[HashingConfig]:
    """Return the valid versions, oldest first: from the draft's file, archived, and active ones.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The active timeline; if it is restricted to a time, so are the versions.
    """
    # Read active versions first, so that a version that is archived meanwhile is not missed.
    active = _active(storage, timeline)
    found = [*_read_map(storage, DRAFT_FILE), *_archived(storage), *active]
    return _counting(storage, found, timeline)


def latest_config(storage: Storage, timeline: Timeline) -> HashingConfig | None:
    """Return the newest valid version; None if there is none, as before the first rescale."""
    found = _active(storage, timeline)
    if not found and (timeline.until is not None or timeline.undone):
        found = committed_configs(storage, timeline)
    elif not found:  # Then no version is archived: archival keeps the newest version active.
        found = _counting(storage, _read_map(storage, DRAFT_FILE), timeline)
    return found[-1] if found else None


def _active(storage: Storage, timeline: Timeline) -> list[HashingConfig]:
    # Before the active timeline there are no instants; ``until`` then limits the versions.
    newest, found = max(timeline.newest_time() or "", timeline.until or ""), []
    for instant in active_versions(storage):
        # Skip a version that was saved after the timeline was listed.
        if instant == INITIAL_INSTANT or instant <= newest:
            with suppress(ObjectNotFoundError):
                found.append(_read(storage, config_path(instant)))
    return _counting(storage, found, timeline)


def _counting(
    storage: Storage, configs: Iterable[HashingConfig], timeline: Timeline
) -> list[HashingConfig]:
    """Return the versions that are committed on the timeline, one per instant, oldest first.

    A version older than the timeline is committed (RFC-89, "Loading"), unless bucketlake knows
    that its instant was rolled back.
    """
    found = {
        config.instant: config
        for config in configs
        if config.instant == INITIAL_INSTANT or is_committed(storage, timeline, config.instant)
    }
    return [found[instant] for instant in sorted(found)]


def archive_configs(storage: Storage, timeline: Timeline) -> list[InstantTime]:
    """Archive the versions that only time travel needs; return their instants.

    As in Hudi, these are the versions older than the active timeline, except the newest of them.
    """
    start = timeline.start or ""
    old = sorted(
        i for i in active_versions(storage) if i < start and not is_rolled_back(storage, i)
    )
    for instant in old[:-1]:
        with suppress(AlreadyExistsError):  # An earlier archival died between two steps.
            storage.put_if_absent(
                f"{HASHING_ARCHIVE_FOLDER}/{instant}{_SUFFIX}", storage.read(config_path(instant))
            )
        storage.delete(config_path(instant))
    return old[:-1]


def active_versions(storage: Storage) -> list[InstantTime]:
    """Return the instants of the versions that are not archived, also of invalid versions."""
    return instants_in(storage, CONFIGS_FOLDER, _SUFFIX)


def instants_in(storage: Storage, folder: str, ending: str) -> list[InstantTime]:
    """Return the instants that have a file in a folder, by their names, oldest first."""
    names = (stored.path.rpartition("/")[2] for stored in storage.list(folder, recursive=False))
    own = (n.removesuffix(ending) for n in names if n.endswith(ending) and not n.startswith("."))
    return sorted(map(InstantTime, own))


def _archived(storage: Storage) -> Iterator[HashingConfig]:
    for stored in storage.list(HASHING_ARCHIVE_FOLDER, recursive=False):
        if stored.path == _MERGED_ARCHIVE:
            yield from _read_map(storage, _MERGED_ARCHIVE)
        elif stored.path.endswith(_SUFFIX) and "/." not in stored.path.removeprefix(
            HASHING_ARCHIVE_FOLDER
        ):
            yield _read(storage, stored.path)


def _read(storage: Storage, path: str) -> HashingConfig:
    instant = path.rpartition("/")[2].removesuffix(_SUFFIX)
    return _parse(_load(storage, path), InstantTime(instant), path)


def _read_map(storage: Storage, path: str) -> Iterator[HashingConfig]:
    """Read a file that holds all versions by instant, as in the RFC and its draft, if it exists."""
    with suppress(ObjectNotFoundError):
        for instant, entries in _load(storage, path).items():
            yield _parse(entries, InstantTime(instant), path)


def _load(storage: Storage, path: str) -> dict[str, Any]:
    data = storage.read(path)
    loaded = load_json(data, path)
    if not isinstance(loaded, dict):
        raise FormatError(path, "a JSON object", repr(data[:80]))
    return loaded


def _parse(entries: Any, instant: InstantTime, path: str) -> HashingConfig:
    """Read a version; the draft of the RFC has other names for its entries."""
    if not isinstance(entries, Mapping):
        raise FormatError(path, "a version as a JSON object", repr(entries)[:80])
    expressions = entries.get("expressions", entries.get("expression"))
    default = entries.get("defaultBucketNumber", entries.get("default"))
    rule = entries.get("rule")
    if type(expressions) is not str or type(default) is not int or type(rule) is not str:
        expected = "expressions and rule as text, defaultBucketNumber as a number"
        raise FormatError(path, expected, repr(entries)[:200])
    return HashingConfig(expressions, default, rule, instant)
