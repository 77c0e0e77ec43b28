"""The scripts that broke DLedger and other known faults, lived through by real groups."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Iterator
from functools import partial

import pytest
from raft_drills.drill import QUEUES, TOPIC, cut_group, small_disk_group
from raft_drills.faults import (
    fsync_fails,
    full_disk_of,
    host_of,
    isolate_leader_from_its_peers,
    kill,
    net_of,
)
from raft_drills.ghost import Ghost
from raft_drills.hurt_group import SETTINGS, HurtGroup, Member
from raft_drills.load import PROGRESS_S, RaftLoad
from raft_drills.member_clients import GROUP, Mix
from support.histories.commitlog import segments, stored_messages
from support.histories.messages import Put, make_body
from support.processes.admin import Fields, create_topic, put_topic, request
from support.processes.rig import Processes
from support.processes.status import wait_until

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.dledger.messages import Append, Heartbeat, Truncate
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand, encode

pytestmark = pytest.mark.slow
CALM = Mix(window=1, large_chance=0.0)
MIB = 1 << 20
ROUNDS = 4
"""Election rounds after which nothing new is to be expected of a member that cannot win."""


def rounds_of(member: Member) -> int:
    """Return how many election rounds a member has begun."""
    rounds: int = member.raft()["elections"]
    return rounds


def load_of(group: HurtGroup, mix: Mix = CALM) -> RaftLoad:
    """A topic and a calm load."""
    create_topic(group.leader.address, group.namesrv, TOPIC, QUEUES)
    return RaftLoad(group, TOPIC, mix=mix).start()


@pytest.fixture
def cut(processes: Processes) -> Iterator[HurtGroup]:
    with cut_group(processes) as group:
        yield group


def wait_stood(member: Member, rounds: int) -> None:
    """Wait until a member has stood so often, or leads."""

    def has_stood() -> bool:
        raft = member.raft()
        return bool(raft["is_serving"] or raft["elections"] >= rounds)

    wait_until(f"{member.member_id} has stood {rounds} times", has_stood)


def has_served(load: RaftLoad, count: int) -> bool:
    return acknowledged(load) >= count


def acknowledged(load: RaftLoad) -> int:
    return sum(one.acknowledged for one in load.senders)


def names_of(member: Member) -> set[str]:
    return {stored.name for stored in stored_messages(member.node.commitlog, TOPIC)}


def burst(member: Member, label: str, count: int, size: int) -> list[Put]:
    """Send `count` puts at once and read no answer; return them once appended."""
    host, port = member.address.rsplit(":", 1)
    puts = []
    with contextlib.closing(socket.create_connection((host, int(port)), 2.0)) as connection:
        for number in range(count):
            name = f"{label}-{number}"
            queue = MessageQueue(TOPIC, "", number % QUEUES)
            message = Message(TOPIC, make_body(name, size))
            puts.append(Put(name=name, client=label, began_s=time.monotonic()))
            connection.sendall(
                encode(send_command(GROUP, message, name, queue, int(time.time() * 1000)))
            )
        wait_until("appended", lambda: puts[-1].name in names_of(member))
    return puts


def test_figure_8_bytes_of_an_old_term_are_not_committed_because_a_majority_holds_them(
    processes: Processes,
) -> None:
    """Fault A1: an index that was committed was another entry later, on a majority.

    Three members, a leads. E is in a's log alone when a dies. b leads a term whose first record
    reaches no peer, for c's disk is full. b dies, a leads again, and a part of E gets to c, whose
    disk is full again before the record of the new term comes: a majority holds bytes of an old
    term. Then a dies, and b, whose log ends in a newer term, takes them all back.
    """
    settings = {**SETTINGS, "dLegerElectionTimeoutMin": 1000, "dLegerElectionTimeoutMax": 1600}
    with small_disk_group(processes, settings=settings, timers={}) as group:
        load = load_of(group)
        load.wait_for_progress()
        a = group.leader
        b, c = group.others(a)
        load.stop_senders()
        group.wait_level()
        base = a.raft()["end_offset"]
        acknowledged = names_of(a)
        b.kill()
        c.kill()
        written = burst(a, "E", 60, 100_000)
        assert a.raft()["end_offset"] > base + 5 * MIB
        assert a.raft()["committed_offset"] == base
        a.kill()
        assert group.stores is not None
        full = full_disk_of(group, c)
        group.start_all([b, c])
        wait_until("b leads a term of its own", lambda: b.raft()["role"] == "LEADER")
        assert b.raft()["committed_offset"] <= base
        assert not b.raft()["is_serving"]
        b.kill()
        filler = group.stores[c.index] / "filler"
        with open(filler, "r+b") as file:
            file.truncate(filler.stat().st_size - 3 * MIB)
        group.start_all([a])
        wait_until("a part of E is at c", lambda: c.raft()["end_offset"] > base + MIB)
        wait_until("c takes no more", lambda: not c.raft()["writable"])
        assert a.raft()["role"] == "LEADER", group.describe()
        assert a.raft()["committed_offset"] <= base, "a majority holds it, and that is not enough"
        a.kill()
        full()
        group.start_all([b])
        wait_until("b has taken it back", lambda: b.raft()["is_serving"])
        wait_until("c has b's log", lambda: c.raft()["held_offset"] == b.raft()["held_offset"])
        assert names_of(c) == acknowledged
        group.start_all([a])
        group.wait_level()
        assert names_of(a) == acknowledged
        load.senders[0].puts += written
        load.finish()


def test_two_leaders_are_isolated_one_after_the_other_and_nothing_is_emptied(
    cut: HurtGroup,
) -> None:
    """Fault A2: all 300 acknowledged entries were gone after two one-node isolations."""
    load = load_of(cut)
    wait_until("300 stored", lambda: acknowledged(load) >= 300)
    net = net_of(cut)
    for _ in range(3):
        first = cut.leader
        floor = first.raft()["committed_offset"]
        net.isolate(host_of(cut, first))
        second = wait_for_leader_but(cut, first)
        net.heal()
        net.isolate(host_of(cut, second))
        load.wait_for_progress(PROGRESS_S, second)
        net.heal()
        cut.wait_whole()
        assert min(raft["end_offset"] for raft in cut.rafts().values()) >= floor
    load.finish()


def wait_for_leader_but(group: HurtGroup, old: Member) -> Member:
    """Return another member as soon as it calls itself leader, whether it serves or not."""
    found: list[Member] = []

    def there() -> bool:
        for member in group.others(old):
            with contextlib.suppress(OSError, AssertionError):
                if member.raft()["role"] == "LEADER":
                    found.append(member)
        return bool(found)

    wait_until("another leader", there)
    return found[0]


def test_a_truncate_that_comes_late_cuts_nothing(processes: Processes) -> None:
    """Fault A3: a deposed leader's TRUNCATE took a follower below what was committed."""
    group = HurtGroup(processes).start()
    load = load_of(group)
    old = group.leader
    old_term, middle = old.raft()["term"], old.raft()["committed_offset"]
    load.wait_for_progress()
    group.transfer(group.others(old)[0])
    load.wait_for_progress(PROGRESS_S, old)
    group.wait_whole()
    leader = group.leader
    (follower,) = group.others(old, leader)
    term = leader.raft()["term"]
    for victim in (follower, leader):
        floor = victim.raft()["committed_offset"]
        names = old.member_id, victim.member_id
        with Ghost(group, old, victim) as ghost:
            for sequence in (1, 2, 1000):
                ghost.send(Truncate(*names, old_term, sequence, middle, old_term, old_term - 1))
                ghost.send(Append(*names, old_term, sequence, 0, 0, old_term, middle, b""))
            ghost.send(Heartbeat(*names, old_term, middle, 0, 0))
            ghost.wait_until_read()
        assert victim.raft()["end_offset"] >= floor
    assert leader.raft()["term"] == term
    load.finish()


