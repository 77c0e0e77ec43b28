"""The ready line: written for people and scripts, read back by the supervisor."""

from __future__ import annotations

import pytest

from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import RemoteProtocolError
from trioha.ready_line import broker_facts, namesrv_facts, parse_ready_json, ready_line


def facts_of(store: str = "/store") -> dict[str, object]:
    config = BrokerConfig(
        broker_name="b", broker_id=1, broker_role=BrokerRole.SLAVE, store_path_root_dir=store
    )
    return {**broker_facts(config, listen="h:1", ha_listen="h:2", vip_listen=""), "pid": 7}


def test_a_broker_in_words() -> None:
    line = ready_line(facts_of(), as_json=False)
    assert line == "trioha broker b id=1 role=SLAVE ready listen=h:1 ha=h:2 store=/store pid=7"


def test_a_member_of_a_dledger_group_in_words() -> None:
    config = BrokerConfig(
        broker_name="b",
        enable_d_leger_commit_log=True,
        d_leger_self_id="n2",
        store_path_root_dir="/store",
    )
    facts = {**broker_facts(config, listen="h:1", ha_listen="", vip_listen=""), "pid": 7}
    assert ready_line(facts, as_json=False) == (
        "trioha broker b id=n2 role=DLEDGER ready listen=h:1 store=/store pid=7"
    )


def test_blanks_are_quoted() -> None:
    assert 'store="/my store" pid' in ready_line(facts_of("/my store"), as_json=False)


def test_a_name_server_in_words() -> None:
    assert ready_line({**namesrv_facts("h:1"), "pid": 7}, as_json=False) == (
        "trioha namesrv ready listen=h:1 pid=7"
    )


def test_json_comes_back() -> None:
    facts = facts_of()
    assert parse_ready_json(ready_line(facts, as_json=True)) == {"event": "ready", **facts}


@pytest.mark.parametrize("line", ["", "ready", "[]", '{"event": "other"}', "\x00"])
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a ready line"):
        parse_ready_json(line)
