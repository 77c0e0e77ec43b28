"""One member's disk: a log of records, and what must not be forgotten beside it.

Records are as small as can be: size, kind, CRC, payload. Written records survive a kill; a power
loss keeps what was fsynced and any prefix of the rest. As in the real store a torn record ends the
log at recovery, so a prefix is all that can be left; what recovery cuts is cut durably.

Terms and configurations are found again by reading the control records, as in the real store. Only
what lies before the first record left must be kept beside the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from random import Random

from trioha.checksum import crc32
from trioha.dledger.member_state import Recovered
from trioha.dledger.membership import Configuration, ConfigurationRows, ConfigurationTable
from trioha.dledger.ready import Control, HardState, LogReset
from trioha.dledger.term_table import Row, TermTable
from trioha.errors import RemoteProtocolError
from trioha.wire.remoting_command import Buffer

_HEADER = struct.Struct(">IBI")
_NOOP_HEAD = struct.Struct(">QQ")
DATA, NOOP, CONFIGURATION = 1, 2, 3


def encode(kind: int, payload: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(payload), kind, crc32(payload)) + payload


def payload_of(record: bytes) -> bytes:
    return record[_HEADER.size :]


def encode_control(control: Control, phy_offset: int) -> bytes:
    """A term's opening, or a configuration."""
    configuration = control.configuration
    if configuration is None:
        return encode(NOOP, _NOOP_HEAD.pack(control.term, phy_offset))
    text = f"{','.join(configuration.voters)}|{','.join(configuration.learners)}"
    return encode(CONFIGURATION, text.encode())


def _configuration(record: bytes) -> Configuration:
    voters, learners = payload_of(record).decode().split("|")
    return Configuration(
        tuple(voters.split(",")) if voters else (), tuple(learners.split(",")) if learners else ()
    )


