"""What is wrong with single answers, and how far their explanation carries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditor.model.completion import Answer, Completion, RequestFailure
from auditor.model.judgement import Divergence
from auditor.record.evidence import StoredEvidence
from tests.cases.audits import Ran, audit, prompts, says
from tests.fakes.fake_vllm import write_target

LONG = 2060
"""Tokens of the longest prompt; the head of C7 knows 2,048 positions."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A target whose generation_config.json holds a penalty, and a candidate a fault."""
    folder = tmp_path_factory.mktemp("answers")
    target = write_target(folder / "target", max_position_embeddings=8192)
    (target / "generation_config.json").write_text(
        json.dumps({"eos_token_id": 256, "repetition_penalty": 1.05})
    )
    head = write_target(folder / "head", max_position_embeddings=2048)
    (head / "model.safetensors").write_bytes(one_tensor())
    texts = [f"Line {i} of a text that goes on with:" for i in range(12)]
    texts.append("x" * LONG)
    corpus = prompts(folder / "lines.jsonl", texts)
    log = folder / "requests.jsonl"
    arms = {
        "a5": {"diverge": {"at": 5, "share": 0.5, "margin": 4.0}},
        "c7": {"die_at_prompt": 2048},
        "d6": {"die_after": 10},
        "d8": {"diverge": {"at": 3, "share": 0.5}, "constant_logprobs": 0.0},
        "d9": {"diverge": {"at": 2, "mode": "degenerate"}, "logprobs_500": True, "request_log": str(log)},
        "i7": {"echo_prompt": True},
        "i8": {},
        "i10": {"stall": {"after": 5, "count": 1, "mode": "headers"}, "request_log": str(log)},
    }
    drafts = [f"{arm}={'draft_model:' + str(head) if arm == 'c7' else 'ngram'}" for arm in arms]
    return audit(
        folder,
        {"all": {}, "arms": arms},
        "--gates=head-ran,agreement",
        "--agreement-corpora=lines",
        f"--corpus=lines={corpus}",
        "--limit=13",
        "--request-timeout=4",
        "--calibration-prompts=2",
        drafts=drafts,
        target=target,
    )


