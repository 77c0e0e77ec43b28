"""`trioha analyze` as its user meets it: results, and one sentence for every bad input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stores.big import BEGIN_MS, SMALL_QUEUE_FILE_BYTES, write_big_store
from support.stores.journals import Diary
from support.suite.skips import importable, skip_unless

from trioha.analysis.results import Finding, Report
from trioha.cli import run
from trioha.cli.failures import ExitCode

LOG_BYTES = 200_000
SEGMENT_BYTES = 1 << 16


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "store"
    write_big_store(
        root, LOG_BYTES, segment_bytes=SEGMENT_BYTES, queue_file_bytes=SMALL_QUEUE_FILE_BYTES
    )
    size = sum(path.stat().st_size for path in root.rglob("*"))
    assert size < 2_000_000, "each test copies it, and a copy is not sparse"
    return root


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "store"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run(["analyze", *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def manifest(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return found


def one_line(text: str) -> str:
    """The complaint: the last line, which begins with our name."""
    line = text.strip().splitlines()[-1]
    assert line.startswith("trioha: ")
    assert "Traceback" not in text
    return line.removeprefix("trioha: ")


def test_a_store_is_analysed_without_a_jvm(say: Say, store: Path, out: Path) -> None:
    code, shown, notes = say(store, "--out", out)
    assert code == ExitCode.OK, notes
    assert "== Throughput" in shown
    assert shown.splitlines()[-1] == str(out / "report.html")
    made = manifest(out)
    assert made["engine"]["name"] == "local"
    assert made["partial"] is False
    [described] = made["stores"]
    assert described["first_ms"] == BEGIN_MS
    assert not (out / ".scratch").exists()
    assert (out / "throughput" / "topics.parquet").exists()


def test_reports_that_the_input_does_not_allow_are_left_out_and_told(
    say: Say, store: Path, out: Path
) -> None:
    _, _, notes = say(store, "--out", out)
    assert "divergence: left out, it needs two stores to compare" in notes
    assert "trace: left out, it needs --key or --id" in notes
    skipped = {entry["name"] for entry in manifest(out)["reports"] if "skipped" in entry}
    assert skipped == {"timeline", "replication", "failovers", "divergence", "trace"}


def test_json_is_one_document_on_stdout(say: Say, store: Path, out: Path) -> None:
    code, shown, _ = say(store, "--out", out, "--report", "throughput", "-o", "json")
    assert code == ExitCode.OK
    document = json.loads(shown)
    assert list(document["reports"]) == ["throughput"]
    assert document["manifest"]["stores"][0]["records"] > 100


def test_the_window_reaches_the_reports(say: Say, store: Path, out: Path) -> None:
    code, _, errors = say(
        store, "--out", out, "--report", "throughput", "--from", "2025-11-19T06:00", "--to",
        "2025-11-19T07:00",
    )  # fmt: skip
    assert code == ExitCode.OK, errors
    made = manifest(out)
    assert made["from_ms"] == BEGIN_MS + 6 * 3_600_000
    assert made["stores"][0]["first_ms"] >= made["from_ms"]
    assert made["stores"][0]["last_ms"] < made["to_ms"]


def test_stores_that_disagree_are_exit_code_1(
    say: Say, store: Path, tmp_path: Path, out: Path
) -> None:
    other = Path(shutil.copytree(store, tmp_path / "other"))
    assert say(store, other, "--out", out, "--report", "divergence")[0] == ExitCode.OK
    log = other / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[56 + 7] ^= 1  # the first record's store time
    log.write_bytes(data)
    code, _, _ = say(store, other, "--out", out, "--report", "divergence", "--overwrite")
    assert code == ExitCode.FAILED
    assert manifest(out)["partial"] is False


def test_reports_are_listed_without_an_out(say: Say) -> None:
    code, shown, _ = say("--list-reports")
    assert code == ExitCode.OK
    assert "replication" in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--report", "throughputt"), "no such report: throughputt; did you mean throughput?"),
        (("--report", "xyz"), "no such report: xyz; there are: timeline, throughput, "),
        (("--report", "divergence"), "the report divergence needs two stores to compare"),
        (("--report", "trace"), "the report trace needs --key or --id"),
        (("--report", "replication"), "the report replication needs a journal, and none lies"),
        (("--from", "yesterday"), "yesterday is no time; write 2026-11-20T09:31 (UTC), '2h ago'"),
        (("--from", "2025-11-20", "--to", "2025-11-19"), "--from is not before --to"),
        (("--engine", "local", "--master", "local[2]"), "--engine local has none"),
        (("--engine", "spark", "--conf", "spark.x"), "--conf spark.x is not KEY=VALUE"),
        (("--journal", "/nowhere/journal"), "/nowhere/journal"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_makes_nothing(
    say: Say, store: Path, out: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    code, _, errors = say(store, "--out", out, *arguments)
    assert code == ExitCode.USAGE
    assert sentence in one_line(errors)
    assert sorted(path.name for path in out.parent.iterdir()) == ["store"]


def test_nothing_named_is_told(say: Say, out: Path) -> None:
    code, _, errors = say("--out", out)
    assert code == ExitCode.USAGE
    assert "name a STORE, or a journal with --journal DIR" in one_line(errors)


@pytest.mark.parametrize("kind", ["missing", "file", "foreign"])
def test_what_is_no_store_is_told(say: Say, tmp_path: Path, out: Path, kind: str) -> None:
    path = tmp_path / "given"
    if kind == "file":
        path.write_text("")
    elif kind == "foreign":
        path.mkdir()
        (path / "photo.jpg").write_text("")
    code, _, errors = say(path, "--out", out)
    assert code == ExitCode.USAGE
    assert one_line(errors).startswith(f"{path} ")
    assert not out.exists()


def test_an_empty_store_is_analysed_and_said_to_be_empty(
    say: Say, tmp_path: Path, out: Path
) -> None:
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    code, shown, errors = say(tmp_path / "empty", "--out", out)
    assert code == ExitCode.FAILED, errors
    assert "No record lies in the stores" in shown
    assert "holds no record at all: nothing was checked" in shown


def test_a_store_mid_write_is_read_up_to_its_last_record(say: Say, store: Path, out: Path) -> None:
    (store / "abort").touch()
    last = max((store / "commitlog").iterdir())
    data = last.read_bytes()
    end = len(data.rstrip(b"\0"))
    last.write_bytes(data[: end - 40].ljust(SEGMENT_BYTES, b"\0"))
    code, _, errors = say(store, "--out", out, "--report", "throughput")
    assert code == ExitCode.OK, errors


def test_missing_segments_are_found_by_integrity(say: Say, store: Path, out: Path) -> None:
    sorted((store / "commitlog").iterdir())[1].unlink()
    code, shown, _ = say(store, "--out", out, "--report", "integrity")
    assert code == ExitCode.FAILED
    assert "missing" in shown
    assert manifest(out)["partial"] is False


def test_flipped_bits_are_found_by_integrity(say: Say, store: Path, out: Path) -> None:
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[100] ^= 4
    log.write_bytes(data)
    assert say(store, "--out", out, "--report", "integrity")[0] == ExitCode.FAILED


def test_an_out_that_exists_is_refused_without_overwrite(say: Say, store: Path, out: Path) -> None:
    assert say(store, "--out", out, "--report", "throughput")[0] == ExitCode.OK
    before = manifest(out)
    code, _, errors = say(store, "--out", out, "--report", "throughput")
    assert code == ExitCode.USAGE
    assert one_line(errors) == f"{out} exists; choose another --out, or give --overwrite"
    assert manifest(out) == before
    assert say(store, "--out", out, "--report", "throughput", "--overwrite")[0] == ExitCode.OK


def test_an_out_of_somebody_else_is_refused_always(say: Say, store: Path, out: Path) -> None:
    code, _, errors = say(store, "--out", store, "--overwrite")
    assert code == ExitCode.USAGE
    assert "was not made by `trioha analyze`, so it stays" in one_line(errors)
    assert (store / "commitlog").is_dir()


def test_an_out_that_cannot_be_made_is_told(say: Say, store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, errors = say(store, "--out", tmp_path / "file" / "out")
    assert code == ExitCode.FAILED
    assert str(tmp_path / "file") in one_line(errors)


def test_a_report_that_fails_leaves_the_others_and_marks_the_result(
    say: Say, store: Path, out: Path
) -> None:
    (store / "config" / "consumerOffset.json").write_text("{")
    (store / "config" / "topics.json").write_text("{")
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").write_text("not a directory")
    code, _, errors = say(store, "--out", out)
    assert "Traceback" not in errors
    made = manifest(out)
    failed = [entry["name"] for entry in made["reports"] if "error" in entry]
    assert code == (ExitCode.FAILED if failed else ExitCode.OK)
    assert made["partial"] is bool(failed)


def test_a_disk_that_is_full_leaves_what_was_made_and_says_so(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioha.analysis.output import OutputDirectory

    write = OutputDirectory.write_report

    def full(self: OutputDirectory, report: Report) -> None:
        if report.name == "latency":
            raise OSError(28, "No space left on device")
        write(self, report)

    monkeypatch.setattr(OutputDirectory, "write_report", full)
    code, _, errors = say(store, "--out", out)
    assert code == ExitCode.FAILED
    assert one_line(errors) == f"{out}: No space left on device; make room on that disk"
    kept = out.with_name("out.partial")
    assert f"what was made until then is in {kept}, marked partial" in errors
    assert manifest(kept)["partial"] is True
    assert (kept / "throughput" / "report.json").exists()
    assert not out.exists()


def test_ctrl_c_keeps_what_was_made(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trioha.analysis.reports.integrity as integrity

    def interrupted(*_: object) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(integrity, "run", interrupted)
    code, _, errors = say(store, "--out", out)
    assert code == ExitCode.INTERRUPTED
    assert one_line(errors) == "interrupted"
    kept = manifest(out.with_name("out.partial"))
    assert kept["partial"] is True
    assert kept["reason"] == "interrupted"
    assert [entry["name"] for entry in kept["reports"]][:2] == ["timeline", "throughput"]


def test_nothing_is_left_when_nothing_was_made(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trioha.analysis.reports.throughput as throughput

    def interrupted(*_: object) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(throughput, "run", interrupted)
    assert say(store, "--out", out)[0] == ExitCode.INTERRUPTED
    assert sorted(path.name for path in out.parent.iterdir()) == ["store"]


def test_a_finding_of_a_report_is_the_exit_code(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trioha.analysis.reports.throughput as throughput

    found = Report(
        name="throughput",
        title="T",
        question="?",
        findings=[Finding("error", "It burns.")],
        exit_code=1,
    )
    monkeypatch.setattr(throughput, "run", lambda *_: found)
    code, shown, _ = say(store, "--out", out, "--report", "throughput")
    assert code == ExitCode.FAILED
    assert "!! It burns." in shown


def test_a_journal_cut_short_is_read_up_to_there_and_told(say: Say, store: Path, out: Path) -> None:
    diary = Diary(store, "broker-a:0")
    diary.start(0, "SYNC_MASTER")
    diary.stop(60)
    diary.close()
    [file] = (store / "journal").glob("*.journal")
    file.write_bytes(file.read_bytes()[:-5])
    code, _, notes = say(store, "--out", out, "--report", "failovers")
    assert code == ExitCode.OK, notes
    assert f"{file}: torn tail at " in notes
    made = manifest(out)
    assert made["journals"] == [str(store / "journal")]
    assert any("torn tail" in note for note in made["notes"])


def test_a_journal_alone_is_enough_for_its_reports(say: Say, tmp_path: Path, out: Path) -> None:
    diary = Diary(tmp_path / "a", "broker-a:0")
    diary.start(0, "SYNC_MASTER")
    diary.stop(60)
    diary.close()
    code, _, notes = say("--journal", diary.directory, "--out", out)
    assert code == ExitCode.OK, notes
    assert "throughput: left out, it needs a store" in notes
    made = {entry["name"] for entry in manifest(out)["reports"] if "tables" in entry}
    assert "failovers" in made


def test_no_pyspark_is_one_sentence(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, _, errors = say(store, "--out", out, "--engine", "spark")
    assert code == ExitCode.FAILED
    assert one_line(errors) == "pyspark is not installed; `pip install 'trioha[spark]'`"
    assert sorted(path.name for path in out.parent.iterdir()) == ["store"]


def test_no_java_is_one_sentence(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless(importable("pyspark"), "needs the extra spark")
    from trioha.analysis.spark import java

    monkeypatch.setattr(java, "_candidates", lambda *_: iter(()))
    code, _, errors = say(store, "--out", out, "--engine", "spark")
    assert code == ExitCode.FAILED
    assert one_line(errors).startswith("Spark needs Java, and there is none; install Java 17")


def test_an_old_java_is_one_sentence(
    say: Say, store: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other Java is found, whatever this machine has; test_java.py tests `find_java`."""
    skip_unless(importable("pyspark"), "needs the extra spark")
    from trioha.analysis.spark import java

    home = tmp_path / "java8"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'java version \"1.8.0_392\"' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setattr(java, "_candidates", lambda *_: iter([(home, "JAVA_HOME")]))
    code, _, errors = say(store, "--out", out, "--engine", "spark")
    assert code == ExitCode.FAILED
    assert one_line(errors).startswith(
        f"Spark needs Java 17 or newer (JAVA_HOME has {home}: it is Java 8); install Java 17"
    )
    assert not out.exists()


