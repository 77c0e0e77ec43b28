"""Faults of a group under load: each strikes and returns the function that heals it.

A fault chooses its victims with the drill's own random source, so a seed decides the whole plan;
what the group makes of it is real.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial

import attrs
from raft_drills.hurt_group import HurtGroup, Member
from support.processes.faults import fill_disk
from support.processes.namespaces import Host, Net
from support.processes.rig import ProcessFailed

Heal = Callable[[], None]
Strike = Callable[[HurtGroup, random.Random], Heal]
ENDS_S = 10.0
ENDED = (1, -signal.SIGKILL)
"""A node that ends for its disk does so with 1; another fault may have been quicker."""


def nothing() -> None:
    """The fault was over as soon as it struck."""


# Processes.


def kill(group: HurtGroup, *victims: Member) -> Heal:
    for victim in victims:
        victim.kill()
    return lambda: group.start_all(victims)


def kill_leader(group: HurtGroup, rng: random.Random) -> Heal:
    return kill(group, leader_of(group, rng))


def kill_follower(group: HurtGroup, rng: random.Random) -> Heal:
    return kill(group, follower_of(group, rng))


def kill_two(group: HurtGroup, rng: random.Random) -> Heal:
    return kill(group, *rng.sample(group.members, 2))


def kill_all(group: HurtGroup, rng: random.Random) -> Heal:
    return kill(group, *rng.sample(group.members, group.size))


def kill_leader_then_its_successor(group: HurtGroup, rng: random.Random) -> Heal:
    """The second death falls into the first moments of the new leadership."""
    first = leader_of(group, rng)
    first.kill()
    deadline = time.monotonic() + 3.0
    second = None
    while second is None and time.monotonic() < deadline:
        second = next((one for one in group.others(first) if calls_itself_leader(one)), None)
    if second is not None:
        second.kill()
    group.start_all([first])
    return lambda: group.start_all([second] if second is not None else [])


def stop_in_order(group: HurtGroup, rng: random.Random) -> Heal:
    """SIGTERM: a leader hands over before it goes."""
    victim = leader_of(group, rng)
    victim.node.stop()
    return lambda: group.start_all([victim])


def stand_still(*victims: Member) -> Heal:
    for victim in victims:
        victim.stand_still()

    def heal() -> None:
        for victim in victims:
            victim.go_on()

    return heal


def leader_stands_still(group: HurtGroup, rng: random.Random) -> Heal:
    return stand_still(leader_of(group, rng))


def follower_stands_still(group: HurtGroup, rng: random.Random) -> Heal:
    return stand_still(follower_of(group, rng))


def two_stand_still(group: HurtGroup, rng: random.Random) -> Heal:
    return stand_still(*rng.sample(group.members, 2))


def leader_stutters(group: HurtGroup, rng: random.Random) -> Heal:
    """Pauses around the election timeout: deposed, or just not."""
    victim = leader_of(group, rng)
    for _ in range(3):
        victim.stand_still()
        time.sleep(rng.uniform(0.2, 0.9))
        victim.go_on()
        time.sleep(rng.uniform(0.0, 0.2))
    return nothing


# Power. What was not brought to disk is gone, in part or in whole.


def cut_power(group: HurtGroup, rng: random.Random, *victims: Member) -> Heal:
    """In the middle of an fsync that takes its time: there is something to lose."""
    heals = [slow_disk_of(victim) for victim in victims]
    time.sleep(rng.uniform(0.0, 0.5))
    for victim in victims:
        victim.kill()
    for victim, heal in zip(victims, heals, strict=True):
        victim.lose_power(rng)
        heal()
    return lambda: group.start_all(victims)


def leader_loses_power(group: HurtGroup, rng: random.Random) -> Heal:
    return cut_power(group, rng, leader_of(group, rng))


def two_lose_power(group: HurtGroup, rng: random.Random) -> Heal:
    return cut_power(group, rng, *rng.sample(group.members, 2))


def all_lose_power(group: HurtGroup, rng: random.Random) -> Heal:
    return cut_power(group, rng, *rng.sample(group.members, group.size))


# Networks. Clients reach a member unless it is isolated.


def isolate_leader(group: HurtGroup, rng: random.Random) -> Heal:
    net_of(group).isolate(host_of(group, leader_of(group, rng)))
    return net_of(group).heal


def isolate_leader_from_its_peers(group: HurtGroup, rng: random.Random) -> Heal:
    """Its clients still reach it."""
    leader = leader_of(group, rng)
    for other in group.others(leader):
        net_of(group).separate(host_of(group, leader), host_of(group, other))
    return net_of(group).heal


def isolate_follower(group: HurtGroup, rng: random.Random) -> Heal:
    net_of(group).isolate(host_of(group, follower_of(group, rng)))
    return net_of(group).heal


def isolate_everybody(group: HurtGroup, rng: random.Random) -> Heal:
    net = net_of(group)
    for index, host in enumerate(net.hosts):
        for other in net.hosts[index + 1 :]:
            net.separate(host, other)
    return net.heal


def leader_is_not_heard(group: HurtGroup, rng: random.Random) -> Heal:
    """Drop what the leader sends; it still hears the others."""
    leader = leader_of(group, rng)
    for other in group.others(leader):
        net_of(group).cut(host_of(group, leader), host_of(group, other))
    return net_of(group).heal


def leader_does_not_hear(group: HurtGroup, rng: random.Random) -> Heal:
    """Drop what the others send to the leader; they still hear it."""
    leader = leader_of(group, rng)
    for other in group.others(leader):
        net_of(group).cut(host_of(group, other), host_of(group, leader))
    return net_of(group).heal


def one_link_one_way(group: HurtGroup, rng: random.Random) -> Heal:
    source, target = rng.sample(group.members, 2)
    net_of(group).cut(host_of(group, source), host_of(group, target))
    return net_of(group).heal


def bridge(group: HurtGroup, rng: random.Random) -> Heal:
    """Two sides that only the member in the middle can talk to."""
    members = rng.sample(group.members, group.size)
    half = group.size // 2
    for left in members[:half]:
        for right in members[half + 1 :]:
            net_of(group).separate(host_of(group, left), host_of(group, right))
    return net_of(group).heal


def ring(group: HurtGroup, rng: random.Random) -> Heal:
    """Let each member reach two neighbours: with itself, a majority of its own."""
    members = rng.sample(group.members, group.size)
    for index, member in enumerate(members):
        for step in range(2, group.size - 1):
            other = members[(index + step) % group.size]
            if member.index < other.index:
                net_of(group).separate(host_of(group, member), host_of(group, other))
    return net_of(group).heal


def halves(group: HurtGroup, rng: random.Random) -> Heal:
    """A minority with the leader in it, perhaps, and a majority."""
    members = rng.sample(group.members, group.size)
    minority = group.size // 2
    for left in members[:minority]:
        for right in members[minority:]:
            net_of(group).separate(host_of(group, left), host_of(group, right))
    return net_of(group).heal


def flapping(group: HurtGroup, rng: random.Random) -> Heal:
    """The leader's network comes and goes around the election timeout."""
    for _ in range(4):
        isolate_leader_from_its_peers(group, rng)
        time.sleep(rng.uniform(0.1, 0.6))
        net_of(group).heal()
        time.sleep(rng.uniform(0.0, 0.2))
    return nothing


