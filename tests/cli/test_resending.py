"""Progress of a resend, and a command that is interrupted."""

from __future__ import annotations

import pytest
from support.clusters.operated import Operated

from trioha.cli import resending
from trioha.cli.failures import ExitCode


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
