"""Both ends of a link, and a set as its name servers see it, as lists of facts."""

from __future__ import annotations

from collections.abc import Sequence

from trioha.watch.condition import condition_of, condition_of_set
from trioha.watch.replica import LastAnswer, MasterEnd, Replica, SlaveEnd
from trioha.watch.replica_set import ReplicaSet
from trioha.watch.snapshot import Namesrv
from trioha.words import age_in_words, count_in_words, size_in_words
from trioha_console.cells import NOTHING, Cell, cell
from trioha_console.marks import heartbeat_cell
from trioha_console.roles import LEVEL_ROLES, condition_cell
from trioha_console.views.raft_facts import follower_facts, group_facts, own_facts
from trioha_console.widgets.facts import Facts

_BAR_WIDTH = 24

Panel = tuple[Cell, Facts]


def master_facts(replica: Replica) -> Panel:
    """The upper end: the link as the slave's master sees it."""
    master, link = replica.master, replica.link
    title: Cell = (("master's end  ", "title"), (master.address if master else "no master", ""))
    if master is None:
        return title, [("", cell("No master is known that it could follow.", "warn"))]
    if master.raft is not None:
        row = master.raft.follower(replica.member_id or "")
        return follower_facts(master, row, _freshness(master.answer))
    facts = [("last answer", _freshness(master.answer))]
    if link is None:
        facts += [("", cell("It has no link to this slave.", "bad"))]
        facts += [
            ("was here", cell(f"{one.host}, gone {age_in_words(one.last_error_age_s)}", "warn"))
            for one in master.absent
        ]
        facts += [("", cell(one.last_error, "dim")) for one in master.absent if one.last_error]
        return title, facts
    return title, [
        *facts,
        ("peer", cell(link.peer)),
        ("acknowledged", cell(link.slave_ack_offset)),
        ("gap", _gap(link.gap_bytes, link.gap_s)),
        ("in sync", _yes(link.in_sync)),
        ("heartbeat", _heard(link)),
        ("sends", cell(f"{size_in_words(link.rate_bytes_per_s)}/s")),
        ("up for", _up_for(link)),
        *_error(link),
        *([("doubt", cell(link.doubt, "warn"))] if link.doubt else []),
    ]


def slave_facts(replica: Replica) -> Panel:
    """The lower end: the link as the slave sees it, and how the slave itself is."""
    own = replica.follows
    condition = condition_of(replica)
    title: Cell = (("slave's end  ", "title"), (replica.address, ""), ("  ", ""))
    title += condition_cell(condition)
    facts: list[tuple[str, Cell]] = [("last answer", _freshness(replica.answer))]
    if condition.why:
        facts.append(("", cell(condition.why, LEVEL_ROLES[condition.level])))
    if replica.raft is not None:
        return ((("its own end  ", "title"), *title[1:]), [*facts, *own_facts(replica.raft)])
    facts.append(("log ends", _end(replica)))
    if own is not None:
        facts += [
            ("follows", cell(own.master)),
            ("state", cell(own.state, "good" if own.state == "TRANSFER" else "bad")),
            ("gap", _gap(own.gap_bytes, None)),
            ("heartbeat", _heard(own)),
            *_error(own),
        ]
    elif replica.is_trioha is False:
        facts.append(("", cell("Not a trioha node: it does not tell of its end.", "dim")))
    return title, facts


