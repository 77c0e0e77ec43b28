"""Outcomes of a resend that no healthy cluster gives: not known, and interrupted."""

from __future__ import annotations

from typing import Any

import pytest
from support.clusters.operated import Operated

from trioha.cli import documents, resending
from trioha.cli.failures import ExitCode
from trioha.jobs.resend import ResendResult


def test_an_unknown_outcome_is_exit_code_3_and_names_the_message(
    operator: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.ok("topic", "create", "unsure", "--queues", "1")
    operator.send("unsure", 2)
    run_job = documents.run_job

    def run(job: Any, namesrv: str, timeout_s: float) -> Any:
        found = run_job(job, namesrv, timeout_s)
        if isinstance(found, ResendResult):
            return ResendResult("unsure", 2, 1, 0, [], ["AC11: it is not known"], False, False)
        return found

    monkeypatch.setattr(resending, "run_job", run)
    done = operator.trioha("message", "resend", "-t", "unsure", "--all", "--yes")
    assert done.code == ExitCode.UNKNOWN
    assert "! AC11: it is not known; run the same command again to go on" in done.out


def test_progress_is_shown_while_copies_are_looked_up_and_while_they_are_sent(
    operator: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.ok("topic", "create", "many", "--queues", "1")
    operator.send("many", 3)
    told: list[str] = []

    class Bar:
        def begin(self, what: str, total: int, unit: str) -> None:
            told.append(f"{what}: {total} {unit}")

        def advance(self, count: int) -> None:
            told.append("+")

        def end(self) -> None:
            told.append("end")

    monkeypatch.setattr(resending, "TerminalProgress", Bar)
    monkeypatch.setattr("trioha.cli.confirmation.is_somebody_there", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *_, **__: "many")
    assert operator.trioha("message", "resend", "-t", "many", "--all").code == ExitCode.OK
    one_round = ["+", "+", "+", "end"]
    assert told == [
        *("look up copies of many: 3 messages", *one_round),
        *("resend many: 3 messages", *one_round),
    ]


def test_an_interrupted_tail_is_exit_code_130(
    operator: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trioha.cli.message.run_job", interrupt)
    done = operator.trioha("message", "tail", "unsure")
    assert (done.code, done.err.strip()) == (ExitCode.INTERRUPTED, "trioha: interrupted")