def test_a_member_that_slept_through_elections_does_not_win_the_next_one(cut: HurtGroup) -> None:
    """Fault A4: the term of its log was taken from the newest term that it had voted in."""
    load = load_of(cut)
    lagging = cut.others(cut.leader)[0]
    lagging.kill()
    for _ in range(3):
        leader = cut.leader
        cut.transfer(cut.others(leader, lagging)[0])
        load.wait_for_progress(PROGRESS_S, leader)
    best = cut.leader
    other = cut.others(best, lagging)[0]
    net_of(cut).isolate(host_of(cut, best))
    lagging.node.start()
    # With `other` it is a majority, and only one of the two has everything.
    wait_until("the other one leads", lambda: other.raft()["is_serving"])
    net_of(cut).heal()
    cut.wait_whole()
    load.finish()


def test_a_wiped_follower_of_an_idle_group_is_filled_and_votes_no_more(
    processes: Processes,
) -> None:
    """Fault A5: an empty log was taken for an equal one until a client wrote."""
    group = HurtGroup(processes).start()
    load = load_of(group)
    wait_until("some stored", lambda: acknowledged(load) >= 300)
    load.stop_senders()
    group.wait_level()
    leader = group.leader
    end, term = leader.raft()["end_offset"], leader.raft()["term"]
    victim, other = group.others(leader)
    victim.kill()
    victim.wipe()
    victim.node.start()
    began_s = time.monotonic()
    wait_until("filled", lambda: victim.raft()["held_offset"] == end)
    print(f"filled in {time.monotonic() - began_s:.2f} s")
    assert victim.raft()["impaired"], "it may have forgotten a vote"
    assert leader.raft()["term"] == term, "nobody was disturbed"
    # It has all the bytes and no vote: the one vote left is no majority of three.
    before = rounds_of(other)
    leader.kill()
    wait_stood(other, before + ROUNDS)
    assert not [raft for raft in group.rafts().values() if raft["is_serving"]], group.describe()
    assert victim.raft()["elections"] == 0
    leader.node.start()
    group.wait_serving()
    group.wait_level()
    assert other.raft()["term"] >= term
    load.finish()


