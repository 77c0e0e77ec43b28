"""`trioha doctor`: what this machine has and lacks, each line with its cure."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.java import find_java, spark_version
from trioha.checksum import crc32
from trioha.cli.doctor_machine import Check, machine_checks
from trioha.cli.failures import ExitCode
from trioha.cli.output import output_option, print_json, print_styled, size_in_words
from trioha.cli.version import library_version
from trioha.compiled import this_build

_PYTHON_MIN = (3, 11)
_LIBRARIES = ("attrs", "click", "msgpack", "msgspec", "trio")
_OPEN_FILES_GOOD = 65_536
"""Open files that docs/cli.md gives a broker: one for each connection and each segment."""
_OPEN_FILES_MIN = 1_024
_DISK_MIN = 2 << 30
_DISK_USED_MAX = 0.75
"""diskMaxUsedSpaceRatio: beyond it a broker deletes early."""
_PORTS = {9876: "name server", 10909: "broker, VIP", 10911: "broker", 10912: "broker, slaves"}
_SPARK_EXTRA = "pip install 'trioha[spark]'"
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@click.option("--start-spark", is_flag=True, help="Start Spark too, and count to one thousand.")
@output_option
def command(start_spark: bool, output: str) -> int:
    """Say what this machine has for trioha and what it lacks, with the cure.

    `warn` is what something needs that you may not use; `fail` is what keeps trioha from
    working. Exit code 1 when a line fails.

    \b
    trioha doctor
    trioha doctor --start-spark
    trioha doctor -o json | jq '.checks[] | select(.verdict != "ok")'
    """
    found = list(checks(start_spark=start_spark))
    failed = any(check.verdict == "fail" for check in found)
    if output == "json":
        print_json({"ok": not failed, "checks": [attrs.asdict(check) for check in found]})
    else:
        width = max(len(check.name) for check in found)
        for check in found:
            cure = f"; {check.cure}" if check.cure else ""
            print_styled(f"{check.verdict:<4}", nl=False, fg=_COLOURS[check.verdict])
            click.echo(f"  {check.name:<{width}}  {check.says}{cure}")
    return ExitCode.FAILED if failed else ExitCode.OK


def checks(*, start_spark: bool = False) -> Iterator[Check]:
    """Every line, one by one."""
    yield _python()
    yield _libraries()
    yield _compiled()
    yield _checksums()
    yield _open_files()
    yield from machine_checks(Path.cwd())
    yield _disk("disk here", Path.cwd())
    yield _disk("disk for temporary files", Path(tempfile.gettempdir()))
    yield _ports()
    yield _extra("console", "textual", "the operator's console", "pip install 'trioha[console]'")
    yield _pyspark()
    for name in ("duckdb", "numpy", "pyarrow"):
        yield _extra(name, name, "`trioha analyze`", "pip install 'trioha[analysis]'")
    yield _java()
    if start_spark:
        yield _spark_run()


def _python() -> Check:
    says = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if sys.version_info < _PYTHON_MIN:
        return Check("Python", "fail", says, "trioha needs Python 3.11 or newer")
    return Check("Python", "ok", says)


def _libraries() -> Check:
    found, missing = [], []
    for name in _LIBRARIES:
        version = library_version(name)
        if version is None:
            missing.append(name)
        else:
            found.append(f"{name} {version}")
    if missing:
        return Check(
            "libraries", "fail", f"missing: {', '.join(missing)}", "reinstall trioha with pip"
        )
    return Check("libraries", "ok", ", ".join(found))


def _compiled() -> Check:
    state = this_build()
    if state.compiled:
        # A stale build's own words name the cure.
        return Check("hot paths", "warn" if state.stale else "ok", str(state))
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    lack = "" if compiler else ", and there is no C compiler"
    return Check(
        "hot paths",
        "warn",
        f"{state}, which makes a broker slower{lack}",
        "install trioha from a wheel" + (", or `just compile`" if compiler else ", or install gcc"),
    )


def _checksums() -> Check:
    if crc32.__module__ == "zlib":
        says = "zlib computes them, which takes three to nine times as long as isal"
        return Check("checksums", "warn", says, "pip install isal, where it has a wheel")
    return Check("checksums", "ok", f"isal {library_version('isal')}")


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    says = f"{_limit(soft)}, at most {_limit(hard)}"
    cure = f"ulimit -n {_OPEN_FILES_GOOD}, or LimitNOFILE={_OPEN_FILES_GOOD} in systemd's unit"
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES_MIN:
        return Check("open files", "fail", says, cure)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES_GOOD:
        return Check("open files", "warn", f"{says}: enough to try, not for many clients", cure)
    return Check("open files", "ok", says)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _disk(name: str, path: Path) -> Check:
    try:
        usage = shutil.disk_usage(path)
        is_writable = os.access(path, os.W_OK)
    except OSError as error:
        return Check(name, "warn", f"{path}: {error.strerror}")
    used = usage.used / usage.total if usage.total else 1.0
    says = f"{path}: {size_in_words(usage.free)} free, {used:.0%} used"
    if not is_writable:
        return Check(name, "warn", f"{says}, not writable", "work in a directory that is yours")
    if usage.free < _DISK_MIN or used > _DISK_USED_MAX:
        return Check(
            name, "warn", says, "make room: a broker deletes early above 75 % and refuses at 90 %"
        )
    return Check(name, "ok", says)


def _ports() -> Check:
    taken = [f"{port} ({use})" for port, use in _PORTS.items() if not _is_free(port)]
    if taken:
        return Check(
            "ports", "warn", f"in use: {', '.join(taken)}", "choose others, port 0 picks a free one"
        )
    return Check("ports", "ok", f"free: {', '.join(map(str, _PORTS))}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _extra(name: str, distribution: str, use: str, cure: str) -> Check:
    version = library_version(distribution)
    if version is None:
        return Check(name, "warn", f"{distribution} is not installed: needed for {use}", cure)
    return Check(name, "ok", f"{distribution} {version}")


def _pyspark() -> Check:
    version = spark_version()
    if version is None:
        return Check(
            "Spark", "warn", "pyspark is not installed: `trioha analyze` runs without", _SPARK_EXTRA
        )
    home = os.environ.get("SPARK_HOME")
    if home:
        return Check(
            "Spark",
            "warn",
            f"pyspark {version}, but SPARK_HOME is {home}: that Spark is used",
            "unset SPARK_HOME unless it is of the same version",
        )
    return Check("Spark", "ok", f"pyspark {version}")


def _java() -> Check:
    try:
        java = find_java()
    except AnalysisError as error:
        what, _, cure = str(error).rpartition("; ")
        return Check("Java", "warn", what, cure)
    passed_over = "".join(
        f"; not {item.source} ({item.home}): {item.reason}" for item in java.rejected
    )
    return Check("Java", "ok", java.in_words + passed_over)


def _spark_run() -> Check:
    from trioha.analysis.spark.session import open_session

    try:
        with (
            tempfile.TemporaryDirectory() as scratch,
            open_session(
                master="local[1]", scratch=Path(scratch), log=Path(scratch) / "spark.log"
            ) as (session, info),
        ):
            count = session.range(1000).count()
    except AnalysisError as error:
        return Check("Spark runs", "fail", str(error))
    return Check("Spark runs", "ok", f"Spark {info.version} counted {count} rows")
