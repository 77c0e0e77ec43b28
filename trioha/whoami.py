"""Who runs this, for what nodes keep of changes made to them."""

from __future__ import annotations

import getpass
import socket
from contextlib import suppress


def operator_here() -> str:
    """Who, and on which machine: ``anna@ops-1``."""
    name = "somebody"
    with suppress(OSError, KeyError):
        name = getpass.getuser()
    return f"{name}@{socket.gethostname()}"
