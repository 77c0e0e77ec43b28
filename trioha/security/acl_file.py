"""RocketMQ's ``plain_acl.yml``: text to accounts, and text to changed text.

::

    globalWhiteRemoteAddresses:
      - 10.10.103.*
    accounts:
      - accessKey: RocketMQ
        secretKey: 12345678
        whiteRemoteAddress:
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms:
          - topicA=PUB|SUB
        groupPerms:
          - groupA=SUB
    dataVersion:
      - counter: 3
        timestamp: 1700000000000

Scalars are read as the text they are written as, so that ``secretKey: 0123456`` is that text and no
octal number. A change keeps what it does not name, as Java's broker does; comments are lost, as
there. The time of a change is given by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import yaml

from trioha.errors import ConfigError
from trioha.security.account_text import AccountText
from trioha.security.accounts import KEY_CHARS_MIN, Account, AclRules, split_perm
from trioha.security.addresses import Admits, parse_addresses
from trioha.wire.bodies import DataVersion

A = TypeVar("A")
T = TypeVar("T")

ACCOUNTS: Final = "accounts"
WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
DATA_VERSION: Final = "dataVersion"
BYTES_MAX: Final = 16_777_216
_DEPTH_MAX: Final = 16
_TRUE: Final = frozenset({"true", "yes", "on"})
_NULLS: Final = frozenset({"", "~", "null"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C where PyYAML has it: thousands of accounts take seconds without."""


@attrs.frozen
class AclFile:
    """One file, read and checked."""

    name: str
    """Whole path."""
    accounts: tuple[Account, ...] = ()
    white_texts: tuple[str, ...] = ()
    white: tuple[Admits, ...] = ()
    version: DataVersion = DataVersion()


@attrs.frozen
class AccountChange:
    """New values of an account, from request 50; None leaves a value as it is."""

    access_key: str
    secret_key: str | None = attrs.field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Sequence[str] | None = None
    group_perms: Sequence[str] | None = None

    def fields(self) -> dict[str, object]:
        """The keys of the file that change."""
        named: dict[str, object | None] = {
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "whiteRemoteAddress": self.white_remote_address,
            "admin": self.admin,
            "defaultTopicPerm": self.default_topic_perm or None,
            "defaultGroupPerm": self.default_group_perm or None,
            "topicPerms": None if self.topic_perms is None else list(self.topic_perms),
            "groupPerms": None if self.group_perms is None else list(self.group_perms),
        }
        return {key: value for key, value in named.items() if value is not None}


def parse_acl_file(name: str, text: str) -> AclFile:
    """Read a file. Errors: ConfigError with file, line and cure."""
    root = _compose(name, text)
    if root is None:
        return AclFile(name)
    top = _mapping(name, root, "the file")
    white_texts: list[str] = []
    white: list[Admits] = []
    for node in _items(name, top.get(WHITE_ADDRESSES), WHITE_ADDRESSES):
        entry = _text(name, node, WHITE_ADDRESSES)
        admits = _checked(name, node, parse_addresses, entry)
        if admits is not None:
            white_texts.append(entry)
            white.append(admits)
    accounts = [_account(name, node) for node in _items(name, top.get(ACCOUNTS), ACCOUNTS)]
    return AclFile(name, tuple(accounts), tuple(white_texts), tuple(white), _version(name, top))


def rules_of(files: Iterable[AclFile]) -> AclRules:
    """Return the rules of several files; of an access key in two of them the first counts."""
    files = list(files)
    return AclRules(
        (account for file in files for account in file.accounts),
        (admits for file in files for admits in file.white),
    )


def with_account(name: str, text: str, change: AccountChange, wall_ms: int) -> str:
    """Return the text with an account added or changed.

    Errors: ConfigError when the file is broken, or would be.
    """
    top = _plain_file(name, text)
    accounts = _plain_accounts(top)
    for account in accounts:
        if account.get("accessKey") == change.access_key:
            account.update(change.fields())
            break
    else:
        accounts.append(change.fields())
    top[ACCOUNTS] = accounts
    return _dump(name, top, wall_ms)


def without_account(name: str, text: str, access_key: str, wall_ms: int) -> str:
    """Return the text without an account. Errors: ConfigError when the file is broken."""
    top = _plain_file(name, text)
    top[ACCOUNTS] = [one for one in _plain_accounts(top) if one.get("accessKey") != access_key]
    return _dump(name, top, wall_ms)


def with_white_addresses(name: str, text: str, addresses: Sequence[str], wall_ms: int) -> str:
    """Return the text with another global white list.

    Errors: ConfigError when the file is broken, or an address is none.
    """
    top = _plain_file(name, text)
    top[WHITE_ADDRESSES] = list(addresses)
    return _dump(name, top, wall_ms)


