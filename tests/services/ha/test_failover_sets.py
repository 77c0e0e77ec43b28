"""Whole master-slave sets on virtual time, whose members die inside promotions.

Clients ask every node to store messages all the time. What was answered with SEND_OK must be in the
log of the final master, where the answer said; tests/sim/pair/test_promotions.py lives through the
same histories in the simulator.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import msgpack
import pytest
import trio
import trio.testing
from support.nodes.virtual_set import NAMESRV, OPERATOR, VirtualSet, virtual_set, without_waits

from trioha.errors import StoreError
from trioha.failover.outcome import Result
from trioha.ha.promotion import HandOver, Peer
from trioha.ha.quorum import EPOCH_ROOM
from trioha.ha.role_states import State
from trioha.services.ha import settlement
from trioha.store.accept_loss import accept_loss, is_noted
from trioha.store.store_config import StoreConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

Clock = trio.testing.MockClock
BOTH_MEMORIES = pytest.mark.parametrize("wiped", [False, True], ids=["remembered", "wiped"])
RETURN_S = 20.0
"""Time within which a set is whole once all members are back: they ask members and name servers.

It is less than `registerNameServerPeriod`, which is 30 s by default.
"""


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


def follows_from(set_: VirtualSet, follower: int, master: int) -> bool:
    return set_[follower].follows == set_[master].address


async def promote_and_die(set_: VirtualSet) -> None:
    """Kill the master, and 1 right after its store holds the term that it was promoted to."""
    await set_[0].kill()
    set_[1].after_next_term = set_[1].die
    outcome = await set_.fail_over(to=1)
    assert outcome.result is Result.UNKNOWN, outcome.message
    assert not set_[1].is_up


@BOTH_MEMORIES
@pytest.mark.parametrize("switches", [0, 2], ids=["epoch 1", "epoch 3"])
async def test_a_returning_master_begins_a_term_that_the_promoted_node_cannot_depose(
    tmp_path: Path, autojump_clock: Clock, switches: int, wiped: bool
) -> None:
    async with virtual_set(tmp_path) as set_, set_.hammered():
        for target in [1, 0][:switches]:
            outcome = await set_.fail_over(to=target)
            assert outcome.result is Result.DONE, outcome.message
            await set_.wait_master(target)
            await set_.wait(set_.is_level)
        await promote_and_die(set_)
        if wiped:
            await set_.forget()
        await set_[0].start()
        await set_.wait_master(0)
        await set_.send_ok(0, 20)
        await set_[1].start()
        await set_.wait(set_.is_level, within_s=RETURN_S)
        await trio.sleep(40)
        await set_.check_converged(0)
        assert "fenced" not in set_[0].events.names()


@BOTH_MEMORIES
async def test_a_promoted_node_that_stands_still_is_no_second_master_when_it_goes_on(
    tmp_path: Path, autojump_clock: Clock, wiped: bool
) -> None:
    async with virtual_set(tmp_path) as set_, set_.hammered():
        await set_[0].kill()
        set_[1].after_next_term = lambda: set_.cut(set_[1].host)
        outcome = await set_.fail_over(to=1)
        assert outcome.result is Result.UNKNOWN, outcome.message
        if wiped:
            await set_.forget()
        await set_[0].start()
        await set_.wait(lambda: set_[0].is_master and set_[2].follows == set_[0].address)
        assert set_[0].epoch > set_[1].epoch
        await set_.send_ok(0, 20)
        set_.heal()
        await set_.wait(set_.is_level, within_s=RETURN_S)
        await trio.sleep(40)
        await set_.check_converged(0)


async def test_no_epoch_is_given_out_twice_by_the_documented_next_step(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path) as set_, set_.hammered():
        await promote_and_die(set_)
        outcome = await set_.fail_over(to=2, force=True)
        assert outcome.result is Result.DONE, outcome.message
        assert outcome.plan.epoch > 1 + EPOCH_ROOM
        await set_[0].start()
        await set_.wait_master(2)
        await set_.send_ok(2, 20)
        set_.namesrv.kill()
        await set_[1].start()
        await trio.sleep(14)
        assert set_.masters == [2]
        await set_.namesrv.start()
        await set_.wait(set_.is_level, within_s=RETURN_S)
        await trio.sleep(40)
        await set_.check_converged(2)
        assert "fenced" not in set_[2].events.names()


async def test_a_node_is_not_promoted_by_the_nonce_of_another_nodes_term(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path) as set_:
        nonces = [set_[0].replication.mastership.nonce]
        outcome = await set_.fail_over(to=1)
        assert outcome.result is Result.DONE, outcome.message
        await set_.check_converged(1)
        nonces.append(set_[1].replication.mastership.nonce)
        for home_id, nonce in ((0, nonces[1]), (2, nonces[0]), (2, nonces[1])):
            body = {"ticket_id": nonce.hex(), "epoch": 9, "written_off": [0, 1, 2]}
            request = RemotingCommand(RequestCode.PROMOTE, body=msgpack.packb(body))
            answer = await set_[home_id].ask(request)
            assert answer.code == ResponseCode.NO_PERMISSION, (home_id, answer.remark)
        assert [broker.epoch for broker in set_.brokers] == [2, 2, 2]
        await set_.check_converged(1)


async def test_a_node_that_handed_over_outlives_a_target_that_began_behind_a_newer_term(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task refused to follow the target: a CommandError once ended the task and the node."""

    async def began(handed_over: HandOver, *_: object) -> bool:
        return True

    monkeypatch.setattr(settlement, "_ask_whether_used", began)
    async with virtual_set(tmp_path) as set_:
        roles = set_[0].replication.roles
        roles.pause()
        roles.hand_over(Peer(home_id=1, address=set_[1].address), 2, "ab" * 8)
        roles.hear(9, b"anothers", "a node that 2 has heard of")
        roles.left_alone()
        await trio.sleep(2)
        assert set_[0].is_up
        assert roles.state is State.FENCED
        assert not roles.follows


