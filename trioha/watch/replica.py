"""One member of a replica set, and both ends of its replication link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import attrs

from trioha.watch.raft import RaftState
from trioha.watch.readings import Fields, fields_of, number, read, rows_of, truth, whole, words

STALE_PERIODS = 3
"""An answer this many periods old is stale."""
NOT_TRIOHA_CODE = 3
"""REQUEST_CODE_NOT_SUPPORTED: a Java broker's answer to trioha's own requests."""


@attrs.frozen(kw_only=True)
class LastAnswer:
    """A node's last answer to one question, and its age."""

    value: Any = attrs.field(default=None, repr=False)
    wall_ms: int | None = None
    """Time when it came; None if none ever came."""
    age_s: float | None = None
    """Age at the time of the snapshot."""
    took_ms: int | None = None
    error: str = ""
    """Reason why the newest attempt failed; "" if it did not, or is not finished."""
    error_age_s: float | None = None
    """Seconds since the first failed attempt in a row."""
    code: int | None = None
    """Error code of the node's answer."""
    period_ms: int | None = None

    @property
    def is_rejected(self) -> bool:
        """The node lives, and answers with an error: this account may not ask, for example."""
        return bool(self.error) and self.code is not None

    @property
    def is_silence(self) -> bool:
        """The newest attempt got no answer at all."""
        return bool(self.error) and self.code is None

    @property
    def is_stale(self) -> bool:
        """The answer is older than `STALE_PERIODS` periods, or there is none."""
        if self.age_s is None or not self.period_ms:
            return self.age_s is None
        return self.age_s * 1000 > STALE_PERIODS * self.period_ms


def answer_of(entry: object, at_wall_ms: int) -> LastAnswer:
    """Read one entry of the raw answers; `LastAnswer()` if the question was never asked."""
    fields = fields_of(entry)
    wall_ms, error_ms = whole(fields, "wall_ms"), whole(fields, "error_wall_ms")
    return read(
        LastAnswer,
        fields,
        value=fields.get("value"),
        age_s=_age_s(wall_ms, at_wall_ms),
        error_age_s=_age_s(error_ms, at_wall_ms),
    )


@attrs.frozen(kw_only=True)
class MasterEnd:
    """A link as its master sees it. Ages are at the time of the snapshot."""

    peer: str
    """Address of the slave's end: host and the connection's port."""
    home_id: int | None = None
    """The slave's id as configured, if the link tells; a Java slave's does not."""
    slave_ack_offset: int | None
    gap_bytes: int | None
    gap_s: float | None = None
    """Age in seconds of the oldest message that the slave lacks."""
    in_sync: bool | None
    heard_age_s: float | None
    heartbeat_interval_s: float | None
    housekeeping_s: float | None
    """Seconds of silence after which the link closes."""
    rate_bytes_per_s: float | None = None
    connected_s: float | None = None
    reconnects: int | None = None
    last_error: str | None = None
    last_error_age_s: float | None = None
    doubt: str | None = None
    epoch: int | None
    """Epoch of the link; 0 on RocketMQ's classic link."""
    member_id: str | None = None
    """Id of a follower in a Raft group; its leader names it by this, not by a connection."""

    @classmethod
    def of(cls, row: Fields, age_s: float) -> Self:
        ack = whole(row, "slave_ack_offset")
        has_reported = ack is not None and ack >= 0
        return read(
            cls,
            row,
            peer=words(row, "peer") or "?",
            slave_ack_offset=ack if has_reported else None,
            gap_bytes=whole(row, "gap_bytes") if has_reported else None,
            heard_age_s=_later(number(row, "last_ack_age_s"), age_s),
            rate_bytes_per_s=number(row, "transferred_bytes_per_s"),
            connected_s=_later(number(row, "connected_s"), age_s),
            last_error_age_s=_later(number(row, "last_error_age_s"), age_s),
        )

    @property
    def is_up(self) -> bool:
        """The link is up; a Raft leader lists followers that it does not hear, too."""
        if self.member_id is None or self.heard_age_s is None or self.housekeeping_s is None:
            return True
        return self.heard_age_s <= self.housekeeping_s


@attrs.frozen(kw_only=True)
class SlaveEnd:
    """A link as its slave sees it. Ages are at the time of the snapshot."""

    master: str | None
    """HA address that it follows."""
    state: str | None
    """``TRANSFER`` when the link is up."""
    heard_age_s: float | None
    heartbeat_interval_s: float | None
    housekeeping_s: float | None
    gap_bytes: int | None
    reconnects: int | None
    last_error: str | None
    last_error_age_s: float | None

    @classmethod
    def of(cls, row: Fields, age_s: float) -> Self:
        return read(
            cls,
            row,
            heard_age_s=_later(number(row, "last_read_age_s"), age_s),
            last_error_age_s=_later(number(row, "last_error_age_s"), age_s),
        )


