"""`trioha ha resync`: let a slave give up its log and copy its master's anew."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
import trio

from trioha.cli.client_options import namesrv_option, timeout_option
from trioha.cli.failures import ExitCode
from trioha.cli.output import output_option, print_json, size_in_words
from trioha.client import Admin, ClusterConfig, open_admin
from trioha.errors import CommandError, TriohaError, Unreachable
from trioha.wire.codes import ResponseCode

_AGAIN_S = 0.5
_LEVEL_BYTES = 1 << 20
_SILENT_MAX = 10


@click.command("resync")
@click.argument("broker")
@click.option(
    "--id", "broker_id", type=click.IntRange(0), required=True, help="brokerId of the slave."
)
@click.option("--dry-run", is_flag=True, help="Say what would go and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for the broker's name to be typed.")
@namesrv_option
@timeout_option
@output_option
@click.pass_context
def resync_command(
    ctx: click.Context,
    broker: str,
    broker_id: int,
    dry_run: bool,
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

    \b
    Exit codes: 0 the slave follows again (or --dry-run), 1 not confirmed by you or it does not
    follow, 2 usage, 4 the slave does not answer, 5 it refuses: it is a master.
    """
    if output == "json" and not (yes or dry_run):
        raise click.UsageError("-o json asks no questions: give --yes or --dry-run")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("nobody is here to type the broker's name: give --yes or --dry-run")
    told = trio.run(_in_cluster, namesrv, timeout_s, broker, broker_id, True)
    if output == "table":
        click.echo(plan_in_words(broker, broker_id, told))
    if dry_run:
        if output == "json":
            print_json({**told, "result": "dry-run"})
        ctx.exit(ExitCode.OK)
    if not yes:
        typed = click.prompt(f"Type {broker} to go on", default="", show_default=False)
        if typed.strip() != broker:
            click.echo("That is another name; nothing has been done.", err=True)
            ctx.exit(ExitCode.FAILED)
    slave = trio.run(_in_cluster, namesrv, timeout_s, broker, broker_id, False)
    follows = slave.get("state") == "TRANSFER"
    if output == "json":
        print_json({**told, "slave": slave, "result": "done" if follows else "failed"})
    elif follows:
        click.echo("The slave follows and is level.")
    else:
        click.echo(f"! the slave does not follow: {slave.get('last_error')}", err=True)
    ctx.exit(ExitCode.OK if follows else ExitCode.FAILED)


async def _in_cluster(
    namesrv: str, timeout_s: float, broker: str, broker_id: int, dry_run: bool
) -> dict[str, Any]:
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    async with open_admin(namesrv, cluster_config=config) as admin:
        address = await _address_of(admin, broker, broker_id)
        before = await admin.node_status(address)
        told = await admin.resync(address, broker, dry_run=dry_run)
        if dry_run:
            return {"address": address, **told}
        return await _wait_level(admin, address, _attempts(before))


async def _address_of(admin: Admin, broker: str, broker_id: int) -> str:
    info = await admin.cluster_info()
    data = info.broker_addr_table.get(broker)
    if data is None:
        known = ", ".join(sorted(info.broker_addr_table)) or "none"
        raise TriohaError(f"no broker {broker} is registered; known are: {known}")
    address = data.broker_addrs.get(broker_id)
    if address is None:
        known = ", ".join(map(str, sorted(data.broker_addrs)))
        raise TriohaError(f"{broker} has no brokerId {broker_id} registered; it has {known}")
    if broker_id == 0:
        raise CommandError(
            ResponseCode.NO_PERMISSION,
            f"brokerId 0 is the master of {broker}: its log is the one that others copy",
        )
    return str(address)


async def _wait_level(admin: Admin, address: str, before: int) -> dict[str, Any]:
    """Until the slave has copied its master's log, or its next attempt has failed."""
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
    """What would be given up."""
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
    return "\n".join(lines)
