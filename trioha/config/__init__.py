"""Settings of a node: their names and defaults; how files, environment and flags set them."""

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
