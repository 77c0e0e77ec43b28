"""Exceptions of a block are not wrapped by tasks that its user does not know of."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trioha.services.loop.background import open_background_nursery


async def test_the_blocks_own_exception_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with open_background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise ValueError("mine")


async def test_a_group_the_block_raises_stays_that_group() -> None:
    mine = ExceptionGroup("mine", [ValueError()])
    with pytest.raises(ExceptionGroup) as caught:
        async with open_background_nursery():
            raise mine
    assert caught.value is mine


async def test_a_background_failure_comes_in_a_group() -> None:
    async def fail() -> None:
        raise ValueError("background")

    with pytest.RaisesGroup(ValueError):
        async with open_background_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()


async def test_cancelling_the_block_from_outside_works() -> None:
    with trio.CancelScope() as scope:
        async with open_background_nursery():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_the_blocks_own_exception_comes_out_of_a_cancelled_scope() -> None:
    """The tasks behind the block end with Cancelled then, which is no failure of theirs."""
    with trio.CancelScope() as scope:
        with pytest.raises(ValueError, match="mine"):
            async with open_background_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                raise ValueError("mine")
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_a_background_failure_is_not_hidden_by_a_cancelled_scope() -> None:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("background")

    with trio.CancelScope() as scope, pytest.RaisesGroup(ValueError, KeyError):
        async with open_background_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            raise ValueError("mine")