@attrs.frozen(kw_only=True)
class Absent:
    """A host from which a slave once followed, as its master remembers it."""

    host: str
    links: int | None
    last_error: str | None
    last_error_age_s: float | None

    @classmethod
    def of(cls, row: Fields, age_s: float) -> Self:
        error_age_s = _later(number(row, "last_error_age_s"), age_s)
        return read(cls, row, host=words(row, "host") or "?", last_error_age_s=error_age_s)


@attrs.frozen(kw_only=True)
class LinkRefusal:
    """A peer that a master rejected."""

    peer: str
    reason: str
    age_s: float | None

    @classmethod
    def of(cls, row: Fields, age_s: float) -> Self:
        peer = words(row, "peer") or "?"
        return read(cls, row, peer=peer, age_s=_later(number(row, "age_s"), age_s))


@attrs.frozen(kw_only=True)
class Replica:
    """One member, from its own answer and from the answers of its master and name servers."""

    name: str
    address: str
    registered: bool
    """A name server lists it now. If not, it was listed once or is known to a member."""
    registered_id: int
    """Id of its newest registration."""
    seen_wall_ms: int | None
    """Time when a name server last listed it."""
    answer: LastAnswer
    """Answer about its state: trioha's status, or a Java broker's runtime table."""
    is_trioha: bool | None
    home_id: int | None
    role: str | None
    """Configured role: ASYNC_MASTER, SYNC_MASTER or SLAVE."""
    standing: str | None
    """Role in which it acts: MASTER, SLAVE, FENCED; in a Raft group LEADER and others."""
    is_master: bool
    epoch: int | None
    log_epoch: int | None
    fenced_by: str | None
    follows_address: str | None
    version: str | None
    uptime_s: float | None
    ha_address: str | None
    min_phy_offset: int | None
    max_phy_offset: int | None
    flushed_offset: int | None
    dispatched_offset: int | None
    disk_ratio: float | None
    writable: bool | None
    put_total: int | None
    get_total: int | None
    client_connections: int | None
    puts_waiting: int | None
    links: tuple[MasterEnd, ...]
    """Links of its slaves, for a master."""
    absent: tuple[Absent, ...]
    refusals: tuple[LinkRefusal, ...]
    follows: SlaveEnd | None
    """A slave's own end of its link."""
    reserved_s: int | None = None
    """Seconds for which it keeps messages (fileReservedTime); None where it does not tell."""
    insecure: bool = False
    """Other machines reach it, and it obeys them without proof."""
    raft: RaftState | None = None
    """State of a Raft member. Its role and term are in `standing` and `epoch`, too."""
    link: MasterEnd | None = None
    """Master's end of a slave's link."""
    master: Replica | None = attrs.field(default=None, repr=False, eq=False)
    """Master of that link; without a link, the master that it should follow."""

    @property
    def number(self) -> int:
        """Configured id, which no failover changes; for a Java broker, the registered id."""
        return self.registered_id if self.home_id is None else self.home_id

    @property
    def own_id(self) -> str:
        """Id by which all tables, sentences and commands name it within its set."""
        return self.member_id or str(self.number)

    @cached_property
    def full_name(self) -> str:
        """Name of its set, id and address: what sentences and alerts call it."""
        return f"{self.name} {self.own_id} at {self.address}"

    @property
    def member_id(self) -> str | None:
        """dLegerSelfId of a Raft member, from its own answer or its leader's."""
        if self.raft is not None:
            return self.raft.member_id
        return self.link.member_id if self.link is not None else None

    @property
    def in_sync(self) -> bool | None:
        """The slave is in sync, by its master's answer. None for a master, and if unknown."""
        if self.is_master or self.link is None:
            return None
        return self.link.in_sync

    @property
    def gap_bytes(self) -> int | None:
        """Bytes of its master's log that it lacks: the largest of all answers."""
        if self.is_master:
            return None
        if self.link is not None and self.link.member_id is not None:
            return self.link.gap_bytes  # the leader learns it several times a second
        ends = [self.link.gap_bytes if self.link else None]
        ends.append(self.follows.gap_bytes if self.follows else None)
        above = self.master.max_phy_offset if self.master is not None else None
        if above is not None and self.max_phy_offset is not None:
            ends.append(max(0, above - self.max_phy_offset))
        return max((gap for gap in ends if gap is not None), default=None)

    @property
    def gap_s(self) -> float | None:
        return self.link.gap_s if self.link is not None else None

    @property
    def heard_age_s(self) -> float | None:
        """Seconds since the other end's last message: the master's number, else the slave's."""
        end = self._heard_by
        return None if end is None else end.heard_age_s

    @property
    def heartbeat_interval_s(self) -> float | None:
        end = self._heard_by
        return None if end is None else end.heartbeat_interval_s

    @property
    def housekeeping_s(self) -> float | None:
        end = self._heard_by
        return None if end is None else end.housekeeping_s

    @property
    def _heard_by(self) -> MasterEnd | SlaveEnd | None:
        return self.link if self.link is not None else self.follows


