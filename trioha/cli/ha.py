"""`trioha ha status`: every broker, every replication link, and what is wrong in plain words.

`ha resync` and `ha recover` have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import trio

from trioha.cli.client_options import cluster_options
from trioha.cli.failures import ExitCode
from trioha.cli.ha_problems import NOT_TRIOHA, problems_of
from trioha.cli.ha_raft import (
    groups_in_words,
    groups_without_leader,
    problems_of_groups,
    without_groups,
)
from trioha.cli.ha_recover import recover_command
from trioha.cli.ha_resync import resync_command
from trioha.cli.ha_terms import disagreements, terms_in_words
from trioha.cli.output import (
    age_in_words,
    print_json,
    size_in_words,
    table,
    table_of,
)
from trioha.client.raft import look_at_cluster
from trioha.watch.replica import Replica

Status = dict[str, Any]

_ERROR_COLUMNS = 100


@click.group("ha")
def command() -> None:
    """Look at replication, and mend it."""


command.add_command(resync_command)
command.add_command(recover_command)


@command.command("status")
@cluster_options
@click.pass_context
def status(ctx: click.Context, namesrv: str, timeout_s: float, output: str) -> None:
    """Show every broker with its offsets and its replication links.

    \b
    trioha ha status -n 127.0.0.1:9876
    trioha ha status -n 127.0.0.1:9876 -o json

    A gap in seconds is the age of the oldest message that a slave lacks. HEARD is how long ago the
    other end of a link spoke, EVERY how often it promises to, LIMIT when the link is given up. Of
    a broker that is not trioha only role and offsets are known; its links are shown at the other
    end.

    Of trioha nodes the second table tells in which epoch each stands and whom it takes for master;
    a set that was failed over also has its history of masters, newest last. TRUNCATED LOGS are
    folders of what a deposed master had to give up. See `trioha failover`, `ha recover` and
    `ha resync`.

    A DLEDGER group is shown member by member, each with its role, its term and what it lacks of its
    leader's log; `trioha raft status` has more of it.

    \b
    Exit codes: 0 every registered broker answered, and all that are of one set believe in the same
    master; 1 they do not, a DLEDGER group has no leader, or no broker is registered; 4 a broker
    does not answer.
    """
    brokers, all_answered = trio.run(cluster_status, namesrv, timeout_s)
    if output == "json":
        print_json({"brokers": brokers})
    else:
        click.echo(status_in_words(brokers))
    if not all_answered:
        ctx.exit(ExitCode.UNREACHABLE)
    apart = disagreements(without_groups(brokers)) or groups_without_leader(brokers)
    is_wrong = not brokers or apart
    ctx.exit(ExitCode.FAILED if is_wrong else ExitCode.OK)


async def cluster_status(namesrv: str, timeout_s: float) -> tuple[list[Status], bool]:
    """The status of each registered broker, and whether all of them answered.

    All are asked at once, each with its own deadline. A member of a set that has not registered is
    in it if it answers.

    Errors: Unreachable when no name server answers.
    """
    snapshot = await look_at_cluster(namesrv, timeout_s)
    shown = [one for one in snapshot.replicas if one.registered or not one.answer.error]
    brokers = sorted(map(_status_of, shown), key=lambda one: (one["name"], one["registered_id"]))
    namesrvs = sorted(snapshot.namesrvs, key=lambda one: one.address)
    for broker in brokers:
        broker["namesrvs"] = {
            one.address: one.masters.get(broker["name"], "")
            for one in namesrvs
            if not one.answer.error
        }
    _fill_gaps(brokers)
    return brokers, all(one.answer.code is not None or not one.answer.error for one in shown)


def _status_of(replica: Replica) -> Status:
    """Return a broker's status, under the name that it has at the name servers and its own id."""
    broker: Status = {
        "name": replica.name,
        "id": replica.number,
        "registered_id": replica.registered_id,
        "role": None,
        "address": replica.address,
        "ha_address": None,
        "min_phy_offset": replica.min_phy_offset,
        "max_phy_offset": replica.max_phy_offset,
        "flushed_offset": None,
        "connections": [],
        "slave": None,
    }
    told = replica.answer.value
    if not replica.registered:
        broker["registered"] = False
    if replica.answer.error:
        broker["error"] = replica.answer.error
    elif replica.is_trioha and isinstance(told, dict):
        # The name server's word stands for the name and address: that is what clients go by.
        known = ("name", "id", "registered_id", "address")
        broker.update({key: told[key] for key in told if key not in known})
        if not isinstance(broker["connections"], list):
            broker["connections"] = []
    else:
        broker["error"] = NOT_TRIOHA
        broker["role"] = "SLAVE" if replica.registered_id else "MASTER"
        if replica.version:
            broker["version"] = replica.version
    return broker