def isolate_one_after_the_other(group: HurtGroup, rng: random.Random) -> Heal:
    """Isolate two leaders in sequence and heal them crosswise: so DLedger 0.4 lost everything."""
    net = net_of(group)
    first = leader_of(group, rng)
    net.isolate(host_of(group, first))
    second = _wait_for_another(group, first)
    net.heal()
    if second is not None:
        net.isolate(host_of(group, second))
    return net.heal


# Disks.


def full_disk_of(group: HurtGroup, victim: Member) -> Heal:
    assert group.stores is not None, "this fault needs stores on small disks"
    filler = fill_disk(group.stores[victim.index])
    return partial(filler.unlink, missing_ok=True)


def leaders_disk_is_full(group: HurtGroup, rng: random.Random) -> Heal:
    return full_disk_of(group, leader_of(group, rng))


def followers_disk_is_full(group: HurtGroup, rng: random.Random) -> Heal:
    return full_disk_of(group, follower_of(group, rng))


def check_end(victim: Member) -> None:
    """Its process ended because of its disk, or because another fault of the round ended it.

    Errors: AssertionError.
    """
    process = victim.node.process
    allowed = (*ENDED, 0) if process.is_asked_to_stop else ENDED
    code = process.returncode
    assert code in allowed, f"{victim.member_id} should have ended by itself, not with {code}"


def fsync_fails(group: HurtGroup, victim: Member) -> Heal:
    """A disk that lied once is not asked again: the process ends by itself and is started anew."""
    victim.broken.touch()

    def heal() -> None:
        if not victim.broken.exists():
            return  # two faults of one round struck this disk, and the first heal has restarted it
        victim.node.process.wait(ENDS_S)
        check_end(victim)
        victim.broken.unlink()
        group.start_all([victim])

    return heal


def leaders_fsync_fails(group: HurtGroup, rng: random.Random) -> Heal:
    return fsync_fails(group, leader_of(group, rng))


def followers_fsync_fails(group: HurtGroup, rng: random.Random) -> Heal:
    return fsync_fails(group, follower_of(group, rng))


