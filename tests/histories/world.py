"""Lets processes write a history of one table, and disturbs them.

The table is on an S3 server of this machine. Processes reach it on a road with accidents: answers
that are lost after a put was carried out, requests that are lost, errors, storms of 503. They are
killed and started again, some have clocks an hour ahead or behind, and where this process may make
network namespaces, each half of them is on a host whose link is cut in the middle of their work.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bucketlake as bl
from bucketlake.errors import ClockWarning
from bucketlake.services.check.findings import FindingKind, Severity
from tests.histories.checker import History, check, noted_in
from tests.histories.links import Host, hosts_with_links
from tests.histories.process import END, SCHEMA, Client, Notes, Task
from tests.object_store.proxy import Accident, Road, road_to
from tests.s3_server import client_of, new_bucket
from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
KINDS: dict[str, Any] = {
    "simple": bl.SimpleBucket(2),
    "rules": bl.PartitionBucket({"p1": 3}, default=1),
    "consistent": bl.ConsistentBucket(2),
    "extendible": bl.ExtendibleBucket(2),
    "dynamic": bl.DynamicBucket(max_records=20, assigners=2),
    "record": bl.RecordIndex(),
}
BUSY = {"write": 6, "read": 2, "follow": 1}
IDLE = {"write": 1, "read": 4, "follow": 4}
SERVING = {"serve": 4, "write": 2, "read": 1}
PATIENCE_SECONDS = 720.0
"""How long a process may go on at the end: a write waits ten minutes for another one."""


@dataclass(frozen=True)
class Plan:
    """What a run is made of.

    Attributes
    ----------
    seconds : float
        How long processes begin operations.
    calm_seconds : float
        Mean time between two disturbances.
    cut_seconds : float
        The longest cut of a link.
    hosts : int
        Number of hosts with a link of their own; 0 for processes of this machine.
    are_machines : bool
        Whether each process is alone on its machine, so that nobody sees from its process id that
        it was killed.
    fault : tuple of str
        A fault in the code of the processes, see :class:`~tests.histories.process.Task`; or empty.
    """

    seed: int
    seconds: float
    kind: str
    table_type: str
    metadata_table: bool
    upkeep: str
    clocks_ms: tuple[int, ...]
    calm_seconds: float
    cut_seconds: float
    hosts: int
    are_machines: bool = False
    fault: tuple[str, ...] = ()

    @classmethod
    def of_seed(cls, seed: int, seconds: float, *, hosts: int) -> Plan:
        """Choose the table, the clocks and the disturbances."""
        chance = random.Random(seed)
        kind = [*KINDS][seed % len(KINDS)]
        needs_metadata = kind in ("dynamic", "record")
        clocks = chance.choice(((0, 0, 0, 0), (0, HOUR_MS, 0, -HOUR_MS), (-HOUR_MS, 0, 0, 0)))
        return cls(
            seed=seed,
            seconds=seconds,
            kind=kind,
            table_type=chance.choice(("copy_on_write", "merge_on_read")),
            metadata_table=needs_metadata or chance.random() < 0.5,
            upkeep=chance.choice(("off", "auto")),
            clocks_ms=clocks,
            calm_seconds=min(seconds / 6, chance.choice((4.0, 8.0, 16.0))),
            cut_seconds=min(seconds / 3, chance.choice((4.0, 10.0, 90.0))),
            hosts=hosts,
            are_machines=bool(hosts) and seconds >= 60 and chance.random() < 0.25,
        )


class RoughRoad(Road):
    """A road with accidents at random, for any request, and storms of 503."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.rate, self._storm_until, self._storm_of = chance.choice((0.002, 0.01)), 0.0, ""

    def storm(self) -> None:
        """Let half of the requests fail for a while, or half of the puts."""
        self._storm_of = self._chance.choice(("", "PUT"))
        self._storm_until = time.monotonic() + self._chance.uniform(0.2, 4.0)

    def calm(self) -> None:
        """Let no accident happen from now on."""
        self.rate = self._storm_until = 0.0

    def pass_by(self, method: str, path: str, *, conditional: bool) -> Accident | None:
        with self.lock:
            if time.monotonic() < self._storm_until and self._storm_of in ("", method):
                return Accident.SLOW_DOWN if self._chance.random() < 0.5 else None
            # A conditional put decides something, and there are few of them.
            if self._chance.random() >= (15 * self.rate if conditional else self.rate):
                return None
            # Only a put can be in conflict.
            possible: list[Accident] = [*Accident][0 if conditional else 1 :]
            return self._chance.choice(possible)


