"""Servers that somebody else runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from auditor.clock import RealClock
from auditor.engine.attach import attach, server_root
from auditor.engine.base import Server
from auditor.errors import AuditError, EngineError, InvalidPlan
from auditor.model.launch import Launch
from auditor.model.plan import Arm, AuditPlan, EnginePlan
from tests.fakes.stub import serve


def look(url: str, states: list[Launch] | None = None, **engine: str) -> Server:
    arm = Arm(name="control", role="control", url=url)
    plan = AuditPlan(name="t", target="?", arms=(arm,), engine=EnginePlan(**engine))  # type: ignore[arg-type]
    seen = states if states is not None else []
    return asyncio.run(attach(plan, arm, RealClock(), seen.append))


def test_what_cannot_be_verified_is_listed(tmp_path: Path) -> None:
    states: list[Launch] = []
    with serve(tmp_path, name="served-model") as stub:
        server = look(stub.base_url + "/v1/", states)
        assert server.launch == asyncio.run(server.stop())
        assert stub.process.poll() is None
    assert server.model == "served-model"
    assert server.base_url == stub.base_url
    assert states == [server.launch]
    assert server.launch.state == "attached"
    assert server.launch.nonce is None
    assert server.launch.engine_version == "0.32.0"
    assert any("command line" in u for u in server.launch.unverified)
    assert any("nonce" in u for u in server.launch.unverified)
    assert {s.name for s in server.launch.resolved} >= {"scheduler_config.async_scheduling"}


def test_a_server_without_server_info_has_more_unverified(tmp_path: Path) -> None:
    with serve(tmp_path, {"server_info_off": True, "metrics": "none"}) as stub:
        assert any("/server_info" in u for u in look(stub.base_url).launch.unverified)


def test_a_key_is_sent_and_a_password_in_the_address_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "opensesame")
    with serve(tmp_path) as stub:
        server = look(stub.base_url.replace("http://", "http://me:hunter2@"), api_key_env="MY_KEY")
    assert server.api_key == "opensesame"
    assert "hunter2" not in repr(server.launch)
    assert "opensesame" not in repr(server.launch)
    assert "hunter2" in server.base_url


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("http://127.0.0.1:9", EngineError, "no server answers at http://127.0.0.1:9"),
        ("127.0.0.1:8000", InvalidPlan, "has no http://"),
        ("http://[", EngineError, "no server answers"),
    ],
)
def test_an_address_without_a_server(url: str, kind: type[AuditError], words: str) -> None:
    with pytest.raises(kind) as caught:
        look(url)
    assert words in str(caught.value)


def test_a_key_variable_that_is_not_set() -> None:
    with pytest.raises(InvalidPlan, match="NO_SUCH_KEY is not set"):
        look("http://127.0.0.1:9", api_key_env="NO_SUCH_KEY")


def test_server_root() -> None:
    assert server_root("https://h:1/v1/") == "https://h:1"
    assert server_root("http://h/base") == "http://h/base"