def set_facts(
    one: ReplicaSet, namesrvs: Sequence[Namesrv], master: Replica | None
) -> tuple[Panel, Panel]:
    """Return the facts about a set, and the master to which each name server routes clients."""
    routes: Panel = ((("name servers route to", "title"),), _beliefs(one, namesrvs))
    if one.is_raft:
        told = NOTHING if one.master is None else _freshness(one.master.answer)
        return group_facts(one, told), routes
    condition = condition_of_set(one)
    title: Cell = (("replica set  ", "title"), (one.name, "strong"), ("  ", ""))
    title += condition_cell(condition)
    facts: list[tuple[str, Cell]] = []
    if condition.why:
        facts.append(("", cell(condition.why, "bad")))
    shown = master or one.master
    if shown is not None:
        facts += [
            ("master", cell(shown.address, "accent")),
            ("last answer", _freshness(shown.answer)),
            ("role", cell(shown.role)),
            ("epoch", cell(shown.epoch)),
            ("log ends", _end(shown)),
            ("waiting", cell(shown.puts_waiting)),
            ("clients", cell(shown.client_connections)),
            ("disk", cell(None if shown.disk_ratio is None else f"{shown.disk_ratio:.0%} full")),
        ]
        facts += [
            ("absent", cell(f"{gone.host}: {gone.last_error}", "warn")) for gone in shown.absent
        ]
        facts += [
            ("refused", cell(f"{peer.peer} {age_in_words(peer.age_s)} ago: {peer.reason}", "warn"))
            for peer in shown.refusals
        ]
    return (title, facts), routes


def _beliefs(one: ReplicaSet, namesrvs: Sequence[Namesrv]) -> Facts:
    told: list[tuple[str, Cell]] = []
    masters = {master.address for master in one.masters}
    for namesrv in namesrvs:
        address = namesrv.masters.get(one.name)
        # A long address is a line of its own.
        told.append(("", cell(namesrv.address, "strong")))
        if namesrv.answer.error:
            told.append(("", cell(f"  {namesrv.answer.error}", "bad")))
        if address is None:
            told.append(("", cell("  no master", "bad" if namesrv.answer.wall_ms else "dim")))
        elif masters and address not in masters:
            told.append(("", cell(f"  {address}, which is not the master", "bad")))
        else:
            told.append(("", cell(f"  {address}", "good" if masters else "dim")))
    return told


def _freshness(answer: LastAnswer) -> Cell:
    """Return the age of the last answer, and the error since then, if any."""
    if answer.age_s is None:
        return cell(answer.error or "no answer yet", "bad" if answer.error else "dim")
    if answer.error:
        return cell(f"{age_in_words(answer.age_s)} ago, since then: {answer.error}", "bad")
    took = f" (round trip {answer.took_ms} ms)" if answer.took_ms is not None else ""
    return cell(f"{age_in_words(answer.age_s)} ago{took}", "warn" if answer.is_stale else "dim")


def _end(replica: Replica) -> Cell:
    if replica.max_phy_offset is None:
        return NOTHING
    end, flushed = replica.max_phy_offset, replica.flushed_offset
    unflushed = None if flushed is None else max(0, end - flushed)
    told = "" if unflushed is None else f", {size_in_words(unflushed)} not flushed"
    return ((str(end), ""), (told, "dim"))


def _gap(gap_bytes: int | None, gap_s: float | None) -> Cell:
    if gap_bytes is None:
        return NOTHING
    seconds = "" if not gap_s else f", {age_in_words(gap_s)} of messages"
    return cell(f"{size_in_words(gap_bytes)}{seconds}", "warn" if gap_bytes else "")


def _yes(value: bool | None) -> Cell:
    if value is None:
        return NOTHING
    return cell("● yes", "good") if value else cell("▲ no", "warn")


def _heard(end: MasterEnd | SlaveEnd) -> Cell:
    return heartbeat_cell(end.heard_age_s, end.heartbeat_interval_s, end.housekeeping_s, _BAR_WIDTH)


def _up_for(link: MasterEnd) -> Cell:
    reconnects = "" if not link.reconnects else f", {count_in_words(link.reconnects, 'reconnect')}"
    return cell(f"{age_in_words(link.connected_s)}{reconnects}")


def _error(end: MasterEnd | SlaveEnd) -> list[tuple[str, Cell]]:
    if not end.last_error:
        return []
    return [
        ("last error", cell(f"{age_in_words(end.last_error_age_s)} ago: {end.last_error}", "dim"))
    ]
