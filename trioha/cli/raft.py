"""`trioha raft`: groups that elect their masters themselves (DLEDGER mode).

The commands that change members and those that work on a store without a node have modules of their
own.
"""

from __future__ import annotations

import click
import trio

from trioha.cli.client_options import cluster_options
from trioha.cli.failures import ExitCode
from trioha.cli.output import print_json
from trioha.cli.raft_change import add_command, promote_command, remove_command, transfer_command
from trioha.cli.raft_store import convert_command, repair_command
from trioha.cli.raft_words import group_as_dict, groups_in_words, is_well
from trioha.client.raft import look_at_groups
from trioha.errors import TriohaError


@click.group("raft")
def command() -> None:
    """Look at DLEDGER groups, change their leader and their members, mend them.

    \b
    trioha raft status                            the leader, offsets of each member, problems
    trioha raft transfer broker-a --to n1         hand the leadership over; nothing is lost
    trioha raft add broker-a n3 10.0.0.4:10911    take in a member, first as a learner
    trioha raft promote broker-a n3               let it vote
    trioha raft remove broker-a n0                take one out

    A group is started by its settings (enableDLegerCommitLog, dLegerGroup, dLegerPeers,
    dLegerSelfId), or made of a master-slave store by `raft convert`; docs/raft.md tells all of it.
    """


command.add_command(transfer_command)
command.add_command(add_command)
command.add_command(promote_command)
command.add_command(remove_command)
command.add_command(convert_command)
command.add_command(repair_command)


@command.command("status")
@click.argument("group", required=False)
@cluster_options
@click.pass_context
def status(
    ctx: click.Context, group: str | None, namesrv: str, timeout_s: float, output: str
) -> None:
    """Show every DLEDGER group, or GROUP (a broker name), member by member.

    \b
    trioha raft status -n 127.0.0.1:9876
    trioha raft status broker-a -o json

    TERM counts elections; the leader of the newest one is the master. COMMITTED is on the disks of
    a majority: what was answered with SEND_OK is below it, and consumers see nothing beyond it.
    HELD is fsynced at that member. GAP is what it has to be sent yet, HEARD how long ago the leader
    had a word of it.

    \b
    Exit codes: 0 each group has a leader that serves and every member is well; 1 there is no
    group, one has no leader, or a member that answers is not well (`!` says why); 4 no name server
    or a member does not answer.
    """
    groups = trio.run(look_at_groups, namesrv, timeout_s)
    if group is None and not groups:
        raise TriohaError("no DLEDGER group is registered with these name servers")
    if group is not None:
        known = ", ".join(one.name for one in groups) or "none"
        groups = tuple(one for one in groups if one.name == group)
        if not groups:
            raise TriohaError(f"no DLEDGER group {group} is registered; known are: {known}")
    if output == "json":
        print_json({"groups": [group_as_dict(one) for one in groups]})
    else:
        click.echo(groups_in_words(groups))
    if not is_well(groups):
        ctx.exit(ExitCode.FAILED)
    is_silent = any(replica.answer.error for one in groups for replica in one.replicas)
    ctx.exit(ExitCode.UNREACHABLE if is_silent else ExitCode.OK)
