"""A topic's permission as people write it: ``rw``, ``r``, ``w`` or ``none``."""

from __future__ import annotations

from trioha.wire.codes import Perm

PERMISSIONS = ("rw", "r", "w", "none")


def perm_of(text: str) -> int:
    """Return RocketMQ's number of ``rw``, ``r``, ``w`` or ``none``."""
    return (Perm.READ if "r" in text else 0) | (Perm.WRITE if "w" in text else 0)


def perm_in_words(perm: int) -> str:
    """Return ``rw``, ``r``, ``w`` or ``none``; other bits do not show."""
    return ("r" if perm & Perm.READ else "") + ("w" if perm & Perm.WRITE else "") or "none"
