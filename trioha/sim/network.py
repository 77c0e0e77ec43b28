"""TCP between simulated hosts: in order, never twice, and as unkind as that allows.

What may happen to a connection: any delay; a cut of one direction, during which bytes wait as a
kernel would keep sending them again, and arrive when the cut is healed, however late that is and
whichever timeout has passed meanwhile; a reset, which loses what is under way in either direction;
the death of a process, which the peer is told of; the death of a machine, which it is not until it
says something itself.

A connection carries items, bytes or any value: only the replication link needs real bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from trioha.sim.scheduler import Scheduler

Item = object
_CLOSE = object()
LATENCY_MS_MAX = 8
SPIKE_CHANCE = 0.01
SPIKE_MS_MAX = 400


class End:
    """One end of a connection. Set `on_item` and `on_close` before anything can arrive."""

    def __init__(self, network: Network, host: str, peer: str) -> None:
        self.host = host
        self.peer = peer
        self.open = True
        self.on_item: Callable[[Item], None] = _ignore_item
        self.on_close: Callable[[], None] = _ignore_close
        self._network = network
        self._other: End = self
        # (due_ms, item), in order; due times never fall.
        self._arriving: deque[tuple[int, Item]] = deque()
        self._delivery_planned = False

    def send(self, item: Item) -> None:
        """Hand an item to the kernel. It may never arrive; nothing tells."""
        if self.open:
            self._other._expect(item)

    def close(self) -> None:
        """Say goodbye after what was sent; nothing arrives here any more."""
        if self.open:
            self.open = False
            self._arriving.clear()
            self._other._expect(_CLOSE)
            self._network._forget(self)

    def vanish(self) -> None:
        """The machine is gone; the peer learns of it when it next says something."""
        self.open = False
        self._arriving.clear()
        self._network._forget(self)

    def lose_arriving(self) -> None:
        """A reset: what was under way to us is gone, and all that comes is the end."""
        self._arriving.clear()
        if self.open:
            self._expect(_CLOSE)

    def resume(self) -> None:
        """The way to us is free again."""
        self._plan_delivery()

    def _expect(self, item: Item) -> None:
        network = self._network
        if not self.open:
            if item is not _CLOSE:
                # No open socket: the kernel of this host, if it runs, answers with a reset.
                self._other._expect(_CLOSE)
            return
        due_ms = network.scheduler.now_ms + network.latency_ms()
        if self._arriving:
            due_ms = max(due_ms, self._arriving[-1][0])
        self._arriving.append((due_ms, item))
        self._plan_delivery()

    def _plan_delivery(self) -> None:
        if self._delivery_planned or not self._arriving:
            return
        if self._network.is_cut(self.peer, self.host):
            return
        self._delivery_planned = True
        scheduler = self._network.scheduler
        scheduler.after(max(0, self._arriving[0][0] - scheduler.now_ms), self._deliver)

    def _deliver(self) -> None:
        self._delivery_planned = False
        if not self._arriving or self._network.is_cut(self.peer, self.host):
            return
        if self._arriving[0][0] > self._network.scheduler.now_ms:
            self._plan_delivery()
            return
        _, item = self._arriving.popleft()
        self._plan_delivery()
        if item is _CLOSE:
            self.open = False
            self._network._forget(self)
            self.on_close()
        else:
            self.on_item(item)


class Network:
    """The cuts between hosts, the listeners, and every open connection."""

    def __init__(self, scheduler: Scheduler, rng: Random) -> None:
        self.scheduler = scheduler
        self._rng = rng
        self._cuts: dict[tuple[str, str], None] = {}
        self._listeners: dict[tuple[str, str], Callable[[End], None]] = {}
        # Dicts, not sets: iterated in the order of their making.
        self._ends: dict[str, dict[End, None]] = {}

    def latency_ms(self) -> int:
        rng = self._rng
        if rng.random() < SPIKE_CHANCE:
            return rng.randint(1, SPIKE_MS_MAX)
        return rng.randint(1, LATENCY_MS_MAX)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Nothing goes from source to target until it is healed."""
        self._cuts[source, target] = None

    def heal(self) -> None:
        """Free all ways; what waited goes on."""
        self._cuts.clear()
        for ends in list(self._ends.values()):
            for end in list(ends):
                end.resume()

    def listen(self, host: str, port: str, on_accept: Callable[[End], None]) -> None:
        self._listeners[host, port] = on_accept

    def connect(self, source: str, target: str, port: str) -> End:
        """Our end at once; the other is accepted, or refused, when the first packet arrives."""
        ours, theirs = End(self, source, target), End(self, target, source)
        ours._other, theirs._other = theirs, ours
        self._ends.setdefault(source, {})[ours] = None
        self._ends.setdefault(target, {})[theirs] = None

        def accept(item: Item) -> None:
            listener = self._listeners.get((target, port))
            if listener is None:
                theirs.close()
            else:
                theirs.on_item = _ignore_item
                listener(theirs)

        theirs.on_item = accept
        theirs._expect("SYN")
        return ours

    def reset_one(self) -> str:
        """Reset one connection, which loses what is on its way; return its two hosts."""
        ends = [end for host in self._ends.values() for end in host]
        if not ends:
            return ""
        end = self._rng.choice(ends)
        end.lose_arriving()
        end._other.lose_arriving()
        return f"{end.host}-{end.peer}"

    def process_died(self, host: str) -> None:
        """Close its connections, as the kernel of a dead process does."""
        self._stop_listening(host)
        for end in list(self._ends.get(host, ())):
            end.close()

    def machine_died(self, host: str) -> None:
        """End its connections; their peers are not told."""
        self._stop_listening(host)
        for end in list(self._ends.get(host, ())):
            end.vanish()

    def _stop_listening(self, host: str) -> None:
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]

    def _forget(self, end: End) -> None:
        self._ends.get(end.host, {}).pop(end, None)


def _ignore_item(item: Item) -> None:
    pass


def _ignore_close() -> None:
    pass
