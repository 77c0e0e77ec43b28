from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.lowlevel
import trio.testing
from support.suite.skips import skip_unless

from trioha.services.loop.parked_reader import Take
from trioha.services.loop.ready_reads import start_ready_reads
from trioha.services.loop.transport import SocketTransport, Transport, connect, open_listener

PATIENCE_S = 60.0


class Ends:
    """Both ends of a connection, and what its near end has taken."""

    def __init__(self, near: Transport, far: SocketTransport) -> None:
        self.near = near
        self.far = far
        self.taken = b""
        self.has_taken = trio.Event()

    def take_until(self, last: bytes) -> Take:
        """Take bytes until they end with `last`."""

        def take(data: bytes) -> bool:
            self.taken += data
            self.has_taken.set()
            return not self.taken.endswith(last)

        return take


@pytest.fixture(params=["inside the wait", "by a task"])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    if request.param == "inside the wait":
        skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    listener = open_listener("127.0.0.1", 0)
    far = await connect("127.0.0.1", listener.port)
    near = await listener.accept()
    with trio.fail_after(PATIENCE_S):
        yield Ends(near, far)
    for end in (near, far, listener):
        end.close()


async def test_bytes_are_taken_until_the_task_is_asked_for(ends: Ends) -> None:
    ends.far.try_send([b"some;"])
    assert await ends.near.receive_each(ends.take_until(b";"))
    assert ends.taken == b"some;"
    ends.far.try_send([b"more."])
    await trio.testing.wait_all_tasks_blocked()
    assert ends.taken == b"some;", "nobody waits for these"
    assert await ends.near.receive_each(ends.take_until(b"."))
    assert ends.taken == b"some;more."


async def test_the_end_of_the_stream_wakes_the_task(ends: Ends) -> None:
    ends.far.try_send([b"last"])
    ends.far.finish()
    assert not await ends.near.receive_each(ends.take_until(b"never"))
    assert ends.taken == b"last"


async def test_a_reset_is_told_to_the_task(ends: Ends) -> None:
    ends.far.abort()
    with pytest.raises(trio.BrokenResourceError, match="reset"):
        await ends.near.receive_each(ends.take_until(b"never"))


async def test_an_error_of_what_takes_is_the_tasks(ends: Ends) -> None:
    def take(data: bytes) -> bool:
        raise ValueError(data)

    ends.far.try_send([b"bad"])
    with pytest.raises(ValueError, match="bad"):
        await ends.near.receive_each(take)


async def test_who_is_cancelled_takes_nothing_any_more(ends: Ends) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.near.receive_each, ends.take_until(b"never"))
        await trio.testing.wait_all_tasks_blocked()
        ends.far.try_send([b"taken"])
        await ends.has_taken.wait()
        nursery.cancel_scope.cancel()
        ends.far.try_send([b"late"])
    assert ends.taken == b"taken"
    assert await ends.near.receive_each(ends.take_until(b"late"))


async def test_what_takes_cancels_its_own_task(ends: Ends) -> None:
    with trio.CancelScope() as scope:

        def take(data: bytes) -> bool:
            scope.cancel()
            return ends.take_until(b"never")(data)

        ends.far.try_send([b"x"])
        await ends.near.receive_each(take)
    assert scope.cancelled_caught
    assert ends.taken == b"x"


async def test_an_error_is_not_lost_in_a_cancelled_task(ends: Ends) -> None:
    def take(data: bytes) -> bool:
        scope.cancel()
        raise ValueError(data)

    ends.far.try_send([b"bad"])
    with trio.CancelScope() as scope, pytest.raises(ValueError, match="bad"):
        await ends.near.receive_each(take)


async def test_a_close_ends_the_wait(ends: Ends) -> None:
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await ends.near.receive_each(ends.take_until(b"never"))

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        ends.near.close()


async def test_what_takes_closes_its_own_connection(ends: Ends) -> None:
    def take(data: bytes) -> bool:
        ends.near.close()
        return ends.take_until(b"never")(data)

    ends.far.try_send([b"x"])
    with pytest.raises(trio.ClosedResourceError):
        await ends.near.receive_each(take)
    assert ends.taken == b"x"
