"""Commits each transaction of a load as soon as its half message is acknowledged.

As stock producers do it: the commit is sent oneway, and nobody waits for it.
"""

from __future__ import annotations

from trioha.bench.frames import OPAQUE_BASE, ResponseReader
from trioha.remoting.connection import RemotingConnection
from trioha.security.signature import Credentials
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode, SerializeType, SysFlag
from trioha.wire.message_id import decode_message_id
from trioha.wire.properties import Property
from trioha.wire.remoting_command import RemotingCommand, encode


def half_properties(group: str) -> dict[str, str]:
    """Return the properties that make a message a half message of this producer group."""
    return {Property.TRAN_MSG: "true", Property.PGROUP: group}


class CommittingReader(ResponseReader):
    """Tells the slots of answers to half messages, and commits these."""

    def __init__(
        self, group: str, serialize_type: SerializeType, credentials: Credentials | None
    ) -> None:
        super().__init__()
        self._group = group
        self._serialize_type = serialize_type
        self._credentials = credentials
        self._machine = RemotingConnection()

    def slots(self, data: bytes) -> list[int]:
        """Return the slots that `data` answers, in order; their commits are in `follow_ups`.

        Errors: RemoteProtocolError for what is no response of ours.
        """
        slots = []
        self._machine.receive_data(data)
        while (response := self._machine.next_frame()) is not None:
            if not response.is_response:
                continue
            slots.append(response.opaque - OPAQUE_BASE)
            if response.code == ResponseCode.SUCCESS:
                self.follow_ups.append(self._commit(response))
            else:
                self.refusals[response.code] += 1
        return slots

    def _commit(self, sent: RemotingCommand) -> bytes:
        msg_id = sent.ext_str("msgId")
        commit = RemotingCommand(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": self._group,
                "tranStateTableOffset": sent.ext_str("queueOffset"),
                "commitLogOffset": str(decode_message_id(msg_id)[2]),
                "commitOrRollback": str(int(SysFlag.TRANSACTION_COMMIT)),
                "fromTransactionCheck": "false",
                "msgId": msg_id,
            },
            flag=ONEWAY_FLAG,
            serialize_type=self._serialize_type,
        )
        if self._credentials is not None:
            self._credentials.sign(commit)
        return encode(commit)
