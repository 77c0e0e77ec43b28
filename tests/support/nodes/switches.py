"""Kinds of switches of a set on virtual time: another broker becomes master, or the same again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from support.nodes.virtual_set import VirtualSet
from trioha.failover.outcome import Result

Switch = Callable[[VirtualSet, int, int], Awaitable[None]]


async def planned(set_: VirtualSet, old: int, new: int) -> None:
    outcome = await set_.fail_over(to=new)
    assert outcome.result is Result.DONE, outcome.message


async def killed(set_: VirtualSet, old: int, new: int) -> None:
    await set_[old].kill()
    await _forced(set_)
    await set_[old].start()


async def restarted(set_: VirtualSet, old: int, new: int) -> None:
    await set_[old].kill()
    await set_[old].start()


async def cut_off(set_: VirtualSet, old: int, new: int) -> None:
    """Clients still reach the old master: it goes on for a while, and cuts its log later."""
    others = [broker.host for broker in set_.brokers if broker.home_id != old]
    set_.cut(set_[old].host, *others, "10.0.9.1", "10.0.9.2")
    await _forced(set_, to=new)
    await trio.sleep(5)
    set_.heal()


async def _forced(set_: VirtualSet, *, to: int | None = None) -> None:
    """Force a switch as an operator does: a plan that is out of date is made once more.

    Slaves notice one after the other that their master is gone, and the facts change with each.
    """
    for _ in set_.brokers:
        outcome = await set_.fail_over(to=to, force=True)
        is_stale = outcome.message.startswith("the facts have changed since the plan was made")
        if not (outcome.result is Result.REFUSED and is_stale):
            break
    assert outcome.result is Result.DONE, outcome.message
