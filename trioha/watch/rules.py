"""The alert rules of a cluster: each reads a number that is compared with thresholds.

A rule reads a snapshot and yields one `Reading` per subject: a slave, a set, a name server, a
group. A condition that is true or false is the number 1 or 0. An unknown value is None: it begins
and ends no alert. `watch.alerts` keeps thresholds, durations and present alerts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from trioha.watch.queues import Group
from trioha.watch.raft_condition import condition_of_group, is_removed, leader_of
from trioha.watch.raft_rules import (
    read_commit_stalled,
    read_impaired,
    read_no_spare,
)
from trioha.watch.replica import MasterEnd, Replica, SlaveEnd
from trioha.watch.retention_rules import read_retention
from trioha.watch.rule import Area as Area
from trioha.watch.rule import Reading as Reading
from trioha.watch.rule import Rule as Rule
from trioha.watch.rule import Unit as Unit
from trioha.watch.rule import is_answering as _answering
from trioha.watch.snapshot import ClusterSnapshot
from trioha.words import age_in_words, size_in_words

MIB = 1 << 20


def _slaves(snapshot: ClusterSnapshot) -> Iterator[Replica]:
    for one in snapshot.replicas:
        if not one.is_master:
            yield one


def _end(slave: Replica) -> MasterEnd | SlaveEnd | None:
    """The end of its link whose node answers now, the master's first."""
    if slave.link is not None and _answering(slave.master):
        return slave.link
    return slave.follows if _answering(slave) else None