class RaftDisk:
    """The log and the hard state of one machine."""

    def __init__(self, configuration: Configuration) -> None:
        self.begin_offset = 0
        self.begin_chain = 0
        self.records: list[bytes] = []
        self.ends: list[int] = []
        self.chains: list[int] = []
        """Checksum at the end of each record, over the log up to there."""
        self.synced_offset = 0
        self.hard_state = HardState()
        self.room: int | None = None
        """Bytes until the disk is full; None without end."""
        self._base_terms = TermTable()
        self._base_configuration: tuple[int, Configuration] = (0, configuration)

    @property
    def end_offset(self) -> int:
        return self.ends[-1] if self.ends else self.begin_offset

    def read(self, phy_offset: int, size_max: int) -> bytes:
        """`trioha.dledger.ledger.Ledger`."""
        first = self.index_after(phy_offset)
        last = first + 1
        while last < len(self.ends) and self.ends[last] - phy_offset <= size_max:
            last += 1
        return b"".join(self.records[first:last])

    def is_boundary(self, phy_offset: int) -> bool:
        """`trioha.dledger.ledger.Ledger`."""
        index = bisect_left(self.ends, phy_offset)
        is_end = index < len(self.ends) and self.ends[index] == phy_offset
        return phy_offset == self.begin_offset or is_end

    def configurations_in(self, phy_offset: int, term: int, body: Buffer) -> ConfigurationRows:
        """`trioha.dledger.ledger.Ledger`."""
        data, position = bytes(body), 0
        found = []
        while position + _HEADER.size <= len(data):
            size, kind, crc = _HEADER.unpack_from(data, position)
            payload = data[position + _HEADER.size : position + size]
            if kind not in (DATA, NOOP, CONFIGURATION) or crc != crc32(payload):
                raise RemoteProtocolError(f"no record begins at {phy_offset + position}")
            position += size
            if kind == CONFIGURATION:
                configuration = _configuration(data[position - size : position])
                found.append((phy_offset + position, configuration))
        if position != len(data):
            raise RemoteProtocolError(f"the record at {phy_offset + position} is cut off")
        return tuple(found)

    def objection_to_begin(self, phy_offset: int) -> str:
        """`trioha.dledger.ledger.Ledger`: these logs have no segments."""
        return ""

    def index_after(self, phy_offset: int) -> int:
        """Return the index of the record that begins here; no offset is within a record."""
        if phy_offset == self.begin_offset:
            return 0
        index = bisect_left(self.ends, phy_offset)
        assert index < len(self.ends), f"offset {phy_offset} is beyond the end {self.end_offset}"
        assert self.ends[index] == phy_offset, f"offset {phy_offset} is within a record"
        return index + 1

    def chain_at(self, end_offset: int) -> int:
        """The checksum of the log up to here; -1 where it does not reach."""
        if end_offset == self.begin_offset:
            return self.begin_chain
        index = bisect_left(self.ends, end_offset)
        if index == len(self.ends) or self.ends[index] != end_offset:
            return -1
        return self.chains[index]

    def has_room(self, size: int) -> bool:
        return self.room is None or self.room >= size

    def append(self, body: bytes) -> None:
        """Append whole records."""
        if self.room is not None:
            self.room -= len(body)
        end = self.end_offset
        chain = self.chains[-1] if self.chains else self.begin_chain
        position = 0
        while position < len(body):
            size, _, crc = _HEADER.unpack_from(body, position)
            record = body[position : position + size]
            assert len(record) == size, f"half a record at {end}"
            assert crc == crc32(payload_of(record)), f"damaged record at {end}"
            position += size
            end += size
            chain = crc32(record, chain)
            self.records.append(record)
            self.ends.append(end)
            self.chains.append(chain)

    def truncate(self, phy_offset: int) -> None:
        """Truncate the log; the cut is durable at once."""
        count = self.index_after(phy_offset)
        del self.records[count:], self.ends[count:], self.chains[count:]
        self.synced_offset = min(self.synced_offset, phy_offset)

    def reset(self, reset: LogReset, chain: int) -> None:
        """Empty the log; it begins at another offset. `chain` is known only to the simulation."""
        self.records, self.ends, self.chains = [], [], []
        self.begin_offset = self.synced_offset = reset.begin_offset
        self.begin_chain = chain
        self._base_terms, self._base_configuration = reset.terms, reset.configuration

    def trim(self, begin_offset: int) -> None:
        """Delete the records before `begin_offset`, as retention does."""
        recovered = self.recover()
        self._base_terms = recovered.terms.cut(begin_offset)
        self._base_configuration = (
            recovered.configurations.cut(begin_offset).rows[-1]
            if recovered.configurations.rows[0][0] <= begin_offset
            else self._base_configuration
        )
        count = self.index_after(begin_offset)
        self.begin_chain = self.chains[count - 1]
        self.begin_offset = begin_offset
        del self.records[:count], self.ends[:count], self.chains[:count]

    def lose_power(self, rng: Random) -> int:
        """Keep what was synced and some of the rest; returns how many records are gone."""
        synced = bisect_left(self.ends, self.synced_offset + 1)
        kept = synced if rng.random() < 0.5 else rng.randint(synced, len(self.ends))
        gone = len(self.ends) - kept
        del self.records[kept:], self.ends[kept:], self.chains[kept:]
        self.synced_offset = self.end_offset
        return gone

    def damage(self, rng: Random) -> None:
        """A bit rots in what was durable: recovery ends there, and the vote with it."""
        if self.records:
            kept = rng.randrange(len(self.records))
            del self.records[kept:], self.ends[kept:], self.chains[kept:]
        self.synced_offset = self.end_offset
        hard = self.hard_state
        self.hard_state = HardState(hard.term, hard.voted_for, True, 0)

    def recover(self) -> Recovered:
        """Return the state that a member finds when it starts."""
        rows: list[Row] = list(self._base_terms.rows)
        configurations = ConfigurationTable((self._base_configuration,))
        for record, end in zip(self.records, self.ends, strict=True):
            if record[4] == NOOP:
                rows.append(_NOOP_HEAD.unpack(payload_of(record)))
            elif record[4] == CONFIGURATION:
                configurations = configurations.add(end, _configuration(record))
        return Recovered(
            hard_state=self.hard_state,
            terms=TermTable(tuple(rows)),
            configurations=configurations,
            begin_offset=self.begin_offset,
            end_offset=self.end_offset,
        )
