"""Takes secrets out of text that leaves the house: by the names they stand beside.

Nodes tell no secrets to begin with. This is for what they may have been told: a peer's error that
quotes a setting, a configuration of another make, a traceback.
"""

from __future__ import annotations

import re
from typing import Any

from trioha.config import HIDDEN, is_secret

_NAMES = r"[\w.\-]*(?:secret|password|passwd|token|access_?key|credential)[\w.\-]*"
# name = value, name: value, "name": "value", also with the quotes escaped once or twice. Between
# quotes a secret may hold anything, without them it ends with the word.
_PAIR = re.compile(
    rf"""(?P<name>{_NAMES}\\*["']?\s*[:=]\s*)"""
    r"""(?:(?P<quote>\\*["']).+?(?<!\\)(?P=quote)|(?P<open>\\*["']?)[^\s"'\\,;&}\])]+)""",
    re.IGNORECASE,
)
_URL = re.compile(r"(?P<head>\w+://[^\s/:@]+:)(?P<value>[^\s/@]+)@")


def redacted(text: str) -> str:
    """The text with the values of what sounds like a secret replaced."""
    text = _PAIR.sub(_hidden, text)
    return _URL.sub(lambda found: f"{found['head']}{HIDDEN}@", text)


def _hidden(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    return f"{found['name']}{quote or found['open']}{HIDDEN}{quote}"


def without_secrets(value: Any) -> Any:
    """Plain values with every secret setting hidden, and every text redacted."""
    if isinstance(value, dict):
        # Settings come as {"haSecret": …} and as {"key": "haSecret", "value": …}.
        named = isinstance(value.get("key"), str) and is_secret(value["key"])
        return {
            key: HIDDEN
            if inner and (is_secret(str(key)) or (named and key == "value"))
            else without_secrets(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(inner) for inner in value]
    return redacted(value) if isinstance(value, str) else value
