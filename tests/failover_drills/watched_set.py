"""A set of three under load, each member asked at all times, and the judgement of its history."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from failover_drills.interrupted import continue_process, start_again
from failover_drills.probes import Probes
from failover_drills.traps import make_strikable
from failover_drills.verdict import Verdict, judge
from support.clusters.replica_set import SETTINGS, ReplicaSet, Switch
from support.histories.senders import Attempt, OwnSender, Sender
from support.processes.admin import create_topic
from support.processes.namespaces import Net
from support.processes.rig import Node, Processes
from support.processes.status import check_sound, node_status, wait_until

TOPIC = "drill"
QUEUES = 4
WHOLE_S = 45.0
"""A set whose nodes are all back has one master and two slaves in sync within this time."""
OPERATOR_S = 45.0
"""The operator repeats a command for this long, which is longer than a ticket lasts."""
AGAIN_S = 1.0
RETURN_S = 6.0
"""A node that came back, or a set without a master, becomes writable within this time."""


class WatchedSet:
    """One master, two slaves, a producer of trioha's own and a probe at each member."""

    def __init__(
        self,
        processes: Processes,
        *,
        settings: Mapping[str, object] = SETTINGS,
        net: Net | None = None,
        more_senders: Callable[[str], Sequence[Sender]] = lambda namesrv: (),
    ) -> None:
        self.set = ReplicaSet(
            processes, slave_count=2, settings=settings, net=net, prepare=make_strikable
        ).start()
        create_topic(self.set.master.address, self.set.namesrv, TOPIC, QUEUES)
        namesrv = self.set.namesrv
        self.senders: list[Sender] = [OwnSender("own", namesrv, TOPIC), *more_senders(namesrv)]
        self.probes = Probes(self.set.nodes, TOPIC, QUEUES)
        for sender in self.senders:
            sender.start()
        self.probes.start()
        for sender in self.senders:
            sender.wait_for_more()

    @property
    def own(self) -> Sender:
        return self.senders[0]

    @property
    def nodes(self) -> list[Node]:
        return self.set.nodes

    def name_of(self, node: Node) -> int:
        """The member's id, as configured."""
        return self.nodes.index(node)

    def pause(self) -> None:
        for sender in self.senders:
            sender.pause()
        self.probes.pause()

    def resume(self) -> None:
        for sender in self.senders:
            sender.resume()
        self.probes.resume()

    def make_level(self) -> None:
        """Let every member hold everything: then no member that is lost takes a message with it."""
        self.pause()
        self.set.wait_level()

    def acknowledges(self, count: int = 50, within_s: float = RETURN_S) -> bool:
        """Does the set take so many sends of any client before the time is up?"""
        wanted = self._ok_count + count
        with contextlib.suppress(AssertionError):
            wait_until("acknowledged", lambda: self._ok_count >= wanted, within_s)
        return self._ok_count >= wanted

    @property
    def _ok_count(self) -> int:
        by_senders = sum(sender.ok_count for sender in self.senders)
        return by_senders + sum(probe.ok_count for probe in self.probes.probes)

    def wait_whole(self, within_s: float = WHOLE_S) -> None:
        """Every node is back: by itself the set finds one master and takes sends."""
        self.set.wait_whole(within_s)
        self.own.wait_for_more(within_s=WHOLE_S)

    def fail_over_at_last(self, *arguments: str) -> Switch:
        """Try the same again after a refusal or an unknown outcome, as docs/failover.md says."""
        until_s = time.monotonic() + OPERATOR_S
        while True:
            switch = self.set.fail_over(*arguments)
            if switch.code == 0 or time.monotonic() > until_s:
                return switch
            time.sleep(AGAIN_S)

    def wait_following(self, follower: Node, master: Node, within_s: float) -> None:
        """Wait until the follower has a link to the master and knows it as its master."""

        def follows() -> object:
            try:
                below = node_status(follower, 2.0)
            except OSError as error:
                return str(error)
            slave = below["slave"] or {}
            return (below["follows"], slave.get("state")) == (master.address, "TRANSFER") or (
                f"{below['standing']} follows {below['follows']!r}, {slave.get('state')}"
            )

        wait_until(f"{follower.name} follows {master.name}", follows, within_s)

    def bring_back(self, *nodes: Node) -> None:
        for node in nodes:
            continue_process(node)
            start_again(node)

    @property
    def attempts(self) -> list[Attempt]:
        """Every send so far."""
        sent = [one for sender in self.senders for one in sender.attempts]
        return [*sent, *self.probes.asked]

    @property
    def acknowledged(self) -> set[str]:
        """Names of the messages that were answered with SEND_OK."""
        return {one.name for one in self.attempts if one.is_ok}

    def account(self, before_stop: Callable[[], None] = lambda: None) -> Verdict:
        """Stop sending, then every node, and judge. Errors: AssertionError with every finding.

        `before_stop` runs when nothing is sent any more.
        """
        for sender in self.senders:
            sender.stop()
        self.probes.stop()
        self.set.wait_whole(WHOLE_S)
        self.set.wait_level()
        before_stop()
        master = self.set.master
        self.set.stop()
        verdict = judge(master, TOPIC, self.attempts, self.probes.commits, self.probes.told)
        verdict.check()
        self.set.check_equal_logs()
        for node in self.nodes:
            check_sound(node)
        assert self.probes.commits, "no commit was acknowledged"
        return verdict
