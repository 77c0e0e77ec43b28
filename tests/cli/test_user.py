"""`trioha user` at a broker with users: the users, their rights, and the exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.clusters.operated import SCHEMAS, Operated
from support.clusters.with_users import SUPER, start_with_users
from support.processes.rig import Processes, trioha_namesrv
from support.suite.json_schema import faults

from trioha.cli import run
from trioha.cli.failures import ExitCode


def test_brokers_without_users_say_so(operator: Operated) -> None:
    said = operator.refused(ExitCode.FAILED, "user", "list")
    assert "has no users: it runs without authenticationEnabled=true" in said


@pytest.mark.slow
def test_users_and_their_policies(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namesrv = trioha_namesrv(processes).start()
    start_with_users(processes, "trioha", namesrv.address)
    monkeypatch.setenv("NAMESRV_ADDR", namesrv.address)
    monkeypatch.setenv("TRIOHA_ACCESS_KEY", SUPER.access_key)
    monkeypatch.setenv("TRIOHA_SECRET_KEY", SUPER.secret_key)
    monkeypatch.setenv("TRIOHA_NEW_SECRET_KEY", "shop-secret")

    def trioha(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["user", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    def document(*arguments: str) -> Any:
        code, out, err = trioha(*arguments, "-o", "json")
        assert (code, err) == (0, ""), (arguments, out, err)
        found = json.loads(out)
        schema = json.loads((SCHEMAS / f"user-{arguments[0]}.json").read_text())
        assert faults(found, schema) == []
        return found

    assert "admin" in {one["username"] for one in document("list")["users"]}
    assert not document("create", "shop", "--dry-run")["done"]
    assert document("create", "shop")["brokers"].keys() == {"broker-a/0"}
    code, _, err = trioha("create", "shop")
    assert (code, "exists already" in err) == (ExitCode.FAILED, True)
    document("alter", "shop", "--status", "disable")
    document("grant", "shop", "Topic:orders", "--action", "Pub", "--from", "10.0.0.0/8")
    detail = document("describe", "shop")
    assert (detail["kind"], detail["status"]) == ("Normal", "disable")
    assert detail["policies"] == [
        {
            "resource": "Topic:orders",
            "actions": ["Pub"],
            "source_ips": ["10.0.0.0/8"],
            "decision": "Allow",
        }
    ]
    code, out, _ = trioha("describe", "shop")
    assert "Topic:orders" in out
    assert "shop-secret" not in out
    code, _, err = trioha("revoke", "shop", "Topic:order", "--yes")
    assert (code, "did you mean Topic:orders?" in err) == (ExitCode.FAILED, True)
    document("revoke", "shop", "Topic:orders", "--yes")
    assert document("describe", "shop")["policies"] == []
    code, _, err = trioha("delete", "shoq", "--yes")
    assert (code, "did you mean shop?" in err) == (ExitCode.FAILED, True)
    assert "nobody is here to type shop" in trioha("delete", "shop")[2]
    document("delete", "shop", "--yes")
    assert "shop" not in trioha("list")[1]
    assert trioha("alter", "shop")[0] == ExitCode.USAGE
    monkeypatch.setenv("TRIOHA_SECRET_KEY", "wrong")
    assert trioha("list")[0] == ExitCode.REFUSED
