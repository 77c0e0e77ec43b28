"""Subscription expressions as filters on the tags code of a consume queue entry.

Theory of operation. A consume queue entry carries Java's hash of the message's TAGS, sign-extended
to 64 bits. ``*``, an absent or an empty expression take everything; ``a || b`` takes the entries
whose hash is that of `a` or of `b`. Two tags may share a hash: the client looks at the text again.
(FilterAPI.java, ExpressionMessageFilter.java.)

We hash the expression ourselves and do not trust the `codeSet` of a heartbeat: C++ sends it as
strings, and some clients leave it out. SQL92 needs a compiler that RocketMQ, too, has switched off
by default (enablePropertyFilter): it is refused where the real broker refuses it.
"""

from __future__ import annotations

from functools import lru_cache

from trioha.errors import CommandError
from trioha.store.interface import TagFilter
from trioha.wire.codes import ResponseCode
from trioha.wire.java_hash import string_hash
from trioha.wire.refusals import system_error

SUBSCRIPTION_ALL = "*"
EXPRESSION_CHARS_MAX = 65_536
"""An expression is kept as a cache key and parsed on the loop; real ones have some dozen tags."""
_SHORT_EXPRESSION_CHARS = 512
"""Thousands of filters are kept of shorter expressions; of longer ones, each up to 1 MB, a few."""

_SQL92_REMARK = "The broker does not support consumer to filter message by SQL92"


def is_tag_expression(expression_type: str | None) -> bool:
    """Absent and empty mean TAG: clients before 4.1 know nothing else."""
    return not expression_type or expression_type == "TAG"


def tag_filter(expression: str | None) -> TagFilter | None:
    """The filter of a tag expression, or None when it takes everything.

    Errors: CommandError(SUBSCRIPTION_PARSE_FAILED) when the expression has no tag in it.
    """
    if expression and len(expression) > _SHORT_EXPRESSION_CHARS:
        return _long_filter(expression)
    return _short_filter(expression)


def _parse(expression: str | None) -> TagFilter | None:
    text = (expression or "").strip()
    if not text or text == SUBSCRIPTION_ALL:
        return None
    if len(text) > EXPRESSION_CHARS_MAX:
        raise CommandError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription has {len(text)} characters, at most {EXPRESSION_CHARS_MAX} do",
        )
    codes = {string_hash(tag) for part in text.split("||") if (tag := part.strip())}
    if not codes:
        raise CommandError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"no tag in the subscription {text!r:.80}"
        )
    # RocketMQ compares the low 32 bits only. That differs from comparing all 64 in the delay topic
    # alone, whose entries carry delivery times; there a tag filter has no meaning anyway.
    return frozenset(codes).__contains__


_short_filter = lru_cache(maxsize=4096)(_parse)
_long_filter = lru_cache(maxsize=16)(_parse)


def header_filter(expression: str, expression_type: str) -> TagFilter | None:
    """The filter of a subscription that a pull brings along.

    Errors: CommandError(SUBSCRIPTION_PARSE_FAILED) for a broken expression or an unknown type,
    SYSTEM_ERROR for SQL92.
    """
    if is_tag_expression(expression_type):
        return tag_filter(expression)
    if expression_type == "SQL92":
        raise system_error(_SQL92_REMARK)
    raise CommandError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: type {expression_type!r:.40} is unknown",
    )


def heartbeat_filter(expression: str, expression_type: str) -> TagFilter | None:
    """The filter of a subscription that a heartbeat announced.

    Errors: as `header_filter`, but FILTER_DATA_NOT_EXIST for an unknown type: no filter was ever
    compiled for it.
    """
    if is_tag_expression(expression_type):
        return tag_filter(expression)
    if expression_type == "SQL92":
        raise system_error(_SQL92_REMARK)
    raise CommandError(
        ResponseCode.FILTER_DATA_NOT_EXIST,
        f"the broker's consumer filter data is not exist: type {expression_type!r:.40} is unknown",
    )


def check_subscription(expression: str, expression_type: str) -> None:
    """Judge a subscription before a consumer starts with it (CHECK_CLIENT_CONFIG).

    Errors: as `header_filter`. A tag expression always passes, as with the real broker.
    """
    if not is_tag_expression(expression_type):
        header_filter(expression, expression_type)
