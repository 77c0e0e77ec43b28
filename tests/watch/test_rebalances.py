"""Members that came and left, and queues that got another owner."""

from __future__ import annotations

from support.fakes.raw_answers import RawCluster

from trioha.watch.rebalances import RebalanceHistory
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.codes import ResponseCode

GROUP = "billing"


class Members:
    """A group's members, as the only broker tells them."""

    def __init__(self) -> None:
        self.cluster = RawCluster()
        self.master, _ = self.cluster.add_set("broker-a")
        self.history = RebalanceHistory(GROUP)

    def are(self, **queues: list[int] | None) -> None:
        """Members with their queues; None for one that has not told them yet."""
        clients = [{"client_id": one} for one in queues]
        self.cluster.say(self.master, f"members/{GROUP}", {"clients": clients})
        for one, numbers in queues.items():
            if numbers is not None:
                told = {"queues": [["orders", "broker-a", number] for number in numbers]}
                self.cluster.say(self.master, f"client/{GROUP}/{one}", told)
        self.look()

    def look(self) -> None:
        self.cluster.tick()
        self.history.look(ClusterSnapshot.of(self.cluster.raw()))

    @property
    def seen(self) -> list[tuple[str, str, int, int]]:
        """Kind, client, and count of its queues before and after; oldest first."""
        changes = reversed(self.history.changes)
        return [(one.what, one.client_id, len(one.before), len(one.after)) for one in changes]


def test_a_member_that_comes_takes_queues_from_another() -> None:
    members = Members()
    members.are(a=[0, 1, 2, 3])
    assert members.seen == []
    members.are(a=[0, 1, 2, 3], b=None)
    assert members.seen == [], "it has not told its queues"
    members.are(a=[0, 1], b=[2, 3])
    assert members.seen == [("came", "b", 0, 2), ("queues", "a", 4, 2)]
    newest = members.history.changes[0]
    assert newest.after == ("orders broker-a 0", "orders broker-a 1")


def test_a_member_that_leaves_gives_its_queues_back() -> None:
    members = Members()
    members.are(a=[0, 1], b=[2, 3])
    members.are(a=[0, 1, 2, 3])
    assert members.seen == [("left", "b", 2, 0), ("queues", "a", 2, 4)]
    entry = members.cluster.answers[members.master][f"members/{GROUP}"]
    entry |= {"error": "the group is not online", "code": int(ResponseCode.CONSUMER_NOT_ONLINE)}
    members.look()
    assert members.seen[-1] == ("left", "a", 4, 0)


def test_a_broker_that_does_not_answer_is_no_rebalance() -> None:
    members = Members()
    members.are(a=[0, 1])
    entry = members.cluster.answers[members.master][f"members/{GROUP}"]
    entry |= {"error": "did not answer within 3 s", "code": None}
    members.look()
    assert members.seen == []
