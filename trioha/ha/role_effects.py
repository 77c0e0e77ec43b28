"""The effects of a role machine: frozen values, which the node carries out in the order given."""

from __future__ import annotations

import attrs

from trioha.ha.epochs import EpochRecord

# Links, and the master to follow.


@attrs.frozen
class ChangeLinks:
    """End the links of the state before, in this pass, and begin those of the new one."""


@attrs.frozen
class FollowMaster:
    """Follow this master from now on."""

    address: str
    ha_address: str
    at_once: bool = False
    """Do not wait for the end of a pause between two attempts."""


@attrs.frozen
class ForgetMaster:
    """Follow no master until one is named again."""


@attrs.frozen
class FollowAnew:
    """End the link to the master in this pass, and ask again whether it may be followed."""

    reason: str


@attrs.frozen
class Suspend:
    """Acknowledge nothing to any master from this pass on, until `Resume`."""

    reason: str


@attrs.frozen
class Resume:
    """Follow again."""


@attrs.frozen
class Adopted:
    """This node has adopted the master's history, which may change the id to register."""


# Writes of clients.


@attrs.frozen
class ParkWrites:
    """Park changes from now on: they are neither carried out nor refused."""


@attrs.frozen
class TakeWrites:
    """Be the master of the newest term for clients."""


@attrs.frozen
class StopWrites:
    """Be no master for clients in this very pass; waiting sends are answered as if timed out."""

    reason: str


@attrs.frozen
class ReleaseParked:
    """Take writes again, the parked ones first."""


@attrs.frozen
class RefuseParked:
    """Reject the parked requests, and park no more."""

    reason: str


@attrs.frozen
class LimitReaders:
    """Show readers what they may see from now on: `trioha.ha.readers`."""


@attrs.frozen
class SendClientsOn:
    """Forward parked requests, and those of clients with an old route, to the new master."""

    address: str


# A term that begins: in this order, between the old role and the new one.


@attrs.frozen
class Dispatch:
    """Bring the queues up to the log, so that queue offsets go on where they stopped."""


@attrs.frozen
class CutHalfRecord:
    """Cut the half record that an ended link left at the log's end."""


@attrs.frozen
class FlushLog:
    """Bring the log to disk: the record of a term says that the log was whole up to its begin."""


@attrs.frozen
class BeginTerm:
    """Call `RoleMachine.begin`: all that comes before a term is done."""


# Messages to other nodes, and to the operator's ticket.


@attrs.frozen
class Register:
    """Tell every name server what the node is."""


@attrs.frozen
class ForgetClaims:
    """Count only what name servers answer from now on as memory of this node's claim."""


@attrs.frozen
class Announce:
    """Tell every member that this node is master, and which members there are."""


@attrs.frozen
class AskMembers:
    """Ask the members, until it is known whether a newer term has begun."""


@attrs.frozen
class AskTarget:
    """Ask the target of the hand-over, until it says whether it has begun its term."""


@attrs.frozen
class LoseTicket:
    """End the pause that an operator's ticket holds, without taking writes again."""


@attrs.frozen
class MasterAnnounced:
    """The master named itself whose term the node has promised under this nonce."""

    nonce: bytes


# For the journal.


@attrs.frozen
class TermBegun:
    record: EpochRecord


@attrs.frozen
class Fenced:
    epoch: int
    reason: str


@attrs.frozen
class Promised:
    epoch: int


@attrs.frozen
class Confirmed:
    epoch: int
    reason: str


@attrs.frozen
class PromotionFailed:
    epoch: int
    reason: str


Effect = (
    ChangeLinks
    | FollowMaster
    | ForgetMaster
    | FollowAnew
    | Suspend
    | Resume
    | Adopted
    | ParkWrites
    | TakeWrites
    | StopWrites
    | ReleaseParked
    | RefuseParked
    | LimitReaders
    | SendClientsOn
    | Dispatch
    | CutHalfRecord
    | FlushLog
    | BeginTerm
    | Register
    | ForgetClaims
    | Announce
    | AskMembers
    | AskTarget
    | LoseTicket
    | MasterAnnounced
    | TermBegun
    | Fenced
    | Promised
    | Confirmed
    | PromotionFailed
)
