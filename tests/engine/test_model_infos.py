"""What a launch found out about model classes is there for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.engine import model_infos
from auditor.engine.base import EngineInfo

INFO = EngineInfo(python="/usr/bin/python3", version="0.32.0", packages={"torch": "2.13.0"})


def found(launch: Path, name: str = "llama.json", text: str = "{}") -> Path:
    path = launch / "vllm-cache" / "modelinfos" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_next_launch_of_the_same_engine_has_them(tmp_path: Path) -> None:
    found(tmp_path / "one", text="1")
    model_infos.keep(INFO, tmp_path / "one")
    model_infos.bring(INFO, tmp_path / "two")
    assert [p.name for p in (tmp_path / "two").rglob("*") if p.is_file()] == ["llama.json"]
    other = EngineInfo(python=INFO.python, version="0.33.0", packages=INFO.packages)
    model_infos.bring(other, tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_a_newer_answer_is_kept_and_a_copied_cache_is_not_overwritten(tmp_path: Path) -> None:
    found(tmp_path / "one", text="stale")
    model_infos.keep(INFO, tmp_path / "one")
    path = found(tmp_path / "two", text="new")
    model_infos.bring(INFO, tmp_path / "two")
    assert path.read_text() == "new"
    model_infos.keep(INFO, tmp_path / "two")
    model_infos.bring(INFO, tmp_path / "three")
    assert (tmp_path / "three/vllm-cache/modelinfos/llama.json").read_text() == "new"


def test_a_launch_without_any_and_a_cache_that_cannot_be_written_are_no_failure(
    tmp_path: Path, cache: Path
) -> None:
    model_infos.keep(INFO, tmp_path / "nothing")
    assert not cache.exists()
    cache.write_text("a file where the folder should be")
    found(tmp_path / "one")
    model_infos.keep(INFO, tmp_path / "one")
    model_infos.bring(INFO, tmp_path / "two")
    assert not (tmp_path / "two").exists()
