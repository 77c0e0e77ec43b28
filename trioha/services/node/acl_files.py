"""The files of accounts of one node: read at start, read again when they change, changed over the
wire.

Like RocketMQ 4.9, a node reads one file, ``plain_acl.yml``, and every ``*.yml`` below the folder
``acl`` beside it. It looks at their times every five seconds. A file that is broken when the node
starts keeps it from starting. A file that is broken later changes nothing: the rules that it had
stay, and one journal line names the file, the line and the cure.

One task does all of it after the start, so that a change over the wire and a new text by an
operator do not overtake each other. Files are read and written in a thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from trioha.broker.access_text import AccessText, OnText, ignore_text
from trioha.broker.admin_acl import Edit, OnChanged
from trioha.errors import ConfigError
from trioha.journal import EventSink
from trioha.security.accounts import AclRules
from trioha.security.acl_file import AclFile, parse_acl_file, rules_of
from trioha.security.auth_file import AuthBook, auth_rules_of, parse_auth_file, text_of
from trioha.security.policies import AuthRules, User
from trioha.services.loop.host import run_blocking

LOOK_S = 5.0
"""AclFileWatchService.WATCH_INTERVAL."""
CHANGES_WAITING_MAX = 64
ACCOUNTS, USERS = "accounts", "users"
"""Kinds of `AccessText`."""
_TOOLS_FILE = "tools.yml"
"""Credentials of RocketMQ's own tools, in the same folder."""


class HasAccounts(Protocol):
    """Rules of either kind."""

    @property
    def accounts(self) -> Mapping[str, object]:
        """Accounts by name."""


F = TypeVar("F", AclFile, AuthBook)
R = TypeVar("R", bound=HasAccounts)


@attrs.frozen
class _Read(Generic[F]):
    """A file, as it was when this node last looked at it."""

    stamp: tuple[int, int, int]
    """Time of change in ns, size in bytes and inode: another stamp, another text."""
    text: str
    file: F | None
    """Accounts of the text; those of its last good text if the file is broken now."""


@attrs.frozen
class _Change:
    name: str
    edit: Edit
    on_changed: OnChanged


class RuleFiles(Generic[F, R]):
    """Files of accounts, and the rules that they make."""

    def __init__(
        self,
        path: Path,
        kind: str,
        events: EventSink,
        parse: Callable[[str, str], F],
        rules_of: Callable[[Iterable[F]], R],
        on_text: OnText,
    ) -> None:
        """Read the files. Blocks. Errors: ConfigError when one is broken."""
        self._path = path.absolute()
        self._events = events
        self._parse: Callable[[str, str], F] = parse
        self._rules_of: Callable[[Iterable[F]], R] = rules_of
        self._changes: list[_Change] = []
        self._wake = trio.Event()
        self._known: dict[Path, _Read[F]]
        self._known, problems = self._look({})
        if problems:
            raise ConfigError(problems[0])
        self.rules: R = rules_of(self.files)
        """The newest rules: a plain attribute, since every request reads it."""
        self.text = AccessText(
            kind,
            self._known[self._path].text,
            on_op=on_text,
            on_pending=lambda: self._wake.set(),
        )
        """The text of the default file, as the brokers of a set or group share it."""
        self._tell()

    @property
    def default_name(self) -> str:
        return str(self._path)

    @property
    def files(self) -> Sequence[F]:
        """The default file comes last, as in RocketMQ."""
        return [read.file for read in self._known.values() if read.file is not None]

    def change_nowait(self, name: str, edit: Edit, on_changed: OnChanged) -> bool:
        if len(self._changes) >= CHANGES_WAITING_MAX:
            return False
        self._changes.append(_Change(name, edit, on_changed))
        self._wake.set()
        return True

    async def run(self) -> None:
        """Look at the files, and change them, until cancelled."""
        while True:
            with trio.move_on_after(LOOK_S):
                await self._wake.wait()
            self._wake = trio.Event()
            await self._take_over()
            changes, self._changes = self._changes, []
            for change in changes:
                reason = await run_blocking(partial(_carry_out, change))
                await self.look()
                change.on_changed(reason)
            if not changes:
                await self.look()

    async def _take_over(self) -> None:
        """Write the text of the master or leader, if it is not in the file yet."""
        while (text := self.text.pending) is not None:
            try:
                self._parse(str(self._path), text)
                await run_blocking(partial(_write, self._path, text))
            except (ConfigError, OSError) as error:
                reason = f"the accounts of the master cannot be taken over: {error}"
                self._events.event("acl_rejected", reason=reason)
            if self.text.pending == text:
                self.text.pending = None
            await self.look()

    async def look(self) -> None:
        """Read the files that have changed and take over their rules."""
        known, problems = await run_blocking(partial(self._look, self._known))
        for reason in problems:
            self._events.event("acl_rejected", reason=reason)
        if known != self._known:
            has_news = [read.file for read in known.values()] != [
                read.file for read in self._known.values()
            ]
            self._known = known
            if has_news:
                self.rules = self._rules_of(self.files)
                self._tell()
            self.text.changed_here(known[self._path].text)

    def _tell(self) -> None:
        self._events.event("acl_loaded", files=len(self._known), accounts=len(self.rules.accounts))

    def _look(self, known: dict[Path, _Read[F]]) -> tuple[dict[Path, _Read[F]], list[str]]:
        """Return all files as they are now, and what is wrong with those that have changed."""
        problems: list[str] = []
        found: dict[Path, _Read[F]] = {}
        for path in self._paths():
            before = known.get(path)
            try:
                stamp = _stamp(path)
                if before is not None and before.stamp == stamp:
                    found[path] = before
                    continue
                text = path.read_text("utf-8")
                found[path] = _Read(stamp, text, self._parse(str(path), text))
                continue
            except FileNotFoundError as error:
                if path != self._path:
                    continue
                stamp, reason = (0, 0, 0), f"{path}: {error.strerror}; put it back"
            except (OSError, UnicodeDecodeError) as error:
                stamp, reason = (0, 0, 0), f"{path}: {error}; correct that"
            except ConfigError as error:
                reason = str(error)
            # The stamp of a broken text is kept: the next look does not report the same text again.
            found[path] = (
                _Read(stamp, "", None) if before is None else attrs.evolve(before, stamp=stamp)
            )
            if before is None or before.stamp != stamp:
                kept = "; the accounts that it had stay" if before is not None else ""
                problems.append(f"{reason}{kept}")
        return found, problems

    def _paths(self) -> list[Path]:
        return [self._path]


