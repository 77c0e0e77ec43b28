"""Whole sets of three on virtual time: what a cut-off master shows, and what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from support.nodes.live_node import SUCCESS, send_request
from support.nodes.virtual_set import CLIENT, NAMESRV, VirtualSet, virtual_set, without_waits

from trioha.errors import Unreachable
from trioha.failover.outcome import Result
from trioha.services.ha import reader_service
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import ExtValue, RemotingCommand

Clock = trio.testing.MockClock
GROUP = "readers"
KEY: dict[str, ExtValue] = {"consumerGroup": GROUP, "topic": "T", "queueId": 0}
FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


async def send(set_: VirtualSet, home_id: int, body: bytes) -> int:
    """Send a message to queue 0 of a node; returns the code of the answer."""
    request = send_request(body)
    request.ext_fields["e"] = 0
    return (await set_[home_id].ask(request)).code


async def read(set_: VirtualSet, home_id: int, offset: int) -> tuple[int, list[bytes], int]:
    """Pull at once; returns code, bodies, and where to go on."""
    fields: dict[str, ExtValue] = {
        **KEY,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": PullSysFlag.SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
    }
    answer = await set_[home_id].ask(RemotingCommand(RequestCode.PULL_MESSAGE, fields))
    bodies = [one.body for one in decode_records(answer.body_bytes())]
    return answer.code, bodies, answer.ext_int("nextBeginOffset")


async def tell(set_: VirtualSet, home_id: int, code: int, **more: ExtValue) -> int | None:
    """Ask a node for an offset; None if it does not say."""
    request = RemotingCommand(code, {**KEY, **more})
    try:
        with trio.fail_after(10):
            answer = await set_[home_id].ask(request)
    except (OSError, Unreachable, trio.TooSlowError):
        return None
    return answer.ext_int("offset") if answer.code == SUCCESS else None


async def commit(set_: VirtualSet, home_id: int, offset: int) -> None:
    """Commit an offset until a slave holds it: a new master waits for its slaves."""
    fields = {**KEY, "commitOffset": offset}
    remark: str | None = "not yet"
    while remark is not None:
        answer = await set_[home_id].ask(
            RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, dict(fields))
        )
        assert answer.code == SUCCESS
        remark = answer.remark
        await trio.sleep(0.1)


async def switch(set_: VirtualSet) -> int:
    """Promote a slave of node 0, and wait for the other slave; returns its id."""
    outcome = await set_.fail_over()
    assert outcome.result is Result.DONE, outcome.message
    (new,) = set(set_.masters) - {0}
    await set_.wait(lambda: set_[new].replication.replicas.slave_available(0))
    return new


def is_level(set_: VirtualSet) -> bool:
    """Return whether each node has all messages, also in its queues."""
    stores = [broker.node.store for broker in set_.brokers if broker.is_up]
    return set_.is_level() and all(one.dispatched_offset == one.max_phy_offset for one in stores)


def cut_off(set_: VirtualSet, home_id: int) -> None:
    """Cut a node off from all but its clients."""
    others = [one for one in set_.hosts if one not in (set_[home_id].host, CLIENT)]
    set_.cut(set_[home_id].host, *others)


async def test_consumers_skip_nothing_after_they_read_at_a_master_that_was_cut_off(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path) as set_:
        assert await send(set_, 0, b"first") == SUCCESS
        begin = await tell(set_, 0, RequestCode.GET_MAX_OFFSET)
        assert begin is not None
        cut_off(set_, 0)
        for number in range(5):
            code = await send(set_, 0, b"lost %d" % number)
            assert code in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
        code, bodies, offset = await read(set_, 0, begin)
        assert (code, bodies, offset) == (NOT_FOUND, [], begin)
        new = await switch(set_)
        wanted = [b"kept %d" % number for number in range(5)]
        for body in wanted:
            assert await send(set_, new, body) == SUCCESS
        code, bodies, offset = await read(set_, 0, offset)
        assert (code, bodies) == (NOT_FOUND, []), "it still does not know"
        set_.heal()
        await set_.wait(lambda: is_level(set_))
        for home_id in (0, 1, 2):
            assert await read(set_, home_id, offset) == (FOUND, wanted, offset + 5)
        await set_.check_converged(new)


async def test_a_master_that_was_replaced_tells_no_offset(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path) as set_:
        await commit(set_, 0, 3)
        assert await tell(set_, 0, RequestCode.QUERY_CONSUMER_OFFSET) == 3
        cut_off(set_, 0)
        new = await switch(set_)
        await commit(set_, new, 9)
        assert set_[0].is_master
        for code in (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET):
            assert await tell(set_, 0, code) is None
        set_.heal()
        await set_.wait(lambda: set_[0].follows == set_[new].address)
        for home_id in (0, new):
            assert await tell(set_, home_id, RequestCode.QUERY_CONSUMER_OFFSET) == 9


async def test_a_question_that_came_before_the_switch_gets_the_new_masters_answer(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_service, "PATIENCE_MS", 60_000)
    async with virtual_set(tmp_path, slave_timeout=60_000) as set_:
        await commit(set_, 0, 3)
        cut_off(set_, 0)
        told: list[int | None] = []

        async def ask() -> None:
            request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, dict(KEY))
            told.append((await set_[0].ask(request)).ext_int("offset"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await set_.wait(lambda: set_[0].replication.reader_service.has_questions)
            new = await switch(set_)
            await commit(set_, new, 9)
            assert told == []
            set_.heal()
        assert told == [9]


async def test_a_reader_is_not_sent_back_by_a_master_that_starts_again(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    """The master does not know yet what its slaves hold, and has shown more than that before."""
    async with virtual_set(tmp_path) as set_:
        for number in range(5):
            assert await send(set_, 0, b"%d" % number) == SUCCESS
        end = await tell(set_, 0, RequestCode.GET_MAX_OFFSET)
        assert end is not None
        await set_.wait(set_.is_level)
        await set_[0].kill()
        set_.cut(set_[0].host, set_[2].host)
        await set_[0].start()
        await set_.wait(lambda: set_[0].is_master)
        set_.cut(set_[0].host, set_[1].host, set_[2].host)
        code, bodies, offset = await read(set_, 0, end)
        assert (bodies, offset) == ([], end)
        assert code in (NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
        set_.heal()
        await set_.wait(lambda: is_level(set_))
        assert set_[0].replication.reader_service.held_back_bytes == 0
        assert await tell(set_, 0, RequestCode.GET_MAX_OFFSET) == end


async def test_a_parked_pull_is_answered_when_a_slave_holds_the_message(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path) as set_:
        end = await tell(set_, 0, RequestCode.GET_MAX_OFFSET)
        assert end is not None
        cut_off(set_, 0)
        await send(set_, 0, b"alone")
        set_.cut(NAMESRV, set_[0].host)
        assert set_[0].replication.reader_service.held_back_bytes > 0
        got: list[tuple[int, list[bytes], int]] = []

        async def pull() -> None:
            fields: dict[str, ExtValue] = {
                **KEY,
                "queueOffset": end,
                "maxMsgNums": 32,
                "sysFlag": PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND,
                "commitOffset": 0,
                "suspendTimeoutMillis": 60_000,
                "subscription": "*",
                "subVersion": 0,
            }
            answer = await set_[0].ask(RemotingCommand(RequestCode.PULL_MESSAGE, fields))
            bodies = [one.body for one in decode_records(answer.body_bytes())]
            got.append((answer.code, bodies, answer.ext_int("nextBeginOffset")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(5)
            assert got == []
            set_.heal()
        assert got == [(FOUND, [b"alone"], end + 1)]


async def test_a_pair_whose_slave_is_down_goes_on_with_one_node(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path, size=2) as set_:
        await commit(set_, 0, 3)
        end = await tell(set_, 0, RequestCode.GET_MAX_OFFSET)
        assert end is not None
        await set_[1].kill()
        await set_.wait(lambda: not set_[0].replication.replicas.slave_available(0))
        assert await send(set_, 0, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
        assert await read(set_, 0, end) == (FOUND, [b"alone"], end + 1)
        assert await tell(set_, 0, RequestCode.QUERY_CONSUMER_OFFSET) == 3
