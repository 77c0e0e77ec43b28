"""Operators with accounts: `trioha acl`, contexts with keys, a failover that names its operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.clusters.pair import Cluster
from support.clusters.secured import OPERATOR, OWN, acl_file, start_secured
from support.processes.rig import Processes
from support.processes.status import COMMAND_S, Outcome, run_trioha

from trioha.security.signature import Credentials

pytestmark = pytest.mark.slow
REFUSED, USAGE = 5, 2


def keys(account: Credentials) -> dict[str, str]:
    return {"TRIOHA_ACCESS_KEY": account.access_key, "TRIOHA_SECRET_KEY": account.secret_key}


def trioha(*arguments: str, env: Mapping[str, str]) -> Outcome:
    return run_trioha(*arguments, within_s=COMMAND_S, prefix=(), **env)


def test_an_operator_shows_and_changes_accounts_and_fails_over(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = start_secured(processes, "trioha", slave=True)
    namesrv = cluster.namesrv
    operator, config = keys(OPERATOR), tmp_path / "config.toml"
    by_context = {"TRIOHA_CONFIG": str(config)}

    for account, words in (({}, "No accessKey is configured"), (keys(OWN), "Need admin")):
        told = trioha("acl", "list", "-n", namesrv, env=account)
        assert told.code == REFUSED
        assert words in told.err

    told = trioha("acl", "list", "-n", namesrv, "-o", "json", env=operator)
    assert told.code == 0, told.err
    shown = json.loads(told.out)
    assert list(shown) == ["broker-a/0", "broker-a/1"]
    assert OWN.secret_key not in told.out

    put = ["acl", "set", "second-1", "--topic", "own-topic=PUB", "-n", namesrv]
    told = trioha(*put, env=operator | {"TRIOHA_NEW_SECRET_KEY": "second-secret"})
    assert told.code == 0, told.err
    assert "second-1 is set on broker-a/0, broker-a/1" in told.out
    assert "second-secret" in acl_file(cluster).read_text()
    told = trioha("acl", "get", "second-1", "-n", namesrv, "-o", "json", env=operator)
    assert json.loads(told.out)["broker-a/1"]["topic_perms"] == ["own-topic=PUB"]
    # The command has no terminal to ask for the secret.
    assert trioha(*put, env=operator).code == USAGE

    # A context, its secret from the environment, kept in a file of its owner's.
    add = ["context", "add", "prod", "-n", namesrv, "--access-key", OPERATOR.access_key]
    told = trioha(*add, env=by_context | {"TRIOHA_SECRET_KEY": OPERATOR.secret_key})
    assert told.code == 0, told.err
    assert config.stat().st_mode & 0o777 == 0o600
    assert trioha("ha", "status", env=by_context).code == 0
    assert OPERATOR.secret_key not in trioha("context", "show", "-o", "json", env=by_context).out

    told = trioha("failover", "broker-a", "--yes", env=by_context)
    assert told.code == 0, told.out + told.err
    told = trioha("failover", "broker-a", "--audit", "-o", "json", env=by_context)
    assert {record["account"] for record in json.loads(told.out)["failovers"]} == {"operator-1"}
    assert "operator-1 (" in trioha("failover", "broker-a", "--audit", env=by_context).out

    told = trioha("acl", "delete", "second-1", "-n", namesrv, "-o", "json", env=operator)
    # Both brokers of this test share one file: the first deletes, the second has none to delete.
    assert told.code in (0, REFUSED), told.err
    assert "second-1" not in acl_file(cluster).read_text()


def test_a_cluster_without_access_control_says_so(processes: Processes) -> None:
    cluster = Cluster(processes).start()
    told = trioha("acl", "list", "-n", cluster.namesrv, env={})
    assert told.code == REFUSED
    assert "aclEnable=true" in told.err
