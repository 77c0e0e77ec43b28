"""Real processes under test: started, waited for, stopped and never left behind.

Everything here is synchronous: a real process lives in real time, and a test of it waits for
events (a line, an exit) with a deadline. Output is read by one thread per process into a file and
a bounded list of lines, so that a failing test can show what its peers said last.

Start processes from the test's main thread: where `setpriv` exists they die with the thread that
started them, so that even a killed pytest leaves nothing running.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from support.suite.ports import free_ports

READY_S = 30.0
STOP_S = 20.0
LINES_MAX = 4000
LINE_COLUMNS = 2000
TAIL_LINES = 25
TAIL_COLUMNS = 300
THREADS_S = 5.0
REPO = Path(__file__).resolve().parents[3]
# A busy two-core machine must not look like a broker out of capacity; as with Java's brokers.
UNHURRIED: Mapping[str, object] = {"waitTimeMillsInSendQueue": 20_000}


class ProcessFailed(AssertionError):
    """A process ended, or did not do in time what a test needs; the text carries its last lines."""


@attrs.define(eq=False)
class Process:
    """One child in its own process group, both of its output streams read line by line."""

    name: str
    command: Sequence[str]
    log_path: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    # Told every line in the reader's thread, before `wait_for_line` can see it.
    on_line: Callable[[str], None] | None = None
    # Called once both output streams have ended.
    on_end: Callable[[], None] | None = None
    # Lines of stderr go to the log only, when stdout speaks a protocol.
    merge_stderr: bool = True
    # A JVM prints what its threads wait for when it gets SIGQUIT; another process would end.
    is_java: bool = False

    is_asked_to_stop: bool = attrs.field(default=False, init=False)
    """It was sent SIGTERM since its last start."""
    _popen: subprocess.Popen[bytes] | None = None
    _lines: deque[str] = attrs.Factory(lambda: deque(maxlen=LINES_MAX))
    _seen: int = 0
    _changed: threading.Condition = attrs.Factory(threading.Condition)
    _readers: list[threading.Thread] = attrs.Factory(list)
    _open_readers: int = 0

    def start(self) -> None:
        """Run the command. Errors: AssertionError when it already runs."""
        assert not self.running, f"{self.name} already runs"
        self._join_readers()
        self._lines.clear()
        self._seen = 0
        self.is_asked_to_stop = False
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._popen = subprocess.Popen(
            [*die_with_parent(), *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.merge_stderr else subprocess.PIPE,
            env=dict(self.env) if self.env is not None else None,
            cwd=self.cwd,
            start_new_session=True,
        )
        streams = [(self._popen.stdout, True)]
        if not self.merge_stderr:
            streams.append((self._popen.stderr, False))
        self._open_readers = len(streams)
        for stream, heard in streams:
            reader = threading.Thread(
                target=self._read, args=(stream, heard), name=f"read[{self.name}]", daemon=True
            )
            reader.start()
            self._readers.append(reader)

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return None if self._popen is None else self._popen.poll()

    def wait_for_line(self, pattern: str, within_s: float = READY_S) -> re.Match[str]:
        """The first line since the start that matches. Errors: ProcessFailed."""
        regex = re.compile(pattern)
        deadline = time.monotonic() + within_s
        looked_at = 0
        with self._changed:
            while True:
                fresh = self._seen - looked_at
                for line in list(self._lines)[-fresh:] if fresh else ():
                    match = regex.search(line)
                    if match is not None:
                        return match
                looked_at = self._seen
                left = deadline - time.monotonic()
                if self._open_readers == 0:
                    raise ProcessFailed(f"{self.name} ended before {pattern!r}\n{self.tail()}")
                if left <= 0:
                    late = f"{self.name}: no {pattern!r} in {within_s} s\n{self.tail()}"
                    raise ProcessFailed("\n".join([late, *self._main_thread()]))
                self._changed.wait(left)

    def write_line(self, line: str) -> None:
        """Hand one line to the child's stdin. Errors: ProcessFailed when it is gone."""
        assert self._popen is not None
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line.encode() + b"\n")
            self._popen.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProcessFailed(f"{self.name} does not read any more\n{self.tail()}") from None

    def close_stdin(self) -> None:
        if self._popen is not None and self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()

    def signal(self, number: int) -> None:
        if self.running:
            self.is_asked_to_stop |= number == signal.SIGTERM
            os.kill(self.pid, number)

    def wait(self, within_s: float = STOP_S) -> int:
        """The exit status. Errors: ProcessFailed when it still runs after `within_s`."""
        assert self._popen is not None
        try:
            status = self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(
                f"{self.name} still runs after {within_s} s\n{self.tail()}"
            ) from None
        self._join_readers()
        return status

    def stop(self, within_s: float = STOP_S) -> int:
        """SIGTERM and wait for the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(within_s)

    def kill(self) -> None:
        """SIGKILL to the whole group; what it started goes too. Does nothing if it is gone."""
        if self._popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self.close_stdin()
        self._join_readers()

    def tail(self, count: int = TAIL_LINES) -> str:
        """The last lines, for a failing test's message."""
        state = "running" if self.running else f"exit status {self.returncode}"
        lines = [f"  | {line[:TAIL_COLUMNS]}" for line in list(self._lines)[-count:]]
        return "\n".join([f"  {self.name} ({state}), log {self.log_path}", *lines])

    def _main_thread(self) -> list[str]:
        """Return the lines about a JVM's main thread; its log has the other threads as well."""
        if not (self.is_java and self.running):
            return []
        self.signal(signal.SIGQUIT)
        with self._changed:
            self._changed.wait_for(lambda: "JNI global ref" in "".join(self._lines), THREADS_S)
            lines = list(self._lines)
        starts = [at for at, line in enumerate(lines) if line.startswith('"main"')]
        if not starts:
            return ["  | (it does not tell its threads)"]
        main = itertools.takewhile(str.strip, lines[starts[-1] :])
        return [f"  | {line[:TAIL_COLUMNS]}" for line in main]

    def _read(self, stream: object, heard: bool) -> None:
        with self.log_path.open("ab") as log:
            for raw in stream:  # type: ignore[attr-defined]
                log.write(raw)
                log.flush()
                line = raw.decode(errors="replace").rstrip("\r\n")
                if heard and self.on_line is not None:
                    self.on_line(line)
                with self._changed:
                    self._lines.append(line[:LINE_COLUMNS])
                    self._seen += 1
                    self._changed.notify_all()
        with self._changed:
            self._open_readers -= 1
            ended = self._open_readers == 0
            self._changed.notify_all()
        if ended and self.on_end is not None:
            self.on_end()

    def _join_readers(self) -> None:
        for reader in self._readers:
            reader.join(5.0)
        self._readers.clear()
        if self._popen is not None:
            for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


