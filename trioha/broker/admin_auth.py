"""Users and policies over the wire: requests 3001 to 3010 (AdminBrokerProcessor.java of 5.3).

Each broker keeps its own file; mqadmin sends a change to every broker. A change is on disk and
takes effect before it is answered. Passwords come out to super users alone, who need them for
``mqadmin copyUser``; for everybody else there are six asterisks in their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from trioha.broker.admin_acl import AnswerLater, Edit, OnChanged
from trioha.config import HIDDEN
from trioha.errors import CommandError, ConfigError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.security.auth_file import (
    SUBJECT_PREFIX,
    AuthBook,
    acl_info,
    changed_text,
    policies_of,
    user_info,
)
from trioha.security.policies import (
    Policies,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    word_of,
)
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

USERNAME_CHARS_MAX: Final = 255
USERS_MAX: Final = 10_000
_ENTRIES_MAX: Final = 10_000

IsSuper = Callable[[RemotingCommand], bool]
"""Returns whether a super user signed a request."""


class AuthStore(Protocol):
    """The node's file: `trioha.services.node.acl_files.AuthFiles`."""

    @property
    def default_name(self) -> str:
        """Path of ``auth.json``."""

    @property
    def files(self) -> Sequence[AuthBook]:
        """The file as it was last read."""

    def change_nowait(self, name: str, edit: Edit, on_changed: OnChanged) -> bool:
        """Change the file in the background; False when too many changes wait."""


