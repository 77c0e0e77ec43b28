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
    outcome = await set_.fail_over(force=True)
    assert outcome.result is Result.DONE, outcome.message
    await set_[old].start()


async def restarted(set_: VirtualSet, old: int, new: int) -> None:
    await set_[old].kill()
    await set_[old].start()


async def cut_off(set_: VirtualSet, old: int, new: int) -> None:
    """Clients still reach the old master: it goes on for a while, and cuts its log later."""
    others = [broker.host for broker in set_.brokers if broker.home_id != old]
    set_.cut(set_[old].host, *others, "10.0.9.1", "10.0.9.2")
    outcome = await set_.fail_over(to=new, force=True)
    assert outcome.result is Result.DONE, outcome.message
    await trio.sleep(5)
    set_.heal()