@attrs.define(eq=False)
class Node:
    """A name server or broker of either make: a process that says in one line that it is ready."""

    process: Process
    address: str
    ready_pattern: str
    store: Path | None = None
    ha_address: str | None = None
    ready: re.Match[str] | None = None
    ready_s: float = READY_S
    """The time that a start may take, unless a test names another."""

    @property
    def name(self) -> str:
        return self.process.name

    def start(self, within_s: float | None = None) -> Node:
        """Start, or start again, and wait until it serves."""
        self.process.start()
        return self.wait_until_ready(within_s)

    def wait_until_ready(self, within_s: float | None = None) -> Node:
        """Wait until it serves, for nodes whose process was started by hand."""
        within_s = self.ready_s if within_s is None else within_s
        self.ready = self.process.wait_for_line(self.ready_pattern, within_s)
        return self

    def stop(self, within_s: float = STOP_S) -> int:
        return self.process.stop(within_s)

    def kill(self) -> None:
        self.process.kill()

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def commitlog(self) -> Path:
        assert self.store is not None, f"{self.name} has no store"
        return self.store / "commitlog"


@attrs.define(eq=False)
class Processes:
    """Everything one test started, in order; killed in reverse when the test ends."""

    root: Path
    members: list[Process] = attrs.Factory(list)

    def add(self, process: Process) -> Process:
        self.members.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self.members):
            process.kill()


