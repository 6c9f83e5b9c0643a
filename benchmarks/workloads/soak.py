"""A table for hours: a stream, a backfill, services, readers, turns of real Hudi, and kill -9.

The parts are processes (`soak_parts.py`): ``bl.ingest`` of a landing zone with ``upkeep="auto"``,
a writer of older rows, a process that runs the services once more, and a reader that compares each
snapshot with the changes (`soak_events.py`). A killer ends one of them after another by SIGKILL and
starts it again. Every few minutes the parts stop for a turn of Hudi: both programs read the table
and must show all changes, Hudi's Spark writer upserts, and both read again. Some of these writes
are killed, and repeated.

All that a run knows is in one folder, so a run goes on where the one before ended, even if that was
killed itself. A file ``stop`` in the folder ends a run early, as SIGTERM does.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.process import guarded
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import core_count, family, machine_cpu_seconds
from benchmarks.systems.engine_free import EngineFree
from benchmarks.workloads.followed_database import process_facts
from benchmarks.workloads.soak_events import (
    BACKFILL,
    HUDI,
    READ,
    SCHEMA,
    STREAM,
    Events,
    batches_in,
    differences,
)
from benchmarks.workloads.soak_parts import (
    FILL,
    INGEST,
    LANDING,
    PARTS,
    READER,
    SERVICES,
    TABLE,
    note,
)
from bucketlake.services.check.findings import Severity
from tests.interop.peer.client import HUDI_VERSION, HudiPeer, PeerError
from tests.interop.shared_table import WITH_METADATA
from tests.interop.table_kind import OPERATION, TableKind

KILLED = {INGEST: 4, FILL: 3, SERVICES: 3, READER: 1}
"""What is killed between the turns, and how often beside the others."""

BUCKET_ROWS = 1_000
FILL_EVERY, FILL_ROWS, HUDI_ROWS = 5, 60, 100
HUDI_KILLS = 1 / 3
HUDI_KILL_SECONDS = 8
SAMPLE_SECONDS = 20
WAIT_SECONDS_MAX = 1_200
KIND = TableKind(
    schema=SCHEMA, merge_on_read=True, partitioned_index=True, dynamic=True, metadata_table=True
)
_COMMIT = re.compile(r"\d+_\d+\.(deltacommit|commit|replacecommit)")

FOLDERS = {
    "archive": r"timeline/history/",
    "timeline": r"timeline/",
    "archive of the metadata table": r"metadata/\.hoodie/timeline/history/",
    "timeline of the metadata table": r"metadata/\.hoodie/timeline/",
    "metadata table": r"metadata/(?!\.hoodie)",
    "remembered deletes": r"\.bucket_index/ext/tombstones/",
    "ledgers": r"\.bucket_index/ext/ledgers/",
    "outcomes": r"(metadata/\.hoodie/)?\.bucket_index/ext/outcome/",
    "turns": r"(metadata/\.hoodie/)?\.bucket_index/ext/commit_order/",
    "markers and heartbeats": r"(metadata/\.hoodie/)?\.(temp|heartbeat)/",
    "others": r"",
}
"""What is below ``.hoodie``; the first that fits counts."""

_FOLDERS = {name: re.compile(pattern) for name, pattern in FOLDERS.items()}


class Soak(EngineFree):
    """The parts, and who feeds, kills and compares them.

    Parameters
    ----------
    settings : mapping
        ``minutes``, ``state``, ``seed``, ``kills``, ``rate`` and ``turn_minutes`` of the run;
        ``rows`` is the number of keys.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(
            table="merge_on_read, upkeep=auto, partition_by=region, "
            f"DynamicBucket(max_records={BUCKET_ROWS})",
            hudi=HUDI_VERSION,
        )
        self._given = settings
        self._state = Path(settings["state"]).absolute()
        self._path = self._state / TABLE
        self._lock, self._done = threading.RLock(), threading.Event()
        self._running = dict[str, subprocess.Popen[bytes]]()
        self._problems = list[BaseException]()
        self._peer: HudiPeer | None = None
        self._seen, self._commits = set[str](), 0

    def run(self, _data: DataSet, _table: Path) -> None:
        """Run a piece, and return what all pieces so far have told."""
        self._begin()
        works = (self._feed, self._kill)
        threads = [threading.Thread(target=guarded(work, self._problems)) for work in works]
        try:
            self._settle()
            for name in PARTS:
                self._start(name)
            for thread in threads:
                thread.start()
            self._watch()
        finally:
            self._done.set()
            for thread in (each for each in threads if each.ident):
                thread.join()
            try:
                if not self._problems and sys.exc_info()[0] is None:
                    self._end()
            finally:
                self._stop_parts(signal.SIGKILL)
                self._end_peer()
        if self._problems:
            raise self._problems[0]
        self.seen = self._told()

    def _end(self) -> None:
        """Have a last turn, and let the doctor look."""
        self._turn(is_last=True)
        if not self._problems:
            note(self._state, "ends", piece=self._piece, at=self._at(), findings=self._doctor())

    # ---- the state ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Take up the state of the folder, or begin it."""
        for name in (LANDING, FILL, "logs", "cache"):
            (self._state / name).mkdir(parents=True, exist_ok=True)
        (self._state / "cache").chmod(0o700)
        self._stop_file.unlink(missing_ok=True)
        self._events = Events(self._state / "events.sqlite", self._given["rows"])
        if not (self._path / ".hoodie").exists():
            bl.create_table(
                str(self._path), schema=SCHEMA, record_key="id", partition_by="region",
                ordering="ts", table_type="merge_on_read", upkeep="auto",
                index=bl.DynamicBucket(max_records=BUCKET_ROWS, assigners=2),
            )  # fmt: skip
            self._events.load()
        before, pieces = self._lines("samples"), self._lines("pieces")
        self._piece = 1 + len(pieces)
        self._base = before[-1]["at"] + SAMPLE_SECONDS if before else 0.0
        self._commits = before[-1]["commits"] if before else 0
        self._seen = self._completed()
        self._drawn = random.Random(f"{self._given['seed']} {self._piece}")
        self._began = time.monotonic()
        note(self._state, "pieces", piece=self._piece, base=self._base)

    def _settle(self) -> None:
        """Give the parts what a run that was killed had drawn, and not given them."""
        shown, newest = self._shown(), self._events.newest()
        for number in range(shown[STREAM] + 1, newest[STREAM] + 1):
            if not self._file(LANDING, number).exists():
                self._give(STREAM, number)
        for number in range(shown[BACKFILL] + 1, newest[BACKFILL] + 1):
            self._give(BACKFILL, number)
        if shown[HUDI] < newest[HUDI]:
            self._write_by_hudi(newest[HUDI])

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self._state / f"{name}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    @property
    def _stop_file(self) -> Path:
        return self._state / "stop"

    def _at(self) -> float:
        """Return the seconds since the soak began, without those between the pieces."""
        return round(self._base + time.monotonic() - self._began, 1)

    # ---- the parts ------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "benchmarks.workloads.soak_parts", name]
        command += [str(self._state), str(self._given["rows"])]
        cache = {"BUCKETLAKE_CACHE_FOLDER": str(self._state / "cache")}
        with (self._state / "logs" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **cache}
            )

    def _stop_parts(self, how: signal.Signals) -> None:
        """End all parts; one that raised an error ends the soak."""
        for part in self._running.values():
            part.send_signal(how)
        for name, part in [*self._running.items()]:
            code = part.wait(WAIT_SECONDS_MAX)
            del self._running[name]
            if how is not signal.SIGKILL and code not in (0, -signal.SIGTERM):
                self._problems.append(AssertionError(self._end_of_log(name, code)))

    def _end_of_log(self, name: str, code: int) -> str:
        text = (self._state / "logs" / f"{name}.log").read_text(errors="replace")
        return f"{name} ended with {code}: {text[-3_000:]}"

    def _feed(self) -> None:
        """Give the stream a file each second, and sometimes the backfill one."""
        number = 0
        while not self._done.wait(1):
            with self._lock:
                number += 1
                self._draw(STREAM, self._given["rate"])
                if number % FILL_EVERY == 0 and len([*(self._state / FILL).iterdir()]) < FILL_EVERY:
                    self._draw(BACKFILL, FILL_ROWS)

    def _draw(self, source: str, count: int) -> None:
        self._give(source, self._events.draw(source, count, self._drawn))

    def _give(self, source: str, number: int) -> None:
        """Put the file of a batch in its folder, at once."""
        path = self._file(LANDING if source == STREAM else FILL, number)
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(self._events.rows_of(source, number), unfinished)
        unfinished.rename(path)

    def _file(self, folder: str, number: int) -> Path:
        return self._state / folder / f"{number:08}.parquet"

    def _kill(self) -> None:
        """Kill parts, each at a random moment of its share of the time."""
        count = self._given["kills"]
        share = 60 * self._given["minutes"] / (count + 1)
        moments = [(place + self._drawn.random()) * share for place in range(count)]
        names = self._drawn.choices([*KILLED], [*KILLED.values()], k=count)
        for moment, name in zip(moments, names, strict=True):
            if self._done.wait(max(0.0, self._began + moment - time.monotonic())):
                return
            with self._lock:
                self._running[name].kill()
                code = self._running[name].wait()
                if code != -signal.SIGKILL:
                    raise AssertionError(self._end_of_log(name, code))
                note(self._state, "kills", at=self._at(), part=name)
                self._start(name)

    # ---- turns of Hudi --------------------------------------------------------------------------

    def _turn(self, *, is_last: bool = False) -> None:
        """Stop the parts, compare, let Hudi write, and compare again."""
        with self._lock:
            started = time.monotonic()
            self._wait(lambda: not self._lag(), "the parts take what they have")
            self._stop_parts(signal.SIGTERM)
            if self._problems:
                return
            self._compare("before a turn")
            batch = self._events.draw(HUDI, HUDI_ROWS, self._drawn)
            killed = self._drawn.random() < HUDI_KILLS
            if killed:
                self._kill_within(batch)
            self._write_by_hudi(batch)
            self._compare("after a turn")
            seconds = time.monotonic() - started
            note(self._state, "turns", at=self._at(), seconds=seconds, killed=killed)
            note(self._state, "samples", **self._sample())
            for path in sorted((self._state / LANDING).glob("*.parquet"))[:-20]:
                path.unlink()
            for name in () if is_last else PARTS:
                self._start(name)

    def _write_by_hudi(self, batch: int) -> None:
        """Let Hudi write; if its write fails by itself, once more in a new process."""
        try:
            self._try_by_hudi(batch)
        except PeerError as error:
            caused = [line for line in str(error).splitlines() if "Caused" in line]
            reason = [*caused, str(error)][max(0, len(caused) - 1)]  # The deepest cause.
            note(self._state, "failures", at=self._at(), reason=reason[:300])
            self._end_peer()
            self._try_by_hudi(batch)

    def _try_by_hudi(self, batch: int) -> None:
        options = {**KIND.write_options(self._path), OPERATION: "upsert"}
        self._hudi().write(self._path, self._events.rows_of(HUDI, batch), options)

    def _kill_within(self, batch: int) -> None:
        """Begin a write of Hudi, and kill it."""
        peer = self._hudi()
        timer = threading.Timer(self._drawn.random() * HUDI_KILL_SECONDS, _kill_family, [peer.pid])
        timer.start()
        with contextlib.suppress(PeerError, BrokenPipeError):
            self._try_by_hudi(batch)
        timer.join()
        self._end_peer()
        note(self._state, "kills", at=self._at(), part=HUDI)

    def _end_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            _kill_family(peer.pid)
            with contextlib.suppress(BrokenPipeError):
                peer.close()

    def _hudi(self) -> HudiPeer:
        self._peer = self._peer or HudiPeer()
        return self._peer

    def _compare(self, when: str) -> None:
        """Require that both programs read all changes."""
        newest = self._events.newest()
        found = {
            "bucketlake": bl.open_table(str(self._path)).to_arrow(),
            "Hudi": self._hudi().read(self._path, WITH_METADATA, READ),
        }
        for who, rows in found.items():
            wrong = differences(rows, self._events)
            if batches_in(rows) != newest:
                wrong.append(f"it shows {batches_in(rows)} of {newest}")
            if wrong:
                raise AssertionError(f"{who} reads other rows {when}: {wrong}")

    def _shown(self) -> dict[str, int]:
        """Return the batches in the table."""
        table = bl.open_table(str(self._path))
        return batches_in(table.to_arrow(where="region = 'markers'"))

    def _lag(self) -> int:
        shown, newest = self._shown(), self._events.newest()
        return sum(newest[name] - shown[name] for name in (STREAM, BACKFILL))

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not holds():
            self._require_alive()
            if time.monotonic() > end:
                raise AssertionError(f"for {WAIT_SECONDS_MAX} s not: {what}")
            time.sleep(1)

    def _require_alive(self) -> None:
        for name, part in self._running.items():
            if (code := part.poll()) is not None:
                raise AssertionError(self._end_of_log(name, code))

    def _doctor(self) -> list[str]:
        found = bl.open_table(str(self._path)).doctor(check_keys=True, check_files=True)
        wrong = [str(each) for each in found if each.severity is Severity.ERROR]
        assert not wrong, wrong
        return [str(each) for each in found]

    # ---- what is looked at ----------------------------------------------------------------------

    def _watch(self) -> None:
        """Let it run for its time, look at it, and let Hudi have its turns."""
        end = self._began + 60 * self._given["minutes"]
        sample, turn = self._began, self._began + 60 * self._given["turn_minutes"]
        checks = 0
        while (now := time.monotonic()) < end and not self._problems:
            if self._stop_file.exists():
                break
            if now >= sample:
                sample += SAMPLE_SECONDS
                with self._lock:
                    self._require_alive()
                    note(self._state, "samples", **self._sample())
                checks = self._require_right_reads(checks)
            if now >= turn:
                turn += 60 * self._given["turn_minutes"]
                self._turn()
            time.sleep(0.5)

    def _require_right_reads(self, known: int) -> int:
        """Require that the snapshots since the last look were right; return how many there are."""
        reads = self._lines(READER)
        for read in reads[known:]:
            assert not read["wrong"], read["wrong"]
        return len(reads)

    def _sample(self) -> dict[str, Any]:
        new = self._completed() - self._seen
        self._seen |= new
        self._commits += len(new)
        facts: dict[str, Any] = {"piece": self._piece, "at": self._at(), "commits": self._commits}
        facts["parts"] = {name: process_facts(part.pid) for name, part in self._running.items()}
        facts["hudi_bytes"] = process_facts(self._peer.pid)["jvm_bytes"] if self._peer else None
        facts["machine"] = machine_cpu_seconds() / core_count()
        return {**facts, **self._files()}

    def _completed(self) -> set[str]:
        folder = self._path / ".hoodie/timeline"
        return {path.name for path in folder.iterdir() if _COMMIT.fullmatch(path.name)}

    def _files(self) -> dict[str, Any]:
        """Count the files of the table by what they are, and of the location cache."""
        counts, sizes = Counter[str](), Counter[str]()
        for kind, size in self._kinds():
            counts[kind] += 1
            sizes[kind] += size
        kinds = ("base files", "log files", "location cache", *FOLDERS)
        return {
            "files": {kind: counts[kind] for kind in kinds},
            "bytes": {kind: sizes[kind] for kind in kinds},
        }

    def _kinds(self) -> Iterator[tuple[str, int]]:
        for root in (self._path, self._state / "cache"):
            for folder, _, names in os.walk(root):
                for name in names:
                    path = Path(folder, name)
                    with contextlib.suppress(FileNotFoundError):  # Deleted meanwhile.
                        yield self._kind_of(path), path.stat().st_size

    def _kind_of(self, path: Path) -> str:
        if not path.is_relative_to(self._path):
            return "location cache"
        inner = path.relative_to(self._path).as_posix()
        if not inner.startswith(".hoodie/"):
            return "log files" if ".log." in path.name else "base files"
        inner = inner.removeprefix(".hoodie/")
        return next(name for name, pattern in _FOLDERS.items() if pattern.match(inner))

    def _told(self) -> dict[str, Any]:
        """Return what all pieces have told, for the result file."""
        pieces, reads = self._lines("pieces"), self._lines(READER)
        by_wall: list[tuple[float, float]] = [(each["wall"], each["base"]) for each in pieces]

        def at(wall: float) -> float:
            began, base = max((one for one in by_wall if one[0] <= wall), default=by_wall[0])
            return round(base + wall - began, 1)

        batches = [
            {"at": at(each["at"]), "seconds": round(each["seconds"], 3), "rows": each["rows"]}
            for each in self._lines("batches")
        ]
        return {
            "pieces": pieces,
            "ends": self._lines("ends"),
            "samples": self._lines("samples"),
            "batches": batches,
            "kills": self._lines("kills"),
            "turns": self._lines("turns"),
            "failures": self._lines("failures"),
            "services": Counter(each["service"] for each in self._lines(SERVICES)),
            "reads": [{"at": at(e["wall"]), "seconds": round(e["seconds"], 3)} for e in reads],
            "changes": self._events.newest(),
            "rows": reads[-1]["rows"] if reads else 0,
        }


def _kill_family(pid: int) -> None:
    for each in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
