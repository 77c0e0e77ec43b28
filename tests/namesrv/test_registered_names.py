"""Names that a broker would refuse, told to a name server."""

from __future__ import annotations

import attrs
import pytest
from support.handlers.namesrv import MASTER, register_request, route_request, topics
from support.handlers.sending import FakeChannel

from trioha.config import NamesrvConfig
from trioha.errors import CommandError
from trioha.namesrv.kv_config import KvConfig
from trioha.namesrv.processor import NamesrvProcessor
from trioha.namesrv.registered_names import check_registered_names
from trioha.namesrv.route_info import BrokerAddress
from trioha.remoting.channel import Instant
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ResponseCode
from trioha.wire.names import check_topic
from trioha.wire.remoting_command import RemotingCommand

PRINTABLE = ["[red]x[/]", "../../etc"]
HOSTILE = ["\x1b]0;owned\x07", "a\nb", "a\x9b31m", "\u202egnp.exe", "a b", "é", *PRINTABLE]


def refused(request: RemotingCommand) -> str:
    processor = NamesrvProcessor(NamesrvConfig(), KvConfig(), RecordedEvents())
    with pytest.raises(CommandError) as refusal:
        processor.handlers()[request.code](FakeChannel(), request, Instant(0, 0))
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert not processor.routes.topics()
    assert not processor.routes._live
    return refusal.value.remark


@pytest.mark.parametrize("name", HOSTILE)
def test_a_topic_is_refused_with_the_brokers_words(name: str) -> None:
    with pytest.raises(CommandError) as words:
        check_topic(name)
    assert refused(register_request(table=topics("T", name))) == words.value.remark
    assert refused(route_request(name)) == words.value.remark


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", ["cluster", "broker_name", "address"])
def test_a_broker_with_such_a_name_is_refused(field: str, name: str) -> None:
    if field == "address" and name in PRINTABLE:
        return  # an address is no file name, and nothing takes it for markup
    broker = BrokerAddress(**(attrs.asdict(MASTER) | {field: name}))
    assert "contains illegal characters" in refused(register_request(broker))


def test_an_illegal_address_for_slaves_is_refused() -> None:
    request = register_request(MASTER, ha_server_addr="\x1b[2J:1")
    assert "address" in refused(request)


def test_what_rocketmqs_own_broker_registers_is_taken() -> None:
    check_registered_names(
        "DefaultCluster",
        "node-1.example",
        ("10.0.0.1:10911", "", "[fe80::1]:10912"),
        (
            "node-1.example",
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            "%RETRY%" + "g" * 255,
            "%RETRY%group+topic",
            "%DLQ%g",
            "TBW102",
            "a%b|c_d-e",
        ),
    )
