"""Lines that are asked for once, by keys: a consumer's stacks."""

from __future__ import annotations

import json

from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_members, add_topics
from support.screens.screens import SMALL, Console, open_console
from trioha_console.screens.group import GroupScreen
from trioha_console.screens.text import TextScreen

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo


class Clients:
    """A broker that forwards request 307 to the members of a group."""

    def __init__(self, master: str, client_ids: list[str]) -> None:
        self.master = master
        self.client_ids = client_ids
        self.stacks: str | None = None
        """None: the client does not know the request."""
        self.asked: list[str] = []

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {"broker-a": BrokerData("c", "broker-a", {0: self.master})}
            return command.response(body=ClusterInfo(brokers, {"c": ("broker-a",)}).encode())
        if command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            members = [
                {"clientId": one, "clientAddr": "10.7.0.1:5001", "language": "JAVA", "version": 399}
                for one in self.client_ids
            ]
            return command.response(body=json.dumps({"connectionSet": members}).encode())
        assert command.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        self.asked.append(str(command.ext_fields["clientId"]))
        if self.stacks is None:
            words = "request type 307 not supported"
            return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, words)
        told = {"properties": {}, "mqTable": {}, "jstack": self.stacks}
        return command.response(body=json.dumps(told).encode())


async def open_second_member(console: Console, cluster: RawCluster, master: str) -> Clients:
    """Press the keys to the second member of the group `billing`."""
    members = cluster.answers[master]["members/billing"]["value"]
    clients = Clients(master, [one["client_id"] for one in members["clients"]])
    console.source.answer = clients
    await console.press("5")
    await console.tick()
    await console.press("enter")
    await console.tick()
    await console.press("tab", "down", "enter")
    assert isinstance(console.app.screen, TextScreen)
    return clients


def a_cluster() -> tuple[RawCluster, str]:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    add_topics(cluster, master)
    add_members(cluster, master)
    return cluster, master


async def test_enter_on_a_member_shows_its_stacks_and_r_asks_again() -> None:
    cluster, master = a_cluster()
    async with open_console(cluster, SMALL) as console:
        clients = await open_second_member(console, cluster, master)
        await console.shows("This client cannot show its queues and threads")
        assert "code 3" not in console.text
        clients.stacks = "".join(f"thread-{number}\n  at Main.run\n" for number in range(30))
        await console.press("r")
        await console.shows("thread-0")
        assert clients.asked == [clients.client_ids[1]] * 2
        assert clients.client_ids[1] in console.text.splitlines()[0]
        assert "thread-29" not in console.text
        await console.press("end")
        await console.shows("thread-29")
        await console.press("escape")
        assert isinstance(console.app.screen, GroupScreen)
