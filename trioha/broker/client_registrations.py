"""Requests that register the clients of an old master at the new one, with the locks they hold.

A consumer group shares its queues out by the master's list of members; an orderly consumer needs
the master's locks too. A new master knows neither until each client has sent it a heartbeat, up to
half a minute later: the first client to arrive would take all queues. So the old master registers
the clients that are connected to it. It sends each client's last heartbeat, and its locks.
"""

from __future__ import annotations

from collections.abc import Iterator

from trioha.broker.clients import ClientInfo, ConsumerManager, ProducerManager
from trioha.broker.locks import QueueLocks
from trioha.remoting.channel import Channel
from trioha.wire.bodies import LockBatchBody
from trioha.wire.codes import ONEWAY_FLAG, RequestCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from trioha.wire.remoting_command import RemotingCommand


def client_registrations(
    consumers: ConsumerManager, producers: ProducerManager, locks: QueueLocks, now_ms: int
) -> Iterator[tuple[Channel, RemotingCommand]]:
    """Yield one-way requests that register each client, to be sent in this order."""
    clients: dict[Channel, ClientInfo] = {}
    consuming: dict[Channel, list[ConsumerData]] = {}
    producing: dict[Channel, list[ProducerData]] = {}
    for name in producers.groups:
        for channel, client in producers.members(name):
            clients[channel] = client
            producing.setdefault(channel, []).append(ProducerData(name))
    for name in consumers.groups:
        group = consumers.find(name)
        if group is None:
            continue
        data = ConsumerData(
            group.name,
            group.consume_type,
            group.message_model,
            group.consume_from_where,
            subscriptions=tuple(group.subscriptions.values()),
        )
        for channel, client in consumers.members(name):
            clients[channel] = client
            consuming.setdefault(channel, []).append(data)
    for channel, client in clients.items():
        heartbeat = HeartbeatData(
            client.client_id, producing.get(channel, ()), consuming.get(channel, ())
        )
        yield channel, _oneway(RequestCode.HEART_BEAT, heartbeat.encode(), client)
    for (name, client_id), queues in locks.held(now_ms).items():
        found = consumers.find_client(name, client_id)
        if found is not None:
            body = LockBatchBody(name, client_id, queues).encode()
            yield found[0], _oneway(RequestCode.LOCK_BATCH_MQ, body, found[1])


def _oneway(code: RequestCode, body: bytes, client: ClientInfo) -> RemotingCommand:
    return RemotingCommand(
        code, body=body, flag=ONEWAY_FLAG, version=client.version, language=client.language
    )
