"""A name server with the real rule of who may be master, and nothing on disk."""

from __future__ import annotations

import attrs

from trioha.namesrv.masterships import Claim, Masterships
from trioha.sim.network import End, Item, Network
from trioha.sim.pair.messages import BROKER, AskRoute, RegisterAnswer, RegisterNode, Route
from trioha.sim.scheduler import Scheduler
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

EXPIRED_MS = 3000


class SimNamesrv:
    """One per set. What it knows goes with its process."""

    def __init__(self, scheduler: Scheduler, network: Network, host: str = "namesrv") -> None:
        self.host = host
        self.up = False
        self._scheduler = scheduler
        self._network = network
        self._masterships = Masterships()
        self._brokers: dict[int, tuple[str, int]] = {}

    def start(self) -> None:
        self.up = True
        self._masterships = Masterships()
        self._brokers = {}
        self._network.listen(self.host, "remoting", self._accept)

    def die(self) -> None:
        self.up = False
        self._network.process_died(self.host)

    def _accept(self, end: End) -> None:
        def hear(item: Item) -> None:
            if isinstance(item, RegisterNode):
                end.send(self._register(item))
            elif isinstance(item, AskRoute):
                end.send(self.route())
            elif isinstance(item, RemotingCommand):
                end.send(item.response(body=self._cluster_info().encode()))

        end.on_item = hear

    def _register(self, claim: RegisterNode) -> RegisterAnswer:
        now_ms = self._scheduler.now_ms
        if claim.broker_id == 0:
            before = self._masterships.newest(BROKER)
            ours = Claim(claim.host, claim.host, claim.epoch, claim.nonce, claim.in_doubt)
            stands = self._masterships.judge(BROKER, ours)
            if stands is not None:
                return RegisterAnswer(stands.address, stands.epoch, stands.nonce)
            remembers = before == attrs.evolve(ours, in_doubt=False)
        else:
            remembers = False
        for broker_id, (host, _) in list(self._brokers.items()):
            if host == claim.host and broker_id != claim.broker_id:
                del self._brokers[broker_id]
        self._brokers[claim.broker_id] = (claim.host, now_ms)
        return RegisterAnswer(remembers=remembers, master=self.route().master)

    def _cluster_info(self) -> ClusterInfo:
        broker = BrokerData("cluster", BROKER, dict(self.route().brokers))
        return ClusterInfo({BROKER: broker}, {"cluster": (BROKER,)})

    def route(self) -> Route:
        now_ms = self._scheduler.now_ms
        return Route(
            tuple(
                (broker_id, host)
                for broker_id, (host, heard_ms) in sorted(self._brokers.items())
                if now_ms - heard_ms < EXPIRED_MS
            )
        )
