"""The decorator of small values that the core gives to its shell, one for each read, for example.

For mypy they are frozen. At run time nothing checks that: the check makes an object of eight fields
in 2.9 us rather than 0.5. What each put needs is written out, as native classes (`messages`,
`ready.Ready`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from attrs import frozen as value
else:
    value = attrs.define(unsafe_hash=True)

__all__ = ["value"]
