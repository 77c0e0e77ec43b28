"""Every request that a member of a DLEDGER group answers, and the kind of its answer.

`trioha.broker.set_modes` lists the requests and their kinds, but for those between members;
`trioha.dledger.answering` decides how a member treats each kind. A test compares `ANSWERS` with the
handlers of a whole member, so that every request has a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trioha.broker.set_modes import COPIED, TABLE
from trioha.dledger.answering import MODES, RequestKind, ServingState
from trioha.remoting.mode import Mode, Modes
from trioha.wire.codes import RequestCode as Code

_BETWEEN_MEMBERS = (
    Code.TRIOHA_RAFT_VOTE,
    Code.TRIOHA_RAFT_APPEND,
    Code.TRIOHA_RAFT_HEARTBEAT,
    Code.TRIOHA_RAFT_TRANSFER,
    Code.TRIOHA_RAFT_INSTALL,
    Code.TRIOHA_RAFT_HELLO,
    Code.TRIOHA_RAFT_STATUS,
    Code.TRIOHA_RAFT_ADMIN,
)
"""Traffic of the Raft cores, which decide which member leads."""

ANSWERS: Mapping[int, RequestKind] = MappingProxyType(
    {code: row.kind for row, codes in TABLE.items() if row.kind for code in codes}
    | dict.fromkeys(_BETWEEN_MEMBERS, RequestKind.MEMBER)
)
"""Request code -> kind of its answer."""
PRESENT: tuple[int, ...] = tuple(
    code for code, kind in ANSWERS.items() if kind is RequestKind.PRESENT
)

MODES_IN: Mapping[ServingState, Modes] = MappingProxyType(
    {
        state: MappingProxyType({code: MODES[kind][state] for code, kind in ANSWERS.items()})
        for state in ServingState
    }
)
"""Modes of all requests, for every state of a member."""
FOLLOWING_AND_COPYING: Modes = MappingProxyType(
    {**MODES_IN[ServingState.FOLLOWING], **dict.fromkeys(COPIED, Mode.SERVE_AND_COPY)}
)
"""Modes of a member that led until a moment ago: its clients may not have the route yet."""
