"""Stage 5's controls: servers that are started only where a candidate diverged, and what they decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.harness import answers, run_audit

Capture = pytest.CaptureFixture[str]
HONEST = {"all": {"answers": answers(0.7)}}
TIES = {"diverge": {"at": 3, "share": 0.9, "margin": 0.0}}
"""Nearly every prompt diverges, each at an exact tie: margins alone would excuse all of it."""


def test_no_control_is_started_where_nothing_diverged(capsys: Capture, tmp_path: Path) -> None:
    ran = run_audit(capsys, tmp_path, HONEST)
    assert ran.gate("agreement/ngram") == "PASS"
    assert {launch.arm for launch in ran.record.launches} == {"reference", "control", "ngram"}
    assert ran.record.judgement.width_controls == ()


def test_ties_that_the_width_control_does_not_show_are_too_many(capsys: Capture, tmp_path: Path) -> None:
    ran = run_audit(capsys, tmp_path, {**HONEST, "arms": {"ngram": TIES}})
    (control,) = ran.record.judgement.width_controls
    assert (control.arm, control.width, control.control.k, control.replaced) == ("ngram", 4, 0, 0)
    assert control.candidate.k >= 8
    assert control.candidate.n == 12
    assert control.candidate_only == control.candidate.k
    assert control.p_more == pytest.approx(0.5**control.candidate_only)
    assert {d.cls for d in ran.record.judgement.divergences} <= {"exact tie", "near tie"}
    assert {d.width_flip for d in ran.record.judgement.divergences} == {False}
    assert ran.gate("agreement/ngram") == "FAIL"
    assert ran.code == 1


def test_ties_that_the_width_control_shows_as_well_are_the_engine_s(capsys: Capture, tmp_path: Path) -> None:
    arms = {"ngram": TIES, "width-4": {"state": "B", "flip_rate": 0.3}}
    ran = run_audit(capsys, tmp_path, {**HONEST, "arms": arms})
    (control,) = ran.record.judgement.width_controls
    assert control.control.k >= 8
    assert 0 < control.replaced < control.tokens
    assert ran.gate("agreement/ngram") == "PASS"
    argv = next(launch.argv for launch in ran.record.launches if launch.arm == "width-4")
    assert argv[argv.index("--max-num-batched-tokens") + 1] == "4"
    assert not any("speculative" in word for word in argv)


def test_a_control_that_replaces_everything_excuses_nothing(capsys: Capture, tmp_path: Path) -> None:
    wide = {"diverge": {"at": 3, "share": 0.9, "margin": 4.0, "reproduces": False}}
    arms = {"ngram": wide, "width-4": {"state": "B", "flip_rate": 1.0}}
    ran = run_audit(capsys, tmp_path, {**HONEST, "arms": arms})
    (control,) = ran.record.judgement.width_controls
    assert not control.usable
    assert {(d.cls, d.width_flip) for d in ran.record.judgement.divergences} == {("unexplained", None)}
    assert ran.gate("agreement/ngram") == "FAIL"


def test_the_target_drafts_for_itself_where_that_is_asked_for(capsys: Capture, tmp_path: Path) -> None:
    arms = {"ngram": TIES, "self-draft": TIES}
    ran = run_audit(capsys, tmp_path, {**HONEST, "arms": arms}, "--controls=self-draft")
    assert {d.self_draft for d in ran.record.judgement.divergences} == {"other"}
    assert ran.record.judgement.width_controls == ()
    assert ran.gate("agreement/ngram") == "PASS", "nothing says that these ties are too many"
    argv = next(launch.argv for launch in ran.record.launches if launch.arm == "self-draft")
    assert '"method": "draft_model"' in argv[argv.index("--speculative-config") + 1]


def test_a_control_that_does_not_start_is_a_note(capsys: Capture, tmp_path: Path) -> None:
    refuse = {"exit_at_boot": {"code": 1, "message": "NotImplementedError: no draft models here"}}
    arms = {"ngram": TIES, "self-draft": refuse, "width-4": refuse}
    ran = run_audit(capsys, tmp_path, {**HONEST, "arms": arms}, "--controls=width,self-draft")
    assert ran.record.status == "complete"
    missing = [f for f in ran.record.findings if f.code == "CONTROL-NOT-RUN"]
    assert {f.subject for f in missing} == {"width-4", "self-draft"}
    assert all("no draft models here" in f.seen for f in missing)
    assert ran.gate("agreement/ngram") == "PASS"
    assert {d.width_flip for d in ran.record.judgement.divergences} == {None}


def test_controls_none(capsys: Capture, tmp_path: Path) -> None:
    ran = run_audit(capsys, tmp_path, {**HONEST, "arms": {"ngram": TIES}}, "--controls=none")
    assert {launch.arm for launch in ran.record.launches} == {"reference", "control", "ngram"}
    assert ran.record.plan.forensics is not None
    assert ran.record.plan.forensics.controls == ()
