"""Accounts of brokers, asked for and changed over the wire (requests 50 to 54)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.client.cluster import Cluster, success
from trioha.errors import TriohaError
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import Json, boolean, list_of, object_of, text, texts
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import ClusterInfo


@attrs.frozen
class ShownAccount:
    """An account as a broker shows it: without its secret."""

    access_key: str
    admin: bool
    white_remote_address: str
    default_topic_perm: str
    default_group_perm: str
    topic_perms: tuple[str, ...]
    group_perms: tuple[str, ...]

    @classmethod
    def from_dict(cls, fields: Json) -> ShownAccount:
        """Errors: RemoteProtocolError."""
        return cls(
            text(fields, "accessKey"),
            boolean(fields, "admin", False),
            text(fields, "whiteRemoteAddress"),
            text(fields, "defaultTopicPerm"),
            text(fields, "defaultGroupPerm"),
            texts(fields, "topicPerms"),
            texts(fields, "groupPerms"),
        )


@attrs.frozen
class ShownAcl:
    """The accounts and the global white list of one broker."""

    accounts: tuple[ShownAccount, ...]
    white_addresses: tuple[str, ...]


class AclAdmin:
    """Errors: every method raises Unreachable, RemoteProtocolError, or CommandError with the
    broker's code."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def brokers(self, broker_name: str = "") -> dict[str, str]:
        """Return the address of every registered broker with its name and id, or of one set.

        Errors: TriohaError when there is none.
        """
        request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        response = await self._cluster.ask_namesrv(request)
        info = ClusterInfo.decode(success(response).body_bytes())
        found = {
            address: f"{name}/{broker_id}"
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
            if broker_name in ("", name)
        }
        if not found:
            raise TriohaError(f"no broker{f' {broker_name}' if broker_name else ''} is registered")
        return found

    async def show(self, address: str) -> ShownAcl:
        """Return what a broker shows."""
        request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        body = success(await self._cluster.request(address, request)).body_bytes()
        fields = object_of(fastjson.loads(body), "accounts")
        accounts = [
            ShownAccount.from_dict(object_of(one, "account"))
            for one in list_of(fields.get("plainAccessConfigs"), "plainAccessConfigs")
        ]
        return ShownAcl(tuple(accounts), texts(fields, "globalWhiteAddrs"))

    async def put(
        self,
        address: str,
        access_key: str,
        secret_key: str,
        *,
        admin: bool,
        white_remote_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Sequence[str] | None = None,
        group_perms: Sequence[str] | None = None,
    ) -> None:
        """Add an account to a broker, or change it; None leaves a value as it is."""
        fields: dict[str, ExtValue] = {
            "accessKey": access_key,
            "secretKey": secret_key,
            "admin": admin,
            "whiteRemoteAddress": white_remote_address,
            "defaultTopicPerm": default_topic_perm,
            "defaultGroupPerm": default_group_perm,
            "topicPerms": None if topic_perms is None else ",".join(topic_perms),
            "groupPerms": None if group_perms is None else ",".join(group_perms),
        }
        named: dict[str, ExtValue] = {
            name: value for name, value in fields.items() if value is not None
        }
        await self._change(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, named)

    async def delete(self, address: str, access_key: str) -> None:
        """Delete an account from a broker."""
        await self._change(address, RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key})

    async def _change(self, address: str, code: RequestCode, fields: dict[str, ExtValue]) -> None:
        success(await self._cluster.request(address, RemotingCommand(code, fields)))