def slow_disk_of(victim: Member) -> Heal:
    victim.slow.touch()
    return partial(victim.slow.unlink, missing_ok=True)


def leaders_disk_is_slow(group: HurtGroup, rng: random.Random) -> Heal:
    return slow_disk_of(leader_of(group, rng))


def followers_disk_is_slow(group: HurtGroup, rng: random.Random) -> Heal:
    return slow_disk_of(follower_of(group, rng))


def votes_cannot_be_saved(group: HurtGroup, rng: random.Random) -> Heal:
    """Kill the leader while a member that has to elect another cannot write its vote."""
    leader = leader_of(group, rng)
    victim = rng.choice(group.others(leader))
    victim.forgetful.touch()
    leader.kill()

    def heal() -> None:
        victim.forgetful.unlink(missing_ok=True)
        if not victim.running:
            check_end(victim)
        group.start_all([leader, victim])

    return heal


# Operators.


def hand_over(group: HurtGroup, rng: random.Random) -> Heal:
    """Refused or not: it must do no harm."""
    leader = leader_of(group, rng)
    with contextlib.suppress(OSError):  # it is no leader any more, or does not answer
        group.ask(leader, "transfer", rng.choice(group.others(leader)).member_id)
    return nothing


PROCESS_FAULTS: Mapping[str, Strike] = {
    "kill the leader": kill_leader,
    "kill a follower": kill_follower,
    "kill two": kill_two,
    "kill all": kill_all,
    "kill the leader, then its successor": kill_leader_then_its_successor,
    "stop the leader in order": stop_in_order,
    "the leader stands still": leader_stands_still,
    "a follower stands still": follower_stands_still,
    "two stand still": two_stand_still,
    "the leader stutters": leader_stutters,
    "hand over": hand_over,
}
NET_FAULTS: Mapping[str, Strike] = {
    "isolate the leader": isolate_leader,
    "isolate the leader from its peers": isolate_leader_from_its_peers,
    "isolate a follower": isolate_follower,
    "isolate everybody": isolate_everybody,
    "the leader is not heard": leader_is_not_heard,
    "the leader does not hear": leader_does_not_hear,
    "one link, one way": one_link_one_way,
    "bridge": bridge,
    "halves": halves,
    "flapping": flapping,
    "isolate one after the other": isolate_one_after_the_other,
}
FIVE_FAULTS: Mapping[str, Strike] = {"ring": ring}
DISK_FAULTS: Mapping[str, Strike] = {
    "the leader's disk is full": leaders_disk_is_full,
    "a follower's disk is full": followers_disk_is_full,
    "the leader's fsync fails": leaders_fsync_fails,
    "a follower's fsync fails": followers_fsync_fails,
    "the leader's disk is slow": leaders_disk_is_slow,
    "a follower's disk is slow": followers_disk_is_slow,
    "a vote cannot be saved": votes_cannot_be_saved,
}

POWER_FAULTS: Mapping[str, Strike] = {
    "the leader loses power": leader_loses_power,
    "two lose power": two_lose_power,
    "all lose power": all_lose_power,
    "kill the leader": kill_leader,
    "the leader stands still": leader_stands_still,
    "hand over": hand_over,
    "a follower's disk is slow": followers_disk_is_slow,
    "the leader's disk is slow": leaders_disk_is_slow,
}

ENDS_A_LEADERSHIP = frozenset(
    {
        *("kill the leader", "kill the leader, then its successor", "stop the leader in order"),
        *("kill all", "the leader loses power", "all lose power"),
    }
)
"""Faults after which the group has another term, however short they are held: the leader's process
ends. A group may refuse to hand over."""


def leader_of(group: HurtGroup, rng: random.Random) -> Member:
    """Return the leader, else a random member: another fault may have killed all."""
    chosen = rng.choice([member for member in group.members if member.running] or group.members)
    return group.leader_or_none() or chosen


def follower_of(group: HurtGroup, rng: random.Random) -> Member:
    return rng.choice(group.others(leader_of(group, rng)))


def calls_itself_leader(member: Member) -> bool:
    try:
        return bool(member.raft()["role"] == "LEADER")
    except (OSError, AssertionError, ProcessFailed):
        return False


def _wait_for_another(group: HurtGroup, old: Member) -> Member | None:
    """Return another member that leads; None if it takes too long."""
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        for member in group.others(old):
            if calls_itself_leader(member):
                return member
    return None


def net_of(group: HurtGroup) -> Net:
    assert group.net is not None, "this fault needs a network that can be cut"
    return group.net


def host_of(group: HurtGroup, member: Member) -> Host:
    return net_of(group).hosts[member.index]


@attrs.frozen
class Struck:
    """One round, as it went."""

    number: int
    fault: str
    held_s: float
    recovery_s: float
    """From the heal to the first acknowledged put that began after it."""
