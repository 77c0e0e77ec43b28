"""`trioha ha resync`: let a slave give up its log and copy its master's anew."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click
import trio

from trioha.cli.client_options import cluster_options, secret_option
from trioha.cli.confirmation import check_confirmable, confirm_by_name
from trioha.cli.failures import ExitCode
from trioha.cli.output import print_json, size_in_words
from trioha.client import Admin, ClusterConfig, open_admin
from trioha.errors import CommandError, TriohaError, Unreachable
from trioha.jobs.brokers import own_id
from trioha.wire.refusals import no_permission

_AGAIN_S = 0.5
_LEVEL_BYTES = 1 << 20
_SILENT_MAX = 10


@click.command("resync")
@click.argument("broker")
@click.option(
    "--id", "broker_id", type=click.IntRange(0), required=True, help="brokerId of the slave."
)
@click.option("--dry-run", is_flag=True, help="Say what would go and change nothing.")
@click.option("--force", is_flag=True, help="Also if its log goes further than the master's.")
@click.option("--yes", is_flag=True, help="Do not ask for the broker's name to be typed.")
@secret_option
@cluster_options
@click.pass_context
def resync_command(
    ctx: click.Context,
    broker: str,
    broker_id: int,
    dry_run: bool,
    force: bool,
    yes: bool,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Make the slave --id of BROKER set its log aside and copy its master's anew.

    \b
    trioha ha resync broker-a --id 1 --dry-run
    trioha ha resync broker-a --id 1

    For a slave that says that it cannot follow: its log ends before its master's begins, or the
    two differ where nothing tells which is right. The old log stays under `cut` in the slave's
    store, as files of the same name, until you delete it; `trioha ha recover` sends messages of it
    again. Until the copy is level the slave protects nothing. The command waits for that; ending it
    stops nothing.

    A log that goes further than the master's may be the only copy of what was acknowledged: make
    that node master instead (`trioha failover`), or say --force.

    \b
    Exit codes: 0 the slave follows again (or --dry-run), 1 not confirmed by you or it does not
    follow, 2 usage, 4 the slave does not answer, 5 it refuses: it is a master, or its log goes
    further than the master's.
    """
    check_confirmable(yes, dry_run, output, "type the broker's name")
    told = trio.run(_plan, namesrv, timeout_s, broker, broker_id)
    if output == "table":
        click.echo(plan_in_words(broker, broker_id, told))
    if dry_run:
        if output == "json":
            print_json({**told, "result": "dry-run"})
        ctx.exit(ExitCode.OK)
    if told["holds_more"] and not force:
        raise no_permission(_only_copy(broker, told))
    if not yes:
        confirm_by_name(ctx, broker)
    slave = trio.run(_resync, namesrv, timeout_s, broker, told["address"], force)
    follows = slave.get("state") == "TRANSFER"
    if output == "json":
        print_json({**told, "slave": slave, "result": "done" if follows else "failed"})
    elif follows:
        click.echo("The slave follows and is level.")
    else:
        click.echo(f"! the slave does not follow: {slave.get('last_error')}", err=True)
    ctx.exit(ExitCode.OK if follows else ExitCode.FAILED)


async def _plan(namesrv: str, timeout_s: float, broker: str, broker_id: int) -> dict[str, Any]:
    """Ask the slave which part of its log would be set aside."""
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    async with open_admin(namesrv, cluster_config=config) as admin:
        address, master = await _addresses_of(admin, broker, broker_id)
        told = dict(await admin.resync(address, broker, dry_run=True))
        held = told["max_phy_offset"] > told["min_phy_offset"]
        if not told.get("holds_more") and held:
            told["holds_more"] = await _lacks(admin, master, told["max_phy_offset"])
        return {"address": address, **told}


async def _lacks(admin: Admin, master: str | None, end: int) -> bool:
    """Is there no master, or a classic one whose log ends before `end`? A node of ours compares
    itself."""
    if master is None:
        return True
    try:
        await admin.node_status(master)
    except CommandError:
        return int((await admin.runtime_info(master)).get("commitLogMaxOffset", "0")) < end
    return False


