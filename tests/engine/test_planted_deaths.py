"""Heads that kill their server, and servers that are not who they should be: real vLLM on the CPU."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from auditor.clock import RealClock
from auditor.demo.models import HEAD, TARGET
from auditor.engine import launcher
from auditor.engine.base import LaunchRequest
from auditor.errors import EngineError
from auditor.model.launch import Launch
from auditor.plan.config import resolve
from tests.cases.audits import says
from tests.engine.real import PYTHON, attached, copied, launched, needs_engine, ready, reweighted, serving

pytestmark = needs_engine
QUICK = (
    "--gates=accuracy", "--accuracy-limit=40", "--accuracy-max-tokens=120", "--pin=none",
    "--engine-env=OMP_NUM_THREADS=1", "--attempts=1",
)  # fmt: skip


def mismatched(folder: Path) -> Path:
    """A head that takes four hidden states, and a list of layers of which two are the same: the engine hands
    over three. It loads, reports healthy and fails at the first request, as a head does whose default layers
    coincide on a shallow target (which the draft lint refuses)."""

    def wider(name: str, values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, values[:, :192]], axis=1) if name.endswith("fc.weight") else values

    ids = {"eagle_aux_hidden_state_layer_ids": [1, 2, 4, 4], "num_aux_hidden_states": 4}
    return reweighted(copied(HEAD, folder / "head", **ids), wider)


@pytest.mark.slow
def test_a_head_that_dies_at_the_first_request_is_caught_by_the_canary(tmp_path: Path) -> None:
    plan = resolve(
        {
            "target": str(TARGET),
            "draft": (f"eagle3={mismatched(tmp_path)}",),
            "engine_python": str(PYTHON),
            "engine_env": ("HF_HUB_OFFLINE=1",),
        },
        {},
        None,
        "demo",
    ).plan
    states: list[Launch] = []
    request = LaunchRequest(
        plan=plan,
        arm=plan.arm("eagle3"),
        attempt=1,
        launch_id="eagle3-1",
        run_dir=tmp_path,
        clock=RealClock(),
        on_change=states.append,
        progress=lambda text: None,
    )
    with pytest.raises(EngineError, match=r"after /health was fine: .*shape"):
        asyncio.run(launcher.start(request))
    assert states[-1].state == "failed"
    assert states[-1].log_tail


@pytest.mark.slow
def test_a_head_that_dies_at_the_first_request_is_an_error_in_the_engine_s_own_words(tmp_path: Path) -> None:
    ran = launched(tmp_path, *QUICK, draft=f"eagle3={mismatched(tmp_path)}")
    assert ran.code == 5, ran.out
    says(ran.out, "eagle3", "after /health was fine")
    launch = next(x for x in ran.record.launches if x.arm == "eagle3")
    assert launch.state == "failed"
    says(launch.error or "", "RuntimeError", "shape")
    assert launch.log_tail
    assert "DRAFT-AUX-LAYERS" in {f.code for f in ran.record.findings}, "and it was warned of"
    assert any(p.arm == "reference" and p.state == "done" for p in ran.record.phases), "the rest is kept"


def test_layers_that_coincide_by_default_are_refused_before_any_server(tmp_path: Path) -> None:
    head = copied(HEAD, tmp_path / "head", eagle_aux_hidden_state_layer_ids=None)
    ran = launched(tmp_path, *QUICK, draft=f"eagle3={head}")
    assert ran.code == 2
    says(ran.err, "eagle_aux_hidden_state_layer_ids", "coincide")
    assert not (ran.run_dir / "launches").exists()


@pytest.mark.slow
def test_a_head_with_fewer_positions_than_served_is_warned_of(tmp_path: Path) -> None:
    head = copied(HEAD, tmp_path / "head", max_position_embeddings=128)
    ran = launched(tmp_path, *QUICK, draft=f"eagle3={head}")
    found = next(f for f in ran.record.findings if f.code == "DRAFT-POSITIONS")
    assert found.severity == "warning"
    says(f"{found.seen} {found.expected} {found.remedy}", "128 positions", "2048", "--max-model-len 128")


@pytest.mark.slow
def test_two_servers_on_one_port_are_never_mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port that the auditor picks is somebody else's server, before the launch and while it starts."""
    with ExitStack() as stack:
        stranger = stack.enter_context(serving(tmp_path / "stranger", TARGET, name="stranger"))
        ready(stranger)
        port = int(stranger.url.rsplit(":", 1)[1])
        monkeypatch.setattr(launcher, "free_port", lambda: port)
        before = launched(tmp_path / "before", *QUICK, draft="ngram")
        assert before.code == 5, before.out
        says(before.out, str(port))
        assert not before.record.phases
        monkeypatch.setattr(launcher, "refuse_answers", lambda port: None)
        while_starting = launched(tmp_path / "while", *QUICK, draft="ngram")
    assert while_starting.code == 5, while_starting.out
    assert not while_starting.record.phases
    launch = while_starting.record.launches[0]
    assert launch.state == "failed"
    says(launch.error or "", "stranger")


@pytest.mark.slow
def test_a_server_that_answers_another_model_s_name_is_an_error(tmp_path: Path) -> None:
    """Two attached servers share a port. The kernel picks one for each connection: the few of batch 1 can all
    reach the same, those of eight in flight cannot."""
    with ExitStack() as stack:
        plain = stack.enter_context(serving(tmp_path / "plain", TARGET))
        one = stack.enter_context(serving(tmp_path / "one", TARGET, name="one", shared=True))
        ready(plain, one)
        port = int(one.url.rsplit(":", 1)[1])
        two = stack.enter_context(serving(tmp_path / "two", TARGET, name="two", port=port, shared=True))
        while "startup complete" not in two.log.read_text(errors="replace"):
            assert two.process.poll() is None, two.log.read_text(errors="replace")[-2000:]
        ran = attached(tmp_path, plain, plain, one, "--gates=agreement,invariance", "--levels=8")
    assert ran.code == 5, ran.out
    failures = json.dumps([str(g.figure) for g in ran.record.judgement.gates])
    says(ran.out + failures, "candidate")
