"""The stock proxy of RocketMQ 5 in cluster mode, and the stock clients behind it.

Maven resolves the proxy as it does the other Java peers. The Python client's package has the name
of the 4.x client's, so pip installs it into an environment of its own in `tests/interop/target`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from support.peers.java import INTEROP, READY_S, java_command, java_environment, require_java
from support.peers.toolchain import exclusively
from support.processes.rig import Node, Process, Processes, ProcessFailed
from support.suite.ports import distinct_ports
from support.suite.skips import unavailable

PYTHON_5 = INTEROP / "python-5"
JS_5 = INTEROP / "js-5"
INSTALL_S = 300.0
ANSWER_S = 30.0


def java_proxy(processes: Processes, namesrv: str) -> Node:
    """A proxy in cluster mode on loopback, not yet started; its address is for gRPC clients."""
    require_java("proxy")
    grpc, remoting, metrics = distinct_ports(3)
    home = processes.root / "java-proxy"
    config = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": grpc,
        "remotingListenPort": remoting,
        "metricsPromExporterPort": metrics,
        "localServeAddr": "127.0.0.1",
        "topicRouteServiceCacheRefreshSeconds": 2,
        "transactionHeartbeatPeriodSecond": 1,
    }
    arguments = ["-pm", "cluster", "-n", namesrv, "-pc", str(home / "proxy.json")]
    main = "org.apache.rocketmq.proxy.ProxyStartup"
    command = java_command(main, home, arguments, release="proxy")
    (home / "proxy.json").write_text(json.dumps(config))
    environment = {**java_environment(home), "RMQ_PROXY_HOME": str(home)}
    log = processes.root / "logs" / "java-proxy.log"
    process = Process("java-proxy", command, log, environment, home, is_java=True)
    ready = r"rocketmq-proxy startup successfully"
    return Node(processes.add(process), f"127.0.0.1:{grpc}", ready, ready_s=READY_S)


@functools.cache
def python_5() -> Path:
    """The interpreter with the stock client; skips the test when it cannot be installed."""
    target = INTEROP / "target" / "python-5"
    wanted = (PYTHON_5 / "requirements.txt").read_text()
    stamp = target / "installed.txt"
    interpreter = target / "bin" / "python"
    with exclusively(target):
        if not stamp.exists() or stamp.read_text() != wanted:
            try:
                subprocess.run(
                    [sys.executable, "-m", "venv", "--clear", str(target)],
                    check=True,
                    capture_output=True,
                    timeout=INSTALL_S,
                )
                subprocess.run(
                    [
                        interpreter,
                        "-m",
                        "pip",
                        "install",
                        "-q",
                        "-r",
                        PYTHON_5 / "requirements.txt",
                    ],
                    check=True,
                    capture_output=True,
                    timeout=INSTALL_S,
                )
            except (subprocess.SubprocessError, OSError) as error:
                unavailable(f"the Python client of RocketMQ 5: pip could not install it: {error}")
            stamp.write_text(wanted)
    return interpreter


@functools.cache
def js_5() -> Path:
    """The modules of the stock Node.js client; skips the test when npm cannot install them."""
    if shutil.which("npm") is None:
        unavailable("the Node.js client of RocketMQ 5: npm is missing")
    target = INTEROP / "target" / "js-5"
    wanted = (JS_5 / "package.json").read_text()
    stamp = target / "installed.txt"
    with exclusively(target):
        if not stamp.exists() or stamp.read_text() != wanted:
            target.mkdir(parents=True, exist_ok=True)
            (target / "package.json").write_text(wanted)
            try:
                subprocess.run(
                    ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"],
                    cwd=target,
                    check=True,
                    capture_output=True,
                    timeout=INSTALL_S,
                )
            except (subprocess.SubprocessError, OSError) as error:
                unavailable(f"the Node.js client of RocketMQ 5: npm could not install it: {error}")
            stamp.write_text(wanted)
    return target / "node_modules"


def run_js_5(proxy: str, topic: str, group: str) -> object:
    """Let the stock Node.js client send and receive; what it says. Errors: CalledProcessError."""
    done = subprocess.run(
        ["node", str(JS_5 / "receive.js"), proxy, topic, group],
        env={**os.environ, "NODE_PATH": str(js_5())},
        check=True,
        stdout=subprocess.PIPE,
        timeout=ANSWER_S,
    )
    return json.loads(done.stdout)


@attrs.define(eq=False)
class Python5:
    """A process with the stock client."""

    process: Process
    events: list[dict[str, Any]] = attrs.Factory(list)
    _changed: threading.Condition = attrs.Factory(threading.Condition)
    _numbers: Iterator[int] = attrs.Factory(itertools.count)

    def hear(self, line: str) -> None:
        if line.startswith("{"):
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()

    def wait_for(self, what: str, within_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields. Errors: ProcessFailed when none comes in time."""
        deadline = time.monotonic() + within_s
        with self._changed:
            while True:
                for event in self.events:
                    if all(event.get(name) == value for name, value in fields.items()):
                        return event
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ProcessFailed(f"not in time: {what}\n{self.process.tail()}")
                self._changed.wait(left)

    def run(self, operation: str, **arguments: Any) -> Any:
        """Run one operation of the driver; its result. Errors: AssertionError with its error."""
        number = next(self._numbers)
        self.process.write_line(json.dumps({"id": number, "op": operation, **arguments}))
        answer = self.wait_for(operation, id=number)
        assert "error" not in answer, answer["error"]
        return answer["result"]


def start_python_5(processes: Processes, proxy: str, name: str = "python-5") -> Python5:
    """Start the stock client at a proxy."""
    home = processes.root / "clients" / name
    home.mkdir(parents=True)
    process = Process(
        name,
        [str(python_5()), str(PYTHON_5 / "driver.py"), proxy],
        processes.root / "logs" / f"{name}.log",
        # The client logs below HOME.
        {**os.environ, "HOME": str(home), "PYTHONUNBUFFERED": "1"},
        home,
        merge_stderr=False,
    )
    client = Python5(process)
    process.on_line = client.hear
    processes.add(process)
    process.start()
    client.wait_for("ready", event="ready")
    return client