async def _resync(
    namesrv: str, timeout_s: float, broker: str, address: str, force: bool
) -> dict[str, Any]:
    """Begin it, and wait for its end."""
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    async with open_admin(namesrv, cluster_config=config) as admin:
        before = await admin.node_status(address)
        await admin.resync(address, broker, dry_run=False, force=force)
        return await _wait_level(admin, address, _attempts(before))


async def _addresses_of(admin: Admin, broker: str, broker_id: int) -> tuple[str, str | None]:
    """The slave's address and the master's."""
    info = await admin.cluster_info()
    data = info.broker_addr_table.get(broker)
    if data is None:
        known = ", ".join(sorted(info.broker_addr_table)) or "none"
        raise TriohaError(f"no broker {broker} is registered; known are: {known}")
    statuses: dict[str, Mapping[str, Any]] = {}
    for one in data.broker_addrs.values():
        with contextlib.suppress(CommandError, Unreachable):
            statuses[one] = await admin.node_status(one)
    nodes = {own_id(statuses, one, number): one for number, one in data.broker_addrs.items()}
    address = nodes.get(broker_id)
    if address is None:
        known = ", ".join(map(str, sorted(nodes)))
        raise TriohaError(f"{broker} has no brokerId {broker_id} registered; it has {known}")
    master = data.broker_addrs.get(0)
    if address == master:
        raise no_permission(
            f"brokerId {broker_id} is the master of {broker}: its log is the one that others copy"
        )
    return str(address), None if master is None else str(master)


async def _wait_level(admin: Admin, address: str, before: int) -> dict[str, Any]:
    """Wait until the slave has copied its master's log, or its next attempt has failed."""
    silent = 0
    while True:
        await trio.sleep(_AGAIN_S)
        try:
            status = await admin.node_status(address)
        except Unreachable:
            # Its disk has much to do. It goes on without us, should we leave.
            silent += 1
            if silent == _SILENT_MAX:
                raise
            continue
        silent = 0
        slave = _slave_of(status)
        state, gap = slave.get("state"), slave.get("gap_bytes")
        if state == "TRANSFER" and gap is not None:
            click.echo(f"  {size_in_words(gap)} behind", err=True)
            if gap < _LEVEL_BYTES:
                return slave
        elif state == "PAUSED" and (
            _attempts(status) > before or slave.get("needs_resync") or slave.get("last_error")
        ):
            return slave


def _slave_of(status: Mapping[str, Any]) -> dict[str, Any]:
    slave = status.get("slave")
    return slave if isinstance(slave, dict) else {}


def _attempts(status: Mapping[str, Any]) -> int:
    return int(_slave_of(status).get("reconnects") or 0)


def plan_in_words(broker: str, broker_id: int, told: Mapping[str, Any]) -> str:
    """Return the plan in words: the log that the slave gives up, and the one that it copies."""
    size = told["max_phy_offset"] - told["min_phy_offset"]
    lines = [
        f"{broker} {broker_id} at {told['address']}: sets aside its log, offsets"
        f" {told['min_phy_offset']} to {told['max_phy_offset']} ({size_in_words(size)}),"
        f" and copies that of {told['follows'] or 'its master'}",
    ]
    if told["reason"]:
        lines.append(f"  it says: {told['reason']}")
    else:
        lines.append("  it does not ask for it: it can follow as it is, or has not tried yet")
    if told["holds_more"]:
        lines.append(f"  ! {_only_copy(broker, told)}")
    return "\n".join(lines)


def _only_copy(broker: str, told: Mapping[str, Any]) -> str:
    home_id = told.get("home_id", "ID")
    return (
        "its log goes further than its master's, or there is no master, so it may be the only copy "
        "of what was acknowledged: make it master with "
        f"`trioha failover {broker} --to {home_id}`, or give --force"
    )
