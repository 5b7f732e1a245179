"""Did the head run, and how well? One audit, a candidate for each way in which servers count."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.cases.audits import Ran, attached, audit, prompts, says
from tests.fakes.stub import serve

WINDOWS = ("w1", "w2", "w3", "w4", "w5")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Five corpora are five windows at batch 1; requests are counted from the canary on."""
    folder = tmp_path_factory.mktemp("activity")
    corpora = [
        f"--corpus={w}={prompts(folder / f'{w}.jsonl', [f'{w} number {i}:' for i in range(10)])}"
        for w in WINDOWS
    ]
    arms = {
        "f1new": {"metrics": "normal"},
        "f1old": {"metrics": "old"},
        "f1none": {"metrics": "none"},
        "f3": {"metrics": "engines"},
        "f3created": {"metrics": "created"},
        "f5": {"acceptance": 0.00005},
        "c6": {"acceptance": [0.61, 0.60, 0.02, 0.01, 0.02, 0.02]},
    }
    return audit(
        folder,
        {"all": {}, "arms": arms},
        "--gates=head-ran,agreement",
        f"--agreement-corpora={','.join(WINDOWS)}",
        "--limit=10",
        "--min-acceptance-length=1",
        *corpora,
        drafts=[f"{arm}=ngram" for arm in arms],
    )


def test_F1_families_of_old_and_new_servers_read_alike_and_none_is_unknown(ran: Ran) -> None:
    new, old = ran.activity("batch1/f1new-1/w1"), ran.activity("batch1/f1old-1/w1")
    assert new.status == old.status == "ran"
    assert (new.drafts, new.accepted) == (old.drafts, old.accepted)
    assert new.acceptance_length is not None
    none = ran.activity("batch1/f1none-1/w1")
    assert (none.status, none.drafts, none.acceptance_length) == ("unknown", None, None)
    gate = ran.gate("head-ran/f1none")
    assert gate.status == "INCONCLUSIVE"
    says(gate.figure, "could not be read")
    says(gate.remedy, "/metrics")


def test_F3_engines_are_summed_and_created_timestamps_left_out(ran: Ran) -> None:
    for phase in WINDOWS:
        drafts = {a: ran.activity(f"batch1/{a}-1/{phase}").drafts for a in ("f1new", "f3", "f3created")}
        assert len(set(drafts.values())) == 1, drafts
        assert (drafts["f3"] or 0) > 0


def test_F5_an_inert_head_passes_parity_and_is_named(ran: Ran) -> None:
    assert ran.gate("agreement/f5").status == "PASS"
    found = ran.finding("HEAD-INERT", "f5")
    assert found.severity == "warning"
    says(found.remedy, "says little of this head", "lm_head")
    assert "HEAD-INERT" not in ran.codes("f1new")


def test_C6_acceptance_that_collapses_and_stays_is_named_though_output_is_equal(ran: Ran) -> None:
    found = ran.finding("ACCEPTANCE-COLLAPSED", "c6")
    assert found.severity == "warning"
    says(found.seen, "stayed low")
    says(found.remedy, "position limit", "vary the order", "restart")
    assert ran.gate("agreement/c6").status == "PASS"
    assert "ACCEPTANCE-COLLAPSED" not in ran.codes("f1new")


def test_F4_acceptance_is_of_the_phase_not_of_the_server_s_life(tmp_path: Path) -> None:
    """The candidate served 400 requests at 0.9 before the audit came; now it accepts 0.1."""
    fast = {"mean_length": 0, "acceptance": [0.9] * 40 + [0.1]}
    with (
        serve(tmp_path, name="reference-0") as one,
        serve(tmp_path, name="control-0") as two,
        serve(
            tmp_path,
            {**fast, "mean_length": 24},
            name="candidate-0",
            args=("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'),
        ) as three,
    ):
        body = {"model": three.model, "prompt": [65, 66, 67], "max_tokens": 16}
        for i in range(400):
            body["prompt"] = [65, 66, 67 + i % 20]
            request = urllib.request.Request(
                f"{three.base_url}/v1/completions",
                json.dumps(body).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request) as reply:
                reply.read()
        ran = attached(tmp_path, one.base_url, two.base_url, three.base_url, "--gates=head-ran,agreement")
    (phase,) = [p for p in ran.record.phases if p.id.startswith("batch1/candidate-1/")]
    found = ran.activity(phase.id)
    assert phase.after is not None
    assert phase.after.accepted_tokens is not None
    assert phase.after.draft_tokens is not None
    lifetime = phase.after.accepted_tokens / phase.after.draft_tokens
    assert found.accepted is not None
    assert found.draft_tokens
    assert found.accepted / found.draft_tokens < 0.2 < 0.5 < lifetime
