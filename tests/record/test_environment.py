"""The environment block: what is read is true, what cannot be read is absent."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec

from auditor.record.environment import environment
from tests.record import support


def test_versions_are_those_that_run() -> None:
    plan = support.plan()
    found = environment(plan)
    packages = {variable.name: variable.value for variable in found.packages}
    assert packages["msgspec"] == version("msgspec")
    assert packages["engine:python"] == platform.python_version()
    assert "engine:vllm" not in packages
    assert found.python == platform.python_version()
    assert found.memory_gib > 0


def test_an_engine_interpreter_that_is_not_there_is_absent_and_no_error(tmp_path: Path) -> None:
    engine = msgspec.structs.replace(support.plan().engine, python=str(tmp_path / "python"))
    found = environment(msgspec.structs.replace(support.plan(), engine=engine))
    assert not [v for v in found.packages if v.name.startswith("engine:")]


def test_attached_servers_have_no_engine_versions() -> None:
    plan = support.plan()
    arms = tuple(msgspec.structs.replace(arm, url="http://127.0.0.1:1") for arm in plan.arms)
    engine = msgspec.structs.replace(plan.engine, python=sys.executable)
    found = environment(msgspec.structs.replace(plan, arms=arms, engine=engine))
    assert not [v for v in found.packages if v.name.startswith("engine:")]
