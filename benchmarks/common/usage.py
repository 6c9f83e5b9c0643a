"""What a process and its descendants use: processor time, and the Python workers' peak memory.

All from /proc. A step's own processor time stays comparable on a busy machine, and what other
processes used meanwhile tells how quiet the machine was.

Spark forks its Python workers from one daemon. The kernel keeps each process's high-water mark
(VmHWM), so a peak between two samples is not missed as long as the worker lives; the mark is reset
before each step.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLE_S = 0.25  # Often enough to meet every worker; the kernel keeps the marks meanwhile.


@dataclass
class Peak:
    """Highest resident memory of each worker, and processor time."""

    by_process: dict[int, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    other_cpu_share: float = 0.0

    def facts(self) -> dict[str, Any]:
        """Return what is kept of a step; the memory of workers if there were any."""
        cpu = {
            "cpu_seconds": round(self.cpu_seconds, 2),
            "other_cpu_share": round(self.other_cpu_share, 3),
        }
        marks = self.by_process.values()
        return cpu | ({"worker_peak_bytes": max(marks)} if marks else {})


class ProcessTree:
    """A process and its descendants, the PySpark workers among them."""

    def __init__(self, root: int) -> None:
        self._root = root

    @contextlib.contextmanager
    def watch(self) -> Iterator[Peak]:
        """Sample until the block ends; the yielded peak is then complete."""
        peak = Peak()
        for worker in _workers(self._root):
            reset_high_water_mark(worker)
        own_before, all_before = cpu_seconds(self._root), machine_cpu_seconds()
        started = time.perf_counter()
        stop = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(peak, stop), daemon=True)
        sampler.start()
        try:
            yield peak
        finally:
            stop.set()
            sampler.join()
            peak.cpu_seconds = cpu_seconds(self._root) - own_before
            others = machine_cpu_seconds() - all_before - peak.cpu_seconds
            available = (time.perf_counter() - started) * core_count()
            peak.other_cpu_share = max(0.0, others / available)

    def _sample(self, peak: Peak, stop: threading.Event) -> None:
        while True:
            last = stop.wait(SAMPLE_S)
            for worker in _workers(self._root):
                mark = status_bytes(worker, "VmHWM")
                peak.by_process[worker] = max(mark, peak.by_process.get(worker, 0))
            if last:
                return


def machine() -> dict[str, Any]:
    """Return what the figures are measured on."""
    release = ".".join(platform.release().split(".")[:2])
    parts = (f"{platform.system()} {release}", platform.machine(), " ".join(platform.libc_ver()))
    return {
        "cores": core_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "processor": processor_name(),
        "system": ", ".join(part.strip() for part in parts if part.strip()),
        "python": platform.python_version(),
    }


def core_count() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def processor_name() -> str:
    """The processor's model, as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _workers(root: int) -> list[int]:
    """Process ids of forked workers: `pyspark.daemon` processes whose parent is one too."""
    found, level = [], [(root, False)]
    while level:
        below = []
        for process, is_daemon in level:
            for child in _children(process):
                child_is_daemon = b"pyspark" in (line := _command(child)) and b"daemon" in line
                if child_is_daemon and is_daemon:
                    found.append(child)
                below.append((child, child_is_daemon))
        level = below
    return found


def is_group_alive(group: int) -> bool:
    """Return whether a process of a group runs; one that has ended may wait long for its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # The process has ended while it is looked at.
            state, _parent, own_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(own_group) == group and state != "Z":
                return True
    return False


def cpu_seconds(process: int) -> float:
    """User and system time of a process, of its living descendants, and of those it waited for."""
    try:
        # The command's name, in brackets, may hold spaces: fields are counted from its end.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, _children(process)))


def family(process: int) -> list[int]:
    """Return a process and its living descendants."""
    return [process, *(each for child in _children(process) for each in family(child))]


def machine_cpu_seconds() -> float:
    """Time that the machine's cores were not idle, summed over them, and time stolen from it."""
    user, nice, system, _idle, _waiting, irq, soft, stolen = map(
        int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # The process has ended, perhaps while it is looked at.
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # One of its threads has.
                found += map(int, children.read_text().split())
    return found


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # It has ended.
        return b""


def status_bytes(process: int, field_name: str) -> int:
    """Return a number of bytes that the kernel tells of a process, such as VmHWM."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(field_name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def reset_high_water_mark(process: int) -> None:
    """Let VmHWM begin again at the memory that a process holds now."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")
