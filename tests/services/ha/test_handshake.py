"""Real stores and real handshakes: whatever the histories, logs end equal and nothing is gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from support.nodes.handshakes import Member, greeted_set
from support.stores.small import projection_of, queues_of, records_of

from trioha.errors import RemoteProtocolError, Unreachable
from trioha.ha.events import Term
from trioha.ha.hello import NeedsResync
from trioha.ha.mastership import Mastership, Standing
from trioha.services.ha import handshake as ha_handshake
from trioha.services.ha.client import HaClient
from trioha.services.ha.client_link import SlaveContext
from trioha.services.loop.clock import Clock
from trioha.store.cuts import list_cuts
from trioha.store.message_store import FileMessageStore


def check_equal(*members: Member) -> None:
    """Byte-equal logs, queues that say what the log says, and one history."""
    first, *others = members
    for other in others:
        assert other.log == first.log
        assert other.mastership.history == first.mastership.history
    for member in members:
        assert queues_of(member.store) == projection_of(records_of(member.store_config))


async def test_a_new_slave_takes_over_history_and_log(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        master, slave = set_.members
        master.write(30)
        term = await slave.follow(master)
        assert term == Term(1, master.mastership.nonce)
        check_equal(master, slave)
        assert (slave.cuts, slave.mastership.standing) == ([], Standing.SLAVE)
        assert dict(master.mastership.members) == {1: "node1:10911"}
        assert dict(slave.mastership.members) == {0: "node0:10911"}


async def test_a_returning_master_keeps_what_it_has_to_give_up(tmp_path: Path) -> None:
    """Fault C1."""
    async with greeted_set(tmp_path) as set_:
        old, new = set_.members
        old.write(20)
        await new.follow(old)
        common = new.store.max_phy_offset
        old.write(15)
        only_here = old.bodies - new.bodies
        new.promote()
        new.write(7)
        old.crash_and_start()
        await old.follow(new)
        check_equal(old, new)
        assert old.kept == only_here
        (cut,) = old.cuts
        assert cut.begin == common
        note = cut.note
        assert (note["records"], note["our_epochs"][-1]["epoch"]) == (15, 1)
        assert note["master_epochs"][-1]["epoch"] == 2
        assert old.events.of("log_cut")[0]["kept"] == str(cut.path)


async def test_a_master_in_doubt_that_asks_a_newer_one_says_that_it_is_fenced(
    tmp_path: Path,
) -> None:
    """`on_fenced` is how its role machine hears of the newer term."""
    async with greeted_set(tmp_path) as set_:
        old, new = set_.members
        old.write(5)
        await new.follow(old)
        new.promote()
        old.mastership.meet_members({1: new.address})
        old.crash_and_start()
        assert old.mastership.unconfirmed
        await old.shake(new)
        assert old.fenced_by_answers == ["node1:10911 holds epoch 2"]
        await old.shake(new)
        assert len(old.fenced_by_answers) == 1


async def test_both_sides_write_after_a_forced_switch(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        old, new = set_.members
        old.write(10)
        await new.follow(old)
        new.promote()
        for _ in range(5):
            old.write(3)
            new.write(2)
        only_here = old.bodies - new.bodies
        await old.follow(new)
        check_equal(old, new)
        assert old.kept == only_here
        assert old.fenced == [], "a slave's own handshake is no request of others"
        assert old.mastership.standing is Standing.SLAVE


async def test_three_elections_without_a_write_between_them_then_one_write_a_side(
    tmp_path: Path,
) -> None:
    """Fault A9."""
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(5)
        await b.follow(a)
        b.promote()
        await a.follow(b)
        a.promote()
        await b.follow(a)
        b.promote()
        a.write(1)  # in epoch 3, which b has deposed
        b.write(1)
        only_a = a.bodies - b.bodies
        await a.follow(b)
        check_equal(a, b)
        assert a.kept == only_a
        assert [record.epoch for record in a.mastership.history] == [1, 2, 3, 4]
        starts = [record.start_offset for record in a.mastership.history]
        assert len(set(starts[1:])) == 1


async def test_a_node_away_for_several_epochs_finds_back(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        a.write(10)
        await b.follow(a)
        await c.follow(a)
        a.write(9)
        only_a = a.bodies - b.bodies
        b.promote()
        b.write(4)
        await c.follow(b)
        c.promote()
        c.write(4)
        await b.follow(c)
        b.promote()
        b.write(4)
        a.crash_and_start()
        await a.follow(b)
        await c.follow(b)
        check_equal(a, b, c)
        assert a.kept == only_a
        assert [record.epoch for record in a.mastership.history] == [1, 2, 3, 4]


async def test_two_operators_under_one_number_cut_back_to_where_they_parted(
    tmp_path: Path,
) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        a.write(10)
        await b.follow(a)
        await c.follow(a)
        b.promote(2)
        c.promote(2)
        b.write(3)
        c.write(5)
        only_b = b.bodies - c.bodies
        b.mastership.hear(2, c.mastership.nonce, "node2", decided=True)
        await b.follow(c)
        check_equal(b, c)
        assert b.kept == only_b


async def test_a_slave_that_copied_half_a_record_and_then_changes_masters(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        a.write(10)
        await b.follow(a)
        a.write(3)
        await c.follow(a, bytes_max=len(b.log) + 100)
        b.promote()
        b.write(2)
        await c.follow(b)
        check_equal(b, c)
        assert [cut.note["records"] for cut in c.cuts] == [0], "half a record is no message"


class Crash(BaseException):
    """The node dies here."""


STEPS: list[tuple[Any, str]] = [
    (Mastership, "hear"),
    (ha_handshake, "save_cut"),
    (FileMessageStore, "truncate_log"),
    (Mastership, "adopt"),
    (Mastership, "meet_members"),
]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name"), STEPS)
async def test_a_crash_at_any_step_begins_anew_and_loses_nothing(
    tmp_path: Path, owner: Any, name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with greeted_set(tmp_path) as set_:
        old, new = set_.members
        old.write(20)
        await new.follow(old)
        old.write(15)
        only_here = old.bodies - new.bodies
        new.promote()
        new.write(7)
        real: Callable[..., Any] = getattr(owner, name)

        def dies(*args: Any, **named: Any) -> Any:
            if owner is Mastership and args[0] is not old.mastership:
                return real(*args, **named)  # the master is another node: it lives on
            if after:
                real(*args, **named)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dies)
            with pytest.RaisesGroup(Crash, flatten_subgroups=True, allow_unwrapped=True):
                await old.shake(new)
        for _ in range(2):
            old.crash_and_start()
            assert old.mastership.standing is not Standing.MASTER or name == "hear"
        await old.follow(new)
        check_equal(old, new)
        assert old.kept == only_here
        assert len(list_cuts(old.store_config.root)) == 1


async def test_a_crash_right_after_the_cut_brings_no_byte_back(tmp_path: Path) -> None:
    """Fault A10: the new end is on disk before anything follows."""
    async with greeted_set(tmp_path) as set_:
        old, new = set_.members
        old.write(20)
        await new.follow(old)
        common = old.store.max_phy_offset
        old.write(15)
        new.promote()
        await old.shake(new)
        old.crash_and_start()
        assert old.store.max_phy_offset == common
        assert queues_of(old.store) == projection_of(records_of(old.store_config))


async def test_an_older_epoch_is_refused_and_learns_of_the_newer_one(tmp_path: Path) -> None:
    """Fault A3."""
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        await b.follow(a)
        await c.follow(a)
        b.promote()
        await c.follow(b)
        log = c.log
        with pytest.raises(RemoteProtocolError, match="is no master: it is FENCED"):
            await c.shake(a)
        assert a.fenced == [a.mastership.fenced_by]
        assert "holds epoch 2" in a.fenced[0]
        assert a.mastership.standing is Standing.FENCED
        assert c.log == log


async def test_a_master_that_has_not_heard_is_refused_by_its_older_epoch(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        await b.follow(a)
        b.promote()
        c.mastership.hear(3, b"\x03" * 8, "somebody")
        a.mastership.hear = lambda *_, **__: False  # type: ignore[method-assign]
        with pytest.raises(RemoteProtocolError, match="epoch 3 has begun: it has been deposed"):
            await c.shake(a)


async def test_a_node_that_is_no_master_tells_whom_it_follows(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        await b.follow(a)
        with pytest.raises(RemoteProtocolError, match="it is SLAVE and follows node0:10911"):
            await c.shake(b)


async def test_a_slave_of_another_set_neither_cuts_nor_fences(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, _ = set_.members
        stranger = set_.add(broker_name="broker-b")
        stranger.mastership.hear(9, b"\x09" * 8, "another set")
        with pytest.raises(RemoteProtocolError, match="point to another set"):
            await stranger.shake(a)
        assert a.fenced == []
        assert dict(a.mastership.members) == {}


async def test_two_nodes_with_one_broker_id_are_told_so(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        b.mastership.home_id = 0
        with pytest.raises(RemoteProtocolError, match="the same brokerId"):
            await b.shake(a)


async def test_a_log_that_ends_before_the_masters_first_byte_waits_for_an_operator(
    tmp_path: Path,
) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(5)
        await b.follow(a)
        a.write(60)
        while a.store.min_phy_offset < b.store.max_phy_offset:
            a.store._log.files.drop_first()
        log = b.log
        with pytest.raises(NeedsResync, match=r"nothing in common .* `trioha ha resync`"):
            await b.shake(a)
        told = b.handshake.needs_resync
        assert "trioha ha resync" in told
        assert b.log == log
        b.handshake._connect_to = _never  # type: ignore[assignment]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.shake, a)
            await trio.testing.wait_all_tasks_blocked()
            assert b.handshake.needs_resync == told  # also during the next attempt
            nursery.cancel_scope.cancel()


async def test_a_master_that_lost_its_disk_takes_nobodys_log_along(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(20)
        await b.follow(a)
        fresh = set_.add()
        fresh.mastership.home_id = 0
        fresh.mastership.begin_term(1, 0, nonce=set_.nonce(), sync=True, wall_ms=0)
        fresh.write(3)
        log = b.log
        with pytest.raises(NeedsResync):
            await b.shake(fresh)
        assert (b.log, b.cuts) == (log, [])


async def test_a_classic_slave_with_the_masters_bytes_cuts_nothing(tmp_path: Path) -> None:
    """The slave followed on classic links, beyond the first record of a history it never heard."""
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(20)
        b.copy(a)
        assert not b.mastership.history
        a.write(5)
        await b.follow(a)
        check_equal(a, b)
        assert b.cuts == []


async def test_a_classic_log_that_differs_waits_for_an_operator(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, _ = set_.members
        a.write(20)
        other = set_.add()
        other.mastership.begin_term(1, 0, nonce=set_.nonce(), sync=True, wall_ms=0)
        other.write(20)
        b.copy(other)
        log = b.log
        with pytest.raises(NeedsResync):
            await b.shake(a)
        assert b.log == log


async def test_a_damaged_byte_before_the_common_offset_is_noticed(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(20)
        await b.follow(a)
        b.store.read_log(b.store.max_phy_offset - 300, 1)
        segment = b.store._log.files.files[-1]
        position = b.store.max_phy_offset - 300 - segment.from_offset
        segment.buffer[position] ^= 0xFF
        with pytest.raises(NeedsResync, match="differ in the 4096 bytes before"):
            await b.shake(a)


async def test_a_java_master_is_followed_the_classic_way(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.knows_hello = False
        assert await b.shake(a) is None
        assert b.mastership.epoch == 0


async def test_a_java_master_of_a_set_that_was_failed_over_is_refused(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 3) as set_:
        a, b, c = set_.members
        await b.follow(a)
        b.promote()
        await c.follow(b)
        a.knows_hello = False
        with pytest.raises(RemoteProtocolError, match=r"knows no epochs.*epoch 2 has begun"):
            await c.shake(a)


async def test_without_anybody_to_tell_the_masters_address_the_link_is_classic(
    tmp_path: Path,
) -> None:
    async with greeted_set(tmp_path) as set_:
        _, b = set_.members
        assert await b.handshake.shake() is None


async def test_both_ends_prove_that_they_know_the_secret(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, ha_secret="s3cret") as set_:
        a, b = set_.members
        a.write(10)
        await b.follow(a)
        check_equal(a, b)


@pytest.mark.parametrize(
    ("theirs", "words"),
    [("", "asks for proof of the shared secret"), ("wrong", "does not take our proof")],
)
async def test_who_does_not_know_the_secret_learns_and_changes_nothing(
    tmp_path: Path, theirs: str, words: str
) -> None:
    async with greeted_set(tmp_path, 1, ha_secret="s3cret") as set_:
        (a,) = set_.members
        b = set_.add(ha_secret=theirs)
        b.mastership.hear(9, b"\x09" * 8, "a forger")
        with pytest.raises(RemoteProtocolError, match=words):
            await b.shake(a)
        assert a.fenced == []
        assert (a.mastership.known_epoch, dict(a.mastership.members)) == (1, {})


async def test_while_a_secret_is_being_introduced_the_master_without_it_is_a_classic_one(
    tmp_path: Path,
) -> None:
    async with greeted_set(tmp_path, 1) as set_:
        (a,) = set_.members
        a.write(3)
        b = set_.add(ha_secret="s3cret")
        assert await b.shake(a) is None
        assert (b.mastership.epoch, b.cuts) == (0, [])


async def test_a_master_with_another_secret_is_not_followed(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, 1, ha_secret="other", ha_allowed_peers="127.0.0.0/8") as set_:
        (a,) = set_.members
        a.write(3)
        b = set_.add(ha_secret="s3cret")
        with pytest.raises(RemoteProtocolError, match="cannot prove that it knows our haSecret"):
            await b.shake(a)
        assert b.mastership.epoch == 0


async def test_a_peer_that_is_not_allowed_is_told_so(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, ha_allowed_peers="10.0.0.0/8") as set_:
        a, b = set_.members
        with pytest.raises(RemoteProtocolError, match="haAllowedPeers"):
            await b.shake(a)


async def test_a_master_that_is_not_there_is_unreachable(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members

        async def silent(*_: object) -> None:
            await trio.sleep_forever()

        b.handshake._connect_to = silent  # type: ignore[assignment]
        with pytest.raises(Unreachable, match="no answer to our hello in 5 s"):
            await b.shake(a)


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_logs_end_equal_and_no_message_is_gone(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    async with greeted_set(tmp_path, 3) as set_:
        members = set_.members
        for member in members[1:]:
            await member.follow(members[0])
        for _ in range(40):
            member, other = rng.sample(members, 2)
            masters = [one for one in members if one.mastership.standing is Standing.MASTER]
            match rng.randrange(6):
                case 0 | 1:
                    if masters:
                        rng.choice(masters).write(rng.randrange(1, 8))
                case 2:
                    if member.mastership.standing is not Standing.MASTER:
                        member.promote()
                case 3:
                    member.crash_and_start()
                    member.mastership.confirm()
                case _:
                    if member.mastership.standing is not Standing.MASTER or rng.random() < 0.5:
                        with suppress(RemoteProtocolError):
                            await member.follow(other, rng.randrange(3000))
                        assert not member.handshake.needs_resync
        newest = max(members, key=lambda one: (one.mastership.epoch, one.mastership.is_own))
        if newest.mastership.standing is not Standing.MASTER:
            newest.promote()
        newest.write()
        for member in members:
            if member is not newest:
                await member.follow(newest)
        check_equal(newest, *(one for one in members if one is not newest))
        everywhere = set().union(newest.bodies, *(member.kept for member in members))
        assert len(everywhere) == set_.written


async def test_an_operator_may_have_the_log_set_aside_and_copied_anew(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(5)
        await b.follow(a)
        old = b.bodies
        a.write(60)
        while a.store.min_phy_offset < b.store.max_phy_offset:
            a.store._log.files.drop_first()
        with pytest.raises(NeedsResync):
            await b.shake(a)
        await b.handshake.start_anew()
        assert (b.store.max_phy_offset, b.kept) == (0, old)
        b.crash_and_start()
        await b.follow(a)
        assert b.log == a.log
        assert b.handshake.needs_resync == ""
        (cut,) = list_cuts(b.store_config.root)
        assert (cut.note["reason"], cut.note["records"]) == ("trioha ha resync", 5)
        await b.handshake.start_anew()
        assert len(list_cuts(b.store_config.root)) == 2


async def test_an_empty_log_is_not_set_aside(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        _, b = set_.members
        await b.handshake.start_anew()
        assert list_cuts(b.store_config.root) == []


async def test_nothing_is_cut_or_set_aside_while_a_node_is_suspended(tmp_path: Path) -> None:
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members
        a.write(20)
        await b.follow(a)
        a.write(5)
        b.promote()
        a.handshake.suspended = "a forced failover is under way"
        log = a.log
        for attempt in (a.shake(b), a.handshake.start_anew()):
            with pytest.raises(Unreachable, match="a forced failover"):
                await attempt
        assert a.log == log
        assert a.mastership.epoch == 1


async def test_a_suspension_ends_with_the_client_that_was_told_of_it(tmp_path: Path) -> None:
    """A target of a forced switch is suspended, becomes master, and is a slave again one day."""
    async with greeted_set(tmp_path) as set_:
        a, b = set_.members

        def client() -> HaClient:
            context = SlaveContext(
                store=a.store,
                config=a.config,
                events=a.events,
                clock=Clock(),
                on_appended=lambda: None,
            )
            return HaClient(context, a.master, handshake=a.handshake)

        client().suspend("a forced failover is under way")
        assert a.handshake.suspended
        b.promote()
        client()
        await a.shake(b)
        assert a.mastership.epoch == b.mastership.epoch


async def _never(host: str, port: int) -> None:
    await trio.sleep_forever()
