"""What a Python worker of Spark does before and after a task, and need not do.

Arrow's usual allocator gives memory back and takes it again all the time: with jemalloc, which most
builds of Arrow have, the workers of a write take 5 % less processor time and a sixth less memory
(docs/benchmarks/profile.md).

After each task, and before the next task, a worker runs a full garbage collection; PySpark 3.5 also
lets Python's path finders list their folders again. With NumPy and Arrow loaded, and with PySpark
in a zip file, this takes about 60 to 160 ms per task.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from zipimport import zipimporter

import pyarrow as pa

_POOL = "jemalloc"
_POOL_OF_USER = "ARROW_DEFAULT_MEMORY_POOL"  # Arrow's own variable.

_modules_seen = 0


def begin_task() -> None:
    """Choose where Arrow allocates, unless the user did, and postpone the import of pandas."""
    if (
        _POOL_OF_USER not in os.environ
        and _POOL in pa.supported_memory_backends()
        and pa.default_memory_pool().backend_name != _POOL
    ):
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    postpone_pandas()


def end_task() -> None:
    """Return memory, and exclude loaded modules from garbage collections, when a task ends.

    If a task loaded new modules, garbage is collected first, so that no garbage is kept, and then
    all objects are excluded. Finders in zip files are dropped, because each would read the whole
    directory of its file; Python creates a finder again when it needs it.
    """
    global _modules_seen
    pa.default_memory_pool().release_unused()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        gc.collect()
        gc.freeze()


# ---- Keeping pandas out of a process that does not use it ----------------------------------------
#
# pyarrow imports pandas when it first creates an array or a scalar from a Python value, because it
# must recognise a pandas Series. The import takes a second of processor time, and neither the tasks
# of bucketlake nor its command line use pandas.
#
# A Python worker of Spark may later run functions of the user, which may use pandas. So the import
# is only postponed: when any code imports pandas, pyarrow finds it before that code can create a
# Series.

_PANDAS = "pandas"


def postpone_pandas() -> None:
    """Keep pyarrow from importing pandas until other code imports it.

    The function does nothing if pandas is already imported.
    """
    if _PANDAS in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    finder.hides_from = threading.get_ident()
    try:
        pa.scalar(None)  # pyarrow looks for pandas once, here.
    finally:
        finder.hides_from = None


class _Finder(MetaPathFinder):
    """Finds pandas for its first import, and lets pyarrow find it too."""

    hides_from: int | None = None
    """The thread for which pandas is hidden."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of pandas from the other finders; None for other modules."""
        if fullname != _PANDAS:
            return None
        if self.hides_from == threading.get_ident():
            raise ModuleNotFoundError(f"{_PANDAS} is postponed", name=_PANDAS)
        sys.meta_path.remove(self)
        spec = find_spec(_PANDAS)
        if spec is not None and spec.loader is not None:
            _notify_pyarrow_after(spec.loader)
        return spec


def _notify_pyarrow_after(loader: Loader) -> None:
    """Let pyarrow look for pandas again after a loader has imported it."""
    import_usually = loader.exec_module

    def import_and_notify(module: ModuleType) -> None:
        import_usually(module)
        pa.nulls(0).to_pandas()  # A conversion to pandas always looks for pandas again.

    loader.exec_module = import_and_notify  # type: ignore[method-assign]