class AclFiles(RuleFiles[AclFile, AclRules]):
    """Implements `trioha.security.guard.RulesSource` and `trioha.broker.admin_acl.AclStore`."""

    def __init__(self, path: Path, events: EventSink, on_text: OnText = ignore_text) -> None:
        """Read the files. Blocks.

        Errors: ConfigError when ``plain_acl.yml`` is not there, or a file is broken.
        """
        if not path.is_file():
            raise ConfigError(
                f"{path.absolute()}: no such file, but aclEnable=true; "
                "write the accounts there, or name another file (aclFile)"
            )
        super().__init__(path, ACCOUNTS, events, parse_acl_file, rules_of, on_text)

    def _paths(self) -> list[Path]:
        folder = self._path.parent / "acl"
        paths = [
            Path(root, name)
            for root, _, names in sorted(os.walk(folder))
            for name in sorted(names)
            if name.endswith((".yml", ".yaml")) and Path(root, name) != folder / _TOOLS_FILE
        ]
        return [path for path in paths if path != self._path] + [self._path]


class AuthFiles(RuleFiles[AuthBook, AuthRules]):
    """The users and policies of RocketMQ 5.

    Implements `trioha.security.auth_guard.AuthSource` and `trioha.broker.admin_auth.AuthStore`.
    """

    def __init__(
        self,
        path: Path,
        events: EventSink,
        first_users: Iterable[User],
        on_text: OnText = ignore_text,
    ) -> None:
        """Read the file, once those of `first_users` are in it that it lacks. Blocks.

        Errors: ConfigError when the file is broken, or has no super user; OSError.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        _add_users(path, first_users)
        super().__init__(path, USERS, events, _with_super_user, auth_rules_of, on_text)


def _with_super_user(name: str, text: str) -> AuthBook:
    """Read a text. An editor may have cut it off: one without super users locks everybody out."""
    book = parse_auth_file(name, text)
    if auth_rules_of([book]).first_admin() is None:
        raise ConfigError(
            f"{name}: authenticationEnabled=true, but no super user could sign in; "
            'set initAuthenticationUser={"username":"NAME","password":"PASSWORD"}'
        )
    return book


def _add_users(path: Path, users: Iterable[User]) -> None:
    text = path.read_text("utf-8") if path.exists() else ""
    before = book = parse_auth_file(str(path), text)
    for user in users:
        if user.username not in book.users:
            book = book.put_user(user)
    if book != before or not path.exists():
        _replace(path, text_of(book))


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _carry_out(change: _Change) -> str:
    """Change a file; return the reason if that fails."""
    # A link is kept, and the file that it names is replaced.
    path = Path(os.path.realpath(change.name))
    try:
        text = change.edit(change.name, path.read_text("utf-8") if path.exists() else "")
        _replace(path, text)
    except ConfigError as error:
        return str(error)
    except (OSError, UnicodeDecodeError) as error:
        return f"{path}: {error}"
    return ""


def _write(path: Path, text: str) -> None:
    _replace(Path(os.path.realpath(path)), text)


def _replace(path: Path, text: str) -> None:
    """Replace a file in one step. Its permissions stay; a new one is its owner's alone.

    Durability: once it returns, the new text survives a power loss.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
