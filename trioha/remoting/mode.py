"""The treatments of a request: what a node does with it before, or instead of, its own handler."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Mode(Enum):
    """Treatment of the requests of one code."""

    SERVE = "serve"
    """This node's handler answers at once."""
    SERVE_AND_COPY = "serve_and_copy"
    """The same; the node that requests are forwarded to gets a one-way copy."""
    CONFIRM = "confirm"
    """This node's handler answers once another node has confirmed that this one is not replaced."""
    PARK = "park"
    """The request waits until this node serves again, another node does, or a deadline expires."""
    FORWARD = "forward"
    """The node that serves answers, through this one."""
    REJECT = "reject"
    """The client gets SERVICE_NOT_AVAILABLE and asks a name server for the route."""


Modes = Mapping[int, Mode]
"""Request code -> mode; a code that is not in it is served."""
