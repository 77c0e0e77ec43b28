"""The declaration: complete, shown in docs/security.md, and asked for by every node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trioha.broker.request_gate import RequestGate
from trioha.errors import LocalProtocolError
from trioha.remoting.channel import Channel, Instant
from trioha.security.requirement import Right
from trioha.security.requirements import (
    PAGES,
    REQUIREMENTS,
    Port,
    check_declared,
    check_pages_declared,
    requirement_of,
    requirements_table,
)
from trioha.services.loop.clock import Clock
from trioha.services.node.request_forwarding import RequestForwarding
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import SENDS, RequestCode
from trioha.wire.remoting_command import RemotingCommand

PAGE = Path(__file__).parents[2] / "docs/security.md"
BEGIN, END = "<!-- begin: requirements -->\n", "<!-- end: requirements -->\n"
TO_CLIENTS = {
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
}
"""Requests that only clients answer, and one that no node answers."""


def serve(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    return request.response()


def test_every_code_that_a_node_may_answer_is_declared() -> None:
    declared = {code for table in REQUIREMENTS.values() for code in table}
    assert declared == set(RequestCode) - TO_CLIENTS


def test_a_gate_with_an_undeclared_handler_is_not_made() -> None:
    forwarding = RequestForwarding(Clock(), RecordedEvents())
    with pytest.raises(LocalProtocolError, match=r"request code 31999 of a broker.*requirements"):
        RequestGate([{31_999: serve}], forwarding, RecordedEvents(), serve)


def test_an_undeclared_handler_is_refused_at_each_port() -> None:
    with pytest.raises(LocalProtocolError, match="request code 10 of a name server"):
        check_declared(Port.NAMESRV, [RequestCode.GET_ROUTEINFO_BY_TOPIC, 10])
    with pytest.raises(LocalProtocolError, match="request code 105 of a broker"):
        requirement_of(Port.BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    with pytest.raises(LocalProtocolError, match="page /secrets"):
        check_pages_declared([*PAGES, "/secrets"])


def test_only_routes_and_pages_are_for_everybody() -> None:
    anonymous = {
        (port, code)
        for port, table in REQUIREMENTS.items()
        for code, requirement in table.items()
        if requirement.right is Right.ANONYMOUS
    }
    assert anonymous == {
        (Port.NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC),
        (Port.NAMESRV, RequestCode.GET_BROKER_CLUSTER_INFO),
        (Port.NAMESRV, RequestCode.GET_KV_CONFIG),
    }


def test_every_request_that_stores_a_message_names_a_topic_a_group_or_a_message() -> None:
    for code in SENDS:
        requirement = requirement_of(Port.BROKER, code)
        assert requirement.topic or requirement.group or requirement.message, code


def test_the_table_of_the_security_page_is_current() -> None:
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, BEGIN
    assert end, END
    made = f"{before}{BEGIN}\n{requirements_table()}\n{END}{after}"
    if os.environ.get("TRIOHA_REWRITE"):
        PAGE.write_text(made)
    assert text == made or os.environ.get("TRIOHA_REWRITE"), "run `just rewrite`"
