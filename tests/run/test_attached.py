"""Servers that somebody else runs: the second pass reaches them, and a run on them can be resumed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.cases.audits import attached, cli, says
from tests.fakes.stub import Stub, serve

SPEC = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')


def plain(folder: Path, name: str, stack: ExitStack) -> Stub:
    return stack.enter_context(serve(folder, name=name))


def test_divergences_of_attached_servers_are_scored_on_both(tmp_path: Path) -> None:
    with ExitStack() as stack:
        faults = {"diverge": {"at": 3, "share": 0.7, "margin": 4.0}}
        candidate = stack.enter_context(serve(tmp_path, faults, name="candidate-0", args=SPEC))
        urls = [plain(tmp_path, name, stack).base_url for name in ("reference-0", "control-0")]
        ran = attached(tmp_path, *urls, candidate.base_url, "--gates=agreement")
    assert ran.code == 1, ran.out
    found = ran.record.judgement.divergences
    assert found
    for divergence in found:
        assert divergence.cls == "unexplained"
        assert divergence.reference_score is not None
        assert divergence.other_score is not None
    assert any("started by somebody else" in x for x in ran.record.judgement.verdict.limits)


def test_a_failed_request_is_asked_again_unless_another_server_answers_now(tmp_path: Path) -> None:
    with ExitStack() as stack:
        faults = {"status": {"code": 503, "after": 5, "count": 1}}
        candidate = stack.enter_context(serve(tmp_path, faults, name="candidate-0", args=SPEC))
        urls = [plain(tmp_path, name, stack).base_url for name in ("reference-0", "control-0")]
        ran = attached(tmp_path, *urls, candidate.base_url, "--gates=agreement")
        assert ran.code == 5, ran.out
        says(ran.gate("agreement/candidate").figure, "1 prompts have no completion")
        again = cli(ran.run_dir, "resume", "--display=none", str(ran.run_dir))
        assert again.code == 0, again.out
        assert len([p for p in again.record.phases if p.arm == "candidate"]) == 1
    assert cli(again.run_dir, "verify", str(again.run_dir)).code == 0


def test_a_server_in_another_state_is_not_gone_on_with(tmp_path: Path) -> None:
    with ExitStack() as stack:
        candidate = stack.enter_context(
            serve(tmp_path, {"status": {"code": 503, "after": 5, "count": 1}}, name="candidate-0", args=SPEC)
        )
        urls = [plain(tmp_path, name, stack).base_url for name in ("reference-0", "control-0")]
        ran = attached(tmp_path, *urls, candidate.base_url, "--gates=agreement")
        candidate.process.kill()
        candidate.process.wait()
        port = candidate.base_url.rsplit(":", 1)[1]
        stack.enter_context(serve(tmp_path, {"state": "B"}, name="candidate-0", args=(*SPEC, "--port", port)))
        again = cli(ran.run_dir, "resume", "--display=none", str(ran.run_dir))
    assert again.code == 5, again.out
    says(again.out, "candidate-1 is another server now and shows another fingerprint", "start a new audit")