@attrs.define(eq=False)
class AuthAdminProcessor:
    """Shows and changes users and policies."""

    _store: AuthStore
    _is_super: IsSuper
    _answer_later: AnswerLater
    _is_copied: Callable[[], bool]
    """Tells whether a change may have come here from another broker already.

    mqadmin sends it to every broker: to a slave, whose users are the master's, and to each member
    of a group, which all forward it to their leader.
    """

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    def create_user(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        username, info = _username(request), _info(request, "user")
        password = _text(info, "password")
        kind = word_of(UserType, _text(info, "userType")) or UserType.NORMAL
        status = word_of(UserStatus, _text(info, "userStatus")) or UserStatus.ENABLE
        if kind is UserType.SUPER and not self._is_super(request):
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user"
            )
        if not password.strip():
            raise _refused("password can not be blank")
        if len(username) > USERNAME_CHARS_MAX:
            raise _refused(f"username can not be longer than {USERNAME_CHARS_MAX}")

        def change(book: AuthBook) -> AuthBook:
            if username in book.users:
                user = User(username, password, kind, status)
                if self._is_copied() and book.users[username] == user:
                    return book
                raise _refused("The user is existed")
            if len(book.users) >= USERS_MAX:
                raise _refused(f"this broker holds {USERS_MAX} users")
            return book.put_user(User(username, password, kind, status))

        self._change(channel, request, change)

    def update_user(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Change what the request names of a user."""
        username, info = _username(request), _info(request, "user")
        kind = word_of(UserType, _text(info, "userType"))
        status = word_of(UserStatus, _text(info, "userStatus"))
        if kind is UserType.SUPER and not self._is_super(request):
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user"
            )
        self._check_super(request, username)

        def change(book: AuthBook) -> AuthBook:
            user = book.users.get(username)
            if user is None:
                raise _refused("The user is not exist")
            return book.put_user(
                attrs.evolve(
                    user,
                    password=_text(info, "password").strip() or user.password,
                    user_type=kind or user.user_type,
                    status=status or user.status,
                )
            )

        self._change(channel, request, change)

    def delete_user(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Delete a user and its policies; nothing happens if there is none."""
        username = request.ext_str("username", "")
        if not username.strip():
            raise _refused("username can not be blank")
        self._check_super(request, username)
        self._change(channel, request, lambda book: book.without_user(username))

    def get_user(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        user = self._book.users.get(_username(request))
        if user is None:
            return request.response()
        return request.response(body=fastjson.dumps(self._shown(user, request)))

    def list_users(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        wanted = request.ext_str("filter", "")
        found = [
            self._shown(user, request)
            for name, user in sorted(self._book.users.items())
            if wanted in name
        ]
        return request.response(body=fastjson.dumps(found) if found else b"")

    def put_acl(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Add entries to the policies of a user, or replace them."""
        username = _subject(request)
        info = _info(request, "acl")
        if not info.get("policies"):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        try:
            policies = policies_of(info)
        except ValueError as error:
            raise _refused(str(error)) from None

        def change(book: AuthBook) -> AuthBook:
            if username not in book.users:
                raise _refused(f"The subject of {SUBJECT_PREFIX}{username} is not exist.")
            changed = book.put_policies(username, policies)
            if sum(map(len, changed.acls[username].values())) > _ENTRIES_MAX:
                raise _refused(f"a user has at most {_ENTRIES_MAX} policy entries")
            return changed

        self._change(channel, request, change)

    def delete_acl(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Delete the entry of a resource, or all policies of a user."""
        username = _subject(request)
        kind = word_of(PolicyType, request.ext_str("policyType", "")) or PolicyType.CUSTOM
        named = request.ext_str("resource", "")
        resource = Resource.parse(named) if named else None

        def change(book: AuthBook) -> AuthBook:
            if username not in book.users:
                raise _refused("The subject is not exist.")
            if username not in book.acls:
                if self._is_copied():
                    return book
                raise _refused("The acl is not exist.")
            return book.without_policies(username, kind, resource)

        self._change(channel, request, change)

    def get_acl(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        username = _subject(request)
        if username not in self._book.users:
            raise _refused("The subject is not exist.")
        policies = self._book.acls.get(username)
        if policies is None:
            return request.response()
        return request.response(body=fastjson.dumps(acl_info(username, policies)))

    def list_acls(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        subject = request.ext_str("subjectFilter", "")
        resource = request.ext_str("resourceFilter", "")
        found = []
        for username, policies in sorted(self._book.acls.items()):
            key = f"{SUBJECT_PREFIX}{username}"
            if subject not in key:
                continue
            kept = policies if resource in key else _about(policies, resource)
            if kept:
                found.append(acl_info(username, kept))
        return request.response(body=fastjson.dumps(found) if found else b"")

    @property
    def _book(self) -> AuthBook:
        files = self._store.files
        return files[0] if files else AuthBook(self._store.default_name)

    def _shown(self, user: User, request: RemotingCommand) -> dict[str, object]:
        return user_info(user, user.password if self._is_super(request) else HIDDEN)

    def _check_super(self, request: RemotingCommand, username: str) -> None:
        """Reject a change of a super user by others, even if a policy allows cluster changes."""
        known = self._book.users.get(username)
        is_super = known is not None and known.user_type is UserType.SUPER
        if is_super and not self._is_super(request):
            raise _refused("The super user can only be update by super user")

    def _change(
        self, channel: Channel, request: RemotingCommand, change: Callable[[AuthBook], AuthBook]
    ) -> None:
        refusals: list[CommandError] = []

        def carry_out(book: AuthBook) -> AuthBook:
            try:
                return change(book)
            except CommandError as error:
                refusals.append(error)
                raise ConfigError(error.remark) from None  # nothing is written

        answer = self._answer_later(channel, request)

        def on_changed(reason: str) -> None:
            if refusals:
                answer(request.response(refusals[0].code, refusals[0].remark))
            elif reason:
                answer(request.response(ResponseCode.SYSTEM_ERROR, reason))
            else:
                answer(request.response())

        edit = changed_text(carry_out)
        if not self._store.change_nowait(self._store.default_name, edit, on_changed):
            raise CommandError(ResponseCode.SYSTEM_BUSY, "too many changes of users wait")


def _about(policies: Policies, resource: str) -> Policies:
    kept = {
        kind: [entry for entry in entries if resource in str(entry.resource)]
        for kind, entries in policies.items()
    }
    return {kind: entries for kind, entries in kept.items() if entries}


def _refused(words: str) -> CommandError:
    return CommandError(ResponseCode.NO_PERMISSION, words)


def _username(request: RemotingCommand) -> str:
    username = request.ext_str("username", "")
    if not username.strip():
        raise CommandError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return username


def _subject(request: RemotingCommand) -> str:
    subject = request.ext_str("subject", "")
    if not subject.strip():
        raise CommandError(ResponseCode.INVALID_PARAMETER, "The subject is blank")
    if not subject.startswith(SUBJECT_PREFIX):
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, f"a subject is {SUBJECT_PREFIX}NAME, not {subject:.255}"
        )
    return subject.removeprefix(SUBJECT_PREFIX)


def _info(request: RemotingCommand, what: str) -> dict[str, Any]:
    try:
        info = json.loads(request.body_bytes())
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"The body of {what} is null")
    return info


def _text(info: dict[str, Any], key: str) -> str:
    value = info.get(key)
    return value if isinstance(value, str) else ""
