"""Faults for real processes: full disks, failing system calls, death at a chosen call, damage."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from support.processes.rig import Node
from support.suite.skips import skip_unless, unavailable

# Small enough that segments, queue files and index files roll in every test.
TINY_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 256 * 1024,
    "maxMessageSize": 128 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 300,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "diskMaxUsedSpaceRatio": 99,
    "diskSpaceWarningLevelRatio": 99,
    "haReconnectInterval": 200,
}

CLOSE_S = 20.0
PAGE_BYTES = 4096
PAGE_LOST = 0.7
_FDATASYNCED = {"commitlog", "consumequeue", "index", "checkpoint"}
_PIECE = bytes(1 << 16)

# Loaded by every Python that has its directory on PYTHONPATH. A call that a plan names fails, or
# kills the process before, after or in the middle of it. Plain Python instead of LD_PRELOAD: it
# needs no compiler, and the product makes these calls from Python.
_FAILPOINTS = """
import errno, json, os, signal, threading, time
_plans = json.loads(os.environ.get("FAILPOINTS", "[]"))

def _path_of(subject):
    if isinstance(subject, int):
        try:
            return os.readlink("/proc/self/fd/%d" % subject)
        except OSError:
            return ""
    return os.fspath(subject)

def _die():
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()

def _wrap(name, plan):
    original = getattr(os, name)
    seen = 0

    def call(subject, *rest, **named):
        nonlocal seen
        armed = plan["armed_by"] is None or os.path.exists(plan["armed_by"])
        if not armed or plan["path"] not in _path_of(subject):
            return original(subject, *rest, **named)
        seen += 1
        lasting = plan["action"] in ("fail", "slow")
        if seen < plan["nth"] or (seen > plan["nth"] and not lasting):
            return original(subject, *rest, **named)
        if plan["action"] == "slow":
            time.sleep(plan["delay_s"])
            return original(subject, *rest, **named)
        if plan["action"] == "fail":
            raise OSError(plan["errno"], os.strerror(plan["errno"]))
        if plan["action"] == "die before":
            _die()
        if plan["action"] == "die within":  # of a write: half of it is there
            data = memoryview(rest[0])
            original(subject, data[: len(data) // 2], *rest[1:], **named)
            _die()
        result = original(subject, *rest, **named)
        _die()
        return result

    setattr(os, name, call)

def _keep_synced(folder):
    sync = os.fdatasync

    def fdatasync(fd):
        # By its name in /proc: it may have been opened for writing alone.
        with open("/proc/self/fd/%d" % fd, "rb") as file:
            data = file.read()
        sync(fd)
        path = os.path.join(folder, str(os.fstat(fd).st_ino))
        part = "%s.%d" % (path, threading.get_ident())
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)

    os.fdatasync = fdatasync

if "SYNCED" in os.environ:
    _keep_synced(os.environ["SYNCED"])
for _plan in _plans:
    _wrap(_plan["call"], _plan)
exec(os.environ.get("BREAKAGE", ""))
"""


@attrs.frozen(kw_only=True)
class Failpoint:
    """The nth call of `os.<call>` on a path that contains `path`."""

    call: str
    path: str = ""
    nth: int = 1
    action: str = "fail"
    """"fail" or "slow" (both from the nth call on), "die before", "die within" (a write) or
    "die after"."""
    errno: int = errno.EIO
    delay_s: float = 0.0
    """Extra seconds of a slow call."""
    armed_by: str | None = None
    """Counts and acts only while this file exists."""


def set_failpoints(
    node: Node,
    home: Path,
    *failpoints: Failpoint,
    breakage: str = "",
    synced: Path | None = None,
) -> None:
    """The next start of `node` has these; none of them takes the old ones away.

    `breakage`: Python that runs first of all, to put a fault into the product itself.
    `synced`: where to keep what is on disk for certain, for `lose_power`.
    """
    assert node.process.env is not None
    home.mkdir(parents=True, exist_ok=True)
    (home / "sitecustomize.py").write_text(_FAILPOINTS)
    env = dict(node.process.env)
    paths = [path for path in env["PYTHONPATH"].split(os.pathsep) if path != str(home)]
    env["PYTHONPATH"] = os.pathsep.join([str(home), *paths])
    env["FAILPOINTS"] = json.dumps([attrs.asdict(point) for point in failpoints])
    env["BREAKAGE"] = breakage
    if synced is not None:
        synced.mkdir(exist_ok=True)
        env["SYNCED"] = str(synced)
    node.process.env = env


def lose_power(store: Path, synced: Path, rng: random.Random, page_lost: float = PAGE_LOST) -> int:
    """Turn fdatasynced files into what a power cut leaves: each page as it was at its last
    fdatasync, or as it is now. The process is dead. Returns how many pages went back.

    `page_lost`: how likely a page goes back. With 1.0 nothing is left but what was synced.
    """
    lost = 0
    for path in sorted(store.rglob("*")):
        if path.suffix or not path.is_file() or not _FDATASYNCED & set(path.parts):
            continue
        kept = synced / str(path.stat().st_ino)
        now = path.read_bytes()
        durable = (kept.read_bytes() if kept.exists() else b"").ljust(len(now), b"\0")
        if durable == now:
            continue
        with open(path, "r+b") as file:
            for begin in range(0, len(now), PAGE_BYTES):
                page = durable[begin : begin + PAGE_BYTES]
                if page != now[begin : begin + PAGE_BYTES] and rng.random() < page_lost:
                    file.seek(begin)
                    file.write(page)
                    lost += 1
    return lost


@contextlib.contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own of limited size, mounted at `path`; the test is skipped without."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        unavailable("a file system of limited size needs root and mount(8)")
    path.mkdir(parents=True)
    command = [mount, "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    skip_unless(done.returncode == 0, f"tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        # Lazily: a process that still has a file there must not keep the mount.
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill_disk(directory: Path) -> Path:
    """Take every byte that is left and return the file that holds them; unlink it to give back."""
    filler = directory / "filler"
    with open(filler, "wb", buffering=0) as file:
        while True:
            try:
                file.write(_PIECE)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return filler


def flip_byte(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        old = file.read(1)[0]
        file.seek(position)
        file.write(bytes([old ^ 0x5A]))


class RawPeer:
    """A connection that says what no client says."""

    def __init__(self, address: str, *, receive_bytes: int | None = None) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(CLOSE_S)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> RawPeer:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)
        return self

    def wait_closed(self, within_s: float = CLOSE_S) -> float:
        """Read until the broker closes; returns after how long. Errors: AssertionError."""
        started = time.monotonic()
        while True:
            left = started + within_s - time.monotonic()
            assert left > 0, f"still open after {within_s} s"
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(1 << 16):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        return time.monotonic() - started


@attrs.frozen
class Footprint:
    """Resources of a process."""

    descriptors: int
    rss_bytes: int
    """Anonymous memory: mapped log segments do not count."""


def footprint(pid: int) -> Footprint:
    fields: Mapping[str, str] = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    anonymous_kb = int(fields["RssAnon"].split()[0])
    return Footprint(len(os.listdir(f"/proc/{pid}/fd")), anonymous_kb * 1024)


def processor_s(pid: int) -> float:
    """Processor time of all threads of a process since its start, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
