"""The masters that a name server knows, and one question asked of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from trioha.client.cluster import Cluster, success
from trioha.client.route import MASTER_ID
from trioha.errors import CommandError, TriohaError
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import ClusterInfo

T = TypeVar("T")


async def masters_of(cluster: Cluster, broker_name: str = "") -> dict[str, str]:
    """Return the address of every registered master by the name of its set, or of one set.

    Errors: TriohaError when there is none; Unreachable, RemoteProtocolError.
    """
    response = await cluster.ask_namesrv(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
    info = ClusterInfo.decode(success(response).body_bytes())
    found = {
        name: data.broker_addrs[MASTER_ID]
        for name, data in sorted(info.broker_addr_table.items())
        if MASTER_ID in data.broker_addrs and broker_name in ("", name)
    }
    if not found:
        raise TriohaError(f"no master{f' of {broker_name}' if broker_name else ''} is registered")
    return found


async def ask_masters(
    cluster: Cluster, broker_name: str, ask: Callable[[str], Awaitable[T]]
) -> dict[str, T]:
    """Await ``ask(address)`` for each of `masters_of`; return the answers by name of the set.

    Errors: CommandError that names the set; those of `masters_of`.
    """
    answers = {}
    for name, address in (await masters_of(cluster, broker_name)).items():
        try:
            answers[name] = await ask(address)
        except CommandError as error:
            remark = error.remark
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                remark = f"{address} is no trioha broker, or an older one"
            raise CommandError(error.code, f"{name}: {remark}") from None
    return answers
