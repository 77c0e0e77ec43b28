"""Nodes that other machines reach: without a secret they start by explicit word, and say so."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from support.nodes.live_set import live_set

from trioha.cli.ha_problems import problems_of
from trioha.config import BrokerRole, NamesrvConfig
from trioha.errors import ConfigError
from trioha.services.namesrv.server import serve_namesrv
from trioha.testing.recorded_events import RecordedEvents

EVERYWHERE = {"bind_address": "0.0.0.0", "broker_ip1": "127.0.0.1"}


async def test_a_broker_beyond_loopback_refuses_to_start(tmp_path: Path) -> None:
    async with live_set(tmp_path, **EVERYWHERE) as set_:
        with pytest.raises(ConfigError, match=r"bindAddress 0\.0\.0\.0 is reached from other"):
            await set_.add(BrokerRole.ASYNC_MASTER)
        assert not (set_.root / "0").exists()


async def test_an_insecure_broker_says_so_everywhere(tmp_path: Path) -> None:
    async with live_set(tmp_path, insecure=True, **EVERYWHERE) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        assert master.events.of("node_insecure") == [{"address": "0.0.0.0"}]
        status = await master.status()
        assert status["insecure"] is True
        assert any("insecure: other machines reach it" in line for line in problems_of([status]))
        await master.stop()


async def test_a_broker_with_a_secret_and_one_on_loopback_are_not_insecure(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    await trio.Path(secret).write_text("the secret of this cluster")
    settings = {"cluster_secret_file": str(secret), "anonymous_clients": True, **EVERYWHERE}
    async with live_set(tmp_path, **settings) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        assert (await master.status())["insecure"] is False
        assert master.events.of("node_insecure") == []
        await master.stop()


async def test_a_name_server_beyond_loopback_refuses_or_says_so(tmp_path: Path) -> None:
    events = RecordedEvents()
    config = NamesrvConfig(
        listen_port=0, admin_http_enable=False, kv_config_path=str(tmp_path / "kv.json")
    )
    with pytest.raises(ConfigError, match="--insecure"):
        await serve_namesrv(config, trio.Event(), events)
    insecure = NamesrvConfig(
        listen_port=0,
        admin_http_enable=False,
        kv_config_path=str(tmp_path / "kv.json"),
        insecure=True,
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_namesrv, insecure, trio.Event(), events))
            nursery.cancel_scope.cancel()
    assert events.of("node_insecure") == [{"address": "0.0.0.0"}]
