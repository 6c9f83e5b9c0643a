"""Network namespaces of this machine, each with a link to it that can be cut (ip-netns(8))."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_numbers = itertools.count()


@dataclass(frozen=True)
class Host:
    """A place where processes run.

    Attributes
    ----------
    server : str
        The address of this machine as the host sees it.
    command : tuple of str
        What comes before a command that is to run there.
    link : str
        The interface at this end; empty if there is no link to cut.
    """

    server: str = "127.0.0.1"
    command: tuple[str, ...] = ()
    link: str = ""

    def cut(self) -> None:
        """Let no packet pass: open connections hang, and so do new ones."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("link", "set", self.link, "up")


def why_no_links() -> str:
    """Return why this process cannot make namespaces; empty if it can."""
    if shutil.which("ip") is None:
        return "there is no program ip (Debian: iproute2; scripts/setup network installs it)"
    name = f"bucketlake-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces need root: {error.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


@contextmanager
def hosts_with_links(count: int) -> Iterator[list[Host]]:
    """Make hosts, which exist as long as the body runs."""
    with ExitStack() as stack:
        yield [stack.enter_context(_host()) for _ in range(count)]


@contextmanager
def _host() -> Iterator[Host]:
    number = next(_numbers)
    name = f"bucketlake-{os.getpid()}-{number}"
    # 15 characters at most; a network of four addresses for each, of those of this process.
    here, there = f"bl{os.getpid()}.{number}a"[-15:], f"bl{os.getpid()}.{number}b"[-15:]
    network = f"10.{128 + os.getpid() % 128}.{number % 256}"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        _ip("addr", "add", f"{network}.1/30", "dev", here)
        _ip("link", "set", here, "up")
        _ip("-n", name, "addr", "add", f"{network}.2/30", "dev", there)
        _ip("-n", name, "link", "set", there, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Host(f"{network}.1", ("ip", "netns", "exec", name), here)
    finally:
        _ip("netns", "del", name)  # Its end of the link goes with it, and so the other one.


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
