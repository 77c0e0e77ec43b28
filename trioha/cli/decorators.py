"""Several decorators of a command as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def all_of(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Decorate as if these stood above the function one below the other."""

    def decorate(function: F) -> F:
        decorated: F = reduce(lambda inner, outer: outer(inner), reversed(decorators), function)
        return decorated

    return decorate
