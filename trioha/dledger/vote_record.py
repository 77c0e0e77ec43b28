"""The few bytes that a member must not forget, and whose they are.

They lie in a `store.two_slot_file.TwoSlotFile` named `raft`: two slots in turn, each with a number
and a CRC, fsynced before anything is said on their strength. DLedger's `currterm` is a text file
that is neither fsynced nor checked, and a failure to write it is swallowed.

The record names its owner: a store that was copied, or a node that was given the dLegerSelfId of
another, would vote a second time under the same name.
"""

from __future__ import annotations

from typing import Any

import msgpack

from trioha.dledger.message_codec import TERM_MAX, GroupDoor
from trioha.dledger.ready import HardState
from trioha.errors import StoreError

VERSION = 1


def encode_vote_record(hard: HardState, owner: GroupDoor) -> bytes:
    packed: bytes = msgpack.packb(
        [
            VERSION,
            owner.cluster,
            owner.group,
            owner.member_id,
            hard.term,
            hard.voted_for,
            hard.impaired,
            hard.committed_offset,
        ]
    )
    return packed


def decode_vote_record(data: bytes, owner: GroupDoor) -> HardState:
    """What this member has promised.

    Errors: StoreError when the record is another's, or none.
    """
    try:
        fields: Any = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException):
        fields = None
    if type(fields) is not list or len(fields) != 8 or fields[0] != VERSION:
        raise StoreError(
            "the vote record `raft` of this store cannot be read by this version; restore it from "
            "a backup, or remove this member from its group and add it under a new dLegerSelfId"
        )
    _, cluster, group, member_id, term, voted_for, impaired, committed_offset = fields
    if (cluster, group, member_id) != (owner.cluster, owner.group, owner.member_id):
        raise StoreError(
            f"this store belongs to {member_id} of group {group} in cluster {cluster}, not to "
            f"{owner.member_id} of {owner.group} in {owner.cluster}; correct dLegerSelfId or the "
            "store's path"
        )
    whole = type(term) is int and type(committed_offset) is int and type(voted_for) is str
    if not whole or not 0 <= term <= TERM_MAX or committed_offset < 0:
        raise StoreError(
            f"the vote record `raft` says term {term!r}, commit {committed_offset!r}: that is "
            "damage; restore it from a backup"
        )
    return HardState(term, voted_for, bool(impaired), committed_offset)