def _account(name: str, node: yaml.Node) -> Account:
    fields = _mapping(name, node, "an account")

    def text(key: str) -> str:
        return _text(name, fields[key], key) if key in fields else ""

    def texts(key: str) -> tuple[str, ...]:
        entries = []
        for item in _items(name, fields.get(key), key):
            entry = _text(name, item, key)
            _checked(name, item, split_perm, entry)
            entries.append(entry)
        return tuple(entries)

    for key in ("accessKey", "secretKey"):
        if len(text(key)) < KEY_CHARS_MIN:
            raise _error(
                name,
                fields.get(key, node),
                f"an account's {key} must have {KEY_CHARS_MIN} or more characters",
            )
    worded = AccountText(
        text("accessKey"),
        text("secretKey"),
        text("whiteRemoteAddress"),
        text("admin").lower() in _TRUE,
        text("defaultTopicPerm"),
        text("defaultGroupPerm"),
        texts("topicPerms"),
        texts("groupPerms"),
    )
    place = fields.get("whiteRemoteAddress", node)
    return _checked(name, place, Account, worded)


def _version(name: str, top: Mapping[str, yaml.Node]) -> DataVersion:
    for node in _items(name, top.get(DATA_VERSION), DATA_VERSION):
        fields = _mapping(name, node, DATA_VERSION)
        numbers = []
        for key in ("timestamp", "counter"):
            written = _text(name, fields[key], key) if key in fields else "0"
            if not written.isdecimal() or len(written) > 18:
                raise _error(name, fields[key], f"{key} must be a whole number, not {written!r}")
            numbers.append(int(written))
        return DataVersion(*numbers)
    return DataVersion()


def _compose(name: str, text: str) -> yaml.Node | None:
    if len(text) > BYTES_MAX:
        raise ConfigError(f"{name}: {len(text)} characters, at most {BYTES_MAX} are read")
    try:
        root: yaml.Node | None = yaml.compose(text, _LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise ConfigError(f"{name}:{line}: {error.problem}; correct the YAML there") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}: not readable as YAML: {error}; correct it") from None
    return None if root is None or _is_null(root) else root


def _mapping(name: str, node: yaml.Node, what: str) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise _error(name, node, f"{what} must be keys with values, like accessKey: NAME")
    return {_text(name, key, "a key"): value for key, value in node.value}


def _items(name: str, node: yaml.Node | None, key: str) -> list[yaml.Node]:
    if node is None or _is_null(node):
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise _error(name, node, f"{key} must be a list; begin each entry with a dash")
    return list(node.value)


def _text(name: str, node: yaml.Node, key: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _error(name, node, f"{key} must be one value")
    return "" if _is_null(node) else str(node.value)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value.lower() in _NULLS


def _checked(name: str, node: yaml.Node, read: Callable[[A], T], value: A) -> T:
    try:
        return read(value)
    except ValueError as error:
        raise _error(name, node, str(error)) from None


def _error(name: str, node: yaml.Node, reason: str) -> ConfigError:
    return ConfigError(f"{name}:{node.start_mark.line + 1}: {reason}")


# A file as plain values, to be changed and written again.


def _plain_file(name: str, text: str) -> dict[str, Any]:
    parse_acl_file(name, text)
    root = _compose(name, text)
    plain = {} if root is None else _plain(name, root, {}, 0)
    assert isinstance(plain, dict), "a file that was read is a mapping"
    return plain


def _plain(name: str, node: yaml.Node, known: dict[int, Any], depth: int) -> Any:
    """Return a node's value; `known` keeps what an alias names once more."""
    if depth > _DEPTH_MAX:
        raise _error(name, node, f"nested more than {_DEPTH_MAX} levels deep")
    if id(node) in known:
        return known[id(node)]
    value: Any
    if isinstance(node, yaml.MappingNode):
        value = {
            _text(name, key, "a key"): _plain(name, one, known, depth + 1)
            for key, one in node.value
        }
    elif isinstance(node, yaml.SequenceNode):
        value = [_plain(name, one, known, depth + 1) for one in node.value]
    elif _is_null(node):
        value = None
    elif node.tag.endswith(":bool"):
        value = str(node.value).lower() in _TRUE
    else:
        value = str(node.value)
    known[id(node)] = value
    return value


def _plain_accounts(top: Mapping[str, Any]) -> list[dict[str, Any]]:
    # Copies: an alias in the file must not make one change two accounts.
    return [dict(account) for account in top.get(ACCOUNTS) or []]


def _dump(name: str, top: dict[str, Any], wall_ms: int) -> str:
    """Return the text with the next version, once it has been read back."""
    version = _version_of_plain(top).next(wall_ms)
    # Java's broker casts these two to numbers; all else it takes as text.
    top[DATA_VERSION] = [version.to_dict()]
    text: str = yaml.safe_dump(
        top, default_flow_style=False, allow_unicode=True, sort_keys=False, width=1_000
    )
    parse_acl_file(name, text)
    return text


def _version_of_plain(top: Mapping[str, Any]) -> DataVersion:
    known = top.get(DATA_VERSION) or [{}]
    return DataVersion(int(known[0].get("timestamp") or 0), int(known[0].get("counter") or 0))
