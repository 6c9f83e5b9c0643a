"""Keeping pandas out of a process that does not use it.

pyarrow imports pandas when it first makes an array or a scalar of a Python value, to be able to
tell a pandas Series from other sequences. The import takes a second of processor time, and neither
a task of bucketlake nor its command line uses pandas.

A Python worker of Spark may later run functions of the user. So pandas is only postponed: when any
code imports it, pyarrow learns of it before that code can make a Series.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pyarrow as pa

_PANDAS = "pandas"


def postpone_pandas() -> None:
    """Let pyarrow do without pandas until something else imports it.

    Does nothing where pandas is imported already.
    """
    if _PANDAS in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    finder.hides_from = threading.get_ident()
    try:
        pa.scalar(None)  # pyarrow looks for pandas here, and does not look again by itself.
    finally:
        finder.hides_from = None


class _Finder(MetaPathFinder):
    """Finds pandas for its first import, and has pyarrow told of it."""

    hides_from: int | None = None
    """The thread that must not find pandas."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return where pandas is found without this finder; None for other modules."""
        if fullname != _PANDAS:
            return None
        if self.hides_from == threading.get_ident():
            raise ModuleNotFoundError(f"{_PANDAS} is postponed", name=_PANDAS)
        sys.meta_path.remove(self)
        spec = find_spec(_PANDAS)
        if spec is not None and spec.loader is not None:
            _tell_pyarrow_after(spec.loader)
        return spec


def _tell_pyarrow_after(loader: Loader) -> None:
    """Have pyarrow look for pandas again as soon as a loader has imported it."""
    import_usually = loader.exec_module

    def import_and_tell(module: ModuleType) -> None:
        import_usually(module)
        pa.nulls(0).to_pandas()  # A conversion to pandas looks for it, whatever was found before.

    loader.exec_module = import_and_tell  # type: ignore[method-assign]