@dataclass
class World:
    """A table, the processes that use it, and what befalls them."""

    plan: Plan
    folder: Path
    server: str
    findings: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    history: History | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)
        keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        patience = {"timeout": "4s", "connect_timeout": "2s", "retry_timeout": "8"}
        retries = str(self._chance.choice((1, 3, 5)))
        self._options = keys | patience | {"region": "us-east-1", "max_retries": retries}
        self._bucket = new_bucket(self.server, client_of(self.server))
        self._path = f"s3://{self._bucket.name}/table"
        self._starts = 0
        self._road = RoughRoad(random.Random(self.plan.seed))

    def run(self) -> list[str]:
        """Write the history, judge it, and return what is wrong."""
        plan, direct = self.plan, self._options | {"endpoint": self.server}
        bl.create_table(
            self._path, schema=SCHEMA, record_key="key", partition_by="part",
            index=KINDS[plan.kind], table_type=plan.table_type, upkeep=plan.upkeep,
            metadata_table=plan.metadata_table, storage_options=direct,
        )  # fmt: skip
        with ExitStack() as stack:
            stack.enter_context(road_to(self.server, self._road, "0.0.0.0"))
            hosts = stack.enter_context(hosts_with_links(plan.hosts)) if plan.hosts else [Host()]
            self._disturb(hosts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClockWarning)  # Some clocks are an hour ahead.
            self._end(direct)
        self.history = History.of(noted_in(self.folder))
        self.findings += map(str, check(self.history))
        return self.findings

    def _disturb(self, hosts: list[Host]) -> None:
        living = {number: self._start(number, hosts) for number in range(4)}
        mend_at: dict[Host, float] = {}
        try:
            wait_until(lambda: len([*self.folder.glob("*.jsonl")]) == len(living))
            ends_at = time.monotonic() + self.plan.seconds
            while time.monotonic() < ends_at:
                time.sleep(min(self._chance.expovariate(1 / self.plan.calm_seconds), 10.0))
                for host in [host for host, at in mend_at.items() if at < time.monotonic()]:
                    del mend_at[host]
                    host.mend()
                self._befall(self._chance.choice(hosts), living, mend_at)
                self._start_the_dead(living, hosts)
            for host in mend_at:
                host.mend()
            self._road.calm()
            self._start_the_dead(living, hosts)
            goal = self._succeeded() + 2 * len(living)
            wait_until(lambda: self._succeeded() >= goal, lambda: "nothing succeeds in calm")
            (self.folder / END).touch()
            self._await(living)
        finally:
            for process in living.values():
                process.kill()
                process.wait()

    def _start_the_dead(
        self, living: dict[int, subprocess.Popen[bytes]], hosts: list[Host]
    ) -> None:
        for number, process in living.items():
            if process.poll() is not None:
                living[number] = self._start(number, hosts)

    def _succeeded(self) -> int:
        """Return how many operations have succeeded so far."""
        return sum(line.get("ends") == "ok" for line in noted_in(self.folder))

    def _befall(
        self, host: Host, living: dict[int, subprocess.Popen[bytes]], mend_at: dict[Host, float]
    ) -> None:
        """Let a disturbance begin."""
        what = self._chance.choice(("kill", "storm", "cut" if host.link else "kill"))
        if what == "kill":
            living[self._chance.choice([*living])].kill()
        elif what == "storm":
            self._road.storm()
        elif host in mend_at:
            return
        else:
            host.cut()
            seconds = self._chance.uniform(1.0, self.plan.cut_seconds)
            mend_at[host] = time.monotonic() + seconds
        self.events.append(what)

    def _start(self, number: int, hosts: list[Host]) -> subprocess.Popen[bytes]:
        self._starts += 1
        host = hosts[number % len(hosts)]
        port = self._road.url.rpartition(":")[2]
        task = Task(
            name=f"p{number}.{self._starts}",
            path=self._path,
            notes=str(self.folder),
            seed=self._chance.getrandbits(32),
            clock_ms=self.plan.clocks_ms[number],
            options=self._options | {"endpoint": f"http://{host.server}:{port}"},
            weights=(BUSY, BUSY, SERVING, IDLE)[number],
            fault=self.plan.fault,
        )
        alone = "unshare --pid --fork --mount-proc --kill-child".split()
        command = [*host.command, *(alone if self.plan.are_machines else [])]
        python = [sys.executable, "-m", "tests.histories.process", json.dumps(asdict(task))]
        cache = self.folder / f"cache-{host.server if host.link else number % 2}"
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        variables = {"PYTHONPATH": paths, "BUCKETLAKE_CACHE_FOLDER": str(cache)}
        with (self.folder / f"{task.name}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, *python], cwd=ROOT, env=os.environ | variables,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _await(self, living: dict[int, subprocess.Popen[bytes]]) -> None:
        """Wait until each process has done what it was doing."""
        patience = time.monotonic() + PATIENCE_SECONDS
        for number, process in living.items():
            try:
                status = process.wait(timeout=max(0.0, patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.findings.append(f"NO_PROGRESS: process {number} did not end")
                continue
            if status not in (0, -9, 137):
                self.findings.append(f"PROCESS_DIED: process {number} ended with {status}")

    def _end(self, options: dict[str, str]) -> None:
        """Write once more, which settles what is left; read, and ask the doctor."""
        notes = Notes(self.folder, "last")
        client = Client(self._path, options, notes, self._chance)
        if not any(client.write() for _ in range(4)):
            self.findings.append("NO_PROGRESS: nobody can write at the end")
        client.read(final=True)
        for found in client.table().doctor(check_keys=True, check_files=True):
            # A note does no harm: killed services leave small files. Some clocks are ahead.
            if found.severity is not Severity.NOTE and found.kind is not FindingKind.CLOCK_AHEAD:
                self.findings.append(f"DOCTOR: {found}")

    def save_table(self) -> None:
        """Copy the table's objects beside the history, for whoever looks for a cause."""
        pages = self._bucket.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket.name):
            for listed in page.get("Contents", []):
                file = self.folder / "objects" / listed["Key"]
                if not listed["Key"].endswith("/"):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(self._bucket.get(listed["Key"]))

    def summary(self) -> Iterator[str]:
        """Yield words about the table, the disturbances and the operations."""
        plan = self.plan
        yield f"seed {plan.seed}: {plan.kind}, {plan.table_type}, upkeep {plan.upkeep}"
        yield f"metadata table {plan.metadata_table}, clocks {plan.clocks_ms}"
        yield f"{plan.hosts} hosts{', each process a machine' if plan.are_machines else ''}"
        counts = {what: self.events.count(what) for what in ("kill", "storm", "cut")}
        yield ", ".join(f"{count} {what}s" for what, count in counts.items())
        if self.history is not None:
            for (operation, outcome), count in sorted(self.history.ends.items()):
                yield f"{operation} {outcome}: {count}"
