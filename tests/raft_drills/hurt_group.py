"""A Raft group of trioha's brokers that drills hurt: processes with failpoints, and what each says.

For a group of either make that is left in peace see `support.clusters.raft_group`.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgpack
from support.histories.commitlog import end_of_log, first_difference, stored_messages
from support.histories.messages import Stored
from support.processes.admin import request
from support.processes.faults import (
    PAGE_LOST,
    TINY_FILES,
    Failpoint,
    lose_power,
    set_failpoints,
)
from support.processes.namespaces import Net, listen_at
from support.processes.rig import (
    Node,
    Processes,
    raft_member,
    start_all,
    trioha_namesrv,
)
from support.processes.status import node_status, wait_until
from support.suite.ports import distinct_ports

from trioha.store.inspect import verify_store
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

BROKER = "broker-r"
CLUSTER = "DefaultCluster"
SECRET = "between us"
SETTLE_S = 60.0
STATUS_S = 2.0
HEARD_MS = 300
"""A leader has heard a follower more lately: some heartbeats, and less than its limit."""
HOST_PORT = 20_911
"""In a namespace of its own every port is free."""
SETTINGS: Mapping[str, object] = {
    **TINY_FILES,
    "mappedFileSizeCommitLog": 1 << 20,
    "dLegerSecret": SECRET,
}
NOT_BEGUN: Mapping[str, object] = {
    **dict.fromkeys(("begin_offset", "committed_offset", "held_offset", "end_offset"), -1),
    **{"impaired": False, "writable": True, "failed": ""},
}
"""Fields that a member cannot tell before it takes part."""
QUICK_TIMERS: Mapping[str, object] = {
    "dLegerHeartbeatInterval": 80,
    "dLegerElectionTimeoutMin": 400,
    "dLegerElectionTimeoutMax": 800,
}


@attrs.define(eq=False)
class Member:
    """One broker of a group; the process may come and go."""

    member_id: str
    node: Node
    index: int
    broken: Path
    """While this file exists fsyncs of the log fail."""
    slow: Path
    """While this file exists they take long."""
    forgetful: Path
    """While this file exists votes cannot be saved."""
    synced: Path
    """Its files as last fdatasynced, if the group's power can be cut."""

    @property
    def address(self) -> str:
        return self.node.address

    @property
    def running(self) -> bool:
        return self.node.running

    @property
    def has_failing_disk(self) -> bool:
        return self.broken.exists() or self.forgetful.exists()

    def raft(self) -> dict[str, Any]:
        """Return what it knows of its group. Errors: OSError when it does not answer."""
        raft: dict[str, Any] = node_status(self.node, STATUS_S)["raft"]
        return {**NOT_BEGUN, **raft}

    def kill(self) -> None:
        # A process that stands still does not die of a signal to its group before it goes on.
        self.node.kill()

    def stand_still(self) -> None:
        self.node.process.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.node.process.signal(signal.SIGCONT)

    def lose_power(self, rng: random.Random, page_lost: float = PAGE_LOST) -> int:
        """Return the number of pages of its files that went back."""
        self.kill()
        assert self.node.store is not None
        return lose_power(self.node.store, self.synced, rng, page_lost)

    def wipe(self) -> None:
        assert self.node.store is not None
        assert not self.running, f"{self.member_id} runs"
        for child in self.node.store.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()


