"""The fields of a failover's requests (`trioha.broker.failover`), each checked."""

from __future__ import annotations

from collections.abc import Callable

from trioha.errors import RemoteProtocolError, TriohaError
from trioha.ha.epochs import EPOCH_MAX, NONCE_BYTES
from trioha.ha.mastership import MEMBERS_MAX
from trioha.ha.promotion import Peer
from trioha.wire import fastjson
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import RemotingCommand

TICKET_ID_CHARS = 16
"""Hexadecimal: the 8 bytes that become the nonce of the term."""
AUDIT_BYTES_MAX = 65_536
HOME_ID_MAX = 2**31 - 1
"""A brokerId is an int of Java's."""
NUMBER_MAX = 2**63 - 1
"""An offset, a position or a time is a long of Java's."""
ADDRESS_CHARS_MAX = 255
BODY_BYTES_MAX = 131_072


class FailoverBody:
    """The msgpack map of a request, read field by field.

    Errors: RemoteProtocolError, naming the field.
    """

    def __init__(self, request: RemotingCommand) -> None:
        data = request.body_bytes()
        if len(data) > BODY_BYTES_MAX:
            raise RemoteProtocolError(f"a failover request of {len(data)} bytes")
        self.fields = decode_map(data, "the body")

    def ticket_id(self) -> str:
        ticket_id = self.text("ticket_id")
        try:
            if len(ticket_id) == TICKET_ID_CHARS and bytes.fromhex(ticket_id).hex() == ticket_id:
                return ticket_id
        except ValueError:
            pass
        raise RemoteProtocolError(f"ticket_id {ticket_id!r:.40} is not 16 hexadecimal digits")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise RemoteProtocolError(f"{name} is not text: {value!r:.60}")
        return value

    def integer(self, name: str, default: int | None = None, *, largest: int = NUMBER_MAX) -> int:
        value = self.fields.get(name, default)
        if type(value) is not int or not 0 <= value <= largest:
            raise RemoteProtocolError(f"{name} is not a number up to {largest}: {value!r:.60}")
        return value

    def epoch(self) -> int:
        epoch = self.integer("epoch", largest=EPOCH_MAX)
        if not epoch:
            raise RemoteProtocolError(f"epoch 0 is not within 1 to {EPOCH_MAX}")
        return epoch

    def nonce(self) -> bytes:
        nonce = self.raw("nonce")
        if len(nonce) != NONCE_BYTES:
            raise RemoteProtocolError(f"a nonce of {len(nonce)} bytes, not {NONCE_BYTES}")
        return nonce

    def address(self, name: str, check: Callable[[str], object]) -> str:
        address = self.text(name)
        if len(address) > ADDRESS_CHARS_MAX:
            raise RemoteProtocolError(f"{name} is too long: {address:.60}")
        try:
            check(address)
        except TriohaError as error:
            raise RemoteProtocolError(f"{name}: {error}") from None
        return address

    def audit(self) -> dict[str, object] | None:
        """The record of the attempt, which every node keeps as JSON; None without one."""
        record = self.fields.get("audit")
        if not isinstance(record, dict):
            return None
        try:
            size = len(fastjson.dumps(record))
        except (TypeError, ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"the audit record has no JSON form: {error}") from error
        if size > AUDIT_BYTES_MAX:
            raise RemoteProtocolError(f"an audit record of {size} bytes")
        return record

    def boolean_or_none(self, name: str) -> bool | None:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise RemoteProtocolError(f"{name} is not a boolean: {value!r:.60}")
        return value

    def raw(self, name: str) -> bytes:
        value = self.fields.get(name)
        if not isinstance(value, bytes):
            raise RemoteProtocolError(f"{name} is not bytes: {value!r:.60}")
        return value

    def home_ids(self, name: str) -> tuple[int, ...]:
        values = self.fields.get(name, [])
        if not isinstance(values, list) or len(values) > MEMBERS_MAX:
            raise RemoteProtocolError(f"{name} is no list of home ids: {values!r:.60}")
        if not all(type(value) is int and 0 <= value <= HOME_ID_MAX for value in values):
            raise RemoteProtocolError(f"{name} is no list of home ids: {values!r:.60}")
        return tuple(values)

    def members(self) -> dict[int, str]:
        """Addresses by home id; the keys are texts, as in the status."""
        table = self.fields.get("members", {})
        if not isinstance(table, dict) or len(table) > MEMBERS_MAX:
            raise RemoteProtocolError(f"members is no table of addresses: {table!r:.60}")
        if not all(
            isinstance(key, str)
            and key.isascii()
            and key.isdecimal()
            and len(key) <= len(str(HOME_ID_MAX))
            and isinstance(value, str)
            and len(value) <= ADDRESS_CHARS_MAX
            for key, value in table.items()
        ):
            raise RemoteProtocolError(f"members is no table of addresses: {table!r:.60}")
        return {int(key): value for key, value in table.items()}

    def peer(self, check_address: Callable[[str], object]) -> Peer:
        return Peer(
            home_id=self.integer("home_id", largest=HOME_ID_MAX),
            address=self.address("address", check_address),
            ha_address=self.address("ha_address", check_address),
        )
