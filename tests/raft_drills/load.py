"""All clients of a group during a drill, and the history that they make."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

from raft_drills.hurt_group import HurtGroup, Member
from raft_drills.member_clients import (
    MemberReader,
    MemberSender,
    Mix,
    ProgressKeeper,
    TopicKeeper,
)
from support.histories.commitlog import stored_messages
from support.histories.judge import History, Read
from support.histories.messages import Stored, name_of
from support.histories.senders import OwnSender, Sender, StockSender
from support.histories.stood_still import told, wait_for_names
from support.peers.clients import KINDS, Clients, Kind, StockConsumer

PERIOD_S = 0.02
PROGRESS_S = 30.0
STOCK_READ_S = 90.0


class RaftLoad:
    """A sender, a reader and a keeper at every member; with `stock` the usual clients, too."""

    def __init__(
        self,
        group: HurtGroup,
        topic: str,
        *,
        seed: int = 0,
        mix: Mix | None = None,
        stock: Clients | None = None,
    ) -> None:
        mix = mix or Mix()
        self.group = group
        self.topic = topic
        self.queues = mix.queues
        keys = [member.member_id for member in group.members]
        self.senders = [
            MemberSender(member.member_id, member.address, topic, seed=seed, mix=mix)
            for member in group.members
        ]
        self.readers = [
            MemberReader(member.member_id, member.address, topic, mix.queues)
            for member in group.members
        ]
        self.keepers = [
            ProgressKeeper(member.member_id, member.address, topic, keys)
            for member in group.members
        ]
        self.makers = [TopicKeeper(member.member_id, member.address) for member in group.members]
        self.routed: list[Sender] = []
        self.consumers: dict[str, StockConsumer] = {}
        self.stood_still: list[str] = []
        """A sentence for each stock client whose own library stopped working."""
        self._stock = stock
        if stock is not None:
            self._add_stock(stock)

    def _add_stock(self, clients: Clients) -> None:
        namesrv, topic = self.group.namesrv, self.topic
        js = clients.producer("js", namesrv, timeout_ms=3000, retries=0, poll_ms=1000)
        cpp = clients.producer("cpp", namesrv, timeout_ms=3000)
        self.routed = [
            OwnSender("own", namesrv, topic),
            StockSender("js", js, topic),
            StockSender("cpp", cpp, topic),
        ]
        self.consumers = {kind: self._start_consumer(kind) for kind in KINDS}

    def _start_consumer(self, kind: Kind) -> StockConsumer:
        assert self._stock is not None, "this load has no stock clients"
        return self._stock.consumer(kind, self.group.namesrv, f"drill-{kind}", self.topic)

    def start(self) -> RaftLoad:
        for client in (*self.senders, *self.readers, *self.keepers, *self.makers):
            client.start()
        for routed in self.routed:
            routed.start()
        self.wait_for_progress()
        return self

    # While it runs.

    def first_acknowledged_after(self, moment_s: float, *but: Member) -> float | None:
        """Return when a put that began after that moment was first acknowledged, by any member."""
        apart = {member.member_id for member in but}
        firsts = [
            sender.first_acknowledged_after(moment_s)
            for sender in self.senders
            if sender.member not in apart
        ]
        return min((first for first in firsts if first is not None), default=None)

    def wait_for_progress(self, within_s: float = PROGRESS_S, *but: Member) -> float:
        """Wait until a put that begins from now on is acknowledged; return how long that took.

        `but`: answers of these do not count.
        """
        began_s = time.monotonic()
        while (first := self.first_acknowledged_after(began_s, *but)) is None:
            if time.monotonic() > began_s + within_s:
                raise AssertionError(
                    f"nothing acknowledged for {within_s} s: {self.group.describe()}; "
                    f"the last answers: {self.last_answers()}"
                )
            time.sleep(PERIOD_S)
        return first - began_s

    def last_answers(self) -> dict[str, str]:
        return {
            sender.member: sender.puts[-1].detail if sender.puts else "none"
            for sender in self.senders
        }

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time without an acknowledged put, over all members, touching this span."""
        ends = sorted(end for sender in self.senders for end in sender.acknowledged_ends())
        return max(
            (
                after - before
                for before, after in itertools.pairwise(ends)
                if after >= since_s and before <= until_s
            ),
            default=0.0,
        )

    # When it is over.

    def stop_senders(self) -> None:
        for sender in self.senders:
            sender.ask_to_stop()
        for routed in self.routed:
            routed.stop()
        for keeper in (*self.senders, *self.keepers, *self.makers):
            keeper.stop()

    def stop_readers(self, log_ends: dict[int, int] | None = None, within_s: float = 30.0) -> None:
        """Readers stop once they have read everything below these ends."""
        deadline = time.monotonic() + within_s
        while log_ends and any(reader.offsets != log_ends for reader in self.readers):
            assert time.monotonic() < deadline, (
                f"the queues end at {log_ends}, and the readers are at "
                f"{ {reader.member: reader.offsets for reader in self.readers} }"
            )
            time.sleep(PERIOD_S)
        for reader in self.readers:
            reader.stop()

    def wait_for_stock_consumers(self) -> None:
        """They have read everything that a stock client, or ours, was acknowledged."""
        wanted = {one.name for sender in self.routed for one in sender.attempts if one.is_ok}
        for kind in KINDS if self.consumers else ():
            consumer, restart = self.consumers[kind], partial(self._start_consumer, kind)
            fresh = wait_for_names(consumer, wanted, restart, STOCK_READ_S)
            if fresh is not None:
                self.consumers[f"{kind} again"] = fresh
                self.stood_still.append(told(consumer, fresh))

    def finish(self) -> tuple[History, list[Stored]]:
        """Stop sending, read all of it everywhere, stop the group and judge.

        Errors: AssertionError with what was broken.
        """
        group = self.group
        group.wait_whole()
        self.stop_senders()
        end = group.wait_level()
        live = stored_messages(group.leader.node.commitlog, self.topic)
        self.stop_readers(_queue_ends(live, self.queues))
        self.wait_for_stock_consumers()
        topics = {member.member_id: group.topics_of(member) for member in group.members}
        group.stop()
        log = group.check_logs(self.topic, end)
        history = self.history()
        history.topics = topics
        history.check(log)
        strange = sum((sender.strange for sender in self.senders), Counter())
        assert not strange, f"answers of another mode: {strange}"
        moved = [line for reader in self.readers for line in reader.moved]
        assert not moved, f"readers were sent away: {moved[:3]}"
        return history, log

    def history(self) -> History:
        history = History(strict_readers={reader.name for reader in self.readers})
        for sender in self.senders:
            history.puts += sender.puts
        for routed in self.routed:
            history.puts += [attempt.put for attempt in routed.attempts]
        for reader in self.readers:
            history.reads += reader.reads
        for kind, consumer in self.consumers.items():
            history.reads += _reads_of(consumer, f"stock {kind}")
        for keeper in self.keepers:
            history.commits += keeper.commits
            history.looks += keeper.looks
        for maker in self.makers:
            history.topic_changes += maker.changes
        return history


def _queue_ends(log: Iterable[Stored], queues: int) -> dict[int, int]:
    ends = dict.fromkeys(range(queues), 0)
    for stored in log:
        ends[stored.place.queue_id] += 1
    return ends


def _reads_of(consumer: StockConsumer, client: str) -> list[Read]:
    return [
        Read(
            client=client,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            name=name_of(message.body.encode()),
            at_s=message.at_s,
        )
        for message in list(consumer.messages)
        # A retried message has its place in the retry topic. A long body is not shown.
        if message.reconsume_times == 0 and message.body is not None
    ]