@attrs.define(eq=False)
class HurtGroup:
    """Members under one name server, on loopback or on hosts of their own."""

    processes: Processes
    size: int = 3
    settings: Mapping[str, object] = SETTINGS
    timers: Mapping[str, object] = QUICK_TIMERS
    net: Net | None = None
    stores: Sequence[Path] | None = None
    """Folders of the stores, if not below the test's own folder."""
    slow_s: float = 0.4
    """An fsync takes this long while a member is slow."""
    keeps_synced: bool = False
    """Power can be cut: see `support.processes.faults.lose_power`."""
    breakage: str = ""
    """Put into every member: see `support.processes.faults.set_failpoints`."""
    members: list[Member] = attrs.Factory(list)
    namesrv_node: Node | None = None

    @property
    def namesrv(self) -> str:
        assert self.namesrv_node is not None
        return self.namesrv_node.address

    def start(self) -> HurtGroup:
        """Name server and members, all at once; the group serves when it returns."""
        self.namesrv_node = trioha_namesrv(self.processes)
        if self.net is not None:
            listen_at(self.namesrv_node, self.net.gateway)
        self.namesrv_node.start()
        addresses = self._addresses()
        peers = ";".join(f"n{index}-{address}" for index, address in enumerate(addresses))
        for index, address in enumerate(addresses):
            self.members.append(self._member(index, address, peers))
        self.start_all(self.members)
        self.wait_serving()
        return self

    def start_all(self, members: Sequence[Member]) -> None:
        """Start the members that do not run, side by side.

        A member whose disk fails stays down: two faults may strike one member, and the one that
        broke the disk starts it when it has healed it.
        """
        start_all([one.node for one in members if not one.running and not one.has_failing_disk])

    def _addresses(self) -> list[str]:
        if self.net is not None:
            return [f"{host.address}:{HOST_PORT}" for host in self.net.hosts[: self.size]]
        return [f"127.0.0.1:{port}" for port in distinct_ports(self.size)]

    def _member(self, index: int, address: str, peers: str) -> Member:
        store = None if self.stores is None else self.stores[index] / "store"
        # Members in namespaces listen beyond loopback; they have no secret here, and say so.
        exposed = {"insecure": True} if self.net is not None else {}
        settings = {**self.settings, **self.timers, **exposed}
        node = raft_member(
            self.processes,
            self.namesrv,
            name=BROKER,
            member_id=f"n{index}",
            peers=peers,
            address=address,
            store=store,
            settings=settings,
        )
        home = self.processes.root / "faults" / f"n{index}"
        home.mkdir(parents=True, exist_ok=True)
        member = Member(
            f"n{index}",
            node,
            index,
            home / "broken",
            home / "slow",
            home / "forgetful",
            home / "synced",
        )
        set_failpoints(
            node,
            home / "failpoints",
            Failpoint(
                call="fdatasync",
                path="commitlog",
                action="slow",
                delay_s=self.slow_s,
                armed_by=str(member.slow),
            ),
            Failpoint(call="fdatasync", path="commitlog", armed_by=str(member.broken)),
            Failpoint(call="fsync", path="/raft.", armed_by=str(member.forgetful)),
            breakage=self.breakage,
            synced=member.synced if self.keeps_synced else None,
        )
        if self.net is not None:
            node.process.command = [*self.net.hosts[index].prefix, *node.process.command]
        return member

    # Status of the members.

    def rafts(self) -> dict[str, dict[str, Any]]:
        """Return what each member knows of its group. Those that do not answer are left out."""
        found = {}
        for member in self.members:
            if member.running:
                with contextlib.suppress(OSError, AssertionError):
                    found[member.member_id] = member.raft()
        return found

    def leader_or_none(self) -> Member | None:
        """Return the member that serves in the newest term, if one serves."""
        serving = [
            (raft["term"], member_id)
            for member_id, raft in self.rafts().items()
            if raft["is_serving"]
        ]
        return self.member(max(serving)[1]) if serving else None

    @property
    def leader(self) -> Member:
        leader = self.leader_or_none()
        assert leader is not None, f"nobody leads: {self.describe()}"
        return leader

    def member(self, member_id: str) -> Member:
        return next(one for one in self.members if one.member_id == member_id)

    def others(self, *these: Member) -> list[Member]:
        return [member for member in self.members if member not in these]

    def wait_serving(self, within_s: float = SETTLE_S) -> Member:
        """Wait until a member leads and serves; return it."""
        wait_until("serving", lambda: self.leader_or_none() or self.describe(), within_s)
        return self.leader

    def wait_whole(self, within_s: float = SETTLE_S) -> None:
        """Wait until all members follow and answer one leader, and hold nearly what it holds."""

        def whole() -> object:
            rafts = self.rafts()
            leaders = [raft for raft in rafts.values() if raft["is_serving"]]
            if len(rafts) != self.size or len(leaders) != 1:
                return self.describe()
            if len({(raft["term"], raft["leader_id"]) for raft in rafts.values()}) != 1:
                return self.describe()
            if any(one["heard_age_ms"] >= HEARD_MS for one in leaders[0]["followers"]):
                return self.describe()
            floor = leaders[0]["committed_offset"] - (1 << 16)
            return all(raft["held_offset"] >= floor for raft in rafts.values()) or self.describe()

        wait_until("whole", whole, within_s)

    def wait_level(self, within_s: float = SETTLE_S) -> int:
        """Nothing is sent any more: every log ends where the others do, all of it committed, and
        every member has applied the same changes of tables.

        Returns where.
        """
        ends: list[int] = []

        def level() -> object:
            ends[:] = [
                raft[key]
                for raft in self.rafts().values()
                for key in ("end_offset", "held_offset", "committed_offset")
            ]
            applied = {raft["metadata"]["applied_offset"] for raft in self.rafts().values()}
            is_level = len(ends) == 3 * self.size and len(set(ends)) == 1 == len(applied)
            return is_level or self.describe()

        wait_until("level", level, within_s)
        return ends[0]

    def describe(self) -> str:
        """The group in a few words, for a failing test."""
        keys = (
            *("role", "term", "leader_id", "is_serving"),
            *("committed_offset", "held_offset", "end_offset", "impaired", "writable", "failed"),
        )
        told = {
            member_id: {key: raft.get(key) for key in keys}
            for member_id, raft in self.rafts().items()
        }
        gone = [member.member_id for member in self.members if not member.running]
        return f"{told}, not running: {gone}"

    def topics_of(self, member: Member) -> set[str]:
        answer = request(member.address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
        return set(json.loads(answer.body_bytes())["topicConfigTable"])

    # Requests of an operator.

    def ask(self, member: Member, do: str, target: str = "") -> tuple[int, str]:
        """A request of `trioha raft`, without its process; the code and the words."""
        body = msgpack.packb({"do": do, "member": target, "address": ""})
        command = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, body=body)
        answer = request(member.address, command, 10.0)
        return answer.code, answer.remark or ""

    def transfer(self, target: Member) -> None:
        """The leadership, to `target`. Errors: AssertionError with the words of a refusal."""
        code, remark = self.ask(self.leader, "transfer", target.member_id)
        assert code == ResponseCode.SUCCESS, f"{code} {remark}"

    # Stop and check.

    def stop(self) -> None:
        """In order, all at once. The last ones may still write that they lead."""
        for member in self.members:
            if member.running:
                member.node.process.signal(signal.SIGTERM)
        for member in self.members:
            code = member.node.process.wait()
            assert code == 0, f"{member.member_id}: exit {code}\n{member.node.process.tail()}"

    def check_logs(self, topic: str, end: int) -> list[Stored]:
        """The members are stopped: their logs are sound, and equal up to `end`, which was
        committed. Returns what they hold of a topic."""
        first, *rest = self.members
        for member in self.members:
            found = end_of_log(member.node.commitlog).offset
            assert found >= end, f"{member.member_id} ends at {found}, {end} was committed"
            _check_sound(member, end)
        for other in rest:
            difference = first_difference(first.node.commitlog, other.node.commitlog, end)
            assert difference is None, f"{other.member_id} and {first.member_id} at {difference}"
        return [
            stored
            for stored in stored_messages(first.node.commitlog, topic)
            if stored.place.phy_offset < end
        ]


def _check_sound(member: Member, end: int) -> None:
    """Records are whole up to `end`, and the consume queues are the projection of the log."""
    assert member.node.store is not None
    report = verify_store(member.node.store)
    damage = [str(stretch) for stretch in report.damage if stretch.begin_offset < end]
    assert not damage + report.queue_errors, f"{member.node.store}: {report}"


def wait_for(what: str, is_so: Callable[[], object], within_s: float) -> float:
    """Like `wait_until`; how long it took."""
    began_s = time.monotonic()
    wait_until(what, is_so, within_s)
    return time.monotonic() - began_s
