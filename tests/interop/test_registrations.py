"""Registrations beside RocketMQ's name servers: which topics have a route."""

from __future__ import annotations

import socket

import pytest
from support.handlers.namesrv import MASTER, register_request, route_request, topics
from support.peers.java import java_namesrv
from support.processes.admin import REQUEST_S, receive_frame, request
from support.processes.rig import Node, Processes, trioha_namesrv

from trioha.wire.bodies import DataVersion
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode
from trioha.wire.route import TopicRouteData

pytestmark = pytest.mark.interop

V1 = DataVersion(1_000, 1)
V2 = DataVersion(2_000, 2)


def start_namesrv(processes: Processes, make: str) -> Node:
    if make == "trioha":
        return trioha_namesrv(processes).start()
    return java_namesrv(processes, release=make.removeprefix("java-")).start()


def ask(connection: socket.socket, command: RemotingCommand) -> None:
    connection.sendall(encode(command))
    assert decode_frame(receive_frame(connection)).code == ResponseCode.SUCCESS


def shown(namesrv: str, *names: str) -> dict[str, str]:
    """The write queues and permission of each topic that has a route."""
    found = {}
    for name in names:
        answer = request(namesrv, route_request(name))
        if answer.code == ResponseCode.SUCCESS:
            (queue,) = TopicRouteData.decode(answer.body_bytes()).queue_datas
            found[name] = f"{queue.write_queue_nums} {queue.perm}"
    return found


@pytest.mark.parametrize(
    "make", ["trioha", "java-5.3", pytest.param("java-4", marks=pytest.mark.release)]
)
def test_topics_of_an_unchanged_data_version(processes: Processes, make: str) -> None:
    """Known topics do not change. New ones are added, except by a name server of 4.9."""
    namesrv = start_namesrv(processes, make).address
    host, port = namesrv.split(":")
    with socket.create_connection((host, int(port)), timeout=REQUEST_S) as connection:
        # A name server of 5.3 refuses a broker that it does not know with one topic alone.
        ask(connection, register_request(table=topics("A", "Z"), version=V1))
        ask(connection, register_request(table=topics("A", "B", queues=8), version=V1))
        added = {} if make == "java-4" else {"B": "8 6"}
        assert shown(namesrv, "A", "B") == {"A": "4 6"} | added
        wipe = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        ask(connection, RemotingCommand(wipe, {"brokerName": MASTER.broker_name}))
        ask(connection, register_request(table=topics("A", "C"), version=V1))
        added = {} if make == "java-4" else {"B": "8 4", "C": "4 6"}
        assert shown(namesrv, "A", "B", "C") == {"A": "4 4"} | added
        delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
        ask(connection, RemotingCommand(delete, {"topic": "A"}))
        ask(connection, register_request(table=topics("A"), version=V1))
        added = {} if make == "java-4" else {"A": "4 6"}
        assert shown(namesrv, "A") == added
        ask(connection, register_request(table=topics("A", "B", queues=8), version=V2))
        assert shown(namesrv, "A", "B") == {"A": "8 6", "B": "8 6"}