def replica_of(address: str, member: Fields, answers: Fields, at_wall_ms: int) -> Replica:
    """Put together everything that is known about the node at `address`."""
    status = answer_of(answers.get("status"), at_wall_ms)
    is_trioha = None
    if status.value is not None:
        is_trioha = True
    elif status.code == NOT_TRIOHA_CODE:
        is_trioha = False
    foreign = status.code == NOT_TRIOHA_CODE
    answer = answer_of(answers.get("runtime"), at_wall_ms) if foreign else status
    told = _from_runtime(fields_of(answer.value)) if foreign else fields_of(answer.value)
    age_s = answer.age_s or 0.0
    registered_id = whole(member, "id") or 0
    standing, role = words(told, "standing"), words(told, "role")
    raft = RaftState.of(told.get("raft"))
    return read(
        Replica,
        told,
        name=words(member, "name") or "?",
        address=address,
        registered=truth(member, "registered") is not False,
        registered_id=registered_id,
        seen_wall_ms=whole(member, "seen_wall_ms"),
        answer=answer,
        is_trioha=is_trioha,
        standing=standing if raft is None else _standing_now(raft, answer),
        is_master=_is_master(standing, role, registered_id)
        if raft is None
        else raft.is_leader and not answer.error,
        epoch=whole(told, "epoch") if raft is None else raft.term,
        follows_address=words(told, "follows"),
        uptime_s=_later(number(told, "uptime_s"), age_s),
        links=_links_of(told, age_s) if raft is None else _ends_of_followers(raft),
        absent=tuple(Absent.of(row, age_s) for row in rows_of(told.get("absent"))),
        refusals=tuple(LinkRefusal.of(row, age_s) for row in rows_of(told.get("refusals"))),
        follows=_slave_end(told, age_s),
        insecure=truth(told, "insecure") is True,
        raft=raft,
        link=None,
        master=None,
    )


def _links_of(told: Fields, age_s: float) -> tuple[MasterEnd, ...]:
    return tuple(MasterEnd.of(row, age_s) for row in rows_of(told.get("connections")))


def _ends_of_followers(raft: RaftState) -> tuple[MasterEnd, ...]:
    """Return a leader's view of its followers as the master's ends of links."""
    return tuple(
        MasterEnd(
            peer=raft.addresses.get(one.member_id, one.member_id),
            slave_ack_offset=one.held_offset,
            gap_bytes=one.gap_bytes,
            in_sync=one.keeps_up and raft.is_present(one) is not False,
            heard_age_s=one.heard_age_s,
            heartbeat_interval_s=raft.heartbeat_interval_s,
            housekeeping_s=raft.gone_after_s,
            epoch=raft.term,
            member_id=one.member_id,
        )
        for one in raft.followers
    )


def _slave_end(told: Fields, age_s: float) -> SlaveEnd | None:
    row = told.get("slave")
    return SlaveEnd.of(row, age_s) if isinstance(row, dict) else None


def _standing_now(raft: RaftState, answer: LastAnswer) -> str | None:
    """Return a member's role; None if it is silent, since another may have that role by now."""
    return None if answer.error else raft.standing


def _is_master(standing: str | None, role: str | None, registered_id: int) -> bool:
    """Return whether a node is master, by its own answer, else by its registration."""
    if standing is not None:
        return standing == "MASTER"
    if role is not None:
        return role != "SLAVE"
    return registered_id == 0


def _from_runtime(table: Fields) -> Mapping[str, Any]:
    """Return RocketMQ's table of texts under the names of trioha's status."""
    if not table:
        return {}
    version = words(table, "brokerVersionDesc")
    end, behind = whole(table, "commitLogMaxOffset"), whole(table, "dispatchBehindBytes")
    return {
        "version": f"RocketMQ {version}" if version else None,
        "min_phy_offset": table.get("commitLogMinOffset"),
        "max_phy_offset": end,
        "dispatched_offset": None if end is None or behind is None else end - behind,
        "disk_ratio": table.get("commitLogDiskRatio"),
        "put_total": table.get("msgPutTotalTodayNow"),
        "get_total": table.get("msgGetTotalTodayNow"),
    }


def _age_s(wall_ms: int | None, at_wall_ms: int) -> float | None:
    # A clock may be set back; an age is never negative.
    return None if wall_ms is None else max(0.0, (at_wall_ms - wall_ms) / 1000)


def _later(seconds: float | None, age_s: float) -> float | None:
    """Return the present value of an age that was answered `age_s` ago."""
    return None if seconds is None else seconds + age_s