def test_a_leader_that_is_cut_off_acknowledges_nothing_after_its_time(cut: HurtGroup) -> None:
    """Fault A8: its clients are on its side of the cut."""
    load = load_of(cut)
    old = cut.leader
    sender = next(one for one in load.senders if one.member == old.member_id)
    isolate_leader_from_its_peers(cut, cut_rng())
    cut_s = time.monotonic()
    load.wait_for_progress(PROGRESS_S, old)
    wait_until("the old one has stepped down", lambda: old.raft()["role"] != "LEADER")
    assert sender.first_acknowledged_after(cut_s) is None
    net_of(cut).heal()
    cut.wait_whole()
    load.finish()


def cut_rng() -> random.Random:
    return random.Random(8)


def test_elections_without_writes_leave_equal_logs(processes: Processes) -> None:
    """Fault A9: a term that begins where the one before began was dropped."""
    group = HurtGroup(processes).start()
    load = load_of(group)
    load.stop_senders()
    for _ in range(4):
        leader = group.leader
        leader.kill()
        group.wait_serving()
        leader.node.start()
        group.wait_whole()
    for _ in range(3):
        leader = group.leader
        group.transfer(group.others(leader)[0])
        group.wait_whole()
    load.finish()


def test_a_leader_whose_fsync_fails_acknowledges_nothing_and_another_leads(
    processes: Processes,
) -> None:
    """Faults A11 and B5: it went on with its heartbeats: no writes, and no new leader."""
    group = HurtGroup(processes, timers={}).start()
    load = load_of(group)
    old = group.leader
    heal = fsync_fails(group, old)
    broken_s = time.monotonic()
    took_s = load.wait_for_progress(PROGRESS_S, old)
    print(f"another one acknowledges after {took_s:.2f} s")
    sender = next(one for one in load.senders if one.member == old.member_id)
    assert sender.first_acknowledged_after(broken_s) is None
    heal()
    group.wait_whole()
    load.finish()


def test_a_leader_whose_disk_is_full_hands_over_and_needs_no_restart(
    processes: Processes,
) -> None:
    """Fault C8."""
    with small_disk_group(processes) as group:
        load = load_of(group)
        old = group.leader
        pid = old.node.process.pid
        free = full_disk_of(group, old)
        load.wait_for_progress(PROGRESS_S, old)
        wait_until("not writable", lambda: not old.raft()["writable"])
        free()
        wait_until("writable again", lambda: old.raft()["writable"])
        group.wait_whole()
        assert old.node.process.pid == pid
        assert old.running
        group.transfer(old)
        load.wait_for_progress(PROGRESS_S, *group.others(old))
        load.finish()


