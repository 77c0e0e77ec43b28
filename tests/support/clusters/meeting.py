"""Both makes at once: two name servers and two masters, each master registered at both.

A topic that only one master has makes a cluster of one make under either name server; a topic on
both masters makes a mixed cluster. Four processes serve every such test.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import attrs

from support.clusters.pair import SMALL_FILES, Make
from support.peers.java import java_broker, java_namesrv
from support.processes.admin import put_topic, request
from support.processes.rig import (
    Node,
    Processes,
    ProcessFailed,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import TopicRouteData

BOTH: tuple[Make, ...] = ("trioha", "java")
NAMES: Mapping[Make, str] = {"trioha": "broker-trioha", "java": "broker-java"}
# A retry waits for level 3: two seconds instead of ten.
QUICK_LEVELS = "1s 2s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m 1h 2h"
SETTINGS: Mapping[str, object] = {
    **SMALL_FILES,
    "messageDelayLevel": QUICK_LEVELS,
    "enablePropertyFilter": True,
}
ROUTE_S = 20.0
ASK_PERIOD_S = 0.05


@attrs.frozen
class Meeting:
    """Name servers and masters, by make."""

    namesrvs: Mapping[Make, Node]
    masters: Mapping[Make, Node]

    def create_topic(self, topic: str, makes: Sequence[Make] = BOTH, queues: int = 4) -> None:
        """Create `topic` on these masters and wait until both name servers know all of them."""
        for make in makes:
            put_topic(self.masters[make].address, topic, queues)
        for namesrv in self.namesrvs.values():
            wait_for_brokers(namesrv.address, topic, {NAMES[make] for make in makes})


def start_meeting(processes: Processes) -> Meeting:
    namesrvs = {"trioha": trioha_namesrv(processes), "java": java_namesrv(processes)}
    # Started together, waited for together: a JVM's start is most of the time.
    start_all(namesrvs.values())
    addresses = ";".join(node.address for node in namesrvs.values())
    masters = {
        "trioha": trioha_broker(processes, addresses, name=NAMES["trioha"], settings=SETTINGS),
        "java": java_broker(processes, addresses, name=NAMES["java"], settings=SETTINGS),
    }
    start_all(masters.values())
    return Meeting(namesrvs, masters)  # type: ignore[arg-type]


def wait_for_brokers(namesrv: str, topic: str, names: set[str], within_s: float = ROUTE_S) -> None:
    """Wait until the topic's route names exactly these brokers."""
    deadline = time.monotonic() + within_s
    while True:
        answer = request(
            namesrv, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        )
        found: set[str] = set()
        if answer.code == ResponseCode.SUCCESS:
            route = TopicRouteData.decode(answer.body_bytes())
            found = {broker.broker_name for broker in route.broker_datas}
        if found == names:
            return
        if time.monotonic() > deadline:
            raise ProcessFailed(f"the route of {topic} at {namesrv} is {found}, not {names}")
        time.sleep(ASK_PERIOD_S)
