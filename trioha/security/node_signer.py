"""Signs the requests of a node to other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trioha.security.signature import Credentials
from trioha.wire.remoting_command import RemotingCommand

Sign = Callable[[RemotingCommand], None]
"""Signs a request in place, or leaves it as it is."""


def unsigned(request: RemotingCommand) -> None:
    """Leave a request as it is: without access control, and for clients without credentials."""


class HasAdmin(Protocol):
    """Rules of either kind."""

    def first_admin(self) -> Credentials | None:
        """Return the credentials that this node signs with."""


class AdminSource(Protocol):
    """Holds the rules; a reload replaces them."""

    @property
    def rules(self) -> HasAdmin:
        """The newest rules."""


class NodeSigner:
    """Signs with the first admin account of the node's own rules.

    The nodes of a set have the same accounts, as their clients expect. A node without an admin
    account does not sign; other nodes then accept it by their white list, or not at all.
    """

    def __init__(self, source: AdminSource) -> None:
        self._source = source
        self._rules = source.rules
        self._credentials: Credentials | None = self._rules.first_admin()

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request; a client's own signature is replaced."""
        rules = self._source.rules
        if rules is not self._rules:
            self._rules, self._credentials = rules, rules.first_admin()
        if self._credentials is not None:
            self._credentials.sign(request)
