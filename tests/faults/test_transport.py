"""Servers that answer badly, a clock that jumps, corpora that cannot be meant: one audit, an arm a fault."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

from auditor.model.completion import Answer, Completion, RequestFailure
from auditor.record.evidence import StoredEvidence
from tests.cases.audits import Ran, arguments, audit, cli, prompts, says

AFTER = 6
"""Requests served before a fault: the canary, two fingerprints and three completions."""
ONCE = {"after": AFTER, "count": 1}
STATUS = {"http429": 429, "http500": 500, "http503": 503}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Eight prompts. Faults of transport hit the fourth; a restarted server has none. The wall clock jumps by
    an hour, forth and back, whenever somebody looks."""
    diverge = {"at": 3, "share": 0.6}
    arms: dict[str, object] = {
        **{name: [{"status": {"code": code} | ONCE}, {}] for name, code in STATUS.items()},
        "body": [{"stall": {"mode": "body"} | ONCE}, {}],
        "rubbish": [{"not_json_after": AFTER}, {}],
        "reset": [{"reset_after": AFTER}, {}],
        "big": {"big_reply": 10_000_000},
        "oov": {"diverge": {"at": 4, "mode": "oov"}},
        "nan": {"diverge": diverge, "nan_logprobs": True},
        "inf": {"diverge": diverge, "inf_logprobs": True},
    }
    jumps = itertools.cycle((0.0, 3600.0, -3600.0))
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + next(jumps))
        return audit(
            tmp_path_factory.mktemp("transport"),
            {"all": {}, "arms": arms},
            "--gates=agreement",
            "--request-timeout=4",
            "--limit=8",
            drafts=[f"{arm}=ngram" for arm in arms],
        )


def answers(ran: Ran, arm: str) -> list[Answer]:
    return list(StoredEvidence.load(ran.run_dir).answers(f"batch1/{arm}-1/sums"))


def reasons(ran: Ran, arm: str) -> list[str]:
    return [a.reason for a in answers(ran, arm) if isinstance(a, RequestFailure)]


@pytest.mark.parametrize("arm", STATUS)
def test_an_error_status_is_one_failure_and_no_wrong_answer(ran: Ran, arm: str) -> None:
    assert reasons(ran, arm) == [f"http-{STATUS[arm]}"]
    assert not [d for d in ran.record.judgement.divergences if d.arm == arm]
    gate = ran.gate(f"agreement/{arm}")
    assert gate.status == "ERROR"
    says(gate.figure, "1 prompts have no completion", "7 of 7 agree")
    says(gate.remedy, "audit resume")


def test_a_network_that_stalls_in_a_body_is_an_error_not_a_hang(ran: Ran) -> None:
    assert reasons(ran, "body") == ["stalled"] * 5
    assert ran.gate("agreement/body").status == "ERROR"


@pytest.mark.parametrize(("arm", "reason"), [("rubbish", "bad-reply"), ("reset", "connection")])
def test_replies_that_are_none(ran: Ran, arm: str, reason: str) -> None:
    assert reasons(ran, arm) == [reason] * 5
    assert ran.gate(f"agreement/{arm}").status == "ERROR"


def test_replies_of_ten_megabytes_are_kept(ran: Ran) -> None:
    assert all(isinstance(a, Completion) and len(a.text) > 10_000_000 for a in answers(ran, "big"))
    assert ran.gate("agreement/big").status == "PASS"


def test_ids_out_of_the_vocabulary_are_compared_like_any_other(ran: Ran) -> None:
    got = [a for a in answers(ran, "oov") if isinstance(a, Completion) and 10**6 in a.token_ids]
    assert got
    found = {d.prompt: d for d in ran.record.judgement.divergences if d.arm == "oov"}
    assert all(found[a.prompt].other_token == 10**6 for a in got)
    assert ran.gate("agreement/oov").status in ("FAIL", "INCONCLUSIVE")


@pytest.mark.parametrize("arm", ["nan", "inf"])
def test_logprobs_that_are_no_numbers_are_no_margins(ran: Ran, arm: str) -> None:
    found = [d for d in ran.record.judgement.divergences if d.arm == arm]
    assert found
    for divergence in found:
        assert divergence.other_score is None or divergence.other_score.margin is None


def test_a_clock_that_jumps_leaves_the_record_in_order(ran: Ran) -> None:
    for phase in ran.record.phases:
        assert phase.ended_s is not None
        assert 0 <= phase.started_s <= phase.ended_s < 3000
    assert ran.gate("agreement/big").status == "PASS"


def test_failed_requests_are_asked_again_by_resuming(ran: Ran) -> None:
    again = cli(ran.run_dir, "resume", "--display=none", str(ran.run_dir))
    for arm in (*STATUS, "body", "rubbish", "reset"):
        assert not reasons(again, arm), arm
        assert again.gate(f"agreement/{arm}").status == "PASS", again.gate(f"agreement/{arm}")
    assert cli(again.run_dir, "verify", str(again.run_dir)).code == 0


CORPORA = {
    "duplicate ids": ('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n', "occurs twice"),
    "empty": ("", "no rows"),
    "no text": ('{"prompt": ""}\n', "no token"),
    "not JSON": ('{"prompt": "x"}\nrubbish\n', "check the file"),
}


@pytest.mark.parametrize("case", [*CORPORA, "not UTF-8", "existing output"])
def test_what_cannot_be_meant_is_refused_before_any_server(tmp_path: Path, case: str) -> None:
    path = prompts(tmp_path / "mine.jsonl", ["x", "y"])
    text, word = CORPORA.get(case, ("", ""))
    if case in CORPORA:
        path.write_text(text)
    elif case == "not UTF-8":
        path.write_bytes(b'{"prompt": "caf\xe9"}\n')
        word = "is not UTF-8 (byte 0xe9)"
    else:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "notes.txt").write_text("mine")
        word = "exists and is not empty"
    ran = cli(
        tmp_path / "run",
        *arguments(
            tmp_path,
            {},
            "--gates=agreement",
            "--agreement-corpora=mine",
            f"--corpus=mine={path}",
            "--limit=2",
        ),
    )
    assert ran.code == 2, ran.out + ran.err
    says(ran.err, word)
    assert ran.err.count("\n") == 1, "one sentence"
    assert not (tmp_path / "run" / "launches").exists()
    assert not (tmp_path / "run" / "audit.json").exists()
    if case == "existing output":
        assert [p.name for p in (tmp_path / "run").iterdir()] == ["notes.txt"]
        says(ran.err, "audit resume")


def test_lines_of_the_record_are_whole(ran: Ran) -> None:
    for name in ("completions.jsonl", "journal.jsonl", "prompts.jsonl"):
        for line in (ran.run_dir / name).read_bytes().splitlines():
            json.loads(line)