def one_tensor() -> bytes:
    """A whole safetensors file."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


def answers(ran: Ran, arm: str) -> list[Answer]:
    return list(StoredEvidence.load(ran.run_dir).answers(f"batch1/{arm}-1/lines"))


def divergences(ran: Ran, arm: str) -> list[Divergence]:
    return [d for d in ran.record.judgement.divergences if d.arm == arm]


def requests(ran: Ran, arm: str) -> list[dict[str, object]]:
    """Bodies that the server of `arm` was sent, after its canary."""
    lines = [json.loads(x) for x in (ran.run_dir.parent / "requests.jsonl").read_text().splitlines()]
    return [x["body"] for x in lines if x["arm"].startswith(f"{arm}-")][1:]


def test_A5_a_fault_under_penalties_is_a_failure_that_names_them(ran: Ran) -> None:
    gate = ran.gate("agreement/a5")
    assert gate.status == "FAIL"
    says(gate.figure, "control 13 of 13", "unexplained")
    says(gate.remedy, "penalties are in force", "run again with them off")


def test_I3_a_leaking_penalty_is_warned_of_and_every_sampling_field_is_sent(ran: Ran) -> None:
    found = ran.finding("GENERATION-CONFIG-SAMPLING")
    assert found.severity == "warning"
    says(found.seen, "repetition_penalty 1.05")
    says(found.remedy, "clients also send 1.0")
    for body in requests(ran, "d9"):
        assert body["repetition_penalty"] == 1
        assert body["presence_penalty"] == body["frequency_penalty"] == body["temperature"] == 0
        assert body["top_p"] == 1
    for launch in ran.record.launches:
        assert launch.argv[launch.argv.index("--generation-config") + 1] == "vllm"


def test_C7_a_head_with_too_few_positions_is_warned_of_and_its_death_is_an_error(ran: Ran) -> None:
    found = ran.finding("DRAFT-POSITIONS", "c7")
    assert found.severity == "warning"
    says(found.seen, "2048 positions")
    says(found.expected, "8192")
    says(found.remedy, "--max-model-len 2048")
    launch = ran.launch("c7-1")
    assert launch.state == "died"
    says(launch.error or "", "illegal memory access")
    gate = ran.gate("agreement/c7")
    assert gate.status == "ERROR"
    says(gate.remedy, "audit resume")


def test_D6_a_dead_arm_has_failures_and_no_wrong_answers(ran: Ran) -> None:
    got = answers(ran, "d6")
    good = [a for a in got if isinstance(a, Completion)]
    lost = [a for a in got if isinstance(a, RequestFailure)]
    assert (len(good), len(lost)) == (7, 6), "the canary and two fingerprints came before"
    assert {a.reason for a in lost} == {"engine-died"}
    assert not divergences(ran, "d6")
    gate = ran.gate("agreement/d6")
    assert gate.status == "ERROR"
    says(gate.figure, "the engine died")
    assert ran.code == 5


def test_D8_constant_logprobs_of_every_arm_leave_margins_unknown(tmp_path: Path) -> None:
    arms = {"ngram": {"diverge": {"at": 3, "share": 0.7}}}
    ran = audit(tmp_path, {"all": {"constant_logprobs": 0.0}, "arms": arms}, "--gates=agreement")
    found = divergences(ran, "ngram")
    assert found
    assert {d.cls for d in found} == {"unknown"}
    gate = ran.gate("agreement/ngram")
    assert gate.status == "INCONCLUSIVE", "never a confident bug"
    says(gate.remedy, "margins are not evidence")
    assert ran.code == 4


def test_D8_constant_logprobs_of_the_candidate_are_not_its_margin(ran: Ran) -> None:
    found = divergences(ran, "d8")
    assert found
    assert {d.cls for d in found} == {"near tie"}, "by the reference's own margin"
    for divergence in found:
        assert divergence.other_score is not None
        assert divergence.other_score.margin is None
        assert divergence.other_score.reference_logprob == divergence.other_score.other_logprob == 0.0
    assert ran.gate("agreement/d8").status == "PASS"


def test_D9_degenerate_output_fails_and_a_refused_score_is_not_asked_again(ran: Ran) -> None:
    gate = ran.gate("agreement/d9")
    assert gate.status == "FAIL"
    says(gate.figure, "degenerate")
    says(gate.remedy, "NaN")
    scored = [s for s in ran.record.scores if s.launch == "d9-1"]
    asked = [b for b in requests(ran, "d9") if b["max_tokens"] == 1 and b.get("logprobs")]
    scored_prefixes = [b["prompt"] for b in asked if b.get("prompt_logprobs") is None]
    assert len(scored_prefixes) == len(scored)
    assert len({str(p) for p in scored_prefixes}) == len(scored_prefixes)
    assert all("http-500" in (s.error or "") for s in scored)


def test_I7_text_that_repeats_the_prompt_changes_nothing_because_ids_are_compared(ran: Ran) -> None:
    got = answers(ran, "i7")
    assert all(isinstance(a, Completion) and "\N{REPLACEMENT CHARACTER}" in a.text for a in got)
    assert ran.gate("agreement/i7").status == "PASS"


def test_I8_tokens_are_ids_not_chunks(ran: Ran) -> None:
    got = [a for a in answers(ran, "i8") if isinstance(a, Completion)]
    assert all(a.usage_completion == len(a.token_ids) for a in got)
    activity = ran.activity("batch1/i8-1/lines")
    phase = next(p for p in ran.record.phases if p.id == activity.phase)
    assert phase.generating_s
    assert activity.tokens_per_s == pytest.approx(sum(len(a.token_ids) for a in got) / phase.generating_s)


def test_I10_a_silent_request_is_asked_once_and_voids_the_solo_phase(ran: Ran) -> None:
    sent = [str(b["prompt"]) for b in requests(ran, "i10") if b["max_tokens"] != 1]
    assert len(sent) == len(set(sent)) == 3, "two answers and the silent one, none twice"
    phase = next(p for p in ran.record.phases if p.id == "batch1/i10-1/lines")
    assert phase.state == "error"
    says(phase.reason or "", "no reply within 4 s", "nothing else was answered")
    lost = [a for a in answers(ran, "i10") if isinstance(a, RequestFailure)]
    assert {a.reason for a in lost} == {"stalled"}
    gate = ran.gate("agreement/i10")
    assert gate.status == "ERROR"
    says(gate.remedy, "audit resume")


@pytest.fixture(scope="module")
def rescored(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Margins are wide. Rescoring a prefix as a batch gives, on every arm alike, the second choice after 39
    generated tokens, and from 256 on something else than decoding gave."""
    folder = tmp_path_factory.mktemp("rescored")
    texts = [f"{i:02d} a prompt of one length:" for i in range(3)]
    size = len(texts[0])
    every = {
        "mean_length": 0,
        "margin": 1.0,
        "rescore_second_at": size + 39,
        "rescore_off_from": size + 256,
    }
    arms = {name: {"diverge": {"at": at}} for name, at in (("a9", 40), ("late", 280), ("early", 20))}
    return audit(
        folder,
        {"all": every, "arms": arms},
        "--gates=agreement",
        "--agreement-corpora=long",
        f"--corpus=long={prompts(folder / 'long.jsonl', texts)}",
        "--max-tokens=300",
        "--limit=3",
        "--calibration-prompts=3",
        drafts=[f"{name}=ngram" for name in arms],
    )


