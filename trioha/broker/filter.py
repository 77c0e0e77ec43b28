"""Subscription expressions as filters of messages: by tags, or by SQL92.

Theory of operation. A consume queue entry carries Java's hash of the message's TAGS, sign-extended
to 64 bits. ``*``, an absent or an empty expression take everything; ``a || b`` takes the entries
whose hash is that of `a` or of `b`. Two tags may share a hash: the client looks at the text again.
(FilterAPI.java, ExpressionMessageFilter.java.)

We hash the expression ourselves and do not trust the `codeSet` of a heartbeat: C++ sends it as
strings, and some clients leave it out.

SQL92 is switched off by default, as in RocketMQ (enablePropertyFilter), and refused where the real
broker refuses it. Switched on, an expression becomes a filter of records, which decides about each
record by its properties in the log. Compiled forms are cached by text, so the cache stays valid
when a client changes its expression. To a pull with a wrong expression RocketMQ delivers all
messages; this broker rejects that pull.

Messages of a group's retry topic are not filtered again unless filterSupportRetry is set: then the
group's SQL92 subscription to the first topic of each message decides
(ExpressionForRetryMessageFilter.java).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from trioha.broker.sql.known_answers import NAMES_MAX, KnownAnswers
from trioha.broker.sql.parser import SqlFilter, parse_sql_filter
from trioha.broker.sql.tokens import SqlFilterError
from trioha.errors import CommandError
from trioha.store.interface import MessageFilter, PropertyFilter, RecordFilter, TagFilter
from trioha.wire.codes import ResponseCode
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.java_hash import string_hash
from trioha.wire.properties import RETRY_TOPIC, decode_properties
from trioha.wire.refusals import system_error

SUBSCRIPTION_ALL = "*"
EXPRESSION_CHARS_MAX = 65_536
"""An expression is kept as a cache key and parsed on the loop; real ones have some dozen tags."""
_SHORT_EXPRESSION_CHARS = 512
"""Thousands of filters are kept of shorter expressions; of longer ones, each up to 1 MB, a few."""

_SQL92 = "SQL92"
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


def _compile(expression: str) -> SqlFilter:
    try:
        return parse_sql_filter(expression)
    except SqlFilterError as error:
        raise CommandError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"SQL92 expression {expression!r:.80}: {error}"
        ) from None


# A compiled filter takes some 100 bytes per character, half a megabyte at most.
_short_sql = lru_cache(maxsize=512)(_compile)
_long_sql = lru_cache(maxsize=32)(_compile)


def _sql_filter(expression: str, is_enabled: bool) -> SqlFilter:
    if not is_enabled:
        raise system_error(_SQL92_REMARK)
    if len(expression) > _SHORT_EXPRESSION_CHARS:
        return _long_sql(expression)
    return _short_sql(expression)


def _record_filter(expression: str, is_enabled: bool) -> RecordFilter:
    compiled = _sql_filter(expression, is_enabled)
    if len(expression) > _SHORT_EXPRESSION_CHARS or not 0 < len(compiled.names) <= NAMES_MAX:
        return PropertyFilter(
            lambda properties: compiled.wants(decode_properties(properties)), compiled.operations
        )
    return _answering_filter(compiled)


@lru_cache(maxsize=512)
def _answering_filter(compiled: SqlFilter) -> RecordFilter:
    """Return the filter of an expression, with the answers that earlier pulls computed."""
    return KnownAnswers(compiled.names, compiled.wants, compiled.operations)


def header_filter(
    expression: str, expression_type: str, *, has_sql92: bool
) -> MessageFilter | None:
    """The filter of a subscription that a pull brings along.

    Errors: CommandError(SUBSCRIPTION_PARSE_FAILED) for a broken expression or an unknown type,
    SYSTEM_ERROR for SQL92 where it is switched off.
    """
    if is_tag_expression(expression_type):
        return tag_filter(expression)
    if expression_type == _SQL92:
        return _record_filter(expression, has_sql92)
    raise CommandError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: type {expression_type!r:.40} is unknown",
    )


def heartbeat_filter(
    expression: str, expression_type: str, *, has_sql92: bool
) -> MessageFilter | None:
    """The filter of a subscription that a heartbeat announced.

    Errors: as `header_filter`, but FILTER_DATA_NOT_EXIST for an unknown type and for SQL92 that is
    wrong: no filter was ever compiled for it.
    """
    if is_tag_expression(expression_type):
        return tag_filter(expression)
    try:
        return header_filter(expression, expression_type, has_sql92=has_sql92)
    except CommandError as error:
        if error.code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            raise
        raise CommandError(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            f"the broker's consumer filter data is not exist: {error.remark}",
        ) from None


def retry_filter(subscriptions: Mapping[str, SubscriptionData]) -> RecordFilter | None:
    """The filter of a group's retry topic, or None when the group has no SQL92 subscription.

    A message passes if its first topic has no such subscription, or a wrong one.
    """
    filters: dict[str, SqlFilter] = {}
    for topic, subscription in subscriptions.items():
        if subscription.expression_type == _SQL92:
            try:
                filters[topic] = _sql_filter(subscription.sub_string, True)
            except CommandError:
                continue
    if not filters:
        return None

    def wants(encoded: bytes) -> bool:
        properties = decode_properties(encoded)
        compiled = filters.get(properties.get(RETRY_TOPIC, ""))
        return compiled is None or compiled.wants(properties)

    return PropertyFilter(wants, max(compiled.operations for compiled in filters.values()))


def check_subscription(expression: str, expression_type: str, *, has_sql92: bool) -> None:
    """Check a subscription before a consumer starts with it (CHECK_CLIENT_CONFIG).

    Errors: as `header_filter`. A tag expression always passes, as with the real broker.
    """
    if not is_tag_expression(expression_type):
        header_filter(expression, expression_type, has_sql92=has_sql92)
