"""Every exit code, reached through the command line against a real child process."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.model.record import AuditRecord
from tests.run.harness import Ran, answers, run_audit

HONEST = {"all": {"answers": answers(0.7)}}

Capture = pytest.CaptureFixture[str]


def told(ran: Ran, *words: str) -> None:
    """The last lines name the verdict and what they should."""
    for word in words:
        assert word in ran.out, ran.out


def test_0_pass_when_every_gate_passed(capsys: Capture, tmp_path: Path) -> None:
    # Answers slow enough for the level to be seen as held, also on a busy machine.
    script = {"all": {**HONEST["all"], "latency_ms": 80}}
    args = ("--levels=2", "--limit=24", "--invariance-prompts=24", "--certification-prompts=12")
    ran = run_audit(capsys, tmp_path, script, *args)
    assert ran.code == 0, ran.out
    told(ran, "PASS", "report.html")
    record = ran.record
    assert record.status == "complete"
    assert {g.status for g in record.judgement.gates} == {"PASS"}
    for name in ("report.html", "junit.xml", "audit.sarif", "summary.md"):
        assert (ran.run_dir / name).stat().st_size > 0


def test_1_fail_when_a_divergence_is_not_explained(capsys: Capture, tmp_path: Path) -> None:
    script = {**HONEST, "arms": {"ngram": {"diverge": {"at": 3, "share": 0.5, "margin": 4.0}}}}
    ran = run_audit(capsys, tmp_path, script)
    assert ran.code == 1, ran.out
    told(ran, "FAIL", "agreement/ngram")
    assert any(d.cls == "unexplained" for d in ran.record.judgement.divergences)


def test_1_fail_when_accuracy_differs(capsys: Capture, tmp_path: Path) -> None:
    script = {**HONEST, "arms": {"ngram": {"answers": answers(0.7, other=160)}}}
    ran = run_audit(capsys, tmp_path, script, "--gates=accuracy", "--accuracy-limit=200")
    assert ran.code == 1, ran.out
    told(ran, "FAIL", "accuracy/ngram")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--draft=no-such-head"], ["no-such-head"]),
        (["--margin=2"], ["margin"]),
        (["--gates=speed"], ["speed"]),
        (["--agreement-corpora=nonsense"], ["nonsense"]),
        (["--nonsense"], ["nonsense"]),
        (['--draft={"method":"ngram","rejection_sample_method":"synthetic"}'], ["synthetic"]),
    ],
)
def test_2_invalid_before_any_server(
    capsys: Capture, tmp_path: Path, args: list[str], words: list[str]
) -> None:
    ran = run_audit(capsys, tmp_path, HONEST, *args)
    assert ran.code == 2, ran.out
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err
    assert not (ran.run_dir / "launches").exists()


def test_3_uncertified_when_the_control_is_in_another_state(capsys: Capture, tmp_path: Path) -> None:
    script = {**HONEST, "arms": {"control": {"state": "B", "flip_rate": 0.5}}}
    ran = run_audit(capsys, tmp_path, script, "--attempts=2")
    assert ran.code == 3, ran.out
    told(ran, "UNCERTIFIED", "control")
    assert [x.other for x in ran.record.judgement.certificates if x.arm == "control"] == [
        "control-1",
        "control-2",
    ]
    assert not [p for p in ran.record.phases if p.stage in ("batch1", "load")]


def test_3_uncertified_when_the_fingerprints_differ_and_the_report_says_where(
    capsys: Capture, tmp_path: Path
) -> None:
    """Completions agree, bits do not: the same flags in one state would have the same bits."""
    script = {**HONEST, "arms": {"control": {"fingerprint": "B"}}}
    ran = run_audit(capsys, tmp_path, script, "--attempts=1", "--gates=certification,agreement")
    assert ran.code == 3, ran.out
    told(ran, "UNCERTIFIED", "fingerprint")
    (found,) = [c for c in ran.record.judgement.certificates if c.arm == "control"]
    assert (found.fingerprints, found.agreement.k, found.agreement.n) == ("differ", 16, 16)
    assert found.fingerprint_diffs
    assert all(d.differing > 0 and d.max_abs for d in found.fingerprint_diffs)
    report = (ran.run_dir / "report.html").read_text("utf-8")
    assert found.fingerprint_diffs[0].prompt in report


def test_3_uncertified_when_the_engine_does_not_repeat_itself(capsys: Capture, tmp_path: Path) -> None:
    script = {"all": {**HONEST["all"], "unrepeatable": {"share": 1.0}, "flip_rate": 0.5}}
    ran = run_audit(capsys, tmp_path, script)
    assert ran.code == 3, ran.out
    told(ran, "UNCERTIFIED", "repeat")
    assert ran.record.judgement.accuracy


def test_4_inconclusive_when_the_head_never_ran(capsys: Capture, tmp_path: Path) -> None:
    script = {**HONEST, "arms": {"ngram": {"metrics": "zero"}}}
    ran = run_audit(capsys, tmp_path, script)
    assert ran.code == 4, ran.out
    told(ran, "INCONCLUSIVE", "head-ran/ngram")


def test_5_error_when_an_engine_dies(capsys: Capture, tmp_path: Path) -> None:
    script = {**HONEST, "arms": {"ngram": {"healthy_then_dies": True}}}
    ran = run_audit(capsys, tmp_path, script)
    assert ran.code == 5, ran.out
    told(ran, "ERROR", "ngram")
    record: AuditRecord = ran.record
    assert record.status == "error"
    assert any(p.stage == "batch1" and p.state == "done" for p in record.phases), "the rest is kept"
