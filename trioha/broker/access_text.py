"""The text of a broker's accounts, as the brokers of its set or group share it.

Theory of operation. Without access control there is none. RocketMQ keeps accounts on each broker,
so a user that was deleted on a master alone comes back with a failover. Here ``plain_acl.yml`` or
``auth.json`` is one more table: the text of a master or leader goes with its other changes
(`trioha.broker.metadata`), in their order, and that of a slave or follower becomes a copy. The file
itself is written behind: `AccessText.pending` is what its owner has yet to write.

A restart of a master changes nothing: its file is the truth, with what an operator has edited in
the meantime. In a group the log is.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.broker.metadata_ops import AccessPut

OnText = Callable[[AccessPut], None]
"""Called with each new text that did not come from another broker."""


def ignore_text(op: AccessPut) -> None:
    """Tell no other broker of a new text."""


def _nothing() -> None:
    pass


class AccessText:
    """The text of one file of accounts, and its way to other brokers and from them."""

    def __init__(
        self,
        kind: str = "",
        text: str = "",
        *,
        on_op: OnText = ignore_text,
        on_pending: Callable[[], None] = _nothing,
    ) -> None:
        """`kind` is the name of the file's format; empty without access control.

        `text` is in the file now. `on_pending` is called when there is a text to write.
        """
        self.kind = kind
        self.newest = text
        """The text that counts here, perhaps only once it is written to the file."""
        self.pending: str | None = None
        """A text of the master or leader that is not in the file yet."""
        self._on_op = on_op
        self._on_pending = on_pending

    def changed_here(self, text: str) -> None:
        """Note that the file has a new text that did not come from another broker."""
        if self.pending is None and text != self.newest:
            self.newest = text
            self._on_op(AccessPut(self.kind, text))

    def follow(self, op: AccessPut) -> None:
        """Take over the text of the master or the log."""
        if self.kind and op.kind == self.kind and op.text != self.newest:
            self.newest = self.pending = op.text
            self._on_pending()

    def ops(self) -> list[AccessPut]:
        """Return the whole text, for a node that has none of it."""
        return [AccessPut(self.kind, self.newest)] if self.kind and self.newest else []
