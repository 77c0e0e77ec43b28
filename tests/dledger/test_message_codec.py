"""Messages between members as bytes: what goes in comes out, and nothing else does any harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.dledger import messages as say
from trioha.dledger.membership import Configuration
from trioha.dledger.message_codec import (
    LOG_BYTES_MAX,
    TERM_MAX,
    GroupDoor,
    code_of,
)
from trioha.dledger.settings import TERMS_MAX
from trioha.errors import ConfigError, RemoteProtocolError
from trioha.wire.codes import RequestCode

_BYTES = Path(__file__).with_name("testdata") / "message_bytes.hex"
"""Messages as all versions up to now have sent them, a kind and its bytes in each line."""
_PEERS = ("n0", "n1", "n2")
_N0 = GroupDoor("c", "g", "n0", _PEERS)
_N1 = GroupDoor("c", "g", "n1", _PEERS)

_offsets = st.integers(0, 2**63 - 1)
_terms = st.integers(0, TERM_MAX)
_heads = {"source": st.just("n0"), "target": st.just("n1"), "term": _terms}
_pushes = {**_heads, "sequence": _offsets}
_members = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6).map(sorted)
_configurations = st.builds(
    lambda members, cut: Configuration(tuple(members[:cut]), tuple(members[cut:])),
    _members,
    st.integers(0, 6),
)
_rows = st.lists(st.tuples(_terms, _offsets), max_size=5).map(
    lambda rows: tuple(
        zip(sorted({t for t, _ in rows}), sorted({s for _, s in rows}), strict=False)
    )
)
_messages: st.SearchStrategy[say.RaftMessage] = st.one_of(
    st.builds(
        say.VoteRequest,
        **_heads,
        is_pre=st.booleans(),
        by_transfer=st.booleans(),
        log_term=_terms,
        log_end=_offsets,
    ),
    st.builds(
        say.VoteResponse,
        **_heads,
        is_pre=st.booleans(),
        granted=st.booleans(),
        reason=st.text(max_size=50),
    ),
    st.builds(say.StaleTerm, **_heads),
    st.builds(
        say.Heartbeat, **_heads, committed_offset=_offsets, read_round=_offsets, sent_ms=_offsets
    ),
    st.builds(
        say.HeartbeatResponse,
        **_heads,
        read_round=_offsets,
        sent_ms=_offsets,
        matched_offset=_offsets,
        held_offset=_offsets,
    ),
    st.builds(say.Compare, **_pushes, begin_offset=_offsets, end_offset=_offsets, rows=_rows),
    st.builds(say.Truncate, **_pushes, phy_offset=_offsets, prev_term=_terms, conflict_term=_terms),
    st.builds(
        say.Append,
        **_pushes,
        prev_offset=_offsets,
        prev_term=_terms,
        entry_term=_terms,
        committed_offset=_offsets,
        body=st.binary(max_size=200),
    ),
    st.builds(
        say.Install,
        **_pushes,
        begin_offset=_offsets,
        rows=_rows,
        end_offset=_offsets,
        configuration=st.tuples(_offsets, _configurations),
    ),
    st.builds(
        say.PushResponse,
        **_heads,
        type=st.sampled_from(say.PushType),
        sequence=_offsets,
        status=st.sampled_from(say.PushStatus),
        matched_offset=_offsets,
        held_offset=_offsets,
        conflict=st.booleans(),
    ),
    st.builds(say.TimeoutNow, **_heads),
)


def _bytes_of(message: say.RaftMessage, door: GroupDoor = _N0) -> bytes:
    return b"".join(door.encode(message))


@given(_messages)
def test_what_was_encoded_is_decoded(message: say.RaftMessage) -> None:
    assert _N1.decode(_bytes_of(message)) == message
    assert code_of(message).name.startswith("TRIOHA_RAFT_")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        _N1.decode(data)


@given(_messages, st.data())
def test_a_changed_byte_is_refused_or_another_message(message: say.RaftMessage, data: Any) -> None:
    changed = bytearray(_bytes_of(message))
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    try:
        other = _N1.decode(bytes(changed))
    except RemoteProtocolError:
        return
    if isinstance(message, say.Append) and isinstance(other, say.Append) and message.body:
        assert bytes(other.body) == message.body, "log bytes changed unnoticed"


@given(_messages, st.data())
def test_a_message_cut_short_is_refused(message: say.RaftMessage, data: Any) -> None:
    whole = _bytes_of(message)
    with pytest.raises(RemoteProtocolError):
        _N1.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    ("door", "source", "target", "says"),
    [
        (GroupDoor("c", "other", "n0", _PEERS), "n0", "n1", "group other in cluster c wrote to g"),
        (GroupDoor("d", "g", "n0", _PEERS), "n0", "n1", "in cluster d wrote to g in c"),
        (GroupDoor("c", "g", "n0", ("n0", "n1")), "n0", "n1", "has another peer list than n1"),
        (_N0, "n0", "n2", "a message to n2 came to n1; compare"),
        (_N0, "n1", "n1", "another node has the id n1 too; give each member its own"),
        (_N0, "n9", "n1", "'n9' is no member of g; add it with its leader first"),
    ],
)
def test_a_stranger_is_refused_before_anything_is_taken(
    door: GroupDoor, source: str, target: str, says: str
) -> None:
    data = b"".join(door.encode(say.TimeoutNow(source, target, 7)))
    with pytest.raises(RemoteProtocolError, match=says):
        _N1.decode(data)


def test_a_member_that_joined_later_is_known() -> None:
    message = say.StaleTerm("n9", "n1", 7)
    assert _N1.decode(_bytes_of(message), known=["n9"]) == message


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        (6, TERM_MAX + 1, "no term"),
        (6, -1, "no term"),
        (6, True, "no term"),
        (7, "12", "no offset"),
        (7, 2**63, "no offset"),
        (3, 99, "no kind of message"),
        (3, None, "no kind of message"),
    ],
)
def test_numbers_out_of_range_are_refused(field: int, value: object, says: str) -> None:
    _refuses(say.Heartbeat("n0", "n1", 3, 100, 0, 0), field, value, says)


@pytest.mark.parametrize("rows", ["12", [[1, 0]] * (TERMS_MAX + 1), [7], [[1, 0, 0]]])
def test_what_is_no_table_of_terms_is_refused(rows: object) -> None:
    _refuses(say.Compare("n0", "n1", 3, 1, 0, 100, ((3, 0),)), -1, rows, "of terms")


@pytest.mark.parametrize("flag", [1, None, "true"])
def test_what_is_no_flag_is_refused(flag: object) -> None:
    _refuses(say.VoteRequest("n0", "n1", 3, False, False, 0, 0), 7, flag, "no flag")


def _refuses(message: say.RaftMessage, field: int, value: object, says: str) -> None:
    """Check that the message is refused with another value in this place of its head."""
    head = msgpack.unpackb(_bytes_of(message)[4:])
    head[field] = value
    packed = msgpack.packb(head)
    with pytest.raises(RemoteProtocolError, match=says):
        _N1.decode(len(packed).to_bytes(4, "big") + packed)


def test_too_many_bytes_are_refused_before_they_are_looked_at() -> None:
    append = say.Append("n0", "n1", 1, 1, 0, 0, 1, 0, bytes(LOG_BYTES_MAX + 1))
    with pytest.raises(RemoteProtocolError, match="more than 8388608"):
        _N1.decode(_bytes_of(append))
    with pytest.raises(RemoteProtocolError, match="are no Raft message"):
        _N1.decode(bytes(64 << 20))
    with pytest.raises(RemoteProtocolError, match="says that its head has 4294967295 bytes"):
        _N1.decode(b"\xff" * 100)


def test_log_bytes_go_through_uncopied() -> None:
    body = bytes(1000)
    buffers = _N0.encode(say.Append("n0", "n1", 1, 1, 0, 0, 1, 0, body))
    assert buffers[1] is body
    decoded = _N1.decode(b"".join(buffers))
    assert isinstance(decoded, say.Append)
    assert isinstance(decoded.body, memoryview)


@pytest.mark.parametrize("place", [0, 500, 999])
def test_log_bytes_that_changed_on_their_way_are_refused(place: int) -> None:
    head, body = _N0.encode(say.Append("n0", "n1", 1, 1, 0, 0, 1, 0, bytes(1000)))
    changed = bytearray(body)
    changed[place] ^= 1
    with pytest.raises(RemoteProtocolError, match="log bytes were damaged on their way"):
        _N1.decode(bytes(head) + changed)
    with pytest.raises(RemoteProtocolError, match="log bytes were damaged on their way"):
        _N1.decode(bytes(head) + changed[:-1])


def test_log_bytes_after_another_message_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="3 bytes too many after a StaleTerm"):
        _N1.decode(_bytes_of(say.StaleTerm("n0", "n1", 7)) + b"abc")


def test_codes_lie_in_the_range_of_their_own() -> None:
    codes = [code for code in RequestCode if code.name.startswith("TRIOHA_RAFT_")]
    assert sorted(codes) == list(range(30040, 30048))


@pytest.mark.parametrize("peers", [("n0", "n0"), ("n0", ""), ("n0", "n\n")])
def test_a_peer_list_that_makes_no_sense_is_refused(peers: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        GroupDoor("c", "g", "n0", peers)


def test_the_bytes_are_those_of_earlier_versions() -> None:
    """A group of members of two versions understands itself."""
    head = ("n0", "n1", 7)
    messages: tuple[say.RaftMessage, ...] = (
        say.VoteRequest(*head, True, False, 3, 99),
        say.VoteResponse(*head, True, False, "x" * 300),
        say.StaleTerm(*head),
        say.Heartbeat(*head, 5, 6, 7),
        say.HeartbeatResponse(*head, 1, 2, 3, 4),
        say.Compare(*head, 4, 0, 99, ((1, 0), (2, 50))),
        say.Truncate(*head, 4, 50, 1, 2),
        say.Append(*head, 4, 50, 1, 2, 40, b"abc"),
        say.Append(*head, 4, 50, 1, 2, 40, b""),
        say.PushResponse(*head, say.PushType.APPEND, 4, say.PushStatus.GAP, 50, 40, True),
        say.Install(*head, 4, 50, ((1, 0),), 99, (0, Configuration.of("n0", "n1"))),
        say.TimeoutNow(*head),
    )
    sent = [f"{type(one).__name__} {b''.join(_N0.encode(one)).hex()}" for one in messages]
    assert sent == _BYTES.read_text().splitlines()
