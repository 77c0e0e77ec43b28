"""What the bytes that a member's log no longer has would tell, in the file ``raft.base``.

Terms, members and addresses are found again by reading the control records of the log. Whatever
lies before its beginning must be kept beside it; so must three things that a log cannot tell:

- that it is to be emptied: a crash may come in the middle of that;
- that a term began with something else than the control record which proves its bytes: with a blank
  at a segment's end, which may be all that a crash leaves; or, in a log that was a master-slave
  set's and is one term as a whole (`trioha raft convert`), with whatever that begins with;
- that there is a group at all: every member has this file, and a node of another mode looks for it.

The file is a `store.two_slot_file.TwoSlotFile`: durable before what stands on it is done.
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
    """Of a log that begins at or before `from_offset`; control records behind it speak for
    themselves."""

    from_offset: int = 0
    terms: TermTable = TermTable()
    """Those that began before `from_offset`."""
    configurations: tuple[ConfigurationRow, ...] = ()
    """Likewise; none as long as the group has the members that it began with."""
    addresses: Mapping[str, str] = _NOBODY
    """Member id -> host:port, as of `from_offset`."""
    blank_terms: tuple[Row, ...] = ()
    """Terms that do not begin with their control record: with a blank, as long as the record may
    not be on disk, or converted."""
    is_emptying: bool = False
    """The log is to be emptied and to begin at `from_offset`; until that is done."""


def encode_base(base: RaftBase) -> bytes:
    numbers: list[int] = []
    previous = (0, 0)
    for row in base.terms.rows:
        # Differences are short: a table of the most terms there may be must fit a slot.
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
    """Errors: StoreError."""
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
