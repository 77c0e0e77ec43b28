"""The file `epochs`: contents and form of a mastership (`trioha.ha.mastership`) on disk."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import msgpack

from trioha.errors import RemoteProtocolError, StoreError
from trioha.ha.epochs import EpochHistory
from trioha.wire.epoch_numbers import Word, disbelief

_VERSION = 1
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    msgpack.UnpackException,
    RemoteProtocolError,
)


@attrs.frozen
class KeptMastership:
    """Contents of the file."""

    history: EpochHistory = EpochHistory()
    known_epoch: int = 0
    known_nonce: bytes = b""
    """Nonce of the newest known epoch, b"" if unknown; tells two epochs of one number apart."""
    promised_epoch: int = 0
    promised_nonce: bytes = b""
    """Term that this node promised to a candidate, until it follows that or a newer one."""
    own_nonce: bytes = b""
    """Nonce of the newest term that this node began itself."""
    fenced_by: str = ""
    boot: bytes = b""
    """Boot of the machine in which the log was last known to hold all it had acknowledged."""
    lost: bool = False
    """The machine went down since, and the log has not been found to hold all of it again."""
    members: Mapping[int, str] = MappingProxyType({})

    def encode(self) -> bytes:
        return bytes(
            msgpack.packb(
                {
                    "version": _VERSION,
                    "history": self.history.encode(),
                    "known_epoch": self.known_epoch,
                    "known_nonce": self.known_nonce,
                    "promised_epoch": self.promised_epoch,
                    "promised_nonce": self.promised_nonce,
                    "own_nonce": self.own_nonce,
                    "fenced_by": self.fenced_by,
                    "boot": self.boot,
                    "lost": self.lost,
                    "members": dict(self.members),
                }
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> KeptMastership:
        try:
            fields: dict[str, Any] = msgpack.unpackb(data, strict_map_key=False)
            if fields.pop("version") != _VERSION:
                raise ValueError("a newer trioha wrote it")
            fields["history"] = EpochHistory.decode(fields["history"])
            return cls(**fields)
        except _UNREADABLE as error:
            raise StoreError(
                f"the store's epochs file cannot be understood ({error}); restore it from a "
                "backup, or move the whole store away and let this node start as an empty slave"
            ) from error


def without_unbelievable(kept: KeptMastership) -> KeptMastership:
    """Return what was kept without numbers that no node would believe any more.

    Earlier versions believed any number: one hello could leave a node with a number behind which
    there is none. It stays fenced, and an operator's failover finds a number for its next term.
    They also believed a number without a nonce, which a node can tell no other node of.
    """
    recorded = kept.history.epoch
    if not kept.known_nonce or disbelief(kept.known_epoch, recorded, Word.ORDERED):
        kept = attrs.evolve(kept, known_epoch=recorded, known_nonce=b"")
    if disbelief(kept.promised_epoch, recorded, Word.ORDERED):
        kept = attrs.evolve(kept, promised_epoch=0, promised_nonce=b"")
    return kept
