"""A Spark session made for one analysis, on this machine or on any cluster, and ended with it.

Theory of operation. Spark's driver is a JVM that we start, its stdout and stderr sent to a file: a
user's terminal and a program's JSON stay clean, and when Spark does not come up the file says why.
The JVM ends when its stdin closes, so it dies with us however we end; leaving the block stops it
in order. Under `spark-submit` the JVM is already there and is the submitter's to end.

Workers of a cluster need a Python with our dependencies and the same paths to the stores. Both are
asked for before the first scan, by one small job; our own package is sent along when theirs is
missing or of another version.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import trioha
from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.java import Java, find_java, is_submitted, python_of_workers
from trioha.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_MASTERS = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+")
_STANDALONE = re.compile(r"([^:,]+|\[[^\]]+\]):(\d+)")
_ANSWER_LIMIT_S = 5.0
_STOP_LIMIT_S = 15.0
_SHUFFLE_BYTES = 128 << 20
_SHUFFLE_PARTITIONS_MAX = 2000
_MEMORY_MIN = 512 << 20
_MEMORY_PER_CORE = 128 << 20  # to sort and group in before it spills
_MEMORY_MAX = 2 << 30
_MISSING = "pyspark is not installed; `pip install 'trioha[spark]'`"
_BRIEF_BYTES_MAX = 256 << 20
_NEEDED = ("attrs", "duckdb", "msgpack", "msgspec", "numpy", "pyarrow")


@attrs.frozen
class SparkInfo:
    """Spark and Java of a session, for the manifest and for people."""

    version: str
    master: str
    parallelism: int
    java: str
    shares_scratch: bool
    """Workers can write to the scratch directory, and we read it."""


def check_master(master: str) -> None:
    """Return whether a master can be spoken to at all, before a JVM is started for it.

    Errors: ConfigError when it is no master URL; Unreachable when no standalone master answers.
    """
    if not _MASTERS.fullmatch(master):
        raise ConfigError(
            f"{master} is no Spark master; it is local[*], local[4], spark://HOST:PORT, yarn or k8s://…"
        )
    if not master.startswith("spark://"):
        return
    places = _STANDALONE.findall(master.removeprefix("spark://"))
    if not places:
        raise ConfigError(f"{master} lacks a port; it is spark://HOST:PORT")
    for host, port in places:
        address = (host.strip("[]"), int(port))
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, timeout=_ANSWER_LIMIT_S),
        ):
            return
    raise Unreachable(f"{master} does not answer; is the master running, and is the port right?")


@contextlib.contextmanager
def open_session(
    *,
    master: str | None,
    scratch: Path,
    log: Path,
    settings: Mapping[str, str] | None = None,
    paths: Sequence[str] = (),
    bytes_total: int = 0,
) -> Iterator[tuple[SparkSession, SparkInfo]]:
    """A session; `paths` are the stores that workers must see.

    `bytes_total`, of all logs to be read, sizes shuffles and says how well to compile.

    Errors: AnalysisError with one sentence: no pyspark, no Java, Spark does not start, workers
    lack a library or do not see a store. Unreachable when the master does not answer.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise AnalysisError(_MISSING) from None

    submitted = is_submitted()
    wanted = master or (None if submitted else LOCAL)
    if wanted is not None:
        check_master(wanted)
    is_local = wanted is not None and wanted.startswith("local")
    java = None if submitted else find_java()
    conf = SparkConf(loadDefaults=submitted)
    for key, value in _settings(wanted, scratch, bytes_total, is_local=is_local).items():
        conf.set(key, value)
    for key, value in (settings or {}).items():
        conf.set(key, value)
    with contextlib.ExitStack() as stack:
        gateway = _launch(conf, java, log, is_local=is_local)
        stack.callback(_end_jvm, gateway, SparkContext)
        try:
            with _signals_kept():
                context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            raise AnalysisError(f"Spark did not start: {_reason(error, log)}") from error
        stack.callback(_within, _STOP_LIMIT_S, context.stop)
        if submitted:
            context.setLogLevel("ERROR")
        _silence_loggers(context)
        session = SparkSession(context)
        partitions = max(2 * context.defaultParallelism, bytes_total // _SHUFFLE_BYTES)
        session.conf.set(
            "spark.sql.shuffle.partitions", str(min(partitions, _SHUFFLE_PARTITIONS_MAX))
        )
        shares_scratch = is_local or _equip_workers(context, scratch, paths)
        yield (
            session,
            SparkInfo(
                version=context.version,
                master=str(context.master),
                parallelism=context.defaultParallelism,
                java=java.in_words if java is not None else "spark-submit's",
                shares_scratch=shares_scratch,
            ),
        )


def _settings(
    master: str | None, scratch: Path, bytes_total: int, *, is_local: bool
) -> dict[str, str]:
    settings = {
        "spark.app.name": "trioha analyze",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.variable.substitute": "false",  # a key may look like a variable
        # Spark 4.3 keeps pushed filters for every later scan of the same view: rows get lost.
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.extraJavaOptions": java_options(bytes_total, is_local=is_local),
        "spark.executor.extraJavaOptions": java_options(bytes_total, is_local=False),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # Rows on their way from a Python worker: a sixth less time than over TCP on loopback.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if master is not None:
        settings["spark.master"] = master
    if is_local:
        settings |= {
            "spark.local.dir": str(scratch),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{local_memory(master or LOCAL) >> 20}m",
        }
    return settings


def _silence_loggers(context: Any) -> None:
    """Errors go to who asked. pyspark would write every failed query to stderr too, stack and all;
    py4j, by its own logger and the root's, each answer that Ctrl-C kept it from reading; and the
    server for accumulators, of which we have none, that the JVM has gone."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)
    context._accumulatorServer.handle_error = lambda request, address: None


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def local_memory(master: str) -> int:
    """Heap in bytes of a JVM that is driver and executor in one, by its cores.

    With two cores all of it stays below 1 GiB whatever the store's size (docs/benchmarks.md).
    """
    named = re.match(r"local(?:-cluster)?\[(\d+)", master)
    cores = int(named[1]) if named else 1 if master == "local" else os.cpu_count() or 1
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = min((256 << 20) + cores * _MEMORY_PER_CORE, machine // 4, _MEMORY_MAX)
    return max(_MEMORY_MIN, wanted)


def java_options(bytes_total: int, *, is_local: bool) -> str:
    """Return JVM options to read so much log; a local one shares processors with workers."""
    # Arrow's checks of every value read, and a collector that pauses rather than competes, are a
    # third of what a scan costs the JVM. Of one that is here a collector of one thread on a small
    # heap costs the least: what it collects is a batch old.
    options = [
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
    ]
    options.append("-XX:+UseSerialGC" if is_local else "-XX:+UseParallelGC")
    if bytes_total < _BRIEF_BYTES_MAX:
        # Half of the processor time of a short analysis is the optimizing compiler's, for code that
        # ends before it is any faster. A quarter of a gigabyte takes a seventh less time without
        # it, a whole one a third more.
        options.append("-XX:TieredStopAtLevel=1")
    return " ".join(options)


def _launch(conf: Any, java: Java | None, log: Path, *, is_local: bool) -> Any:
    from pyspark import java_gateway

    launch: Any = java_gateway.launch_gateway

    if java is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return launch(conf)
    python = python_of_workers(os.environ, is_local=is_local)
    changes = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if is_local:
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"
        # glibc keeps an arena per thread otherwise: a tenth of a gigabyte that nobody uses.
        changes["MALLOC_ARENA_MAX"] = os.environ.get("MALLOC_ARENA_MAX", "2")
    os.environ.update(changes)  # the JVM, its planner and pyspark itself read them, now and later
    with log.open("ab") as output:
        try:
            return launch(conf, {"stdout": output, "stderr": output})
        except Exception as error:
            raise AnalysisError(f"Spark did not start: {_reason(error, log)}") from error


def _equip_workers(context: Any, scratch: Path, paths: Sequence[str]) -> bool:
    """Ask one worker what it has; send our package if it must; complain of the rest.

    True when that worker can write to `scratch` and we see it.
    """
    # Not ideal: one is asked for all. A worker elsewhere would fail in its task, and say where.
    mark = scratch / "seen-by-a-worker"
    found = _ask_worker(context, paths, str(mark))
    if found["trioha"] != trioha.__version__:
        archive = scratch / "trioha.zip"
        _pack(archive)
        context.addPyFile(str(archive))
    missing = [name for name in _NEEDED if not found[name]]
    if missing:
        raise AnalysisError(
            f"the workers' Python {found['python']} lacks {', '.join(missing)};"
            " install trioha[spark] for it, or name one that has it in PYSPARK_PYTHON"
        )
    unseen = [path for path in paths if path not in found["paths"]]
    if unseen:
        raise AnalysisError(
            f"the workers do not see {unseen[0]}; stores must lie at the same path on every worker"
        )
    return mark.exists()


def _ask_worker(context: Any, paths: Sequence[str], mark: str) -> dict[str, Any]:
    needed, wanted = _NEEDED, list(paths)

    # Not named at module level: it must travel by value, to workers that have never heard of us.
    def answer(_: int) -> dict[str, Any]:
        import contextlib
        import importlib
        import os
        import sys

        def version(name: str) -> Any:
            try:
                return getattr(importlib.import_module(name), "__version__", True)
            except ImportError:
                return None

        with contextlib.suppress(OSError):
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY))
        facts = {name: version(name) for name in (*needed, "trioha")}
        seen = [path for path in wanted if os.path.exists(path)]
        return {**facts, "paths": seen, "python": sys.executable}

    try:
        facts: dict[str, Any] = context.parallelize([0], 1).map(answer).first()
    except Exception as error:
        raise AnalysisError(f"the workers did not answer: {first_line(error)}") from error
    return facts


def _pack(archive: Path) -> None:
    root = Path(trioha.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, Path("trioha") / path.relative_to(root))


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """pyspark sets a SIGINT handler that cancels jobs, in the middle of whatever is being asked of
    the JVM; ours comes back. The session's end cancels jobs as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_jvm(gateway: Any, context_class: Any) -> None:
    context_class._gateway = None  # else the next session speaks to a dead JVM
    context_class._jvm = None
    process: subprocess.Popen[bytes] | None = gateway.proc
    _within(_STOP_LIMIT_S, gateway.shutdown)
    if process is None:
        return
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _within(limit_s: float, call: Callable[[], object]) -> None:
    """Call, but do not wait for a JVM that no longer answers."""

    def work() -> None:
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)


def first_line(error: BaseException) -> str:
    """The sentence in an error of Spark's, without class names and stacks.

    A task that failed in Python carries its traceback: the sentence is the end of that.
    """
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error if java is None else java.toString()).strip()
    _, traced, trace = text.partition("Traceback (most recent call last):")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if traced:
        frames = [line for line in trace.splitlines() if line and not line[0].isspace()]
        lines = [line for line in frames if ": " in line and not line.startswith("^")] or lines
    line = lines[0] if lines else type(error).__name__
    return re.sub(r"^([\w$]+\.)*[\w$]+(Exception|Error): ", "", line)


def _reason(error: BaseException, log: Path) -> str:
    """Return the cause of a failure, in the JVM's own words where it left any."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()
        for line in lines:
            if re.match(r"(Error|Exception|Caused by|Unrecognized|Unable)", line):
                return line.strip()
    return first_line(error)
