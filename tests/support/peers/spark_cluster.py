"""A real Spark standalone cluster on loopback: a master and a worker out of the pyspark package."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trioha.analysis.spark.java import find_java

START_LIMIT_S = 60.0


@contextmanager
def spark_cluster(directory: Path, *, cores: int = 2) -> Iterator[str]:
    """The master's URL. Both processes are gone when the block is left."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        # The master and the worker do little: no optimizing compiler, one collecting thread.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, main: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        work = directory / name
        work.mkdir()
        with log.open("wb") as output:
            running.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments],
                    cwd=work,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
        return log

    try:
        deploy = "org.apache.spark.deploy"
        log = start("master", f"{deploy}.master.Master", "--port", "0", "--webui-port", "0")
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)", running[-1])
        worker = ("--cores", str(cores), "--memory", "2g", "--webui-port", "0")
        log = start("worker", f"{deploy}.worker.Worker", "--port", "0", *worker, url)
        _wait_for(log, r"Successfully registered with master (\S+)", running[-1])
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        match = re.search(pattern, text)
        if match is not None:
            return match[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"{pattern} did not come:\n{log.read_text(errors='replace')[-2000:]}")
