"""The fake itself: deterministic, and each scripted fault shows as it says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.fakes.fake_vllm import EOS, write_target
from tests.fakes.stub import Stub, serve

PROMPTS = [list(f"prompt number {i}".encode()) for i in range(12)]


def ask(stub: Stub, prompt: list[int], **fields: Any) -> dict[str, Any]:
    body = {"model": stub.model, "prompt": prompt, "max_tokens": 40, "return_token_ids": True} | fields
    request = urllib.request.Request(
        f"{stub.base_url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as reply:
        return dict(json.load(reply)["choices"][0])


def ids(stub: Stub, prompt: list[int], **fields: Any) -> list[int]:
    return list(ask(stub, prompt, **fields)["token_ids"])


def answers(folder: Path, faults: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    with serve(folder, faults) as stub:
        return [ask(stub, p, **fields) for p in PROMPTS]


def test_two_launches_in_one_state_agree_and_another_state_does_not(tmp_path: Path) -> None:
    one, again = answers(tmp_path, {}), answers(tmp_path, {})
    other = answers(tmp_path, {"state": "B", "flip_rate": 0.3})
    assert one == again
    assert sum(a["token_ids"] == b["token_ids"] for a, b in zip(one, other, strict=True)) < len(PROMPTS) / 2
    assert all((a["finish_reason"] == "stop") == (a["token_ids"][-1] == EOS) for a in one)


def test_rescoring_a_prefix_reproduces_decoding_also_where_it_diverges(tmp_path: Path) -> None:
    with (
        serve(tmp_path) as plain,
        serve(tmp_path, {"diverge": {"at": 3, "margin": 0.0}}, name="d-1") as other,
    ):
        for prompt in PROMPTS:
            one, two = ids(plain, prompt), ids(other, prompt)
            if len(one) < 3:
                continue
            assert one[:2] == two[:2]
            assert one[2] != two[2]
            for stub, said in ((plain, one[2]), (other, two[2])):
                choice = ask(
                    stub, prompt + one[:2], max_tokens=1, logprobs=20, return_tokens_as_token_ids=True
                )
                assert choice["token_ids"] == [said]
                top = choice["logprobs"]["top_logprobs"][0]
                assert {f"token_id:{one[2]}", f"token_id:{two[2]}"} <= set(top)
            assert ids(other, prompt) == two


@pytest.mark.parametrize(
    ("mode", "cap", "shows"),
    [
        ("short", 40, lambda a, b: len(b["token_ids"]) == 3 and b["finish_reason"] == "stop"),
        ("leak", 400, lambda a, b: b["token_ids"][: len(a["token_ids"])] == a["token_ids"] != b["token_ids"]),
        ("overrun", 4, lambda a, b: len(b["token_ids"]) == 9),
        ("degenerate", 40, lambda a, b: len(set(b["token_ids"][3:])) == 1 and len(b["token_ids"]) == 40),
        ("oov", 40, lambda a, b: 10**6 in b["token_ids"]),
        ("finish", 40, lambda a, b: b["finish_reason"] != a["finish_reason"]),
    ],
)
def test_structural_faults(tmp_path: Path, mode: str, cap: int, shows: Any) -> None:
    with serve(tmp_path) as plain, serve(tmp_path, {"diverge": {"at": 4, "mode": mode}}, name="d-1") as other:
        prompt = next(p for p in PROMPTS if len(ids(plain, p)) > 6)
        assert shows(ask(plain, prompt, max_tokens=cap), ask(other, prompt, max_tokens=cap))


def test_transport_faults(tmp_path: Path) -> None:
    with serve(tmp_path, {"status": {"code": 503, "after": 1, "count": 1}}) as stub:
        ids(stub, PROMPTS[0])
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            ids(stub, PROMPTS[0])
        caught.value.close()
        ids(stub, PROMPTS[0])


def test_sums_are_solved_at_the_asked_rate(tmp_path: Path) -> None:
    prompts = [list(f"Question: {i} + 5?\nAnswer:".encode()) for i in range(40)]
    with serve(tmp_path, {"solve": 0.5}) as stub:
        right = sum(ask(stub, p)["text"].endswith(f"#### {i + 5}") for i, p in enumerate(prompts))
    assert 8 <= right <= 32


def test_the_targets_tokenizer_is_the_fakes(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(write_target(tmp_path / "t") / "tokenizer.json"))
    for text in ("plain", "Zürich 1 + 2\n", "<eos>"):
        expected = [EOS] if text == "<eos>" else list(text.encode())
        assert tokenizer.encode(text).ids == expected
    assert tokenizer.decode(list("Zürich".encode())) == "Zürich"