def test_A9_a_flip_that_the_plain_server_shows_without_a_drafter_clears_the_head(rescored: Ran) -> None:
    found = divergences(rescored, "a9")
    assert {d.position for d in found} == {40}
    assert {d.drafter_free_flip for d in found} == {True}
    assert not {d.cls for d in found} & {"unexplained", "degenerate"}
    says(found[0].why, "not the head", "without any drafter", "prefers the candidate's token")
    assert rescored.gate("agreement/a9").status == "PASS"


def test_A10_rescoring_that_breaks_off_on_the_plain_arm_too_blames_nobody_beyond_there(
    rescored: Ran,
) -> None:
    ran = rescored
    late, early = divergences(ran, "late"), divergences(ran, "early")
    assert {d.position for d in late} == {280}
    assert {d.cls for d in late} == {"unknown"}
    says(late[0].why, "rescoring")
    assert {d.cls for d in early} == {"unexplained"}, "there, rescoring is calibrated and a margin counts"
    gate = ran.gate("agreement/late")
    assert gate.status == "INCONCLUSIVE"
    says(gate.remedy, "calibration of rescoring")


def test_G8_a_broken_stop_list_is_void_never_equivalent(tmp_path: Path) -> None:
    ran = audit(tmp_path, {"all": {"answers": {"": " So"}}}, "--gates=accuracy", "--accuracy-limit=64")
    (test,) = [t for t in ran.record.judgement.accuracy if t.arm == "ngram"]
    assert (test.both, test.candidate_only, test.reference_only) == (0, 0, 0)
    assert test.verdict == "void"
    assert ran.code == 4
    says(ran.gate("accuracy/ngram").remedy, "stop list", "cannot tell the arms apart")
    assert "equivalent" not in ran.gate("accuracy/ngram").figure.lower()


def test_I1_a_doubled_bos_is_refused_before_any_server(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    path = target / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    bos = {**tokenizer["added_tokens"][0], "id": 257, "content": "<bos>"}
    tokenizer["added_tokens"].append(bos)
    tokenizer["model"]["vocab"]["<bos>"] = 257
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [257], "tokens": ["<bos>"]}},
    }
    path.write_text(json.dumps(tokenizer))
    (target / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>"}))
    corpus = prompts(tmp_path / "twice.jsonl", ["<bos>Say something.", "And on."])
    ran = audit(
        tmp_path,
        {},
        "--gates=agreement",
        "--agreement-corpora=twice",
        f"--corpus=twice={corpus}",
        "--limit=2",
        target=target,
    )
    assert ran.code == 2, ran.out
    says(
        ran.err, "beginning-of-sequence token 257 twice", "twice/", "corpus's text or from the chat template"
    )
    assert not (ran.run_dir / "launches").exists()
