"""The file ``raft.base``: what a member must know of its log that the log itself does not tell.

Theory of operation. A start finds terms, members and addresses by reading the control records of
the log. The file keeps those from before the log's beginning, and three more things:

- that the log is to be emptied: a crash may come in the middle of that;
- that a term does not begin with the control record which proves its bytes: it begins with a blank
  at a segment's end, which may be all that a crash leaves; or the log was a master-slave set's, and
  all of it is one term (`trioha raft convert`);
- that the store is a member's: every member has this file, and a node of another mode looks for it.

The file is a `store.two_slot_file.TwoSlotFile`, durable before any step that relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import msgpack

from trioha.dledger.membership import Configuration
from trioha.dledger.term_table import Row, TermTable
from trioha.errors import RemoteProtocolError, StoreError

VERSION = 1
ConfigurationRow = tuple[int, Configuration]
"""End of its record, configuration."""
_NOBODY: Mapping[str, str] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class RaftBase:
    """Terms, members and addresses of a log up to `from_offset`; later records tell the rest."""

    from_offset: int = 0
    terms: TermTable = TermTable()
    """The terms that began before `from_offset`."""
    configurations: tuple[ConfigurationRow, ...] = ()
    """The configurations before `from_offset`; none while the group still has its founders."""
    addresses: Mapping[str, str] = _NOBODY
    """Member id -> host:port, as the log told at `from_offset`."""
    blank_terms: tuple[Row, ...] = ()
    """Terms without a control record as proof: they begin with a blank and the record may not be
    on disk yet, or the log was converted."""
    is_emptying: bool = False
    """The log is being emptied, to begin at `from_offset`."""


def encode_base(base: RaftBase) -> bytes:
    numbers: list[int] = []
    previous = (0, 0)
    for row in base.terms.rows:
        # Differences are short: a table of TERMS_MAX terms must fit a slot.
        numbers += (row[0] - previous[0], row[1] - previous[1])
        previous = row
    packed: bytes = msgpack.packb(
        [
            VERSION,
            base.from_offset,
            numbers,
            [[end, list(one.voters), list(one.learners)] for end, one in base.configurations],
            dict(base.addresses),
            [list(row) for row in base.blank_terms],
            base.is_emptying,
        ]
    )
    return packed


def decode_base(data: bytes) -> RaftBase:
    """Read the file's payload. Errors: StoreError if it is damaged or of another version."""
    try:
        fields: Any = msgpack.unpackb(data)
        version, from_offset, numbers, configurations, addresses, blank_terms, is_emptying = fields
        if version != VERSION:
            raise StoreError(
                f"raft.base is of version {version}, this is {VERSION}: run the version of trioha "
                "that wrote it, or a newer one"
            )
        return RaftBase(
            from_offset=int(from_offset),
            terms=_terms(numbers),
            configurations=tuple(
                (int(end), Configuration(tuple(voters), tuple(learners)))
                for end, voters, learners in configurations
            ),
            addresses={str(member): str(address) for member, address in addresses.items()},
            blank_terms=tuple((int(term), int(start)) for term, start in blank_terms),
            is_emptying=bool(is_emptying),
        )
    except (
        ValueError,
        TypeError,
        AttributeError,
        msgpack.UnpackException,
        RemoteProtocolError,
    ) as error:
        raise StoreError(
            f"raft.base of this store cannot be read ({error}): restore it from a backup, or run "
            "`trioha raft repair`"
        ) from None


def _terms(numbers: list[int]) -> TermTable:
    rows: list[Row] = []
    term = start = 0
    for term_more, start_more in zip(numbers[::2], numbers[1::2], strict=True):
        term += term_more
        start += start_more
        rows.append((term, start))
    return TermTable(tuple(rows))
