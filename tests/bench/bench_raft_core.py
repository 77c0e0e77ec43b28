"""Processor time of the Raft core for one message, with one sender.

    python tests/bench/bench_raft_core.py

Three members in this process. Each message is appended alone, and the next one follows when it is
committed. The time is that of the core and of its messages as bytes (`trioha.dledger`): no log, no
connection, no Trio. A member's disk is fast: an fsync ends when it is asked for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from random import Random

from trioha.compiled import this_build
from trioha.dledger.member_state import Recovered
from trioha.dledger.membership import Configuration, ConfigurationRows, ConfigurationTable
from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.messages import RaftMessage
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import LogWrite, Role
from trioha.dledger.settings import RaftSettings
from trioha.wire.remoting_command import Buffer

NAMES = ("n0", "n1", "n2")
BODY = bytes(300)


class Log:
    """Bytes in memory; every byte is a record."""

    def __init__(self) -> None:
        self.data = bytearray()

    def read(self, phy_offset: int, size_max: int) -> bytes:
        return bytes(self.data[phy_offset : phy_offset + size_max])

    def is_boundary(self, phy_offset: int) -> bool:
        return True

    def configurations_in(self, phy_offset: int, term: int, body: Buffer) -> ConfigurationRows:
        return ()

    def objection_to_begin(self, phy_offset: int) -> str:
        return ""


class Member:
    """One member, and the processor time of its core."""

    def __init__(self, name: str) -> None:
        self.log = Log()
        configurations = ConfigurationTable(((0, Configuration.of(*NAMES)),))
        self.node = RaftNode(
            name,
            RaftSettings(),
            Recovered(configurations=configurations),
            self.log,
            Random(name),
            0,
        )
        self.door = GroupDoor("cluster", "group", name, NAMES)
        self.spent_ns = 0
        self.out: list[tuple[str, bytes]] = []

    def take(self, data: bytes, now_ms: int) -> None:
        began = time.process_time_ns()
        self.node.step(self.door.decode(data), now_ms)
        self._work(now_ms)
        self.spent_ns += time.process_time_ns() - began

    def append(self, now_ms: int) -> None:
        self.log.data += BODY
        began = time.process_time_ns()
        self.node.appended(len(self.log.data), now_ms)
        self._work(now_ms)
        self.node.flushed(len(self.log.data), self.node.state.cut_count, now_ms)
        self._work(now_ms)
        self.spent_ns += time.process_time_ns() - began

    def on_time(self, now_ms: int) -> None:
        if now_ms >= self.node.next_deadline_ms:
            self.node.on_time(now_ms)
            self._work(now_ms)

    def _work(self, now_ms: int) -> None:
        node = self.node
        while (ready := node.ready()) is not None:
            messages: tuple[RaftMessage, ...] = ready.messages
            for operation in ready.log:
                if isinstance(operation, LogWrite):
                    self.log.data += operation.body
            for message in messages:
                data = b"".join(self.door.encode(message))
                self.out.append((message.target, data))
            node.advance(ready)
            for control in ready.controls:
                self.log.data += b"c"
                node.control_appended(control, len(self.log.data), now_ms)
            if ready.log or ready.controls:
                node.flushed(len(self.log.data), node.state.cut_count, now_ms)


def deliver(members: dict[str, Member], now_ms: int) -> None:
    while any(member.out for member in members.values()):
        for member in members.values():
            out, member.out = member.out, []
            for target, data in out:
                members[target].take(data, now_ms)


def measure(count: int) -> tuple[float, float]:
    """Microseconds a message: of the leader, of a follower."""
    members = {name: Member(name) for name in NAMES}
    now_ms = 0
    leader: Member | None = None
    while leader is None or not leader.node.is_serving:
        now_ms += 10
        for member in members.values():
            member.on_time(now_ms)
        deliver(members, now_ms)
        leader = next((m for m in members.values() if m.node.state.role is Role.LEADER), None)
    for member in members.values():
        member.spent_ns = 0
    for number in range(count):
        if number % 4 == 0:
            now_ms += 1
            for member in members.values():
                member.on_time(now_ms)
            deliver(members, now_ms)
        leader.append(now_ms)
        deliver(members, now_ms)
        assert leader.node.state.committed_offset == len(leader.log.data)
    others = [member.spent_ns for member in members.values() if member is not leader]
    return leader.spent_ns / count / 1000, statistics.mean(others) / count / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=4000)
    options = parser.parse_args()
    found = [measure(options.messages) for _ in range(options.rounds)]
    leader, follower = (sorted(values) for values in zip(*found, strict=True))
    print(
        f"{this_build()}: leader {statistics.median(leader):.1f} us ({leader[0]:.1f} to "
        f"{leader[-1]:.1f}), follower {statistics.median(follower):.1f} us "
        f"({follower[0]:.1f} to {follower[-1]:.1f}) of processor time a message"
    )


if __name__ == "__main__":
    main()
