"""Reads hostile files in a process of its own; it prints what was neither a value nor an error.

Arguments: a seed, and how many damaged files of each kind to read. The name of each file is written
to the standard error before it is read, so that a crash is known by its last line.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
from collections.abc import Iterator

from bucketlake.errors import BucketLakeError
from tests.hostile.attacks import attacks, damaged
from tests.hostile.decoders import DECODERS, PATH

MEMORY_BYTES = 1 << 30
SECONDS_EACH = 5
MESSAGE_MAX = 6_000


def limit(cpu_seconds: int) -> None:
    """Take a gigabyte more than now, and some seconds."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: PTH123, SIM115
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))


def cases(seed: int, count: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield the attacks, and damaged files."""
    yield from attacks()
    draw = random.Random(seed)
    for kind, decoder in DECODERS.items():
        for number in range(count):
            yield kind, f"damage {number}", damaged(draw.choice(decoder.valid), draw.randrange)


def problem_of(kind: str, data: bytes) -> str | None:
    """Read a file; return what is wrong with the outcome."""
    started = resource.getrusage(resource.RUSAGE_SELF)
    problem = None
    try:
        DECODERS[kind].decode(data)
    except BucketLakeError as error:
        if len(str(error)) > MESSAGE_MAX:
            problem = f"a message of {len(str(error))} characters"
    except BaseException as error:
        problem = f"{type(error).__name__}: {error!s:.200}"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - started.ru_utime
    return problem or (f"{used:.1f} s" if used > SECONDS_EACH else None)


def main(seed: int, count: int) -> None:
    for kind, decoder in DECODERS.items():
        for valid in decoder.valid:
            if kind not in ("directory", "schema of records"):
                decoder.decode(valid)
    limit(120 + count)
    for kind, what, data in cases(seed, count):
        print(f"{kind}: {what}", file=sys.stderr, flush=True)
        problem = problem_of(kind, data)
        if problem is not None:
            print(f"{kind}: {what}: {problem}", flush=True)
            gc.collect()
    print("end", flush=True)


if __name__ == "__main__":
    assert PATH
    main(int(sys.argv[1]), int(sys.argv[2]))
