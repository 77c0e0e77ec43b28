"""Accounts, their permissions, and the rules that they make together (PlainPermissionManager)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trioha.security.account_text import AccountText
from trioha.security.addresses import Admits, address_of, parse_addresses
from trioha.security.requirement import AccountPerm, Need
from trioha.security.signature import Credentials
from trioha.security.signing_key import SigningKey
from trioha.wire.names import TRACE_TOPIC, is_retry_topic, retry_topic
from trioha.wire.record import TOPIC_BYTES_MAX

KEY_CHARS_MIN: Final = 7
"""Java's broker takes no access key and no secret of fewer characters."""
_PERMS: Final = {
    "DENY": AccountPerm.DENY,
    "PUB": AccountPerm.PUB,
    "SUB": AccountPerm.SUB,
    "PUB|SUB": AccountPerm.PUB | AccountPerm.SUB,
    "SUB|PUB": AccountPerm.PUB | AccountPerm.SUB,
}
_HOSTS_KEPT_MAX: Final = 10_000
_TOPICS_KEPT_MAX: Final = 10_000


def perm_of(text: str) -> int:
    """Return the permission of a word. Any other word denies, as in RocketMQ."""
    return _PERMS.get(text.strip(), AccountPerm.DENY)


def is_perm(text: str) -> bool:
    """Return whether this is one of the five words."""
    return text.strip() in _PERMS


def split_perm(entry: str) -> tuple[str, str]:
    """Return name and permission of ``name=PERM``. Errors: ValueError."""
    items = [item for item in entry.split("=") if item]
    if len(items) != 2:
        raise ValueError(f"{entry!r} is not NAME=PERMISSION, like topicA=PUB|SUB")
    return items[0].strip(), items[1].strip()


class Account:
    """One account, ready to be checked."""

    def __init__(self, text: AccountText) -> None:
        """Errors: ValueError with the reason."""
        if len(text.access_key) < KEY_CHARS_MIN or len(text.secret_key) < KEY_CHARS_MIN:
            raise ValueError(
                f"accessKey {text.access_key!r} and its secretKey must have {KEY_CHARS_MIN} or more"
                " characters"
            )
        self.text: Final = text
        self.access_key: Final = text.access_key
        self.key: Final = SigningKey(text.secret_key)
        self.admin: Final = text.admin
        self._white = parse_addresses(text.white_remote_address)
        self.has_white: Final = self._white is not None
        self._default_topic_perm = perm_of(text.default_topic_perm)
        self._default_group_perm = perm_of(text.default_group_perm)
        self._perms: dict[str, int] = {}
        self.topics_sent_to: Final[set[object]] = set()
        """Topics that the account was found to be allowed to send to. An account never changes."""
        for entry in text.group_perms:
            group, word = split_perm(entry)
            self._perms[retry_topic(group)] = perm_of(word)
        for entry in text.topic_perms:
            topic, word = split_perm(entry)
            self._perms[topic] = perm_of(word)

    def admits(self, peer: str) -> bool:
        """Return whether the account's own white list names the peer, given as ``host:port``."""
        if self._white is None:
            return False
        address = address_of(peer)
        return address is not None and self._white(address)

    def missing(self, needs: Iterable[Need]) -> Need | None:
        """Return the first permission that the account lacks. HOT.

        An admin account without rules of its own lacks none. Traces may be sent by every account.
        """
        if self.admin and not self._perms:
            return None
        for need in needs:
            if not self._meets(need):
                return need
        return None

    def remember_topic(self, topic: str) -> None:
        """Remember that the account may send to a topic. The name may not be one."""
        if len(topic) > TOPIC_BYTES_MAX:
            return
        if len(self.topics_sent_to) >= _TOPICS_KEPT_MAX:
            self.topics_sent_to.clear()
        self.topics_sent_to.add(topic)

    def _meets(self, need: Need) -> bool:
        owned = self._perms.get(need.resource)
        if owned is None:
            is_group = is_retry_topic(need.resource)
            owned = self._default_group_perm if is_group else self._default_topic_perm
        if need.resource == TRACE_TOPIC and need.perm == AccountPerm.PUB:
            return True
        return not owned & AccountPerm.DENY and owned & need.perm != 0


class AclRules:
    """All accounts and the global white list. Never changes: a reload makes another."""

    def __init__(
        self, accounts: Iterable[Account] = (), white_addresses: Iterable[Admits] = ()
    ) -> None:
        """If two accounts have the same access key, the first one counts, as in RocketMQ."""
        kept: dict[str, Account] = {}
        for account in accounts:
            kept.setdefault(account.access_key, account)
        self.accounts: Final[Mapping[str, Account]] = kept
        self._white = tuple(white_addresses)
        self.has_white: Final = bool(self._white)
        self._admitted: dict[str, bool] = {}
        """Peer's host -> whether the global white list names it."""

    def admits(self, peer: str) -> bool:
        """Return whether the global white list names the peer, given as ``host:port``. HOT."""
        host = peer.rpartition(":")[0]
        admitted = self._admitted.get(host)
        if admitted is None:
            address = address_of(peer)
            admitted = address is not None and any(one(address) for one in self._white)
            if len(self._admitted) >= _HOSTS_KEPT_MAX:
                self._admitted.clear()
            self._admitted[host] = admitted
        return admitted

    def first_admin(self) -> Credentials | None:
        """Return the credentials of the first admin account: this node signs with them."""
        for account in self.accounts.values():
            if account.admin:
                return Credentials(account.access_key, account.text.secret_key)
        return None
