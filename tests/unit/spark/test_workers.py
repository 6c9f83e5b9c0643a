"""What a worker of Spark does before a task."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

BEGUN = """
import pyarrow as pa
from bucketlake.spark.workers import begin_task
begin_task()
begin_task()
print(pa.default_memory_pool().backend_name)
"""


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="Arrow lacks jemalloc")
@pytest.mark.parametrize(("chosen", "used"), [(None, "jemalloc"), ("system", "system")])
def test_a_task_allocates_with_jemalloc_unless_the_user_chose(
    chosen: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if chosen is not None:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", chosen)
    done = subprocess.run([sys.executable, "-c", BEGUN], capture_output=True, text=True)
    assert done.stdout.strip() == used, done.stderr
