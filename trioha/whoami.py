"""Name of the operator, for the audit records of the nodes."""

from __future__ import annotations

import getpass
import socket
from contextlib import suppress


def operator_here() -> str:
    """Return the operator and the machine: ``anna@ops-1``."""
    name = "somebody"
    with suppress(OSError, KeyError):
        name = getpass.getuser()
    return f"{name}@{socket.gethostname()}"