async def test_followers_hear_of_a_new_term_at_once_and_from_the_master_itself(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    """No name server and no operator can tell 2 that 0 goes on in a new term."""
    async with virtual_set(tmp_path) as set_:
        await promote_and_die(set_)
        set_.cut(set_[2].host, NAMESRV, OPERATOR)
        await set_[0].start()
        await set_.wait(lambda: set_[0].is_master)
        await set_.wait(lambda: set_[2].follows == set_[0].address, within_s=2)
        await set_.send_ok(0)
        set_.heal()
        await set_[1].start()
        await set_.check_converged(0)


async def test_followers_whose_operator_vanishes_after_a_promotion_hear_of_it_from_the_master(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path) as set_, set_.hammered():
        await set_[0].kill()
        set_[1].after_next_term = lambda: set_.cut(set_[2].host, NAMESRV, OPERATOR)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(set_.fail_over, to=1))
            await set_.wait(lambda: set_[1].is_master)
            await set_.wait(lambda: set_[2].follows == set_[1].address, within_s=2)
        await set_.send_ok(1)
        set_.heal()
        await set_[0].start()
        await set_.check_converged(1)


async def test_a_master_that_is_deposed_while_it_connects_announces_itself_to_nobody(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    """The first packet was lost: the master connects a second later, and is no master then."""
    async with virtual_set(tmp_path) as set_, set_.hammered():
        set_.network.connect_times_s[set_[1].host, set_[0].host] = 1.0
        for target in (1, 2):
            outcome = await set_.fail_over(to=target)
            assert outcome.result is Result.DONE, outcome.message
        await set_.wait(lambda: follows_from(set_, 1, 2) and follows_from(set_, 0, 2))
        for _ in range(30):
            assert set_[0].replication.master_remoting_address.value == set_[2].address
            await trio.sleep(0.1)
        await set_.check_converged(2)


@pytest.mark.parametrize("goes_on", [True, False], ids=["as a slave", "dead"])
async def test_a_follower_that_slept_through_a_switch_finds_the_master_that_it_had_before(
    tmp_path: Path, autojump_clock: Clock, goes_on: bool
) -> None:
    """The name server names the master from before a switch that it never heard of: news."""
    async with virtual_set(tmp_path) as set_, set_.hammered():
        await set_.fail_over(to=2)
        await set_.wait(lambda: follows_from(set_, 0, 2))
        await trio.sleep(40)
        set_[1].after_next_term = lambda: set_.cut(set_[1].host, NAMESRV)
        await set_.fail_over(to=1)
        await set_.wait(lambda: follows_from(set_, 0, 1))
        set_.cut(set_[0].host)
        set_.heal(set_[1].host)
        outcome = await set_.fail_over(to=2, force=True)
        assert outcome.result is Result.DONE, outcome.message
        await trio.sleep(20)
        if not goes_on:
            await set_[1].kill()
        set_.heal()
        await set_.wait(lambda: follows_from(set_, 0, 2))
        if not goes_on:
            await set_[1].start()
        await set_.check_converged(2)


async def test_a_deposed_master_and_its_slaves_follow_the_new_one_without_a_registration(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    """A planned switch whose operator reaches no node any more once the target is master."""
    async with virtual_set(tmp_path) as set_, set_.hammered():

        def vanish() -> None:
            for follower in (0, 2):
                set_.cut(set_[follower].host, NAMESRV, OPERATOR)

        set_[1].after_next_term = vanish
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(set_.fail_over, to=1))
            await set_.wait(lambda: set_[1].is_master)
            for follower in (0, 2):
                follows = partial(follows_from, set_, follower, 1)
                await set_.wait(follows, within_s=2)
        set_.heal()
        await set_.check_converged(1)


async def test_a_master_whose_slaves_promised_a_term_that_never_began_takes_the_next_one(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    """The operator cannot reach the master, which serves all the time; the target dies."""
    async with virtual_set(tmp_path) as set_, set_.hammered():
        set_.cut(OPERATOR, set_[0].host)
        set_[1].before_next_term = set_[1].die
        while (outcome := await set_.fail_over(to=1)).result is Result.REFUSED:
            assert "2 (10.0.0.3:10911) is the better candidate" in outcome.message
        assert outcome.result is Result.UNKNOWN, outcome.message
        promised, _ = set_[2].replication.mastership.promise_given
        assert promised == outcome.plan.epoch
        await set_.wait(lambda: set_[0].is_master and set_[0].epoch > promised)
        await set_.wait(lambda: set_[2].follows == set_[0].address, within_s=2)
        await set_.send_ok(0)
        set_.heal()
        await set_[1].start()
        await set_.check_converged(0)


@pytest.mark.parametrize("ends", ["killed", "stopped"])
async def test_a_master_whose_commitlog_is_gone_does_not_start_and_begins_as_a_slave(
    tmp_path: Path, autojump_clock: Clock, ends: str
) -> None:
    async with virtual_set(tmp_path, size=2) as set_:
        await set_.send_ok(0, 20)
        await set_.wait(set_.is_level)
        await (set_[0].kill() if ends == "killed" else set_[0].stop())
        await set_[1].kill()
        shutil.rmtree(set_[0].root / "commitlog")
        for _ in range(2):
            with pytest.raises(StoreError, match="mount its disk or put its files back") as error:
                await set_[0].start()
            assert "\n" not in str(error.value)
            assert "trioha log accept-loss" in str(error.value)
        config = StoreConfig.of(set_[0].config)
        assert accept_loss(config, set_.clock.wall_ms(), in_set=True) is not None
        # The slave is silent, and the name server remembers the claim.
        await set_[0].start()
        await trio.sleep(60)
        assert set_.masters == []
        assert await set_.send(0) != ResponseCode.SUCCESS
        await set_[1].start()
        await trio.sleep(60)
        assert set_.masters == []
        outcome = await set_.fail_over(to=1)
        assert outcome.result is Result.DONE, outcome.message
        await set_.check_converged(1)
        assert not {"confirmed", "epoch_began"} & {*set_[0].events.names()}
        assert not is_noted(config)


async def test_a_master_whose_commitlog_is_gone_follows_whom_an_operator_promoted_meanwhile(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    async with virtual_set(tmp_path, size=2) as set_:
        await set_.send_ok(0, 20)
        await set_.wait(set_.is_level)
        await set_[0].kill()
        shutil.rmtree(set_[0].root / "commitlog")
        with pytest.raises(StoreError):
            await set_[0].start()
        outcome = await set_.fail_over(to=1)
        assert outcome.result is Result.DONE, outcome.message
        config = StoreConfig.of(set_[0].config)
        assert accept_loss(config, set_.clock.wall_ms(), in_set=True) is not None
        await set_[0].start()
        await set_.check_converged(1)
        assert not {"confirmed", "epoch_began"} & {*set_[0].events.names()}
        assert not is_noted(config)
