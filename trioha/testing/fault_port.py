"""The hands of a cluster over HTTP and JSON, for tests in other languages.

``POST /brokers/broker-a-0/kill``, ``POST /fail_over`` with ``{"to": 1, "force": true}``,
``GET /status``, ``GET /story``. The port is on loopback. A request that changes something needs
``Content-Type: application/json``, which no page in a browser can send to another origin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import h11
import trio

from trioha.errors import TriohaError
from trioha.services.loop.transport import Transport, open_listener
from trioha.testing.cluster import TriohaCluster
from trioha.testing.cluster_broker import ClusterBroker

BODY_BYTES_MAX = 65_536
PATIENCE_S = 15.0
"""Time for a request to arrive whole."""
BROKER_HANDS = ("kill", "stop", "start", "restart", "pause", "resume", "wipe")
_JSON = "application/json"
_CLUSTER_HANDS: Mapping[str, Mapping[str, type]] = {
    "fail_over": {"name": str, "to": int, "force": bool},
    "transfer_leadership": {"name": str, "to": int},
    "stop_namesrv": {},
    "start_namesrv": {},
    "wait_in_sync": {"name": str, "within_s": float},
}
"""Names and types of the fields that each hand takes."""

Answer = tuple[int, str | Mapping[str, object]]


async def serve_faults(
    cluster: TriohaCluster,
    port: int,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the hands on a loopback port until cancelled; `task_status` gets the address.

    Errors: TriohaError if the port is taken.
    """
    listener = open_listener("127.0.0.1", port)
    try:
        async with trio.open_nursery() as nursery:
            task_status.started(listener.address)
            while True:
                transport = await listener.accept()
                nursery.start_soon(_serve, cluster, transport, name=f"faults[{transport.peer}]")
    finally:
        listener.close()


async def _serve(cluster: TriohaCluster, transport: Transport) -> None:
    connection = h11.Connection(h11.SERVER)
    try:
        with trio.move_on_after(PATIENCE_S) as patience:
            try:
                request, body = await _read(connection, transport)
            except (h11.RemoteProtocolError, TriohaError) as error:
                await _send(connection, transport, (400, {"error": str(error)}))
                return
        if not patience.cancelled_caught:
            await _send(connection, transport, await _answer(cluster, request, body))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client has closed the connection
    finally:
        transport.close()


async def _read(connection: h11.Connection, transport: Transport) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await transport.receive_some())
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_BYTES_MAX:
                raise TriohaError(f"a body takes at most {BODY_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, body
        else:
            raise trio.BrokenResourceError("the client has closed the connection")


async def _answer(cluster: TriohaCluster, request: h11.Request, body: bytes) -> Answer:
    path = request.target.partition(b"?")[0].decode("ascii", "replace")
    kind = dict(request.headers).get(b"content-type", b"").decode("ascii", "replace")
    try:
        if request.method == b"GET":
            return await _told(cluster, path)
        if request.method != b"POST":
            return 405, {"error": "only GET and POST are served here"}
        if kind.partition(";")[0].strip() != _JSON:
            return 415, {"error": f"send Content-Type: {_JSON}"}
        fields = json.loads(body or b"{}")
        if not isinstance(fields, dict):
            return 400, {"error": "the body has to be a JSON object"}
        return await _done(cluster, path, fields)
    except ValueError as error:
        return 400, {"error": f"the body is no JSON: {error}"}
    except (TriohaError, AssertionError) as error:
        return 409, {"error": str(error)}


async def _told(cluster: TriohaCluster, path: str) -> Answer:
    if path == "/story":
        return 200, await cluster.story() + "\n"
    if path == "/status":
        return 200, {"namesrv": cluster.namesrv, "brokers": await _brokers(cluster)}
    return 404, {"error": "no such page; there are: /status /story"}


async def _done(cluster: TriohaCluster, path: str, fields: dict[str, Any]) -> Answer:
    name = path.removeprefix("/")
    if name in _CLUSTER_HANDS:
        if problem := _problem(fields, _CLUSTER_HANDS[name]):
            return 400, {"error": f"{name}: {problem}"}
        result = await getattr(cluster, name)(**fields)
        done = {"broker": result.label} if isinstance(result, ClusterBroker) else {}
        return 200, {"done": name, **done}
    _, _, rest = path.partition("/brokers/")
    label, _, hand = rest.partition("/")
    brokers = {broker.label: broker for broker in cluster.brokers}
    if label not in brokers or hand not in BROKER_HANDS:
        return 404, {
            "error": f"no such hand; there are: {' '.join('/' + one for one in _CLUSTER_HANDS)}"
            f" /brokers/({'|'.join(brokers)})/({'|'.join(BROKER_HANDS)})"
        }
    await getattr(brokers[label], hand)()
    return 200, {"done": hand, "broker": label}


def _problem(fields: Mapping[str, object], known: Mapping[str, type]) -> str:
    for key, value in fields.items():
        if key not in known:
            return f"no field {key}; there are: {', '.join(known) or 'none'}"
        wanted = (int, float) if known[key] is float else known[key]
        if not isinstance(value, wanted) or isinstance(value, bool) != (known[key] is bool):
            return f"{key} has to be of type {known[key].__name__}"
    return ""


async def _brokers(cluster: TriohaCluster) -> list[dict[str, object]]:
    views = {view.broker.label: view.status for view in await cluster.places()}
    return [
        {
            "label": broker.label,
            "name": broker.machine.name,
            "number": broker.machine.number,
            "address": broker.address,
            "up": broker.is_up,
            "standing": views.get(broker.label, {}).get("standing", ""),
            "epoch": views.get(broker.label, {}).get("epoch", 0),
        }
        for broker in cluster.brokers
    ]


async def _send(connection: h11.Connection, transport: Transport, answer: Answer) -> None:
    status, content = answer
    is_text = isinstance(content, str)
    body = content.encode() if isinstance(content, str) else json.dumps(content).encode() + b"\n"
    headers = [
        ("content-type", "text/plain; charset=utf-8" if is_text else _JSON),
        ("content-length", str(len(body))),
        ("connection", "close"),
    ]
    parts = [
        connection.send(h11.Response(status_code=status, headers=headers)),
        connection.send(h11.Data(data=body)),
        connection.send(h11.EndOfMessage()),
    ]
    await transport.send_all([part for part in parts if part])
