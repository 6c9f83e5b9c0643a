"""The handle: what a caller knows of a table, from which every call opens it anew.

``Table``, a scan and the data source of Spark have a handle. It is small, can be pickled, and holds
no session, held lock or cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from bucketlake.config.merge_entries import DeleteMarker
from bucketlake.config.support import check_readable
from bucketlake.errors import UnsupportedFeatureError, naming_table
from bucketlake.flow.call import Call, calling, current_call
from bucketlake.index.setting import TableIndex, resolve_index
from bucketlake.model.arguments import annotated_checks
from bucketlake.model.table_type import LogFormat
from bucketlake.model.words_of_others import require_our_arguments
from bucketlake.read.observing import lineage_told, tell_written
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config

if TYPE_CHECKING:
    from bucketlake.read.request import PinnedRead, ReadRequest
    from bucketlake.read.snapshot import Snapshot

Class = TypeVar("Class", bound=type)


@dataclass(frozen=True, slots=True)
class Handle:
    """Path of a table, and how to access it.

    Attributes
    ----------
    path : str
        Folder of the table, as the user passed it.
    index : TableIndex or None
        What the caller states of the index, or ``open_table`` has found; a table of Hudi stores
        none.
    storage_options : mapping of str to str
        The options of the caller.
    log_format : LogFormat
        Format of the records in log files that are written.
    lock : TableLock
        The lock that Hudi's writers share.
    job_marker : (field, text) or None
        The delete marker of a job, for a table that stores none.
    """

    path: str
    index: TableIndex | None = field(default=None, repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    log_format: LogFormat = field(default=LogFormat.PARQUET, repr=False)
    lock: TableLock = field(default=NO_LOCK, repr=False)
    job_marker: DeleteMarker | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The path for people, without secrets."""
        return shown_address(self.path)

    @property
    def storage(self) -> Storage:
        """The folder of the table."""
        return open_storage(self.path, self.storage_options)

    def open(self) -> OpenTable:
        """Read the properties of the table; raise an error if there is none, or none to read."""
        storage = self.storage
        config = read_table_config(storage)
        check_readable(config, self.path)
        return opened_table(storage, config, self.lock)

    def snapshot(self) -> Snapshot:
        """Open the table, and pin its newest state."""
        from bucketlake.read.snapshot import load_snapshot

        return load_snapshot(self.open())

    def pin(self, request: ReadRequest) -> PinnedRead:
        """Open the table, and pin it for a read; see :func:`pin_read`."""
        from bucketlake.read.request import pin_read

        return pin_read(self.open(), request)

    def index_of(self, snapshot: Snapshot) -> TableIndex | None:
        """Return the index of the pinned table; None if it is not known: no bucket is pruned."""
        return self.index_at(snapshot.table, snapshot.timeline)

    def index_at(self, table: OpenTable, timeline: Timeline) -> TableIndex | None:
        """Return the index of the table at the time of a timeline; None if it is not known."""
        try:
            return resolve_index(table, timeline, self.index)
        except UnsupportedFeatureError:  # Its rules are of an unknown kind.
            return None

    @contextmanager
    def at_work(self, call: str) -> Iterator[None]:
        """Let the body be a call of the user, which errors, Spark's jobs and observers name.

        A call within another one is a part of it.
        """
        with naming_table(self.address):
            if current_call() is not None:
                yield
                return
            made = Call(call.replace("_", " "), self.address)
            with lineage_told(made, lambda: self.snapshot().schema_or_none), calling(made):
                yield
                tell_written(made)


def naming_its_table(attribute: str) -> Callable[[Class], Class]:
    """Let all public methods and properties of a class name the table that they work on.

    ``attribute`` has the handle. An unknown argument raises the error that names ours; flags,
    texts and sessions are checked by the annotations of the arguments. A method that hands its
    ``**options`` on to ``scan`` shows those of ``scan`` in its signature.
    """

    def decorate(kind: Class) -> Class:
        public = [(name, member) for name, member in vars(kind).items() if not name.startswith("_")]
        for name, member in public:
            if inspect.isfunction(member):
                setattr(kind, name, _named(member, kind, attribute))
            elif isinstance(member, property) and member.fget is not None:
                setattr(kind, name, property(_named(member.fget, kind, attribute)))
        return kind

    return decorate


def _named(method: Callable[..., Any], kind: type, attribute: str) -> Callable[..., Any]:
    signature = _whole_signature(method, kind)
    known, checks = signature.parameters, annotated_checks(signature)

    @wraps(method)
    def run(value: Any, *args: Any, **options: Any) -> Any:
        if not options.keys() <= known.keys():
            require_our_arguments(f"{kind.__name__}.{method.__name__}", known, options)
        with getattr(value, attribute).at_work(method.__name__):
            given = dict(zip([*known][1:], args, strict=False)) | options
            for name, argument in given.items():
                if name in checks:
                    checks[name](**{name: argument})
            return method(value, *args, **options)

    vars(run)["__signature__"] = signature
    return run


def _whole_signature(method: Callable[..., Any], kind: Any) -> inspect.Signature:
    signature = inspect.signature(method)
    known = signature.parameters.values()
    parameters = [each for each in known if each.kind is not each.VAR_KEYWORD]
    if len(parameters) < len(known):
        _, *options = inspect.signature(kind.scan).parameters.values()
        parameters += [option.replace(kind=option.KEYWORD_ONLY) for option in options]
    return signature.replace(parameters=parameters)
