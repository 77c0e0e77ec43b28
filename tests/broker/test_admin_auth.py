"""Users and policies over the wire, on a file in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.handlers.sending import FakeChannel, at

from trioha.broker.admin_auth import USERNAME_CHARS_MAX, USERS_MAX, AuthAdminProcessor
from trioha.config import HIDDEN
from trioha.errors import CommandError, ConfigError
from trioha.security.auth_file import AuthBook, auth_rules_of, parse_auth_file, text_of
from trioha.security.policies import User, UserType
from trioha.security.signing_key import ACCESS_KEY
from trioha.wire.codes import RequestCode as C
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

OK, DENIED, ERROR = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR
SHOP = {"username": "shop", "password": "shop-secret"}
ACL = {
    "policies": [
        {"entries": [{"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}]},
    ]
}


class Side:
    """The processor and its file. A request is signed by a super user, unless `by` says not."""

    def __init__(self, *users: User, is_copied: bool = False) -> None:
        self.default_name = "auth.json"
        root = User("admin", "admin-secret", UserType.SUPER)
        self.text = text_of(AuthBook("", {user.username: user for user in (root, *users)}))
        self.too_many_wait = False
        self.error = ""
        self.processor = AuthAdminProcessor(
            self,
            lambda request: request.ext_fields[ACCESS_KEY] == "admin",
            lambda channel, request: channel.send_nowait,
            lambda: is_copied,
        )

    @property
    def files(self) -> list[AuthBook]:
        return [parse_auth_file("auth.json", self.text)] if self.text else []

    @property
    def users(self) -> dict[str, Any]:
        return {user["username"]: user for user in json.loads(self.text)["users"]}

    def change_nowait(
        self, name: str, edit: Callable[[str, str], str], on_changed: Callable[[str], None]
    ) -> bool:
        if self.too_many_wait:
            return False
        try:
            if self.error:
                raise ConfigError(self.error)
            self.text = edit(name, self.text)
        except ConfigError as error:
            on_changed(str(error))
        else:
            on_changed("")
        return True

    def ask(
        self, code: C, body: object = None, by: str = "admin", **fields: str
    ) -> tuple[int, Any]:
        """Return the code of the answer, and its remark or what its body holds."""
        channel = FakeChannel()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = RemotingCommand(code, {ACCESS_KEY: by, **fields}, data)
        try:
            response = self.processor.handlers()[code](channel, request, at())
        except CommandError as error:
            return error.code, error.remark
        response = response or channel.sent[0]
        body_bytes = response.body_bytes()
        return response.code, json.loads(body_bytes) if body_bytes else response.remark

    def create(self, info: dict[str, str], by: str = "admin") -> tuple[int, Any]:
        return self.ask(C.AUTH_CREATE_USER, info, by, username=info["username"])

    def update(self, username: str, by: str = "admin", **info: str) -> tuple[int, Any]:
        return self.ask(C.AUTH_UPDATE_USER, info, by, username=username)


def test_a_user_is_made_changed_and_deleted_with_its_policies() -> None:
    side = Side()
    assert side.create(SHOP)[0] == OK
    assert side.users["shop"] == SHOP | {"userType": "Normal", "userStatus": "enable"}
    assert side.update("shop", userStatus="disable")[0] == OK
    assert side.users["shop"]["password"] == "shop-secret", "what is not named stays"
    assert not auth_rules_of(side.files).accounts["shop"].is_enabled
    assert side.ask(C.AUTH_CREATE_ACL, ACL, subject="User:shop")[0] == OK
    assert side.ask(C.AUTH_DELETE_USER, username="shop")[0] == OK
    assert list(side.users) == ["admin"]
    assert json.loads(side.text)["acls"] == []
    assert side.ask(C.AUTH_DELETE_USER, username="shop")[0] == OK, "nothing happens"


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (
            lambda side: side.create(SHOP | {"username": "boss", "userType": "Super"}, "shop"),
            "create",
        ),
        (lambda side: side.update("shop", "shop", userType="Super"), "update"),
        (lambda side: side.update("admin", "shop", password="mine-now"), "update"),
        (lambda side: side.ask(C.AUTH_DELETE_USER, by="shop", username="admin"), "update"),
    ],
    ids=["makes one", "becomes one", "takes one over", "ends one"],
)
def test_only_a_super_user_touches_super_users(
    what: Callable[[Side], tuple[int, str]], says: str
) -> None:
    side = Side(User("shop", "shop-secret"))
    before = side.text
    code, remark = what(side)
    assert code in (ERROR, DENIED)
    assert remark == f"The super user can only be {says} by super user"
    assert side.text == before


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"username": "shop", "password": "  "}, "password can not be blank"),
        ({"username": "x" * (USERNAME_CHARS_MAX + 1), "password": "p"}, "can not be longer than"),
        ({"username": " ", "password": "p"}, "username is blank"),
        ({"username": "admin", "password": "p"}, "The user is existed"),
    ],
)
def test_a_user_that_makes_no_sense_is_not_made(info: dict[str, str], says: str) -> None:
    side = Side()
    before = side.text
    code, remark = side.create(info)
    assert code != OK
    assert says in remark
    assert side.text == before


def test_a_broker_holds_so_many_users_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert USERS_MAX > 2
    monkeypatch.setattr("trioha.broker.admin_auth.USERS_MAX", 2)
    side = Side()
    assert side.create(SHOP)[0] == OK
    assert side.create(SHOP | {"username": "more"}) == (DENIED, "this broker holds 2 users")


def test_of_a_copy_the_same_user_is_made_twice_and_another_one_is_not() -> None:
    side = Side(is_copied=True)
    assert [side.create(SHOP)[0] for _ in range(2)] == [OK, OK]
    assert side.create(SHOP | {"password": "another"}) == (DENIED, "The user is existed")
    assert side.users["shop"]["password"] == "shop-secret"


def test_passwords_are_shown_to_super_users_alone() -> None:
    side = Side(User("shop", "shop-secret"))
    for by, password in (("admin", "shop-secret"), ("shop", HIDDEN)):
        assert side.ask(C.AUTH_GET_USER, by=by, username="shop")[1]["password"] == password
        (found,) = side.ask(C.AUTH_LIST_USER, by=by, filter="sho")[1]
        assert (found["username"], found["password"]) == ("shop", password)
    assert "secret" not in json.dumps(side.ask(C.AUTH_LIST_USER, by="shop")[1])
    assert side.ask(C.AUTH_GET_USER, username="nobody") == (OK, None)


def test_policies_are_added_replaced_shown_and_deleted() -> None:
    side = Side(User("shop", "shop-secret"))
    subject = {"subject": "User:shop"}
    assert side.ask(C.AUTH_GET_ACL, **subject) == (OK, None)
    assert side.ask(C.AUTH_CREATE_ACL, ACL, **subject)[0] == OK
    entry = {"resource": "Topic:U", "actions": ["Sub"], "decision": "Deny"}
    assert side.ask(C.AUTH_UPDATE_ACL, {"policies": [{"entries": [entry]}]}, **subject)[0] == OK

    def shown(code: C, **fields: str) -> list[str]:
        found = side.ask(code, **fields)[1]
        acls = found if isinstance(found, list) else [found] if found else []
        return [
            f"{one['subject']} {entry['resource']} {entry['decision']}"
            for one in acls
            for policy in one["policies"]
            for entry in policy["entries"]
        ]

    both = ["User:shop Topic:T Allow", "User:shop Topic:U Deny"]
    assert shown(C.AUTH_GET_ACL, **subject) == both
    assert shown(C.AUTH_LIST_ACL) == both
    assert shown(C.AUTH_LIST_ACL, resourceFilter="Topic:U") == both[1:]
    assert shown(C.AUTH_LIST_ACL, subjectFilter="nobody") == []
    assert side.ask(C.AUTH_DELETE_ACL, resource="Topic:T", **subject)[0] == OK
    assert shown(C.AUTH_GET_ACL, **subject) == both[1:]
    assert side.ask(C.AUTH_DELETE_ACL, **subject)[0] == OK
    assert shown(C.AUTH_GET_ACL, **subject) == []


@pytest.mark.parametrize("is_copied", [False, True])
def test_policies_that_are_gone_are_deleted_once_more_in_a_copy_only(is_copied: bool) -> None:
    side = Side(User("shop", "shop-secret"), is_copied=is_copied)
    code, remark = side.ask(C.AUTH_DELETE_ACL, subject="User:shop")
    assert (code, remark) == ((OK, None) if is_copied else (DENIED, "The acl is not exist."))


@pytest.mark.parametrize("code", [C.AUTH_CREATE_ACL, C.AUTH_DELETE_ACL, C.AUTH_GET_ACL])
@pytest.mark.parametrize("subject", ["", "  ", "shop", "User:nobody"])
def test_policies_of_nobody_are_refused(code: C, subject: str) -> None:
    side = Side(User("shop", "shop-secret"))
    before = side.text
    assert side.ask(code, ACL, subject=subject)[0] != OK
    assert side.text == before


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 100_000, b'{"policies":[]}', b'{"policies":[{"entries":[]}]}']
)
def test_policies_that_say_nothing_are_refused(body: bytes) -> None:
    side = Side(User("shop", "shop-secret"))
    before = side.text
    assert side.ask(C.AUTH_CREATE_ACL, body, subject="User:shop")[0] in (ERROR, DENIED)
    assert side.text == before


def test_a_change_that_is_not_on_disk_is_no_success() -> None:
    side = Side()
    side.error = "auth.json: No space left on device"
    assert side.create(SHOP) == (ERROR, side.error)
    side.too_many_wait = True
    assert side.create(SHOP)[0] == ResponseCode.SYSTEM_BUSY