def _fill_gaps(brokers: Sequence[Status]) -> None:
    """Fill in the bytes that each slave lacks of its master's log, when both have answered.

    A link's own word goes no further than the last frame: a master that has nothing to send, or
    will send nothing, looks the same to its slave.
    """
    ends = {
        broker["name"]: broker["max_phy_offset"]
        for broker in brokers
        if not broker["registered_id"]
    }
    for broker in brokers:
        end, ours = ends.get(broker["name"]), broker["max_phy_offset"]
        if broker["registered_id"]:
            broker["gap_bytes"] = None if None in (end, ours) else max(0, end - ours)


def status_in_words(brokers: Sequence[Status]) -> str:
    """Tables for people, and a sentence for each problem."""
    if not brokers:
        return "No broker is registered with this name server."
    pairs = without_groups(brokers)
    parts = [_broker_table(brokers), *groups_in_words(brokers), *terms_in_words(pairs)]
    links = [(broker, link) for broker in brokers for link in broker["connections"]]
    if links:
        parts.append(_link_table(links))
    slaves = [broker for broker in pairs if broker["role"] == "SLAVE" or broker["slave"]]
    if slaves:
        parts.append(_slave_table(slaves))
    if errors := list(_last_errors(links, slaves)):
        parts.append(table(("LAST ERROR OF", "AGO", "WHY"), errors))
    problems = [*disagreements(pairs), *problems_of(pairs), *problems_of_groups(brokers)]
    parts.append("\n".join(f"! {problem}" for problem in problems) or "All is well.")
    return "\n\n".join(parts)


def _broker_table(brokers: Sequence[Status]) -> str:
    return table_of(
        [
            {
                "BROKER": broker["name"],
                "ID": broker["id"],
                "ROLE": broker["role"],
                "VERSION": _version(broker),
                "ADDRESS": broker["address"],
                "LOG BEGINS": broker["min_phy_offset"],
                "LOG ENDS": broker["max_phy_offset"],
                "FLUSHED": broker["flushed_offset"],
            }
            for broker in brokers
        ]
    )


def _version(broker: Status) -> str | None:
    version: str | None = broker.get("version")
    return version if version is None or " " in version else f"trioha {version}"


def _link_table(links: Sequence[tuple[Status, Status]]) -> str:
    return table_of(
        [
            {
                "LINK TO SLAVE": f"{broker['name']} → {link.get('peer')}",
                "ACKED": _offset_in_words(link.get("slave_ack_offset")),
                "GAP": size_in_words(link.get("gap_bytes")),
                "SECONDS": age_in_words(link.get("gap_s")),
                "IN SYNC": link.get("in_sync"),
                **_heard(link, "last_ack_age_s"),
                "RATE": f"{size_in_words(link.get('transferred_bytes_per_s'))}/s",
                "UP FOR": age_in_words(link.get("connected_s")),
                "RECONNECTS": link.get("reconnects"),
            }
            for broker, link in links
        ]
    )


def _slave_table(slaves: Sequence[Status]) -> str:
    rows = []
    for broker in slaves:
        slave = broker["slave"] or {}
        rows.append(
            {
                "SLAVE": f"{broker['name']} {broker['id']}",
                "FOLLOWS": slave.get("master"),
                "STATE": slave.get("state"),
                "GAP": size_in_words(_gap_bytes(broker)),
                **_heard(slave, "last_read_age_s"),
                "RECONNECTS": slave.get("reconnects"),
            }
        )
    return table_of(rows)


def _heard(link: Mapping[str, Any], age: str) -> dict[str, str]:
    return {
        "HEARD": age_in_words(link.get(age)),
        "EVERY": age_in_words(link.get("heartbeat_interval_s")),
        "LIMIT": age_in_words(link.get("housekeeping_s")),
    }


def _offset_in_words(offset: int | None) -> object:
    """-1 until the slave has reported."""
    return None if offset is None or offset < 0 else offset


def _gap_bytes(broker: Status) -> int | None:
    """The larger of what the master's own end says and what the link announced."""
    slave = broker["slave"] or {}
    known = [gap for gap in (broker.get("gap_bytes"), slave.get("gap_bytes")) if gap is not None]
    return max(known, default=None)


def _last_errors(
    links: Sequence[tuple[Status, Status]], slaves: Sequence[Status]
) -> Iterator[tuple[str, str, str]]:
    for broker, link in links:
        if error := link.get("last_error"):
            who = f"{broker['name']} → {link.get('peer')}"
            yield who, age_in_words(link.get("last_error_age_s")), _shortened(error)
    for broker in slaves:
        slave = broker["slave"] or {}
        # A slave that follows nobody has its error in full among the problems.
        if slave.get("state") == "TRANSFER" and (error := slave.get("last_error")):
            who = f"{broker['name']} {broker['id']}"
            yield who, age_in_words(slave.get("last_error_age_s")), _shortened(error)


def _shortened(text: str) -> str:
    return text if len(text) <= _ERROR_COLUMNS else f"{text[: _ERROR_COLUMNS - 1]}…"
