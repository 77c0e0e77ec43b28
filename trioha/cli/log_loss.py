"""`trioha log accept-loss`: give up what a stopped broker's store lacks."""

from __future__ import annotations

from typing import Any

import click

from trioha.cli.output import size_in_words
from trioha.cli.stopped_store import StoppedStore, store_options
from trioha.services.ha.open_mastership import is_of_a_set
from trioha.services.loop.clock import Clock
from trioha.store.accept_loss import Loss, accept_loss, find_loss
from trioha.store.store_config import StoreConfig


@click.command("accept-loss")
@store_options
@click.pass_context
def accept_loss_command(ctx: click.Context, /, **flags: Any) -> None:
    """Give up what is missing from the STORE of a stopped broker.

    \b
    trioha log accept-loss /var/lib/trioha --dry-run
    trioha log accept-loss /var/lib/trioha

    For a broker that does not start because files of its store are missing, and only if they
    cannot be put back: mount the disk first, and look for a copy of the files.

    What is left of the log is kept under `cut` in STORE; `trioha ha recover` sends messages of it
    again. A lone broker's log then goes on behind all that it ever held, and each queue at the
    offset where it ended. A node of a replica set begins empty instead and copies its master's log;
    until it has, it does not become master by itself.

    \b
    Exit codes: 0 done (or --dry-run), 1 not confirmed by you, or nothing is missing, or the store
    is in use, 2 usage.
    """
    store = StoppedStore(**flags)
    config = StoreConfig.of(store.config)
    in_set = is_of_a_set(config.root)
    found = find_loss(config, in_set=in_set)
    if found is None:
        raise click.ClickException(
            f"{store.path}: nothing is missing; the broker can start as it is"
        )
    store.show(_lines(found, in_set))
    store.confirm(ctx, found)
    done = accept_loss(config, Clock().wall_ms(), in_set=in_set) or found
    kept = f"; what was left of the log is in {done.set_aside}" if done.set_aside else ""
    store.report(done, [f"Done{kept}. The broker can start."])


def _lines(loss: Loss, in_set: bool) -> list[str]:
    lines = [f"{loss.root}", f"  missing  {loss.reason}"]
    if loss.has_log:
        return [*lines, "  then     the broker starts as one that never had a slave or a failover"]
    if loss.left is not None:
        begin, end = loss.left
        lines.append(
            f"  left     segments from offset {begin} to {end} ({size_in_words(end - begin)}); "
            "they are set aside"
        )
    if in_set:
        return [*lines, "  then     the log begins empty and is copied from the master of the set"]
    return [
        *lines,
        f"  then     the log begins at offset {loss.begins_at}, and {loss.queues} queues go on at "
        "the offset where they ended",
    ]
