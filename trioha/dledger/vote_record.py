"""The vote record: term, vote and birth of a member, and the member's name, as bytes.

The record is in a `store.two_slot_file.TwoSlotFile` named `raft`: two slots in turn, each with a
number and a CRC, fsynced before a message leaves that relies on it (Raft figure 2, persistent
state). DLedger's `currterm` is a text file that is neither fsynced nor checked, and DLedger ignores
a failure to write it.

The record names its owner. Otherwise a copied store, or a node that has another member's
dLegerSelfId, would vote a second time under the same name. The record exists from the first start
on; until the group has begun (`dledger/bootstrap.py`) it has no vote, only the nonce of the disk.
"""

from __future__ import annotations

from typing import Any

import attrs
import msgpack

from trioha.dledger.bootstrap import Birth, birth_of_plain
from trioha.dledger.message_codec import TERM_MAX, GroupDoor
from trioha.dledger.ready import HardState
from trioha.errors import RemoteProtocolError, StoreError

VERSION = 1


@attrs.frozen
class VoteRecord:
    """The decoded record."""

    hard: HardState | None
    """Term and vote; None until this member has begun: it has not voted yet."""
    birth: Birth


def encode_vote_record(
    hard: HardState | None, owner: GroupDoor, birth: Birth | None = None
) -> bytes:
    birth = birth or Birth()
    promise = None if hard is None else list(attrs.astuple(hard))
    packed: bytes = msgpack.packb(
        [
            VERSION,
            owner.cluster,
            owner.group,
            owner.member_id,
            promise,
            [birth.nonce, dict(birth.founders), birth.seed],
        ]
    )
    return packed


def decode_vote_record(data: bytes, owner: GroupDoor) -> VoteRecord:
    """Decode the record of this member.

    Errors: StoreError if it is another member's, damaged, or of another version.
    """
    try:
        fields: Any = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException):
        fields = None
    if type(fields) is not list or len(fields) != 6 or fields[0] != VERSION:
        raise StoreError(
            "the vote record `raft` of this store cannot be read by this version; restore it from "
            "a backup, or remove this member from its group and add it under a new dLegerSelfId"
        )
    _, cluster, group, member_id, promise, birth = fields
    if (cluster, group, member_id) != (owner.cluster, owner.group, owner.member_id):
        raise StoreError(  # a member has one vote: two with its name could vote twice
            f"this store belongs to {member_id} of group {group} in cluster {cluster}, not to "
            f"{owner.member_id} of {owner.group} in {owner.cluster}; correct dLegerSelfId or the "
            "store's path"
        )
    try:
        return VoteRecord(_hard_state(promise), birth_of_plain(*birth))
    except (RemoteProtocolError, TypeError, ValueError) as error:
        raise StoreError(
            f"the vote record `raft` is damaged ({error}); restore it from a backup"
        ) from None


def _hard_state(promise: Any) -> HardState | None:
    if promise is None:
        return None
    term, voted_for, impaired, committed_offset = promise
    whole = type(term) is int and type(committed_offset) is int and type(voted_for) is str
    if not whole or not 0 <= term <= TERM_MAX or committed_offset < 0:
        raise ValueError(f"term {term!r}, commit {committed_offset!r}")
    return HardState(term, voted_for, bool(impaired), committed_offset)