def test_a_member_that_comes_back_from_isolation_disturbs_nobody(cut: HurtGroup) -> None:
    """Fault B1: it came back with a high term and never joined again."""
    load = load_of(cut)
    leader = cut.leader
    term = leader.raft()["term"]
    away = cut.others(leader)[0]
    for other in cut.others(away):
        net_of(cut).separate(host_of(cut, away), host_of(cut, other))
    before = rounds_of(away)
    wait_stood(away, before + ROUNDS)
    net_of(cut).heal()
    cut.wait_whole()
    assert cut.leader is leader
    assert leader.raft()["term"] == term
    load.finish()


def test_one_way_cuts_of_every_link_change_the_leader_twice_at_most(cut: HurtGroup) -> None:
    """Fault B8: elections without end."""
    load = load_of(cut)
    changes = {}
    for source in cut.members:
        for target in cut.others(source):
            cut.wait_whole()
            leader = cut.leader
            term = leader.raft()["term"]
            served, begun = acknowledged(load), rounds_of(target)
            net_of(cut).cut(host_of(cut, source), host_of(cut, target))
            if source is leader:
                wait_stood(target, begun + ROUNDS)
            wait_until("much is served", partial(has_served, load, served + 300))
            net_of(cut).heal()
            cut.wait_whole()
            changes[f"{source.member_id} to {target.member_id}"] = cut.leader.raft()["term"] - term
    print(changes)
    assert max(changes.values()) <= 2, changes
    load.finish()


def test_a_follower_that_is_behind_what_retention_left_begins_anew(
    processes: Processes,
) -> None:
    """Fault B9: the leader pushed for ever an entry that no member had any more."""
    settings = {**SETTINGS, "fileReservedTime": 1, "cleanResourceInterval": 200}
    group = HurtGroup(processes, settings=settings).start()
    load = load_of(group, Mix(large_chance=1.0, large_bytes_max=100_000))
    victim = group.others(group.leader)[0]
    held = victim.raft()["held_offset"]
    victim.kill()
    wait_until("eight segments", lambda: group.leader.raft()["end_offset"] > held + 8 * MIB)
    for member in group.others(victim):
        for segment in segments(member.node.commitlog):
            os.utime(segment, (0, 0))
        expire = RemotingCommand(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert request(member.address, expire).code == ResponseCode.SUCCESS
    leader = group.leader
    wait_until("deleted", lambda: leader.raft()["begin_offset"] > held + MIB)
    victim.node.start()
    group.wait_whole()
    group.transfer(victim)
    load.wait_for_progress(PROGRESS_S, *group.others(victim))
    group.wait_whole()
    load.stop_senders()
    end = group.wait_level()
    begin = max(raft["begin_offset"] for raft in group.rafts().values())
    assert victim.raft()["begin_offset"] > held
    load.stop_readers()
    group.stop()
    kept = [bytes_between(member, begin, end) for member in group.members]
    assert kept[0] == kept[1] == kept[2]
    stored = {one.name for one in stored_messages(victim.node.commitlog, TOPIC)}
    newest = [put for sender in load.senders for put in sender.puts[-20:]]
    missing = [put for put in newest if put.outcome == "acknowledged" and put.name not in stored]
    assert not missing, missing[:3]


def bytes_between(member: Member, begin: int, end: int) -> bytes:
    data = b"".join(
        segment.read_bytes()
        for segment in segments(member.node.commitlog)
        if int(segment.name) >= begin
    )
    return data[: end - begin]


def test_a_topic_and_an_offset_that_were_acknowledged_survive_their_leader(
    processes: Processes,
) -> None:
    """Faults D1 and D6: they were copied every ten seconds, if they were."""
    group = HurtGroup(processes).start()
    load = load_of(group)
    for number in range(3):
        leader = group.leader
        topic = f"new-{number}"
        put_topic(leader.address, topic)
        fields: Fields = {
            "consumerGroup": "keen",
            "topic": topic,
            "queueId": 1,
            "commitOffset": 40 + number,
        }
        update = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        answer = request(leader.address, update)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        kill(group, leader)
        successor = group.wait_serving()
        query = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        assert request(successor.address, query).ext_int("offset") == 40 + number
        config = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert topic.encode() in bytes(request(successor.address, config).body_bytes())
        leader.node.start()
        group.wait_whole()
    load.finish()
