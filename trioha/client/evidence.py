"""Gathers what the nodes of a cluster can tell about an incident, each as far as it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from trioha.client.cluster import ClusterConfig, open_cluster, success
from trioha.client.node_admin import NodeAdmin
from trioha.client.watching import look_once
from trioha.errors import CommandError, RemoteProtocolError, TriohaError
from trioha.journal.file import Event
from trioha.watch.collector import EVERYTHING, Raw
from trioha.wire.address import parse_namesrvs
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

EVENTS_MAX = 100_000
"""Limit of events of one node's journal: some twenty megabytes of lines."""
_NODES_AT_ONCE = 8
_LAST = 1000
_BISECT_MAX = 40


@attrs.define(eq=False)
class NodeEvidence:
    """Answers of one node, and the reasons for those that are missing."""

    address: str
    name: str
    """``broker-a-0`` or ``namesrv``."""
    answers: dict[str, Any] = attrs.field(factory=dict)
    events: list[Event] = attrs.field(factory=list)
    errors: dict[str, str] = attrs.field(factory=dict)
    """Question -> why there is no answer."""
    is_foreign: bool = False
    """The node answers that it does not know our requests: it is not trioha."""
    events_cut: bool = False
    """The journal has more events since the start time than `events` holds."""


@attrs.frozen
class Evidence:
    """One round of all nodes' answers, and the evidence of each node."""

    raw: Raw
    nodes: tuple[NodeEvidence, ...]


async def gather(
    namesrv: str,
    *,
    timeout_s: float,
    since_wall_ms: int,
    on_node: Callable[[str, int], None] = lambda name, total: None,
) -> Evidence:
    """Ask every node of the cluster; who does not answer is told with the reason.

    `on_node` is called with a node's name when it is through, and the count of all nodes.

    Errors: TriohaError when `namesrv` is not a list of addresses.
    """
    raw = await look_once(namesrv, timeout_s=timeout_s, interest=EVERYTHING)
    nodes = [NodeEvidence(address, "namesrv") for address in parse_namesrvs(namesrv)]
    nodes += [
        NodeEvidence(address, f"{member['name']}-{member['id']}")
        for address, member in raw["members"].items()
    ]
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    limit = trio.CapacityLimiter(_NODES_AT_ONCE)
    async with open_cluster(namesrv, config) as cluster, trio.open_nursery() as nursery:

        async def ask(node: NodeEvidence) -> None:
            async with limit:
                await _ask(NodeAdmin(cluster, node.address), node, since_wall_ms)

        async def ask_foreign(node: NodeEvidence) -> None:
            """Ask a broker that is not trioha for its runtime table and settings."""
            command = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
            response = success(await cluster.request(node.address, command))
            node.answers["runtime"] = decode_kv_table(response.body_bytes())
            command = RemotingCommand(RequestCode.GET_BROKER_CONFIG)
            response = success(await cluster.request(node.address, command))
            node.answers["config"] = response.body_bytes().decode(errors="replace").splitlines()

        async def ask_either(node: NodeEvidence) -> None:
            await ask(node)
            if node.is_foreign and node.name != "namesrv":
                await _try(node, "runtime", lambda: ask_foreign(node))
            on_node(node.name, len(nodes))

        for node in nodes:
            nursery.start_soon(ask_either, node, name=f"bundle.ask[{node.address}]")
    return Evidence(raw, tuple(nodes))


async def _ask(admin: NodeAdmin, node: NodeEvidence, since_wall_ms: int) -> None:
    questions: dict[str, Callable[[], Awaitable[Any]]] = {
        "config": lambda: _settings(admin),
        "tasks": admin.tasks,
    }
    if node.name != "namesrv":
        questions["status"] = admin.status
    for name, question in questions.items():

        async def keep(name: str = name, question: Any = question) -> None:
            node.answers[name] = await question()

        if not await _try(node, name, keep):
            return  # a node that does not answer one question is not asked three more
    await _try(node, "journal", lambda: _journal(admin, node, since_wall_ms))


async def _settings(admin: NodeAdmin) -> dict[str, Any]:
    return {"settings": await admin.settings()}


async def _try(node: NodeEvidence, what: str, ask: Callable[[], Awaitable[None]]) -> bool:
    """False when the node is not there at all; a refusal is an answer."""
    try:
        await ask()
    except CommandError as error:
        node.errors[what] = str(error)
        node.is_foreign |= error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    except RemoteProtocolError as error:
        node.errors[what] = str(error)
    except TriohaError as error:
        node.errors[what] = str(error)
        return False
    return True


async def _journal(admin: NodeAdmin, node: NodeEvidence, since_wall_ms: int) -> None:
    """The events since then: the newest thousand as a rule, else from where they begin."""
    piece = await admin.journal(last=_LAST)
    if piece.events and piece.events[0].wall_ms >= since_wall_ms:
        first = await _first_since(admin, since_wall_ms, piece.events[0].sequence)
        node.events_cut = first < piece.end_sequence - EVENTS_MAX
        first = max(first, piece.end_sequence - EVENTS_MAX)
        piece = await admin.journal(from_sequence=first)
    while len(node.events) < EVENTS_MAX:
        node.events += [event for event in piece.events if event.wall_ms >= since_wall_ms]
        if piece.next_sequence >= piece.end_sequence:
            return
        piece = await admin.journal(from_sequence=piece.next_sequence)


async def _first_since(admin: NodeAdmin, since_wall_ms: int, high: int) -> int:
    """The first event since then, by halves: a journal may hold a million."""
    low = 0
    for _ in range(_BISECT_MAX):
        if low >= high:
            break
        middle = (low + high) // 2
        piece = await admin.journal(from_sequence=middle)
        if piece.events and piece.events[0].wall_ms < since_wall_ms:
            low = middle + 1
        else:
            high = middle
    return low
