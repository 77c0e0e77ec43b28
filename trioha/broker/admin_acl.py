"""Accounts over the wire: requests 50 to 54 (AdminBrokerProcessor.java of 4.9).

Each broker keeps its own files; mqadmin sends a change to every broker. A change is written to disk
and takes effect before it is answered. Secrets go in and never come out: request 54 shows six
asterisks in their place, where Java's broker shows the secret to every account.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trioha.config import HIDDEN, BrokerConfig
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.security.account_text import AccountText
from trioha.security.accounts import KEY_CHARS_MIN, is_perm, split_perm
from trioha.security.acl_file import (
    AccountChange,
    AclFile,
    with_account,
    with_white_addresses,
    without_account,
)
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

Edit = Callable[[str, str], str]
"""Takes a file's name and text, and returns the changed text. Errors: ConfigError."""
OnChanged = Callable[[str], None]
"""Called with the reason of a failure, or with an empty text once the change is on disk."""

AnswerLater = Callable[[Channel, RemotingCommand], Callable[[RemotingCommand], None]]
"""Called when the change that a request asks for is queued. Returns what sends the response, once
the change is as safe as the broker's mode promises."""


class AclStore(Protocol):
    """The node's files: `trioha.services.node.acl_files`."""

    @property
    def default_name(self) -> str:
        """Path of ``plain_acl.yml``."""

    @property
    def files(self) -> Sequence[AclFile]:
        """The files as they were last read."""

    def change_nowait(self, name: str, edit: Edit, on_changed: OnChanged) -> bool:
        """Change one file in the background; False when too many changes wait."""


class AclAdminProcessor:
    """Shows and changes accounts and the global white list."""

    def __init__(self, config: BrokerConfig, store: AclStore, answer_later: AnswerLater) -> None:
        self._config = config
        self._store = store
        self._answer_later = answer_later

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.version,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.show,
        }

    def update_account(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Add an account, or change what the request names of one."""
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        fields = request.ext_fields

        def text(name: str) -> str | None:
            return None if fields.get(name) is None else request.ext_str(name)

        change = AccountChange(
            request.ext_str("accessKey"),
            text("secretKey"),
            text("whiteRemoteAddress"),
            request.ext_bool("admin"),
            text("defaultTopicPerm"),
            text("defaultGroupPerm"),
            _split(text("topicPerms")),
            _split(text("groupPerms")),
        )
        _check(change)
        name = self._file_of(change.access_key) or self._store.default_name
        self._change(
            channel,
            request,
            failed,
            name,
            lambda name, text: with_account(name, text, change, instant.wall_ms),
        )

    def delete_account(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        access_key = request.ext_str("accessKey")
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        name = self._file_of(access_key)
        if name is None:
            raise CommandError(
                failed,
                f"The accesskey[{access_key:.255}] corresponding to accessConfig"
                " has been deleted failed.",
            )
        self._change(
            channel,
            request,
            failed,
            name,
            lambda name, text: without_account(name, text, access_key, instant.wall_ms),
        )

    def update_white_addresses(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> None:
        """Set the global white list of one file; without a file's name, of the default one."""
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        written = request.ext_str("globalWhiteAddrs")
        name = request.ext_str("aclFileFullPath", "") or self._store.default_name
        # A request can only name one of the files that the broker reads anyway.
        if name != self._store.default_name and name not in {one.name for one in self._store.files}:
            raise CommandError(
                failed, f"The globalWhiteAddresses[{written:.255}] has been updated failed."
            )
        addresses = [one.strip() for one in written.split(",") if one.strip()]
        self._change(
            channel,
            request,
            failed,
            name,
            lambda name, text: with_white_addresses(name, text, addresses, instant.wall_ms),
        )

    def version(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Return the count of changes of each file over the wire, and the time of the last one."""
        versions = {file.name: file.version for file in self._store.files}
        default = versions.get(self._store.default_name, DataVersion())
        config = self._config
        return request.response(
            ext_fields={
                "version": default.encode().decode(),
                "allAclFileVersion": fastjson.dumps(
                    {name: version.to_dict() for name, version in versions.items()}
                ).decode(),
                "brokerName": config.broker_name,
                "brokerAddr": f"{config.broker_ip1}:{config.listen_port}",
                "clusterName": config.broker_cluster_name,
            }
        )

    def show(self, channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        """Answer all accounts without their secrets, and all global white lists."""
        shown: dict[str, dict[str, object]] = {}
        for file in self._store.files:
            for account in file.accounts:
                shown.setdefault(account.access_key, _plain(account.text))
        body = {
            "globalWhiteAddrs": [text for file in self._store.files for text in file.white_texts],
            "plainAccessConfigs": list(shown.values()),
        }
        return request.response(body=fastjson.dumps(body))

    def _change(
        self, channel: Channel, request: RemotingCommand, failed: int, name: str, edit: Edit
    ) -> None:
        answer = self._answer_later(channel, request)

        def on_changed(reason: str) -> None:
            answer(request.response(failed, reason) if reason else request.response())

        if not self._store.change_nowait(name, edit, on_changed):
            raise CommandError(ResponseCode.SYSTEM_BUSY, "too many changes of accounts wait")

    def _file_of(self, access_key: str) -> str | None:
        for file in self._store.files:
            if any(account.access_key == access_key for account in file.accounts):
                return file.name
        return None


def _check(change: AccountChange) -> None:
    """Check an account as Java's broker does before it stores it. Errors: CommandError."""
    failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    secret = change.secret_key
    if len(change.access_key) < KEY_CHARS_MIN or secret is None or len(secret) < KEY_CHARS_MIN:
        raise CommandError(
            failed,
            f"The accessKey={change.access_key:.255} and secretKey={HIDDEN} cannot be null"
            " and length should longer than 6",
        )
    for entry in (*(change.topic_perms or ()), *(change.group_perms or ())):
        try:
            _, word = split_perm(entry)
        except ValueError:
            raise CommandError(
                failed,
                f"Parse Resource format error for {entry:.255}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
            ) from None
        if not is_perm(word):
            raise CommandError(
                failed,
                f"Parse resource permission error for {entry:.255}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
            )


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [one for one in text.split(",") if one]


def _plain(account: AccountText) -> dict[str, object]:
    plain: dict[str, object] = {
        "accessKey": account.access_key,
        "admin": account.admin,
        "secretKey": HIDDEN,
        "topicPerms": list(account.topic_perms),
        "groupPerms": list(account.group_perms),
    }
    for key, value in (
        ("whiteRemoteAddress", account.white_remote_address),
        ("defaultTopicPerm", account.default_topic_perm),
        ("defaultGroupPerm", account.default_group_perm),
    ):
        if value:
            plain[key] = value
    return plain
