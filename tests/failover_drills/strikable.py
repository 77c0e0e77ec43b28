"""A trioha node that can be struck between two steps: `python strikable.py run broker …`.

The node is the shipped one. Around some of its methods this script looks for the file that
STRIKE_FILE names: `failover_drills.traps` writes a step and a signal into it. When the node comes
to that step it renames the file, so that the signal comes once, and sends the signal to itself.
SIGKILL and SIGSTOP take effect before the next line of the node's code runs.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from failover_drills.strikable_steps import STRUCK_SUFFIX

from trioha.broker.failover import FailoverProcessor
from trioha.cli import main
from trioha.ha.mastership import FILE_NAME, kept_history
from trioha.services.admin.event_counts import EventCounts
from trioha.services.node.namesrv_registration import NamesrvRegistration, _NamesrvLink
from trioha.store.two_slot_file import TwoSlotFile
from trioha.wire.codes import RequestCode

STRIKE_FILE = Path(os.environ["STRIKE_FILE"])


def strike(step: str) -> None:
    """Die or stop here, if the test says so."""
    try:
        armed: Mapping[str, Any] = json.loads(STRIKE_FILE.read_bytes())
        if armed["step"] == step:
            STRIKE_FILE.rename(STRIKE_FILE.with_name(STRIKE_FILE.name + STRUCK_SUFFIX))
    except FileNotFoundError:
        return  # not armed, or not any more
    if armed["step"] == step:
        # Sent to this very thread: it does not come back from the call before it is stopped.
        signal.pthread_kill(threading.get_ident(), armed["signal"])


def replace(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def around_requests(handlers: Callable[..., dict[int, Any]]) -> Any:
    """Before and after each request of a failover is handled."""

    def strikable(code: int, handler: Any) -> Any:
        name = RequestCode(code).name.lower().replace("_", " ")

        def handle(*arguments: Any) -> Any:
            strike(f"before {name}")
            response = handler(*arguments)
            strike(f"after {name}")
            return response

        return handle

    def all_of(self: Any) -> dict[int, Any]:
        return {code: strikable(code, handler) for code, handler in handlers(self).items()}

    return all_of


def around_epochs(save: Callable[..., None]) -> Any:
    """Before and after the file `epochs` holds a new term of this node's own."""
    own_id = int(sys.argv[sys.argv.index("--id") + 1])

    def save_and_strike(self: Any, payload: bytes) -> None:
        is_new = False
        if self._slots[0].stem == FILE_NAME:
            newest = kept_history(payload).newest
            before = kept_history(self.payload).epoch if self.payload is not None else 0
            is_new = newest is not None and newest.home_id == own_id and newest.epoch > before
        if is_new:
            strike("before epochs")
        save(self, payload)
        if is_new:
            strike("after epochs")

    return save_and_strike


def after_events(event: Callable[..., None]) -> Any:
    """After the node has taken the role of a master, in the same scheduler pass."""

    def tell_and_strike(self: Any, name: str, **fields: object) -> None:
        event(self, name, **fields)
        if name == "role" and fields.get("role") != "SLAVE":
            strike("after role")

    return tell_and_strike


def before_registration(registration: Callable[..., Any]) -> Any:
    """Before a name server is told that this node is master."""

    async def make_and_strike(self: Any, only: Any) -> Any:
        command = await registration(self, only)
        if "epoch" in command.ext_fields and "epochInDoubt" not in command.ext_fields:
            strike("before register")
        return command

    return make_and_strike


def after_registration(held: Callable[..., None]) -> Any:
    """After a name server has accepted that."""

    def hold_and_strike(self: Any, response: Any, **told: bool) -> None:
        held(self, response, **told)
        identity = self._owner.identity
        if identity.epoch and identity.broker_id == 0 and not identity.in_doubt:
            strike("after register")

    return hold_and_strike


if __name__ == "__main__":
    replace(FailoverProcessor, "handlers", around_requests)
    replace(TwoSlotFile, "save", around_epochs)
    replace(EventCounts, "event", after_events)
    replace(NamesrvRegistration, "registration", before_registration)
    replace(_NamesrvLink, "_held", after_registration)
    main()