@pytest.mark.parametrize(
    ("master", "code", "sentence"),
    [
        ("sparky", ExitCode.USAGE, "sparky is no Spark master; it is local[*], local[4]"),
        ("spark://head", ExitCode.USAGE, "spark://head lacks a port; it is spark://HOST:PORT"),
        ("spark://127.0.0.1:1", ExitCode.UNREACHABLE, "does not answer; is the master running"),
    ],
)
def test_a_wrong_master_is_told_before_a_jvm_starts(
    say: Say, store: Path, out: Path, master: str, code: ExitCode, sentence: str
) -> None:
    skip_unless(importable("pyspark"), "needs the extra spark")
    got, _, errors = say(store, "--out", out, "--master", master)
    assert got == code
    assert sentence in one_line(errors)


def test_a_missing_package_is_told_in_a_sentence(
    say: Say, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioha.analysis.choice.find_spec", lambda name: None)
    code, _, errors = say(store, "--out", out)
    assert code == ExitCode.USAGE
    assert one_line(errors) == (
        "the analysis needs duckdb, numpy, pyarrow; pip install 'trioha[analysis]'"
    )


def test_the_command_line_does_not_load_spark_or_arrow() -> None:
    code = (
        "import sys; import trioha.cli; import trioha.cli.analyze; import trioha.cli.doctor;"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'duckdb', 'trio', 'pandas'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": ""}
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert answer.stdout.strip() == "[]"
