"""Settings of a node: their names and defaults; how files, environment and flags set them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trioha.config.settings import (
        DELAY_LEVELS,
        HIDDEN,
        BrokerConfig,
        BrokerRole,
        FlushDiskType,
        NamesrvConfig,
        is_secret,
        key_of,
        without_secret,
    )

__all__ = [
    "DELAY_LEVELS",
    "HIDDEN",
    "BrokerConfig",
    "BrokerRole",
    "FlushDiskType",
    "NamesrvConfig",
    "is_secret",
    "key_of",
    "without_secret",
]


def __getattr__(name: str) -> object:
    """Import the settings when they are asked for: commands of an operator need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("trioha.config.settings"), name)
