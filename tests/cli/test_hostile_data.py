"""No command prints a control character that a peer, a journal, a log or a recording chose."""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import click
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fakes.client_messages import received
from support.fakes.hostile import HOSTILE, UNSAFE, hostile_node
from support.fakes.raw_answers import RawCluster
from support.stores.records import encode_record

import trioha.cli
from trioha.cli import COMMANDS, cli, run
from trioha.cli.bundle import file_name
from trioha.cli.consume import json_line, raw_line, text_line
from trioha.journal.file import FRAME, MAGIC, JournalFile
from trioha.shown import shown
from trioha.store.interface import PutMessage
from trioha.watch.marks import ROLE, Mark
from trioha.watch.recording import Encoder
from trioha.wire.codes import RequestCode
from trioha.wire.message_id import pack_host
from trioha.wire.properties import encode_properties

Captured = pytest.CaptureFixture[bytes]
ASKING = [
    "ha status",
    "ha status -o json",
    "ha terms broker-a",
    "ha resync broker-a --id 1 --yes",
    "ha recover broker-a --from DIR --yes",
    "check all",
    "check all -o json",
    "failover broker-a --dry-run",
    "failover history broker-a",
    "raft status",
    "raft status -o json",
    "raft transfer broker-a --yes",
    "journal follow NODE --once",
    "journal follow NODE --once -o json",
    "node tasks NODE",
    "node tasks NODE -o json",
    "node config NODE",
    "node config NODE -o json",
    "acl show",
    "acl show -o json",
    "consume -t T -g G --count 1 --idle 0.1",
    "produce -t T --count 1 --size 1",
    "bundle --out FILE.tar.gz",
    "record --out FILE.rec --for 1s",
    "bench produce -t T --duration 1s",
]
"""Commands that ask nodes. Only what they print is looked at, not what they make of nonsense."""


def printed(capture: Captured) -> str:
    """All that was printed; nothing of it may be unsafe, and it must be UTF-8."""
    out, err = capture.readouterr()
    text = (out + err).decode()
    found = UNSAFE.search(text)
    assert found is None, f"{found} in {text!r}"
    return text


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with hostile_node() as address:
        yield address