def start_all(nodes: Collection[Node], within_s: float | None = None) -> None:
    """Start them side by side: a start is mostly waiting."""
    for node in nodes:
        node.process.start()
    for node in nodes:
        node.wait_until_ready(within_s)


def trioha_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trioha", *arguments]


def trioha_namesrv(
    processes: Processes,
    port: int | None = None,
    name: str = "namesrv",
    settings: Mapping[str, object] | None = None,
) -> Node:
    """A trioha name server on loopback, not yet started."""
    address = f"127.0.0.1:{port or free_ports()}"
    home = processes.root / name
    command = trioha_command("run", "namesrv", "--listen", address)
    command += ["--set", f"kvConfigPath={home / 'kvConfig.json'}"]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    process = _node_process(processes, name, command, home)
    return Node(process, address, r"trioha namesrv ready listen=(\S+)")


def forget_owner(store: Path | None) -> None:
    """Let a broker of any name open the store next."""
    assert store is not None
    (store / "broker-name").unlink(missing_ok=True)


def trioha_broker(
    processes: Processes,
    namesrv: str,
    *,
    name: str = "broker-a",
    broker_id: int = 0,
    role: str = "ASYNC_MASTER",
    port: int | None = None,
    store: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Node:
    """A trioha broker on loopback, not yet started. It keeps its ports over a restart."""
    port = port or free_ports()
    address, ha_address = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    options = ("--id", str(broker_id), "--role", role, "--ha-listen", ha_address)
    words = rf"id={broker_id} role=(\S+)"
    node = _broker(
        processes, namesrv, f"{name}-{broker_id}", name, address, store, options, settings, words
    )
    return attrs.evolve(node, ha_address=ha_address)


def raft_member(
    processes: Processes,
    namesrv: str,
    *,
    name: str,
    member_id: str,
    peers: str,
    address: str,
    store: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Node:
    """A broker of a Raft group, not yet started; `peers` as in dLegerPeers."""
    member = {"enableDLegerCommitLog": True, "dLegerPeers": peers, "dLegerSelfId": member_id}
    settings = {**member, **(settings or {})}
    words = f"id={member_id} role=DLEDGER"
    label = f"{name}-{member_id}"
    return _broker(processes, namesrv, label, name, address, store, (), settings, words)


def _broker(
    processes: Processes,
    namesrv: str,
    label: str,
    name: str,
    address: str,
    store: Path | None,
    options: Sequence[str],
    settings: Mapping[str, object] | None,
    ready_words: str,
) -> Node:
    home = processes.root / label
    store = store or home / "store"
    command = trioha_command("run", "broker", "--name", name, *options, "--listen", address)
    command += ["--namesrv", namesrv, "--store", str(store)]
    for key, value in {**UNHURRIED, **(settings or {})}.items():
        command += ["--set", f"{key}={_java_text(value)}"]
    process = _node_process(processes, label, command, home)
    return Node(process, address, rf"trioha broker {re.escape(name)} {ready_words} ready", store)


def _node_process(processes: Processes, name: str, command: list[str], home: Path) -> Process:
    home.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRIOHA_")}
    environment |= {"HOME": str(home), "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(REPO)}
    return processes.add(
        Process(name, command, processes.root / "logs" / f"{name}.log", environment, home)
    )


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def die_with_parent() -> list[str]:
    """Return what stands before a command that must not outlive this process."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


@contextlib.contextmanager
def running_processes(root: Path) -> Iterator[Processes]:
    """A registry whose members are killed when the block ends, however it ends."""
    processes = Processes(root)
    _running.append(processes)
    try:
        yield processes
    finally:
        _running.remove(processes)
        processes.close()


_running: list[Processes] = []


def what_all_said_last() -> str:
    """The last lines of every process that runs or ran in a block that has not ended."""
    return "\n".join(process.tail() for one in _running for process in one.members)
