"""An S3 server for tests: it runs on this machine as long as they do.

Run as a program it is a process of its own, which says its address and ends with its input.
"""

from __future__ import annotations

import functools
import itertools
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY, Bucket

ROOT = Path(__file__).parents[1]

_numbers = itertools.count()


@contextmanager
def running_moto() -> Iterator[str]:
    """Run moto's S3; yield its address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # The stand-in looks whether a key is free and then writes, in many threads: give it the
    # atomicity that the service has.
    plain, lock = S3Response.put_object, threading.Lock()

    @functools.wraps(plain)
    def one_at_a_time(self: S3Response) -> Any:
        with lock:
            return plain(self)

    S3Response.put_object = one_at_a_time
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        S3Response.put_object = plain


@contextmanager
def moto_process() -> Iterator[str]:
    """Run moto's S3 beside this process, which it then does not hold up; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.s3_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait()


def client_of(endpoint: str) -> Any:
    """Return the vendor's own client of a server."""
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)


def new_bucket(endpoint: str, client: Any) -> Bucket:
    """Make an empty bucket."""
    name = f"lake-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    options = {
        "endpoint": endpoint,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": "us-east-1",
        "max_retries": "1",
    }
    return Bucket(name, client, options)


if __name__ == "__main__":
    with running_moto() as address:
        print(address, flush=True)
        sys.stdin.read()
