from __future__ import annotations

import attrs
import pytest
from support.handlers.consuming import ConsumeSide, request

from trioha.broker.admin_config import BODY_BYTES_MAX, REMOTE_KEYS
from trioha.config import BrokerConfig, key_of
from trioha.config.files import parse_properties
from trioha.config.values import PATH_KEYS
from trioha.errors import RemoteProtocolError
from trioha.wire.bodies import DataVersion
from trioha.wire.codes import RequestCode, ResponseCode


def update(side: ConsumeSide, text: bytes) -> int:
    return side.ask(request(RequestCode.UPDATE_BROKER_CONFIG, text)).code


def shown(side: ConsumeSide) -> dict[str, str]:
    response = side.ask(request(RequestCode.GET_BROKER_CONFIG))
    assert response.code == 0
    return {key: value for _, key, value in parse_properties(response.body_bytes().decode())}


def version(side: ConsumeSide) -> DataVersion:
    response = side.ask(request(RequestCode.GET_BROKER_CONFIG))
    return DataVersion.decode(response.ext_str("version").encode())


def test_every_setting_is_shown_under_rocketmqs_name() -> None:
    settings = shown(ConsumeSide())
    of_java = {
        *("clientCallbackExecutorThreads", "filterServerNums"),
        *("msgTraceTopicName", "useTLS"),
    }
    assert set(settings) == {key_of(field) for field in attrs.fields(BrokerConfig)} | of_java
    assert settings["brokerName"] == "broker-a"
    assert settings["slaveReadEnable"] == "false"
    assert settings["brokerRole"] == "ASYNC_MASTER"
    assert settings["mappedFileSizeCommitLog"] == "1073741824"


def test_secret_is_never_shown() -> None:
    side = ConsumeSide(BrokerConfig(ha_secret="hunter2"))
    response = side.ask(request(RequestCode.GET_BROKER_CONFIG))
    assert b"hunter2" not in response.body_bytes()
    assert shown(side)["haSecret"] == "******"


def test_allowed_setting_is_applied_and_makes_a_new_version() -> None:
    side = ConsumeSide()
    before = version(side)
    assert update(side, b"slaveReadEnable=true\nshortPollingTimeMills=250\n") == 0
    (config,) = side.applied
    assert (config.slave_read_enable, config.short_polling_time_mills) == (True, 250)
    assert shown(side)["slaveReadEnable"] == "true"
    assert version(side) != before


def test_no_setting_that_names_a_path_an_address_or_a_role_can_be_set() -> None:
    # CVE-2023-33246: such a value reached a shell.
    forbidden = {key_of(field) for field in attrs.fields(BrokerConfig)} - REMOTE_KEYS
    assert forbidden >= PATH_KEYS - {"kvConfigPath", "journalPath"}
    assert all(
        isinstance(getattr(BrokerConfig(), f.name), (bool, int))
        for f in attrs.fields(BrokerConfig)
        if key_of(f) in REMOTE_KEYS
    )
    side = ConsumeSide()
    for key in sorted(forbidden | {"rocketmqHome", "brokerConfigPath", "filterServerNums", "x"}):
        assert update(side, f"{key}=1".encode()) == ResponseCode.NO_PERMISSION, key
    assert side.applied == []


def test_one_forbidden_key_refuses_the_whole_request() -> None:
    side = ConsumeSide()
    text = b"slaveReadEnable=true\nstorePathRootDir=/tmp/x\n"
    assert update(side, text) == ResponseCode.NO_PERMISSION
    assert side.applied == []
    assert shown(side)["slaveReadEnable"] == "false"


@pytest.mark.parametrize(
    "text",
    [
        b"slaveReadEnable=maybe",
        b"shortPollingTimeMills=0",
        b"shortPollingTimeMills=soon",
        b"\xff\xfe",
        b"#" * (BODY_BYTES_MAX + 1),
    ],
)
def test_value_that_does_not_fit_is_refused(text: bytes) -> None:
    side = ConsumeSide()
    assert update(side, text) == ResponseCode.SYSTEM_ERROR
    assert side.applied == []


def test_empty_update_changes_nothing() -> None:
    side = ConsumeSide()
    before = version(side)
    assert update(side, b"") == 0
    assert side.applied == []
    assert version(side) == before


def test_what_was_set_is_kept_and_counts_more_at_the_next_start() -> None:
    side = ConsumeSide()
    assert update(side, b"slaveReadEnable=true\nshortPollingTimeMills=77\n") == 0
    assert side.admin.runtime_settings.dirty
    again = ConsumeSide()
    again.admin.runtime_settings.load(side.admin.runtime_settings.encode())
    assert shown(again)["slaveReadEnable"] == "true"
    assert shown(again)["shortPollingTimeMills"] == "77"
    assert again.applied[-1].slave_read_enable


def test_a_refused_change_is_not_kept() -> None:
    side = ConsumeSide()
    update(side, b"slaveReadEnable=maybe")
    update(side, b"brokerName=x")
    assert not side.admin.runtime_settings.dirty
    assert side.admin.runtime_settings.values == {}


@pytest.mark.parametrize(
    "data", [b"[]", b'{"settings": 1}', b'{"settings": {"slaveReadEnable": "x"}}']
)
def test_a_file_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ConsumeSide().admin.runtime_settings.load(data)


def test_a_kept_setting_that_may_not_be_set_any_more_is_left_out() -> None:
    side = ConsumeSide()
    side.admin.runtime_settings.load(
        b'{"settings": {"brokerName": "x", "slaveReadEnable": "true"}}'
    )
    assert side.admin.runtime_settings.values == {"slaveReadEnable": "true"}
    assert shown(side)["brokerName"] == "broker-a"
