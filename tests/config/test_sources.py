"""Configuration: precedence, origins, both file syntaxes, and what each mistake is answered."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.config import BrokerConfig, BrokerRole, FlushDiskType, NamesrvConfig
from trioha.config.files import FileEntry, parse_properties
from trioha.config.ignored import IGNORED_BY_BROKER, IGNORED_BY_NAMESRV
from trioha.config.sources import keys_of, load_broker, load_namesrv, set_entry
from trioha.config.values import RANGES, unit_of
from trioha.errors import ConfigError


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def properties(text: str) -> list[tuple[str, str]]:
    return [(key, value) for _, key, value in parse_properties(text)]


# Precedence and origins.


def test_defaults_are_rocketmqs_and_say_so() -> None:
    loaded = load_broker()
    assert loaded.config.listen_port == 10911
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.notes == ()


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, "b.toml", "listenPort = 1001\nslaveTimeout = 11\nsyncFlushTimeout = 7\n")
    environment = {"TRIOHA_LISTEN_PORT": "1002", "TRIOHA_SLAVETIMEOUT": "12"}
    loaded = load_broker(file, environment, [set_entry("listenPort=1003")])
    assert loaded.config.listen_port == 1003
    assert loaded.config.slave_timeout == 12
    assert loaded.config.sync_flush_timeout == 7
    assert loaded.origins["listenPort"] == "--set"
    assert loaded.origins["slaveTimeout"] == "TRIOHA_SLAVETIMEOUT"
    assert loaded.origins["syncFlushTimeout"] == f"{file}:3"
    assert loaded.origins["brokerName"] == "default"


def test_namesrv_addr_counts_less_than_the_file_as_in_rocketmq(tmp_path: Path) -> None:
    environment = {"NAMESRV_ADDR": "env:9876"}
    assert load_broker(None, environment).config.namesrv_addr == "env:9876"
    file = write(tmp_path, "broker.conf", "namesrvAddr=file:9876\n")
    assert load_broker(file, environment).config.namesrv_addr == "file:9876"
    environment["TRIOHA_NAMESRV_ADDR"] = "ours:9876"
    assert load_broker(file, environment).config.namesrv_addr == "ours:9876"


def test_settings_of_the_other_node_in_the_environment_are_left_alone() -> None:
    assert load_namesrv(None, {"TRIOHA_BROKER_NAME": "b"}).config == load_namesrv().config


def test_kubernetes_service_links_are_no_settings() -> None:
    environment = {
        "TRIOHA_SERVICE_HOST": "10.0.0.1",
        "TRIOHA_PORT": "tcp://10.0.0.1:9876",
        "TRIOHA_PORT_9876_TCP_ADDR": "10.0.0.1",
        "TRIOHA_DEBUG": "1",
    }
    assert load_broker(None, environment).config == load_broker().config


def test_a_broker_bound_to_one_address_tells_clients_that_one() -> None:
    loaded = load_broker(None, {}, [FileEntry("bindAddress", "127.0.0.1", "--listen")])
    assert loaded.config.broker_ip1 == "127.0.0.1"
    assert loaded.origins["brokerIP1"] == "bindAddress (--listen)"
    told = [FileEntry("bindAddress", "127.0.0.1", "--listen"), set_entry("brokerIP1=1.2.3.4")]
    assert load_broker(None, {}, told).config.broker_ip1 == "1.2.3.4"


def test_a_home_directory_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert load_broker().config.store_path_root_dir == "/home/ann/store"
    assert load_namesrv().config.kv_config_path == "/home/ann/namesrv/kvConfig.json"


# TOML.


def test_one_toml_file_describes_a_whole_pair(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "pair.toml",
        """
        brokerName = "broker-x"   # flat
        [broker]
        brokerRole = "SYNC_MASTER"
        [store]
        mappedFileSizeCommitLog = "64MiB"
        flushDiskType = "SYNC_FLUSH"
        [ha]
        haSendHeartbeatInterval = "2s"
        [namesrv]
        orderMessageEnable = true
        """,
    )
    config = load_broker(file).config
    assert config.broker_name == "broker-x"
    assert config.broker_role is BrokerRole.SYNC_MASTER
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.mapped_file_size_commit_log == 64 << 20
    assert config.ha_send_heartbeat_interval == 2000
    assert load_broker(file).origins["haSendHeartbeatInterval"] == f"{file}:9"


def test_a_name_server_reads_its_own_table_only(tmp_path: Path) -> None:
    file = write(
        tmp_path, "c.toml", '[broker]\nbrokerName = "b"\n[namesrv]\norderMessageEnable = true\n'
    )
    assert load_namesrv(file).config.order_message_enable is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("brokerNmae = 'x'\n", "c.toml:1: unknown key brokerNmae; did you mean brokerName?"),
        ("\n[store]\nflush_disk_type = 'x'\n", "c.toml:3: unknown key flush_disk_type; did you"),
        ("[sotre]\n", "c.toml:1: unknown table [sotre]; did you mean [store]?"),
        (
            "listenPort = 'abc'\n",
            'c.toml:1: listenPort must be a whole number from 0 to 65535, not "',
        ),
        ("listenPort = 70000\n", "not 70000"),
        ("listenPort = true\n", "not True"),
        ("vipChannel = 'true'\n", "vipChannel must be true or false"),
        ("brokerRole = 'LEADER'\n", "ASYNC_MASTER, SYNC_MASTER or SLAVE"),
        ("brokerName = 7\n", "brokerName must be text, not 7"),
        ("slaveTimeout = '5 parsecs'\n", "slaveTimeout must be a whole number of ms"),
        ("slaveTimeout = '5MiB'\n", "slaveTimeout must be a whole number of ms"),
        ("maxMsgsNumBatch = '5s'\n", "maxMsgsNumBatch must be a whole number"),
        ("a = 1\na = 2\n", "c.toml:2: not TOML"),
        ("listenPort = 1\n[broker]\nlistenPort = 2\n", "c.toml:3: listenPort is set at"),
        ("kvConfigPath = 'x'\n", "belongs to a name server: put it under [namesrv]"),
        ("zzzzzzzz = 1\n", "`trioha config keys`"),
    ],
)
def test_a_mistake_in_toml_names_its_line_and_the_cure(
    tmp_path: Path, text: str, says: str
) -> None:
    file = write(tmp_path, "c.toml", text)
    with pytest.raises(ConfigError) as caught:
        load_broker(file)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration .*nowhere.toml: No such"):
        load_broker(tmp_path / "nowhere.toml")


# .properties.


def test_properties_know_every_separator_comment_escape_and_continuation() -> None:
    text = (
        "# comment\n ! comment too\n\na=1\nb:2\nc 3\n  d =  4\ne\\ f = g\\th\n"
        "long = one, \\\n    two, \\\n    # not a comment\nempty=\nnothing\n"
        "u=\\u00e9\\z\nback=\\\\\nk\\=k\\:k = v=w:x\r\nlast = end\\"
    )
    assert properties(text) == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", "4"),
        ("e f", "g\th"),
        ("long", "one, two, # not a comment"),
        ("empty", ""),
        ("nothing", ""),
        ("u", "éz"),
        ("back", "\\"),
        ("k=k:k", "v=w:x"),
        ("last", "end"),
    ]


def test_a_continued_line_counts_from_its_first() -> None:
    assert list(parse_properties("a=1\\\n2\nb=3")) == [(1, "a", "12"), (3, "b", "3")]


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_java_would_write_is_read_back(pairs: dict[str, str]) -> None:
    def escape(text: str) -> str:
        out = []
        for char in text:
            if char in "\\=:#! \t\f\n\r" or not 32 <= ord(char) < 127:
                units = char.encode("utf-16-be", "surrogatepass")
                out += [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
            else:
                out.append(char)
        return "".join(out)

    text = "".join(f"{escape(key)} = {escape(value)}\n" for key, value in pairs.items())
    read = {
        key.encode("utf-16", "surrogatepass"): value.encode("utf-16", "surrogatepass")
        for _, key, value in parse_properties(text)
    }
    assert read == {
        key.encode("utf-16", "surrogatepass"): value.encode("utf-16", "surrogatepass")
        for key, value in pairs.items()
    }


@given(st.text())
def test_any_text_is_some_properties_file(text: str) -> None:
    for number, _, _ in parse_properties(text):
        assert number >= 1


def test_a_real_broker_conf_loads_with_a_note_for_each_key_that_means_nothing(
    tmp_path: Path,
) -> None:
    file = write(
        tmp_path,
        "broker.conf",
        "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\ndeleteWhen=04\n"
        "fileReservedTime=48\nbrokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n"
        "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\nsendMessageThreadPoolNums=128\n"
        "useReentrantLockWhenPutMessage=true\nstorePathConsumeQueue=/data/cq\naclEnable=false\n",
    )
    loaded = load_broker(file)
    assert loaded.config.file_reserved_time == 48
    assert [note.split(" has no meaning")[0] for note in loaded.notes] == [
        f"{file}:9: sendMessageThreadPoolNums",
        f"{file}:10: useReentrantLockWhenPutMessage",
        f"{file}:11: storePathConsumeQueue",
    ]


def test_blanks_behind_a_number_are_forgiven_with_a_note(tmp_path: Path) -> None:
    loaded = load_broker(write(tmp_path, "broker.conf", "listenPort = 12345  \n"))
    assert loaded.config.listen_port == 12345
    assert len(loaded.notes) == 1
    assert ":1: listenPort: blanks behind the value are dropped" in loaded.notes[0]


def test_a_unit_in_properties_is_refused_because_java_would_drop_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="maxMessageSize must be a whole number of bytes"):
        load_broker(write(tmp_path, "broker.conf", "maxMessageSize=1MiB\n"))


def test_the_last_of_two_lines_wins_with_a_note(tmp_path: Path) -> None:
    file = write(tmp_path, "broker.conf", "listenPort=1\nlistenPort=2003\n")
    loaded = load_broker(file)
    assert loaded.config.listen_port == 2003
    assert loaded.notes == (f"{file}:2: listenPort replaces the value at {file}:1",)


@pytest.mark.parametrize(
    "line",
    ["duplicationEnable=true", "useTLS=true", "enableLmq=true", "timerCongestNumEachSlot=1000"],
)
def test_a_key_that_would_change_the_promise_is_not_ignored(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="not available"):
        load_broker(write(tmp_path, "broker.conf", line + "\n"))


# Environment and flags.


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("TRIOHA_LISTN_PORT", "did you mean TRIOHA_LISTEN_PORT?"),
        ("TRIOHA_XYZ", "TRIOHA_XYZ: unknown setting in the environment"),
    ],
)
def test_an_unknown_variable_is_an_error(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker(None, {name: "1"})
    assert says in str(caught.value)


def test_what_asked_pip_for_a_compiled_build_is_no_setting() -> None:
    assert load_broker(None, {"TRIOHA_COMPILE": "1"}).config == load_broker(None, {}).config


def test_set_wants_key_and_value() -> None:
    with pytest.raises(ConfigError, match='--set: "listenPort" is not key=value'):
        set_entry("listenPort")
    assert set_entry("a=b=c").value == "b=c"


# Rules between settings.


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["brokerRole=SLAVE"], "brokerRole: a SLAVE needs brokerId above 0, not 0"),
        (["brokerId=1"], "brokerId: a ASYNC_MASTER needs brokerId 0, not 1"),
        (["brokerRole=SYNC_MASTER", "brokerId=2"], "brokerId: a SYNC_MASTER needs brokerId 0"),
        (["mappedFileSizeCommitLog=4096"], "do not hold one record"),
        (["mappedFileSizeCommitLog=0"], "at least 1"),
        (["maxMessageSize=16MiB"], "from 1 to"),
        (["diskMaxUsedSpaceRatio=0"], "from 1 to 99"),
        (["messageDelayLevel=1s 5x"], '"5x" is no delay'),
        (["messageDelayLevel= "], "at least one level"),
        (["haListenPort=10909"], "haListenPort: 10909 is taken"),
        (["haListenPort=10911"], "haListenPort: 10911 is taken"),
        (["listenPort=1"], "listenPort - 2"),
        (["brokerPermission=3"], "brokerPermission"),
        (["haHousekeepingInterval=5000"], "longer than haSendHeartbeatInterval"),
        (["deleteWhen=25"], '"25" is no hour'),
        (["haEmptySlaveFrom=middle"], "haEmptySlaveFrom"),
        (["haAllowedPeers=10.0.0.0/8;nonsense"], '"nonsense" is no network'),
        (["namesrvAddr=localhost"], '"localhost" is not HOST:PORT'),
        (["haMasterAddress=a:b"], "haMasterAddress"),
        (["brokerName=../x"], "brokerName"),
        (["storePathCommitLog=/a,/b"], "one directory only"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker(None, {}, map(set_entry, settings))
    assert says in str(caught.value)
    assert str(caught.value).startswith(("--set: ", "default: "))


def test_a_registration_period_that_will_be_clamped_is_noted() -> None:
    loaded = load_broker(None, {}, [set_entry("registerNameServerPeriod=1000")])
    assert "is taken as 10000" in loaded.notes[0]


def test_a_disk_ratio_above_the_level_that_refuses_writes_is_noted() -> None:
    loaded = load_broker(None, {}, [set_entry("diskMaxUsedSpaceRatio=95")])
    assert "writes are refused earlier" in loaded.notes[0]


# The tables themselves.


def test_no_key_is_both_a_setting_and_ignored() -> None:
    assert not keys_of(BrokerConfig).keys() & IGNORED_BY_BROKER.keys()
    assert not keys_of(NamesrvConfig).keys() & IGNORED_BY_NAMESRV.keys()


def test_ranges_name_real_keys_and_hold_the_defaults() -> None:
    keys = keys_of(BrokerConfig)
    assert RANGES.keys() <= keys.keys()
    for kind in (BrokerConfig, NamesrvConfig):
        load = load_broker if kind is BrokerConfig else load_namesrv
        for key, field in keys_of(kind).items():
            default = field.default
            text = default.name if isinstance(default, (BrokerRole, FlushDiskType)) else default
            assert getattr(load(None, {}, [FileEntry(key, str(text), "x")]).config, field.name) in (
                default,
                str(Path(default).expanduser()) if isinstance(default, str) else default,
            )


def test_units_come_from_the_help_text() -> None:
    units = {key: unit_of(field) for key, field in keys_of(BrokerConfig).items()}
    assert units["maxMessageSize"] == "bytes"
    assert units["slaveTimeout"] == "ms"
    assert units["fileReservedTime"] == ""
    assert units["deleteWhen"] == ""
    assert {key for key in units if key.endswith(("Interval", "Timeout"))} <= {
        key for key, unit in units.items() if unit == "ms"
    }


def test_every_setting_has_help() -> None:
    for kind in (BrokerConfig, NamesrvConfig):
        for field in attrs.fields(kind):
            assert field.metadata["doc"], field.name