@pytest.mark.parametrize("line", ASKING)
def test_what_a_hostile_node_answers_is_printed_safely(
    line: str,
    node: str,
    tmp_path: Path,
    capfdbinary: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", node)
    words = [
        {"NODE": node, "DIR": str(tmp_path)}.get(word, word).replace("FILE", f"{tmp_path}/x")
        for word in line.split()
    ]
    run(words)
    assert printed(capfdbinary)


@pytest.mark.parametrize(
    "line", ["ha status", "journal follow NODE --once", "node tasks NODE", "node config NODE"]
)
def test_what_was_escaped_is_still_there_to_be_seen(
    line: str, node: str, capfdbinary: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", node)
    run(line.replace("NODE", node).split())
    assert "u001b]0;owned" in printed(capfdbinary)


def test_tasks_and_settings_of_wrong_types_are_one_error(capfdbinary: Captured) -> None:
    bodies = {RequestCode.TRIOHA_NODE_TASKS: b"", RequestCode.TRIOHA_NODE_CONFIG: b""}
    wrong = [b"", b"\xc1", b"x" * (5 << 20), *map(msgpack.packb, (5, [], {}, {"root": HOSTILE}))]
    wrong += [msgpack.packb({"count": 1, "root": {"name": HOSTILE}, "settings": [HOSTILE * 1000]})]
    with hostile_node(bodies) as address:
        for body in wrong:
            bodies |= dict.fromkeys(bodies, body)
            for line in (f"node tasks {address}", f"node config {address} --changed -o json"):
                assert run(line.split()) == 1
                out = printed(capfdbinary)
                assert re.fullmatch(rf"trioha: {address}: .{{,200}}\n", out), out


@pytest.mark.parametrize("how", ["echo", "print", "write", "error", "bug", "usage"])
def test_a_command_that_is_not_written_yet_is_covered(
    how: str, capfdbinary: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def command() -> None:
        match how:
            case "echo":
                click.echo(HOSTILE)
            case "print":
                print(HOSTILE)
            case "write":
                sys.stderr.write(HOSTILE + "\n")
            case "error":
                raise click.ClickException(HOSTILE)
            case "bug":
                raise RuntimeError(HOSTILE)
            case "usage":
                raise click.UsageError(HOSTILE)

    monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
    run(["version"])
    assert "u001b]0;owned" in printed(capfdbinary)


def test_only_these_modules_print_bytes_or_escape_sequences_of_their_own() -> None:
    """A module may be added to this list only if it prints no text of peers that way."""
    past_the_stream = {
        path.name
        for path in Path(trioha.cli.__file__).parent.rglob("*.py")
        for found in ast.walk(ast.parse(path.read_text()))
        if (
            isinstance(found, ast.Attribute)
            and found.attr in ("buffer", "__stdout__", "__stderr__")
        )
        or (isinstance(found, ast.Name) and found.id == "own_stream")
    }
    assert past_the_stream == {"consume.py", "log.py", "output.py", "progress.py"}
    assert set(COMMANDS)


def test_a_body_is_text_unless_its_bytes_are_asked_for() -> None:
    message = received(HOSTILE.encode() + b"\xff", b"TAGS\x01" + HOSTILE.encode() + b"\x02")
    assert not UNSAFE.search(text_line(message).decode())
    assert not UNSAFE.search(json_line(message).decode())
    assert raw_line(message) == HOSTILE.encode() + b"\xff\n"


def test_a_log_is_dumped_safely_and_raw(tmp_path: Path, capfdbinary: Captured) -> None:
    message = PutMessage(
        topic="T\x1b[2J",
        queue_id=0,
        flag=0,
        sys_flag=0,
        body=HOSTILE.encode(),
        properties=encode_properties({"KEYS": HOSTILE}),
        born_timestamp=1_700_000_000_000,
        born_host=pack_host("10.0.0.1", 1),
        store_host=pack_host("10.0.0.1", 2),
    )
    log = tmp_path / "commitlog"
    log.mkdir()
    record = encode_record(message, 0, 0, 1_700_000_000_000)
    (log / f"{0:020d}").write_bytes(record.ljust(1 << 16, b"\0"))
    for more in ([], ["-o", "json"]):
        assert run(["log", "dump", str(tmp_path), *more]) == 0
        assert "1b]0;owned" in printed(capfdbinary)
    assert run(["log", "dump", str(tmp_path), "--raw"]) == 0
    assert capfdbinary.readouterr().out == HOSTILE.encode() + b"\n"
    assert run(["log", "dump", str(tmp_path), "--raw", "-o", "json"]) == 2
    assert "leave it out" in printed(capfdbinary)
    run(["log", "verify", str(tmp_path)])
    printed(capfdbinary)


def test_a_journal_is_shown_and_analyzed_safely(tmp_path: Path, capfdbinary: Captured) -> None:
    journal = JournalFile(
        tmp_path / "journal", HOSTILE, lambda: 1_700_000_000_000, bytes_max=1 << 20
    )
    for name in ("node_started", "ha_connected", "topic_changed", "odd" + HOSTILE):
        journal.event(name, peer=HOSTILE, topic=HOSTILE, **{f"k{HOSTILE}": HOSTILE})
    journal.close()
    assert run(["journal", "show", str(tmp_path)]) == 0
    assert "u001b" in printed(capfdbinary)
    run(["analyze", str(tmp_path), "--out", str(tmp_path / "report")])
    printed(capfdbinary)


def test_a_recording_is_told_safely(tmp_path: Path, capfdbinary: Captured) -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a" + HOSTILE)
    encoder = Encoder()
    file = encoder.begin(cluster.wall_ms, {"namesrvs": HOSTILE, "host": HOSTILE})
    file += encoder.frame(cluster.raw())
    file += encoder.mark(Mark(cluster.wall_ms, ROLE, HOSTILE, HOSTILE, 1))
    path = tmp_path / "x.rec"
    path.write_bytes(file)
    assert run(["record", "--info", str(path)]) == 0
    assert shown(HOSTILE)[:20] in printed(capfdbinary)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.just(HOSTILE),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.binary(max_size=3) | st.integers(0, 9), inner)
    ),
    max_leaves=5,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING), max_size=4))
def test_no_journal_of_a_stranger_ends_in_a_traceback(
    events: list[tuple[object, ...]], tmp_path: Path, capfdbinary: Captured
) -> None:
    file = MAGIC
    for event in ("head", [0, 1_700_000_000_000, "node_started", {}], *map(list, events)):
        payload = msgpack.packb(event)
        file += FRAME.pack(len(payload), zlib.crc32(payload)) + payload
    (tmp_path / f"{0:020d}.journal").write_bytes(file)
    for line in ("journal show DIR", "journal show DIR --last 2"):
        assert run(line.replace("DIR", str(tmp_path)).split()) == 0
        out = capfdbinary.readouterr().out.decode()
        assert not UNSAFE.search(out)
        for row in out.splitlines():
            json.loads(row)


def test_no_node_chooses_a_path_in_a_bundle(
    node: str, tmp_path: Path, capfdbinary: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", node)
    assert run(["bundle", "--out", f"{tmp_path}/x.tar.gz"]) == 0
    printed(capfdbinary)
    with tarfile.open(tmp_path / "x.tar.gz") as bundle:
        names = bundle.getnames()
    assert any("broker-a" in name for name in names)
    for name in names:
        assert re.fullmatch(r"x(/[a-zA-Z0-9@_%-][a-zA-Z0-9@._%-]*){1,3}", name), name


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/passwd", "..", ".", "", "a/b", "a\0b"])
def test_a_file_name_of_a_bundle_is_one_component(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9@_%-][a-zA-Z0-9@._%-]*", file_name(name))
