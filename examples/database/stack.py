"""Postgres or MariaDB, Debezium and Kafka on this machine, each as one plain process.

The demo (demo.py) and the tests of change streams start them, kill them and start them again. The
jars come from Maven by their coordinates, once a folder; the databases are the ones of the system
(``scripts/setup change-stream`` installs both). All data lies in one folder, ports are free ones.

Debezium 3.6.1 needs Kafka Connect 4.3: with 4.4.0 its tasks fail with NoClassDefFoundError.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

KAFKA = "4.3.1"
DEBEZIUM = "3.6.1.Final"
JARS = {
    "kafka": [
        f"org.apache.kafka:kafka_2.13:{KAFKA}",
        f"org.apache.kafka:connect-runtime:{KAFKA}",
        f"org.apache.kafka:connect-json:{KAFKA}",
        f"org.apache.kafka:connect-transforms:{KAFKA}",
        "org.slf4j:slf4j-simple:1.7.36",
    ],
    "debezium": [
        f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
        f"io.debezium:debezium-connector-mysql:{DEBEZIUM}",
    ],
}
OF_THE_WORKER = ("kafka-clients", "connect-api", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni")
JAVA_OPTIONS = (
    "-Xms64m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData "
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
).split()
START_SECONDS_MAX = 120
FETCH_SECONDS_MAX = 600


class StackUnavailableError(Exception):
    """A part cannot be had on this machine; the text says which and why."""


class Stack:
    """The parts of a change stream, in one folder.

    Parameters
    ----------
    folder : Path
        Where data, settings and logs lie. Another user than root writes there, too, so that no
        folder above it may be closed.
    jars : Path
        Where the jars lie, for all stacks of this machine.
    """

    def __init__(self, folder: Path, jars: Path) -> None:
        self.folder, self.jars = folder, jars
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        names = ("kafka", "controller", "connect", "postgres", "mariadb")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)

    @property
    def brokers(self) -> str:
        """The address of Kafka."""
        return f"127.0.0.1:{self.ports['kafka']}"

    def start(self, *parts: str) -> None:
        """Start parts that do not run, in this order; return when they answer.

        Raises
        ------
        StackUnavailableError
            If a program is not there, jars cannot be fetched, or a part ends or never answers.
        """
        fetch_jars(self.jars)
        for part in parts:
            if part not in self.processes:
                getattr(self, f"_start_{part}")()

    def stop(self, *parts: str) -> None:
        """Let parts end in their own way; all without a name, the last started one first."""
        for part in parts or tuple(reversed(self.processes)):
            self._end(part, signal.SIGINT if part == "postgres" else signal.SIGTERM)

    def kill(self, part: str) -> None:
        """Kill a part, with what it started. A database loses nothing that it has confirmed."""
        self._end(part, signal.SIGKILL)

    def _end(self, part: str, how: signal.Signals) -> None:
        process = self.processes.pop(part)
        try:
            if how is signal.SIGKILL:  # Processes of Postgres leave the group.
                for child in descendants(process.pid):
                    os.kill(child, how)
            os.killpg(process.pid, how)
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        except ProcessLookupError:
            process.wait()

    # ---- what users do with it ------------------------------------------------------------------

    def connector(self, name: str, database: str, **settings: str) -> None:
        """Make or change a connector of a part, ``postgres`` or ``mariadb``."""
        config = {
            "topic.prefix": name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.ports[database]),
            "poll.interval.ms": "50",
        }
        if database == "postgres":
            config |= {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.user": "postgres",
                "database.password": "postgres",
                "database.dbname": "postgres",
                "plugin.name": "pgoutput",
                "slot.name": name.replace("-", "_"),
                "publication.autocreate.mode": "filtered",
                "publication.name": name.replace("-", "_"),
            }
        else:
            config |= {
                "connector.class": "io.debezium.connector.mysql.MySqlConnector",
                "database.user": "cdc",
                "database.password": "cdc",
                "database.server.id": "4711",
                "schema.history.internal.kafka.bootstrap.servers": self.brokers,
                "schema.history.internal.kafka.topic": f"{name}.history",
                "include.schema.changes": "false",
            }
        self._ask("PUT", f"/connectors/{name}/config", config | settings)
        self._await("connect", lambda: self.restart_failed(name) == ["RUNNING"])

    def restart_failed(self, name: str) -> list[str]:
        """Restart a connector's task if it failed, as operators do; return the tasks' states.

        The connector for MySQL gives up when its database is killed.
        """
        status = self._ask("GET", f"/connectors/{name}/status")
        states = [task["state"] for task in status["tasks"]]
        if "FAILED" in states:
            restart = f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true"
            self._ask("POST", restart)
        return states

    def sql(self, part: str, statements: str) -> list[dict[str, str | None]]:
        """Run SQL on a database, ``postgres`` or ``mariadb``; return the rows of the last query.

        Each value is the database's text; None for null.
        """
        if part == "postgres":
            program = [
                postgres_program("psql"),
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-qAX",
                "--csv",
            ]
            program += ["-p", str(self.ports[part]), "-P", "null=\\N", "-v", "ON_ERROR_STOP=1"]
        else:
            program = [
                "mariadb",
                "--no-defaults",
                "-h",
                "127.0.0.1",
                "-u",
                "cdc",
                "-pcdc",
                "--batch",
            ]
            program += ["-P", str(self.ports[part])]
        done = subprocess.run(
            program, input=statements, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{part} refused: {done.stderr.strip()}")
        dialect: dict[str, Any] = (
            {} if part == "postgres" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
        )
        null = "\\N" if part == "postgres" else "NULL"
        rows = csv.DictReader(io.StringIO(done.stdout), **dialect)
        return [
            {name: None if value == null else value for name, value in row.items()} for row in rows
        ]

    # ---- how each part starts -------------------------------------------------------------------

    def _start_kafka(self) -> None:
        data = self.folder / "kafka"
        settings = self._settings(
            "kafka",
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{self.ports['controller']}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{self.brokers},"
                f"CONTROLLER://127.0.0.1:{self.ports['controller']}",
                "advertised.listeners": f"PLAINTEXT://{self.brokers}",
                "log.dirs": str(data),
                "offsets.topic.num.partitions": "1",
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.num.partitions": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.num.partitions": "1",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
            },
        )
        if not (data / "meta.properties").exists():
            # An id has 22 letters of base64; any will do for one broker.
            self._run_java("kafka.tools.StorageTool", "format", "-t", "A" * 22, "-c", str(settings))
        self._spawn("kafka", self._java("kafka.Kafka", str(settings)))
        self._await("kafka", lambda: is_open(self.ports["kafka"]))

    def _start_connect(self) -> None:
        settings = self._settings(
            "connect",
            {
                "bootstrap.servers": self.brokers,
                "listeners": f"http://127.0.0.1:{self.ports['connect']}",
                "plugin.path": str(self.jars / "plugins"),
                "plugin.discovery": "service_load",
                "key.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "offset.storage.file.filename": str(self.folder / "connect.offsets"),
                "offset.flush.interval.ms": "1000",
                "producer.linger.ms": "5",
            },
        )
        self._spawn(
            "connect", self._java("org.apache.kafka.connect.cli.ConnectStandalone", str(settings))
        )
        self._await("connect", lambda: isinstance(self._ask("GET", "/connectors"), list))

    def _start_postgres(self) -> None:
        data = self._folder_of("postgres", "postgres")
        if not (data / "PG_VERSION").exists():
            arguments = [
                "-D",
                str(data),
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ]
            run(as_user("postgres", [postgres_program("initdb"), *arguments, "--locale=C.UTF-8"]))
        for left in (*data.glob("postmaster.pid"), *data.glob(".s.PGSQL.*")):
            left.unlink()  # A killed one leaves them.
        options = {
            "wal_level": "logical",
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_replication_slots": "16",
            "max_wal_senders": "16",
            "timezone": "UTC",
        }
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        port = str(self.ports["postgres"])
        arguments = ["-D", str(data), "-h", "127.0.0.1", "-p", port, "-k", str(data), *settings]
        self._spawn("postgres", as_user("postgres", [postgres_program("postgres"), *arguments]))
        self._await("postgres", lambda: self.sql("postgres", "select 1") == [{"?column?": "1"}])

    def _start_mariadb(self) -> None:
        data = self._folder_of("mariadb", "mysql")
        if not (data / "mysql").exists():
            user = [f"--user={'mysql' if os.getuid() == 0 else os.environ.get('USER', '')}"]
            options = ["--auth-root-authentication-method=normal", "--skip-test-db", *user]
            run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", *options])
        init = self.folder / "mariadb.sql"
        init.write_text(
            "create user if not exists cdc@'127.0.0.1' identified by 'cdc';\n"
            "grant all on *.* to cdc@'127.0.0.1';\n"
        )
        arguments = [
            "--no-defaults", f"--datadir={data}", f"--socket={data}/socket", f"--init-file={init}",
            f"--pid-file={data}/pid", f"--port={self.ports['mariadb']}", "--bind-address=127.0.0.1",
            "--server-id=1", "--log-bin=bin", "--binlog-format=ROW", "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL", "--innodb-buffer-pool-size=32M",
            "--default-time-zone=+00:00", "--character-set-server=utf8mb4",
            "--version=5.7.19-log",  # Debezium's connector for MySQL refuses a MariaDB of today.
        ]  # fmt: skip
        self._spawn("mariadb", as_user("mysql", [program("mariadbd", "/usr/sbin"), *arguments]))
        self._await("mariadb", lambda: self.sql("mariadb", "select 1") == [{"1": "1"}])

    def _java(self, name: str, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else program("java")
        return [java, *JAVA_OPTIONS, "-cp", f"{self.jars}/kafka/*", name, *arguments]

    def _run_java(self, name: str, *arguments: str) -> None:
        run(self._java(name, *arguments))

    def _settings(self, part: str, values: Mapping[str, str]) -> Path:
        path = self.folder / f"{part}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return path

    def _folder_of(self, part: str, user: str) -> Path:
        data = self.folder / part
        if not data.exists():
            data.mkdir(mode=0o700)
            if os.getuid() == 0:
                shutil.chown(data, user)
        return data

    def _spawn(self, part: str, command: Sequence[str]) -> None:
        with (self.folder / f"{part}.log").open("ab") as log:
            self.processes[part] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd="/",
            )  # fmt: skip

    def _await(self, part: str, answers: Callable[[], bool]) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        problem: object = "it does not answer"
        while time.monotonic() < end:
            if self.processes[part].poll() is not None:
                problem = "it ended"
                break
            try:
                if answers():
                    return
            except (OSError, RuntimeError, urllib.error.URLError) as error:
                problem = error
            time.sleep(0.1)
        log = (self.folder / f"{part}.log").read_text(errors="replace")[-2_000:]
        raise StackUnavailableError(f"{part} did not start: {problem}\n{log}")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['connect']}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(text) for text in path.read_text().split()] if path.exists() else []
    return [*children, *(other for child in children for other in descendants(child))]


def fetch_jars(folder: Path) -> None:
    """Fetch the jars of Kafka and Debezium with Maven, unless they are there."""
    if (folder / "fetched").exists():
        return
    for name, target in (
        ("kafka", folder / "kafka"),
        ("debezium", folder / "plugins" / "debezium"),
    ):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        pom = folder / f"{name}.xml"
        pom.write_text(pom_of(name, JARS[name]))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        run([program("mvn"), "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={target}"])
    for jar in (folder / "plugins" / "debezium").iterdir():
        if jar.name.startswith(OF_THE_WORKER):
            jar.unlink()  # The worker has it, and two of them exclude each other.
    (folder / "fetched").touch()


def pom_of(name: str, jars: Sequence[str]) -> str:
    """Return a Maven project that depends on jars, given as ``group:artifact:version``."""
    tags = ("groupId", "artifactId", "version")

    def tagged(coordinates: str) -> str:
        pairs = zip(tags, coordinates.split(":"), strict=True)
        return "".join(f"<{tag}>{value}</{tag}>" for tag, value in pairs)

    dependencies = "".join(f"<dependency>{tagged(jar)}</dependency>" for jar in jars)
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        f"{tagged(f'local:{name}:1')}<packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def run(command: Sequence[str]) -> None:
    """Run a program to its end; its last words are in the error if it fails."""
    try:
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=FETCH_SECONDS_MAX)
    except subprocess.CalledProcessError as error:
        words = (error.stdout + error.stderr).decode(errors="replace")[-1_500:]
        raise StackUnavailableError(f"{command[0]} failed: {words}") from None


def program(name: str, *folders: str) -> str:
    """Return the path of a program of this machine."""
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if path is None:
        raise StackUnavailableError(f"{name} is not there; scripts/setup change-stream installs it")
    return path


def postgres_program(name: str) -> str:
    """Return the path of a program of the newest Postgres."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    return program(name, *map(str, reversed(found)))


def as_user(user: str, command: list[str]) -> list[str]:
    """Databases refuse to run as root."""
    return ["runuser", "-u", user, "--", *command] if os.getuid() == 0 else command


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()


def is_open(port: int) -> bool:
    """Return whether something listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
