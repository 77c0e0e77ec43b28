"""`trioha raft convert|repair`: what is done with the store of a node that is stopped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from trioha.broker.raft.repair import Findings, examine, give_up_vote
from trioha.cli.failures import ExitCode
from trioha.cli.output import size_in_words
from trioha.cli.progress import TerminalProgress
from trioha.cli.stopped_store import StoppedStore, store_options
from trioha.config import BrokerConfig
from trioha.services.loop.clock import Clock
from trioha.services.raft.convert import Conversion, convert_to_group, convert_to_plain
from trioha.store.store_config import StoreConfig


@click.command("convert")
@store_options
@click.option("--back", is_flag=True, help="A member's store becomes a master's.")
@click.pass_context
def convert_command(ctx: click.Context, /, back: bool, **flags: Any) -> None:
    """Make the STORE of a stopped master the first of a DLEDGER group, or with --back the reverse.

    \b
    trioha raft convert /var/lib/trioha/a --dry-run
    trioha raft convert /var/lib/trioha/a             then start it with enableDLegerCommitLog=true
    trioha raft convert /var/lib/trioha/a --back      then start it as a master again

    No byte of the log is rewritten, and messages keep their offsets. Into a group: convert the
    master's store, and begin the other members empty; the group is founded with what this one
    holds, and fills them. Back: stop all members first, and convert the one whose log ends in the
    newest term at the largest offset (--dry-run on each tells); the others' stores are not needed
    any more.

    \b
    Exit codes: 0 done (or it could be), 1 not confirmed by you, or refused and nothing has
    changed, 2 usage.
    """
    store = StoppedStore(**flags)
    config = store.config
    convert = convert_to_plain if back else convert_to_group
    found: Conversion = trio.run(partial(convert, config, dry_run=True))
    store.show(_conversion_lines(found, back))
    store.confirm(ctx, found)
    done: Conversion = trio.run(partial(convert, config, dry_run=False))
    store.report(done, _next_steps(done, config, back))


@click.command("repair")
@store_options
@click.option(
    "--new-id", is_flag=True, help="Forget who it was: it is to join under another dLegerSelfId."
)
@click.option("--force", is_flag=True, help="Also if nothing is found to be damaged.")
@click.pass_context
def repair_command(ctx: click.Context, /, new_id: bool, force: bool, **flags: Any) -> None:
    """Set the damaged log of a stopped member aside, and give up its vote.

    \b
    trioha raft repair /var/lib/trioha/a --dry-run    what is damaged
    trioha raft repair /var/lib/trioha/a
    trioha raft repair /var/lib/trioha/a --new-id     once the group has removed it

    Everything goes into a folder repair-<time> in STORE and is yours to look at and to delete.
    Started again the member is a copy, filled from the leader: it may have forgotten what it
    promised, and so never votes again under its id. With --new-id its vote record goes as well:
    after `trioha raft remove` it can join as somebody else (`raft add`, `promote`).

    \b
    Exit codes: 0 done (or it could be), 1 not confirmed by you, or nothing is damaged, or STORE is
    no member's, 2 usage.
    """
    store = StoppedStore(**flags)
    of_store = StoreConfig.of(store.config)
    progress = TerminalProgress()
    progress.begin("reading", 0, "bytes")
    try:
        found = examine(of_store)
    finally:
        progress.end()
    store.show(_finding_lines(found, new_id))
    refusal = _refusal(found, new_id, force)
    if refusal:
        store.report(found, [f"! {refusal}"], result="refused", message=refusal)
        ctx.exit(ExitCode.FAILED)
    store.confirm(ctx, found, message="")
    aside = give_up_vote(of_store, Clock().wall_ms(), forget=new_id)
    store.report(found, _after_repair(found, aside, new_id), set_aside=str(aside))


def _conversion_lines(found: Conversion, back: bool) -> list[str]:
    size = size_in_words(found.end_offset - found.begin_offset)
    lines = [
        f"{found.root}",
        f"  log      offsets {found.begin_offset} to {found.end_offset} ({size})",
    ]
    if back:
        return [
            *lines,
            f"  term     {found.term} is the newest in it; no other member's log may end in a",
            "           newer one, or in this one at a larger offset",
            f"  becomes  a master's store of epoch {found.epoch}",
        ]
    newest = found.epoch or "none"
    return [
        *lines,
        f"  epoch    {newest} is the newest of its set",
        f"  becomes  the first member's of a group; all it holds is of term {found.term}",
    ]


def _next_steps(done: Conversion, config: BrokerConfig, back: bool) -> list[str]:
    if back:
        return [
            f"{done.root} is a master's store again; the group's files are in {done.set_aside}.",
            "Start it as before: brokerRole=SYNC_MASTER or ASYNC_MASTER, without the dLeger keys.",
            "Its slaves begin with empty stores. The other members' stores may be deleted then.",
        ]
    return [
        f"{done.root} is the first of a group. Start it, and two others with empty stores, with",
        "  enableDLegerCommitLog=true",
        "  dLegerSelfId=n0                          n1 and n2 there",
        f"  dLegerPeers=n0-HOST:{config.listen_port};n1-HOST:PORT;n2-HOST:PORT",
        "and without brokerRole and brokerId. `trioha raft status` tells when they are level.",
    ]


def _refusal(found: Findings, new_id: bool, force: bool) -> str:
    if new_id:
        if not found.is_impaired and not force:
            return (
                "its vote is whole: to forget it lets this disk vote twice; `trioha raft remove"
                f" {found.group} {found.member_id}` first, then --force"
            )
    elif found.is_impaired and not found.damage:
        return "it has given up its vote already, and nothing is damaged: start it, or --new-id"
    elif not found.damage and not force:
        return (
            "nothing is damaged before its last record; --force gives its vote up all the same, as"
            " for a node that says that its log ends too early"
        )
    return ""


def _finding_lines(found: Findings, new_id: bool) -> list[str]:
    who = f"{found.member_id} of group {found.group}" if found.member_id else "an unknown member"
    vote = "given up already" if found.is_impaired else "whole" if found.member_id else "unreadable"
    lines = [
        f"{found.root}, the store of {who}",
        f"  log      {size_in_words(found.log_bytes)}",
        f"  vote     {vote}",
        *(f"  damaged  {one}" for one in found.damage),
    ]
    if not found.damage:
        lines.append("  damaged  nothing")
    what = "the log and the vote record" if new_id else "the log, and give up the vote"
    return [*lines, f"  would    set aside {what}"]


def _after_repair(found: Findings, aside: Path, new_id: bool) -> list[str]:
    group, member = found.group or "GROUP", found.member_id or "MEMBER"
    if new_id:
        return [
            f"Set aside in {aside}.",
            "The store is empty now, and can join under an id that the group has never had:",
            f"  trioha raft add {group} nX HOST:PORT",
            "  start it with dLegerSelfId=nX",
            f"  trioha raft promote {group} nX           once it is level",
        ]
    return [
        f"Set aside in {aside}; delete that when you do not need it any more.",
        "Start it again: it is filled from the leader and does not vote. For a voter in its place:",
        f"  trioha raft remove {group} {member}",
        f"  trioha raft repair {found.root} --new-id     with it stopped",
        f"  trioha raft add {group} nX HOST:PORT     with an id that the group has never had",
        "  start it with dLegerSelfId=nX",
        f"  trioha raft promote {group} nX           once it is level",
    ]
