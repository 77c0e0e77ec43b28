"""`trioha ha status`: every broker, every replication link, and what is wrong in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import trio

from trioha.cli.client_options import namesrv_option, timeout_option
from trioha.cli.failures import ExitCode
from trioha.cli.output import age_in_words, output_option, print_json, size_in_words, table
from trioha.client import Admin, ClusterConfig, open_admin
from trioha.errors import CommandError, RemoteProtocolError, TriohaError
from trioha.wire.codes import ResponseCode

Status = dict[str, Any]

_NOT_TRIOHA = "not a trioha node (role and offsets from runtime info)"
_QUIET_INTERVALS = 3
"""Heartbeats missed before a link is called quiet; it is closed at its housekeeping limit."""


@click.group("ha")
def command() -> None:
    """Look at replication."""


@command.command("status")
@namesrv_option
@timeout_option
@output_option
@click.pass_context
def status(ctx: click.Context, namesrv: str, timeout_s: float, output: str) -> None:
    """Show every broker with its offsets and its replication links.

    \b
    trioha ha status -n 127.0.0.1:9876
    trioha ha status -n 127.0.0.1:9876 -o json

    Exit code 0 when every registered broker answered, 4 when one did not.
    """
    brokers, all_answered = trio.run(cluster_status, namesrv, timeout_s)
    if output == "json":
        print_json({"brokers": brokers})
    else:
        click.echo(status_in_words(brokers))
    ctx.exit(ExitCode.OK if all_answered else ExitCode.UNREACHABLE)


async def cluster_status(namesrv: str, timeout_s: float) -> tuple[list[Status], bool]:
    """The status of each registered broker, and whether all of them answered.

    All are asked at once, each with its own deadline.

    Errors: Unreachable when no name server answers.
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    async with open_admin(namesrv, cluster_config=config) as admin:
        info = await admin.cluster_info()
        brokers = [
            _unknown(name, broker_id, address)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
        ]
        answered = [False] * len(brokers)

        async def ask(index: int) -> None:
            answered[index] = await _ask(admin, brokers[index])

        async with trio.open_nursery() as nursery:
            for index in range(len(brokers)):
                nursery.start_soon(ask, index, name=f"ha.status[{brokers[index]['address']}]")
    return brokers, all(answered)


def _unknown(name: str, broker_id: int, address: str) -> Status:
    """What the name server alone tells of a broker."""
    return {
        "name": name,
        "id": broker_id,
        "role": None,
        "address": address,
        "ha_address": None,
        "min_phy_offset": None,
        "max_phy_offset": None,
        "flushed_offset": None,
        "connections": [],
        "slave": None,
    }


async def _ask(admin: Admin, broker: Status) -> bool:
    """Fill in what the broker says of itself; False if it does not answer."""
    address = broker["address"]
    try:
        try:
            told = await admin.node_status(address)
        except CommandError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            broker["error"] = _NOT_TRIOHA
            _fill_from_runtime_info(broker, await admin.runtime_info(address))
            return True
        # The name server's word stands for who it is: that is what clients go by.
        broker.update({key: told[key] for key in told if key not in ("name", "id", "address")})
        if not isinstance(broker["connections"], list):
            broker["connections"] = []
    except (CommandError, RemoteProtocolError) as error:
        broker["error"] = str(error)
        return True
    except TriohaError as error:
        broker["error"] = str(error)
        return False
    return True


def _fill_from_runtime_info(broker: Status, runtime: Mapping[str, str]) -> None:
    broker["role"] = "SLAVE" if broker["id"] else "MASTER"
    for key, name in (
        ("min_phy_offset", "commitLogMinOffset"),
        ("max_phy_offset", "commitLogMaxOffset"),
    ):
        text = runtime.get(name, "")
        broker[key] = int(text) if text.isdecimal() else None


def status_in_words(brokers: Sequence[Status]) -> str:
    """Tables for people, and a sentence for each problem."""
    if not brokers:
        return "No broker is registered with this name server."
    parts = [
        table(
            ("BROKER", "ID", "ROLE", "ADDRESS", "LOG BEGINS", "LOG ENDS", "FLUSHED"),
            [
                (
                    *(broker["name"], broker["id"], broker["role"], broker["address"]),
                    *(broker["min_phy_offset"], broker["max_phy_offset"], broker["flushed_offset"]),
                )
                for broker in brokers
            ],
        )
    ]
    links = [(broker, link) for broker in brokers for link in broker["connections"]]
    if links:
        parts.append(
            table(
                ("LINK TO SLAVE", "ACKED", "GAP", "IN SYNC", "LAST ACK", "LIMIT", "RATE", "SINCE"),
                [
                    (
                        f"{broker['name']} → {link.get('peer')}",
                        link.get("slave_ack_offset"),
                        size_in_words(link.get("gap_bytes")),
                        link.get("in_sync"),
                        age_in_words(link.get("last_ack_age_s")),
                        age_in_words(link.get("housekeeping_s")),
                        f"{size_in_words(link.get('transferred_bytes_per_s'))}/s",
                        age_in_words(link.get("connected_s")),
                    )
                    for broker, link in links
                ],
            )
        )
    slaves = [(broker, broker["slave"]) for broker in brokers if broker["slave"]]
    if slaves:
        parts.append(
            table(
                ("SLAVE", "FOLLOWS", "STATE", "LAST READ", "GAP"),
                [
                    (
                        f"{broker['name']} {broker['id']}",
                        slave.get("master"),
                        slave.get("state"),
                        age_in_words(slave.get("last_read_age_s")),
                        size_in_words(slave.get("gap_bytes")),
                    )
                    for broker, slave in slaves
                ],
            )
        )
    problems = list(_problems(brokers))
    parts.append("\n".join(f"! {problem}" for problem in problems) or "All is well.")
    return "\n\n".join(parts)


def _problems(brokers: Sequence[Status]) -> Iterator[str]:
    masters = {broker["name"] for broker in brokers if broker["id"] == 0}
    for broker in brokers:
        who = f"{broker['name']} {broker['id']} at {broker['address']}"
        if "error" in broker:
            yield f"{who}: {broker['error']}"
            continue
        if broker["name"] not in masters:
            masters.add(broker["name"])
            yield f"{broker['name']}: no master is registered; nothing can be sent to it"
        links = broker["connections"]
        if broker["role"] == "SYNC_MASTER" and not any(link.get("in_sync") for link in links):
            yield f"{who}: SYNC_MASTER without a slave in sync; sends get SLAVE_NOT_AVAILABLE"
        for link in links:
            age, interval = link.get("last_ack_age_s"), link.get("heartbeat_interval_s")
            if age is not None and interval and age > _QUIET_INTERVALS * interval:
                yield (
                    f"{who}: slave {link.get('peer')} has been quiet for {age_in_words(age)};"
                    f" the link closes at {age_in_words(link.get('housekeeping_s'))}"
                )
            elif link.get("in_sync") is False:
                yield (
                    f"{who}: slave {link.get('peer')} is"
                    f" {size_in_words(link.get('gap_bytes'))} behind"
                )
        slave = broker["slave"]
        if slave and slave.get("state") not in (None, "TRANSFER"):
            state, error = slave["state"], slave.get("last_error")
            yield f"{who}: follows nobody now (state {state}{f': {error}' if error else ''})"
        for refusal in broker.get("refusals") or []:
            yield (
                f"{who}: refused slave {refusal.get('peer')} {age_in_words(refusal.get('age_s'))}"
                f" ago: {refusal.get('reason')}"
            )
