from __future__ import annotations

import pytest

from trioha.broker.groups import GroupTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import DataVersion, SubscriptionGroupConfig


def table(*, auto: bool = True, groups_max: int = 100) -> GroupTable:
    config = BrokerConfig(auto_create_subscription_group=auto)
    return GroupTable(config, RecordedEvents(), wall_ms=5, groups_max=groups_max)


@pytest.mark.parametrize(
    "name",
    [
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    ],
)
def test_system_groups_exist_from_the_start(name: str) -> None:
    assert table(auto=False).get(name) == SubscriptionGroupConfig(name)


def test_group_is_created_on_first_use() -> None:
    groups = table()
    assert groups.get("g") is None
    assert groups.find("g", 100) == SubscriptionGroupConfig("g")
    assert groups.get("g") is not None
    assert groups.data_version == DataVersion(100, 1)
    assert groups.dirty


def test_group_is_not_created_when_forbidden_unless_it_is_the_systems() -> None:
    groups = table(auto=False)
    assert groups.find("g", 100) is None
    assert groups.find("CID_RMQ_SYS_TRANS", 100) is not None


@pytest.mark.parametrize("name", ["", "a/b", "x" * 256])
def test_illegal_group_does_not_exist(name: str) -> None:
    groups = table()
    assert groups.find(name, 100) is None
    with pytest.raises(CommandError):
        groups.put(SubscriptionGroupConfig(name), 100)


def test_groups_beyond_the_limit_are_refused_with_the_cure() -> None:
    groups = table(groups_max=len(table().groups))
    with pytest.raises(CommandError, match="its limit; delete unused ones"):
        groups.find("g", 1)


def test_group_is_changed_and_deleted() -> None:
    groups = table()
    changed = SubscriptionGroupConfig("g", retry_max_times=3)
    groups.put(changed, 10)
    assert groups.find("g", 20) is changed
    assert groups.delete("g", 30)
    assert groups.get("g") is None
    assert not groups.delete("g", 40)
    assert groups.data_version == DataVersion(30, 2)


def test_table_survives_its_file() -> None:
    groups = table()
    groups.put(SubscriptionGroupConfig("g", consume_enable=False, retry_queue_nums=2), 10)
    again = table()
    again.load(groups.encode())
    assert again.groups == groups.groups
    assert again.data_version == groups.data_version
    assert not again.dirty


def test_slave_becomes_a_copy_of_its_master() -> None:
    master, slave = table(), table()
    master.find("g", 10)
    slave.find("old", 10)
    slave.replace_all(master.data_version, master.groups)
    assert slave.groups == master.groups
    assert slave.get("old") is None
    assert slave.dirty
