"""/livez and /readyz (Kubernetes' names): does the node's loop turn, and should clients use it?

A node that answers at all is alive: the loop that makes the page serves all clients. Ready is more:
each check is a line of the answer, ``[+] name`` or ``[-] name: what is wrong``, and one that fails
makes the answer 503.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trioha.services.admin.http import OnGet, Page

Check = tuple[str, str]
"""Name of the check and the fault, "" if there is none."""


def alive(_accept: str) -> Page:
    """The /livez page."""
    return Page(b"alive\n")


def ready(checks: Callable[[], Iterator[Check]]) -> OnGet:
    """The /readyz page of a node with these checks."""

    def page(_accept: str) -> Page:
        told = list(checks())
        lines = [f"[-] {name}: {wrong}" if wrong else f"[+] {name}" for name, wrong in told]
        is_ready = not any(wrong for _, wrong in told)
        lines.append("ready" if is_ready else "not ready")
        return Page("\n".join([*lines, ""]).encode(), status=200 if is_ready else 503)

    return page


def namesrv_checks() -> Iterator[Check]:
    """A name server is ready as soon as it serves."""
    yield "serving", ""