def _gap_bytes(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for slave in _slaves(snapshot):
        # If neither end answers, the end of the master's log is unknown.
        gap = slave.gap_bytes if _answering(slave.master) or _answering(slave) else None
        text = f"{slave.full_name} lacks {size_in_words(gap)} of its master's log"
        yield Reading("gap_bytes", slave.full_name, gap, text)


def _gap_seconds(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for slave in _slaves(snapshot):
        gap_s = slave.gap_s if _answering(slave.master) else None
        text = f"{slave.full_name} lacks messages that are {age_in_words(gap_s)} old"
        yield Reading("gap_seconds", slave.full_name, gap_s, text)


def _heartbeat_age(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for slave in _slaves(snapshot):
        if slave.member_id is not None:
            continue  # a leader's heartbeats are too frequent for an alert
        end = _end(slave)
        ratio, text = None, ""
        if end is not None and end.heard_age_s is not None and end.housekeeping_s:
            ratio = end.heard_age_s / end.housekeeping_s
            text = (
                f"{slave.full_name} and its master: silent for {age_in_words(end.heard_age_s)},"
                f" the link is given up at {age_in_words(end.housekeeping_s)}"
            )
        yield Reading("heartbeat_age", slave.full_name, ratio, text)


def _link_down(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for slave in _slaves(snapshot):
        if not slave.registered:
            continue  # replica_absent tells that
        down: float | None = None
        reason = ""
        if slave.link is not None and _answering(slave.master):
            down = float(not slave.link.is_up)
        elif slave.member_id is not None:
            down = None  # no_master tells that
        elif _answering(slave) and slave.follows is not None:
            state = slave.follows.state
            down = None if state is None else float(state != "TRANSFER")
            reason = slave.follows.last_error or ""
        elif slave.master is not None and slave.master.is_trioha and _answering(slave.master):
            down = 1.0  # a Java master never tells its links
        text = f"{slave.full_name} follows no master{f': {reason}' if reason else ''}"
        yield Reading("link_down", slave.full_name, down, text)


def _not_in_sync(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for slave in _slaves(snapshot):
        in_sync = slave.in_sync if _answering(slave.master) else None
        value = None if in_sync is None else float(not in_sync)
        text = f"{slave.full_name} is not in sync: no put waits for it"
        if slave.member_id is not None:
            text = f"{slave.full_name} is not in sync: the leader needs a majority without it"
        yield Reading("not_in_sync", slave.full_name, value, text)


def _no_slave_in_sync(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for master in snapshot.replicas:
        if not master.is_master or master.role != "SYNC_MASTER" or master.raft is not None:
            continue
        value: float | None = None
        if _answering(master):
            value = float(not any(link.in_sync for link in master.links))
        text = (
            f"{master.full_name} is SYNC_MASTER without a slave in sync: "
            "sends get SLAVE_NOT_AVAILABLE"
        )
        yield Reading("no_slave_in_sync", master.full_name, value, text)


def _replica_absent(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.sets:
        hosts = set()
        leader = leader_of(one.raft_states)
        for replica in one.replicas:
            if is_removed(leader, replica.address, registered=replica.registered):
                continue
            if not replica.is_master:
                hosts.add(replica.address.rpartition(":")[0])
            text = f"{replica.full_name} is not registered any more"
            yield Reading("replica_absent", replica.full_name, float(not replica.registered), text)
        for master in one.masters:
            linked = {link.peer.rpartition(":")[0] for link in master.links}
            for absent in master.absent:
                # The loop above has the members with a known name.
                if absent.host in hosts | linked:
                    continue
                subject = f"{one.name}: slave on {absent.host}"
                since = age_in_words(absent.last_error_age_s)
                text = (
                    f"{subject} has been gone for {since}: {absent.last_error or 'no reason known'}"
                )
                yield Reading("replica_absent", subject, 1.0, text)


def _no_master(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.sets:
        there_is_none = not one.masters
        text = f"{one.name}: no member that answers is master; nothing can be sent to it"
        if one.is_raft:
            there_is_none = not any(two.raft and two.raft.is_serving for two in one.masters)
            text = f"{one.name}: {condition_of_group(one.raft_states).why or 'it has no leader'}"
        nobody_says = there_is_none and any(two.answer.is_rejected for two in one.replicas)
        yield Reading("no_master", one.name, None if nobody_says else float(there_is_none), text)


def _two_masters(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.sets:
        names = ", ".join(f"{two.address} (epoch {two.epoch or '-'})" for two in one.masters)
        text = f"{one.name}: {len(one.masters)} members act as master: {names}"
        yield Reading("two_masters", one.name, float(max(0, len(one.masters) - 1)), text)


def _namesrv_disagree(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    told = [one for one in snapshot.namesrvs if one.answer.wall_ms is not None]
    told = [one for one in told if not one.answer.error]
    for one in snapshot.sets:
        beliefs: dict[str | None, list[str]] = {}
        for namesrv in told:
            beliefs.setdefault(namesrv.masters.get(one.name), []).append(namesrv.address)
        words = "; ".join(
            f"{', '.join(where)} {'say' if len(where) > 1 else 'says'} {master or 'none'}"
            for master, where in sorted(beliefs.items(), key=lambda pair: str(pair[0]))
        )
        value = None if not told else float(len(beliefs) > 1)
        text = f"{one.name}: name servers disagree about the master: {words}"
        yield Reading("namesrv_disagree", one.name, value, text)


def _namesrv_silent(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    silent = [one for one in snapshot.namesrvs if one.answer.error]
    value = 2.0 if len(silent) == len(snapshot.namesrvs) else 1.0
    for one in snapshot.namesrvs:
        text = f"name server {one.address} does not answer: {one.answer.error}"
        known = one.answer.wall_ms is not None or one.answer.error
        found = (value if one.answer.error else 0.0) if known else None
        yield Reading("namesrv_silent", one.address, found, text)


def _broker_silent(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.replicas:
        if not one.registered:
            continue  # replica_absent tells that
        known = one.answer.wall_ms is not None or one.answer.error
        text = f"{one.full_name} does not answer: {one.answer.error}"
        yield Reading(
            "broker_silent", one.full_name, float(one.answer.is_silence) if known else None, text
        )


def _writes_refused(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.replicas:
        if not one.is_master:
            continue
        told = one.writable if one.raft is None else one.raft.writable
        writable = told if _answering(one) else None
        text = f"{one.full_name} is master and rejects writes; its journal has the reason"
        yield Reading(
            "writes_refused", one.full_name, None if writable is None else float(not writable), text
        )


def _fenced(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.replicas:
        value = float(one.standing == "FENCED") if _answering(one) and one.standing else None
        text = f"{one.full_name} is fenced: {one.fenced_by or 'a newer master is known'}"
        yield Reading("fenced", one.full_name, value, text)


def _dispatch_behind(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.replicas:
        behind: int | None = None
        if _answering(one) and one.max_phy_offset is not None and one.dispatched_offset is not None:
            behind = max(0, one.max_phy_offset - one.dispatched_offset)
        text = f"{one.full_name}: {size_in_words(behind)} are stored that consumers cannot see yet"
        yield Reading("dispatch_behind", one.full_name, behind, text)


def _disk_ratio(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for one in snapshot.replicas:
        ratio = one.disk_ratio if _answering(one) else None
        if ratio is not None and ratio < 0:
            ratio = None  # a Java broker that cannot tell
        text = f"{one.full_name}: disk {'-' if ratio is None else f'{ratio:.0%}'} full"
        yield Reading("disk_ratio", one.full_name, ratio, text)


def _group_lag(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for name, group in snapshot.groups.items():
        yield Reading("group_lag", name, group.lag, partial(_lag_in_words, group))


def _group_lag_seconds(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for name, group in snapshot.groups.items():
        lag_s = group.lag_s_without_retries
        text = partial(_lag_seconds_in_words, name, lag_s)
        yield Reading("group_lag_seconds", name, lag_s, text)


def _lag_in_words(group: Group) -> str:
    return f"group {group.name} is {group.lag if group.lag is not None else '-'} messages behind"


def _lag_seconds_in_words(name: str, lag_s: float | None) -> str:
    return f"group {name} is {age_in_words(lag_s)} behind"


_HA, _BROKER, _NAMESRV = Area.HA, Area.BROKER, Area.NAMESRV
_BYTES, _SECONDS, _RATIO, _COUNT, _FLAG = Unit
_EVERY_RULE = (
    Rule(name="no_master", area=_HA, unit=_FLAG, warn=None, crit=1, for_s=5,
         doc="no member of a set that answers is master", read=_no_master),
    Rule(name="two_masters", area=_HA, unit=_COUNT, warn=None, crit=1, for_s=5,
         doc="members beyond the first that act as master", read=_two_masters),
    Rule(name="link_down", area=_HA, unit=_FLAG, warn=None, crit=1, for_s=10,
         doc="a registered slave follows no master", read=_link_down),
    Rule(name="replica_absent", area=_HA, unit=_FLAG, warn=None, crit=1, for_s=30,
         doc="a former member is not registered any more", read=_replica_absent),
    Rule(name="not_in_sync", area=_HA, unit=_FLAG, warn=1, crit=None, for_s=10,
         doc="the master does not count a slave as in sync", read=_not_in_sync),
    Rule(name="no_slave_in_sync", area=_HA, unit=_FLAG, warn=None, crit=1, for_s=5,
         doc="a SYNC_MASTER has no slave in sync", read=_no_slave_in_sync),
    Rule(name="heartbeat_age", area=_HA, unit=_RATIO, warn=0.5, crit=0.9, for_s=0,
         doc="silence on a link, as a share of the limit at which it is given up",
         read=_heartbeat_age),
    Rule(name="gap_bytes", area=_HA, unit=_BYTES, warn=64 * MIB, crit=256 * MIB, for_s=30,
         doc="log that a slave lacks", read=_gap_bytes),
    Rule(name="gap_seconds", area=_HA, unit=_SECONDS, warn=30, crit=120, for_s=30,
         doc="age of the oldest message that a slave lacks", read=_gap_seconds),
    Rule(name="fenced", area=_HA, unit=_FLAG, warn=1, crit=None, for_s=30,
         doc="a member stopped serving because a newer master is known", read=_fenced),
    Rule(name="raft_commit_stalled", area=_HA, unit=_SECONDS, warn=3, crit=10, for_s=0,
         doc="seconds since the last progress of the commit, while bytes wait for it",
         read=read_commit_stalled),
    Rule(name="raft_no_spare", area=_HA, unit=_FLAG, warn=1, crit=None, for_s=10,
         doc="the loss of one more voter stops a DLEDGER group's writes", read=read_no_spare),
    Rule(name="raft_impaired", area=_HA, unit=_FLAG, warn=1, crit=None, for_s=5,
         doc="a member of a DLEDGER group is a copy that neither votes nor stands",
         read=read_impaired),
    Rule(name="broker_silent", area=_BROKER, unit=_FLAG, warn=None, crit=1, for_s=5,
         doc="a registered broker does not answer", read=_broker_silent),
    Rule(name="writes_refused", area=_BROKER, unit=_FLAG, warn=None, crit=1, for_s=10,
         doc="a master rejects writes", read=_writes_refused),
    Rule(name="dispatch_behind", area=_BROKER, unit=_BYTES, warn=16 * MIB, crit=256 * MIB,
         for_s=30, doc="log that is stored and not yet in consume queues", read=_dispatch_behind),
    Rule(name="namesrv_silent", area=_NAMESRV, unit=_COUNT, warn=1, crit=2, for_s=5,
         doc="a name server does not answer: 1, and 2 when none does", read=_namesrv_silent),
    Rule(name="namesrv_disagree", area=_NAMESRV, unit=_FLAG, warn=1, crit=None, for_s=30,
         doc="name servers route to different masters", read=_namesrv_disagree),
    Rule(name="disk_ratio", area=Area.DISK, unit=_RATIO, warn=0.75, crit=0.85, for_s=60,
         doc="used share of the disk that the log lies on", read=_disk_ratio),
    Rule(name="group_lag", area=Area.GROUP, unit=_COUNT, warn=100_000, crit=1_000_000, for_s=60,
         doc="messages that a group has not consumed", read=_group_lag),
    Rule(name="group_lag_seconds", area=Area.GROUP, unit=_SECONDS, warn=300, crit=1800, for_s=60,
         doc="age of the oldest message not consumed, of the queue furthest behind; of a Java"
         " broker that of the newest one consumed, too high right after a queue was idle",
         read=_group_lag_seconds),
    Rule(name="group_retention", area=Area.GROUP, unit=_RATIO, warn=0.8, crit=1, for_s=0,
         doc="share of fileReservedTime that the oldest message not consumed has used; at 100% it"
         " is deleted or may be at any time", read=read_retention),
)  # fmt: skip

RULES: Mapping[str, Rule] = {rule.name: rule for rule in _EVERY_RULE}
"""Every rule with its default thresholds; `[alerts]` of the configuration changes them."""
