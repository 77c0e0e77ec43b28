"""Errors of a send: each says whether the message may be stored."""

from __future__ import annotations

from trioha.errors import CommandError, OutcomeUnknown, TriohaError


class NoRoute(TriohaError):
    """No broker takes this topic now. Nothing was sent."""


class SendRefused(CommandError):
    """Brokers answered no, the last of them with this code. The message is not stored."""

    def __init__(self, code: int, remark: str, broker: str) -> None:
        super().__init__(code, f"{broker} refused the message: {remark}")
        self.broker = broker


class SendOutcomeUnknown(OutcomeUnknown):
    """An attempt was cut off after it left us, and no later one succeeded.

    The message may or may not be stored. Sending it again may store it twice, under two offsets
    but with one `msg_id` if the same `Message` with its UNIQ_KEY property is sent.
    """

    def __init__(self, reason: str, msg_id: str) -> None:
        super().__init__(f"message {msg_id} may or may not be stored: {reason}")
        self.msg_id = msg_id
