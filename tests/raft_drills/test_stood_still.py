"""Only a client whose own library has stopped working may be replaced while it owes messages."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.histories.stood_still import STOOD_STILL_S, told, wait_for_names
from support.peers.clients import StockConsumer
from support.processes.rig import Process, ProcessFailed

WANTED = {"a-0", "a-1", "a-2"}
PATIENCE_S = 0.01


@attrs.define(eq=False)
class Heard(StockConsumer):
    """A consumer that has heard these bodies and hears no more."""

    killed: bool = False

    def kill(self) -> None:
        self.killed = True


def heard(home: Path, *bodies: str, silent_s: float | None) -> Heard:
    home.mkdir()
    if silent_s is not None:
        log = home / "logs" / "rocketmq-cpp" / "1_rocketmq-cpp.log"
        log.parent.mkdir(parents=True)
        log.touch()
        moment = time.time() - silent_s
        os.utime(log, (moment, moment))
    consumer = Heard(Process(home.name, [], home / "driver.log", {}, home))
    consumer.messages = [_message(body) for body in bodies]
    return consumer


def _message(body: str) -> Any:
    return attrs.make_class("Message", ["body"])(body)


def never() -> StockConsumer:
    raise AssertionError("this one must not be replaced")


def test_who_has_read_all_is_not_replaced(tmp_path: Path) -> None:
    old = heard(tmp_path / "old", *WANTED, silent_s=1000)
    assert wait_for_names(old, WANTED, never, PATIENCE_S) is None


@pytest.mark.parametrize("silent_s", [None, 0.0, STOOD_STILL_S - 5])
def test_a_library_that_still_works_is_not_replaced(tmp_path: Path, silent_s: float | None) -> None:
    old = heard(tmp_path / "old", "a-0", silent_s=silent_s)
    with pytest.raises(ProcessFailed, match="2 of what was acknowledged were not read, a-1 among"):
        wait_for_names(old, WANTED, never, PATIENCE_S)


def test_a_process_that_ended_is_not_replaced(tmp_path: Path) -> None:
    old = heard(tmp_path / "old", "a-0", silent_s=1000)
    old.ended = True
    with pytest.raises(ProcessFailed):
        wait_for_names(old, WANTED, never, PATIENCE_S)


def test_a_new_client_reads_what_one_that_stood_still_has_not(tmp_path: Path) -> None:
    old = heard(tmp_path / "old", "a-0", silent_s=STOOD_STILL_S + 5)
    new = heard(tmp_path / "new", "a-1", "a-2", silent_s=0)
    assert wait_for_names(old, WANTED, lambda: new, PATIENCE_S) is new
    assert old.killed
    assert told(old, new) == "the library of old stood still; new read the rest"


def test_what_the_new_client_does_not_get_either_is_lost(tmp_path: Path) -> None:
    old = heard(tmp_path / "old", "a-0", silent_s=STOOD_STILL_S + 5)
    new = heard(tmp_path / "new", "a-1", silent_s=0)
    with pytest.raises(ProcessFailed, match=r"new: 1 of what old stood still before .* a-2 among"):
        wait_for_names(old, WANTED, lambda: new, PATIENCE_S)


@pytest.mark.parametrize("while_any_comes", [False, True])
def test_time_for_all_of_it_is_lengthened_only_where_that_is_asked_for(
    tmp_path: Path, while_any_comes: bool
) -> None:
    consumer = heard(tmp_path / "one", "a-0", silent_s=0)
    waits: list[float] = []

    def one_more(holds: object, what: str, within_s: float) -> None:
        waits.append(within_s)
        consumer.messages.append(_message(f"a-{len(waits)}"))
        if len(waits) < 2:
            raise ProcessFailed("not in time")

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Heard, "wait_until", staticmethod(one_more))
        if while_any_comes:
            assert wait_for_names(consumer, WANTED, never, 7.0, while_any_comes=True) is None
            assert waits == [7.0, 7.0]
        else:
            with pytest.raises(ProcessFailed, match="1 of what was acknowledged were not read"):
                wait_for_names(consumer, WANTED, never, 7.0)
            assert waits == [7.0]
