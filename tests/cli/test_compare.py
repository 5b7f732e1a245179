"""`audit compare`: the open cases whose face it is, by id; its schema, exit codes and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from auditor.cli.main import cli
from auditor.errors import InvalidPlan

CASES = {
    c["id"]: c["fixture"]
    for line in (Path(__file__).parents[1] / "data" / "cases_open.jsonl").read_text().splitlines()
    for c in [json.loads(line)]
}
Rows = list[dict[str, Any]]


class Result:
    def __init__(self, code: int, document: dict[str, Any]) -> None:
        self.code = code
        self.pairs = document["pairs"]
        self.totals = document["totals"]

    @property
    def pair(self) -> dict[str, Any]:
        (only,) = self.pairs
        return only  # type: ignore[no-any-return]


@pytest.fixture
def compare(tmp_path: Path) -> Any:
    def run(reference: Rows, candidate: Rows, *options: str) -> Result:
        paths = []
        for name, rows in (("reference", reference), ("candidate", candidate)):
            path = tmp_path / f"{name}.jsonl"
            path.write_text("".join(json.dumps({"id": "p", **row}) + "\n" for row in rows))
            paths.append(str(path))
        args = ["compare", *paths, "--json", *options]
        done = CliRunner().invoke(cli, args, standalone_mode=False, catch_exceptions=False)
        return Result(done.return_value, json.loads(done.output))

    return run


def row(*ids: int, finish: str = "length", **fields: Any) -> dict[str, Any]:
    return {"token_ids": list(ids), "finish_reason": finish, **fields}


def test_a1_a_near_tie(compare: Any) -> None:
    case = CASES["A1"]
    done = compare([row(*case["base"], top_logprobs={"4": case["base_top2_at_3"]})], [row(*case["spec"])])
    assert (done.pair["agree"], done.pair["position"], done.pair["class"]) == (False, 4, "near tie")
    assert done.code == 0
    assert done.totals["classes"] == {"near tie": 1}


@pytest.mark.parametrize(
    "top",
    [
        {"2": {"5": -0.7, "6": -0.7}},
        {"2": {"token_id:5": -0.7, "token_id:6": -0.7}},
        {"2": [{"token_id": 5, "logprob": -0.7}, {"token_id": 6, "logprob": -0.7}]},
        {"2": [[5, -0.7], [6, -0.7]]},
        [None, {"5": -0.7, "6": -0.7}],
    ],
)
def test_spellings_of_top_logprobs(compare: Any, top: Any) -> None:
    done = compare([row(4, 5, top_logprobs=top)], [row(4, 6)])
    assert (done.pair["class"], done.code) == ("exact tie", 0)


@pytest.mark.parametrize("top", [5, "x", [], {}, {"2": None}, {"2": 5}, {"2": {"a": -0.7}}, {"2": [[1]]}])
def test_logprobs_that_say_nothing(compare: Any, top: Any) -> None:
    assert compare([row(4, 5, top_logprobs=top)], [row(4, 6)]).pair["class"] == "unknown"


def test_a2_one_prompt_however_often_repeated(compare: Any) -> None:
    case = CASES["A2"]
    base = [row(1, 2, 3, text=d) for d in case["base_digests"]]
    spec = [row(1, 2, 4, text=d) for d in case["spec_digests"]]
    done = compare(base, spec)
    assert (done.totals["prompts"], done.totals["agreement"]["k"]) == (1, 0)
    assert "20 of 20 repeats differ; the prompt counts once" in done.pair["notes"]


def test_a6_an_overrun_is_not_a_token_divergence(compare: Any) -> None:
    case = CASES["A6"]
    ids = list(range(case["spec_len"]))
    done = compare([row(*ids[: case["base_len"]])], [row(*ids)])
    assert (done.pair["class"], done.pair["position"], done.code) == (
        "length overrun",
        case["common_prefix"] + 1,
        1,
    )


def test_a7_a_bug_not_numerics(compare: Any) -> None:
    case = CASES["A7"]
    at = str(case["median_first_diff"])
    top = {at: {"6": -0.02, "9": -0.02 - case["median_margin"]}}
    base = [row(5, 6, 7, id=f"p{i}", top_logprobs=top) for i in range(case["n"])]
    spec = [row(5, 6 if i < case["exact"] else 9, 7, id=f"p{i}") for i in range(case["n"])]
    done = compare(base, spec)
    assert done.totals["classes"] == {"unexplained": case["n"] - case["exact"]}
    assert "by a fault, not by numerics" in done.totals["verdict"]
    assert done.code == 1


@pytest.mark.parametrize("case", ["A8", "D9"])
def test_a8_d9_degenerate_output(compare: Any, case: str) -> None:
    ids = CASES[case].get("spec_ids") or CASES[case]["ids"]
    done = compare([row(*range(100, 100 + len(ids)), text="fluent")], [row(*ids, text="!" * len(ids))])
    assert (done.pair["class"], done.code) == ("degenerate", 1)
    assert "NaN" in done.pair["why"]


def test_b3_the_engine_varies_by_itself(compare: Any) -> None:
    case = CASES["B3"]["long"]
    base = [row(1, 2, 10 + i % case["plain"]) for i in range(20)]
    spec = [row(1, 2, 50 + i % case["spec"]) for i in range(20)]
    done = compare(base, spec)
    assert done.pair["class"] == "unknown"
    assert "5 distinct completions to this prompt and the candidate 6" in done.pair["why"]
    assert done.code == 4


def test_c1_cold_and_warm(compare: Any) -> None:
    case = CASES["C1"]
    ids = {"A": (1, 2, 3), "B": (1, 2, 4)}
    spec = [
        row(*ids[r], usage={"completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": c}})
        for r, c in zip(case["replies"], case["cached"], strict=True)
    ]
    done = compare([row(*ids["B"])] * 4, spec)
    assert any("cache-path difference, not noise" in n for n in done.pair["notes"])


def test_c2_unequal_cache_hits(compare: Any) -> None:
    def hits(n: int) -> Rows:
        return [row(1, 2, usage={"completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": n}})]

    done = compare(hits(CASES["C2"]["plain_cached"]), hits(CASES["C2"]["spec_cached"]))
    assert "not comparable, run both again without prefix caching" in done.totals["warnings"][0]


def test_d2_eos_inside_a_block(compare: Any) -> None:
    case = CASES["D2"]
    done = compare([row(*case["base"], finish="stop")], [row(*case["spec"], finish="stop")])
    assert (done.pair["class"], done.pair["position"], done.code) == ("post-stop leak", 4, 1)


def test_d3_text_hides_other_ids(compare: Any) -> None:
    case = CASES["D3"]
    base, spec = (
        row(*range(n), finish="stop", text=t) for n, t in zip(case["n_ids"], case["text"], strict=True)
    )
    done = compare([base], [spec])
    assert not done.pair["agree"]
    assert "the texts are equal, the ids are not: compare ids" in done.pair["notes"]


def test_d4_usage_counts_what_was_not_delivered(compare: Any) -> None:
    case = CASES["D4"]["a"]
    ids = range(case["usage"])
    done = compare(
        [row(*ids, usage={"completion_tokens": case["usage"]})],
        [row(*list(ids)[: case["ids"]], usage={"completion_tokens": case["usage"]}, finish=case["finish"])],
    )
    assert (done.pair["class"], done.code) == ("short delivery", 1)


def test_d4_reasoning_beyond_completion_is_a_warning(compare: Any) -> None:
    case = CASES["D4"]["b"]
    ids = list(range(case["completion"]))
    usage = {
        "completion_tokens": case["completion"],
        "completion_tokens_details": {"reasoning_tokens": case["reasoning"]},
    }
    done = compare([row(*ids)], [row(*ids, usage=usage)])
    assert done.pair["agree"]
    assert any(n.startswith("warning: the candidate's usage counts 51 reasoning") for n in done.pair["notes"])
    assert done.code == 0


def test_d5_min_tokens(compare: Any) -> None:
    case = CASES["D5"]
    asked = {"min_tokens": case["min_tokens"]}
    done = compare(
        [row(*range(case["plain"]), request=asked)],
        [row(*range(50, 50 + case["spec"]), finish="stop", request=asked)],
    )
    assert (done.pair["class"], done.code) == ("stop policy", 1)
    assert "known cause" in done.pair["why"]


def test_d6_failed_requests_are_no_divergence(compare: Any) -> None:
    case = CASES["D6"]
    n = case["ok"] + case["reset"]
    base = [row(1, 2, id=f"p{i}") for i in range(n)]
    spec = [
        row(1, 2, id=f"p{i}") if i < case["ok"] else {"id": f"p{i}", "error": "connection reset"}
        for i in range(n)
    ]
    done = compare(base, spec)
    assert (done.totals["agreement"]["k"], done.totals["agreement"]["n"]) == (case["ok"], case["ok"])
    assert done.totals["errors"] == case["reset"]
    assert "the server probably died" in done.totals["warnings"][0]
    assert done.code == 4


def test_d6_a_fence_escapes_the_grammar(compare: Any) -> None:
    done = compare([row(1, 2, text='{"a": 1}')], [row(3, 2, text='```json\n{"a": 1}\n```')])
    assert any("grammar escape" in n for n in done.pair["notes"])


def test_d8_constant_logprobs_are_no_evidence(compare: Any) -> None:
    values = CASES["D8"]["lp"]
    ids = list(range(len(values)))
    done = compare([row(*ids)], [row(*ids[:-1], 999, logprobs=values)])
    assert (done.pair["class"], done.code) == ("unknown", 4)
    assert any("every logprob of the candidate is 0" in n for n in done.pair["notes"])


def test_d8_zero_alternatives_are_no_distribution(compare: Any) -> None:
    done = compare([row(1, 2, top_logprobs=[None, {"2": 0.0, "3": 0.0}])], [row(1, 3)])
    assert done.pair["class"] == "unknown"


def test_d10_sampled_completions_certify_nothing(compare: Any) -> None:
    case = CASES["D10"]
    ids = {"a": (1, 2), "b": (1, 3), "c": (1, 4)}
    asked = {"temperature": 0.8, "seed": 7}
    done = compare(
        [row(*ids[x], request=asked) for x in case["plain"]],
        [row(*ids[x], request=asked) for x in case["spec"]],
    )
    assert (done.pair["class"], done.code) == ("unknown", 4)
    assert any("do not honour seeds" in n for n in done.pair["notes"])
    assert any("the candidate does not repeat itself: 2 distinct" in n for n in done.pair["notes"])


def test_a5_penalties_are_hinted_at(compare: Any) -> None:
    asked = {"repetition_penalty": 1.05}
    done = compare([row(1, 2, request=asked)], [row(1, 3, request=asked)])
    assert any("run again with them off" in n for n in done.pair["notes"])


def test_i2_prompts_that_differ_are_refused(compare: Any) -> None:
    with pytest.raises(InvalidPlan, match=r"prompt ids differ.*embeds the date"):
        compare([row(1, 2, prompt_ids=[5, 6])], [row(1, 2, prompt_ids=[5, 7])])


def test_i4_an_eos_id_is_no_length_fault(compare: Any) -> None:
    n = CASES["I4"]["ids"]
    side = row(
        *range(1, n), 0, finish="stop", text="x" * CASES["I4"]["reencoded"], usage={"completion_tokens": n}
    )
    done = compare([side], [side])
    assert (done.pair["agree"], done.pair["position"], done.pair["class"], done.code) == (True, None, None, 0)


def test_i5_replacement_characters_hide_a_difference(compare: Any) -> None:
    case = CASES["I5"]
    done = compare([row(*case["a"], text=case["text"])], [row(*case["b"], text=case["text"])])
    assert not done.pair["agree"]
    assert any("replacement characters" in n for n in done.pair["notes"])


def test_i7_text_may_be_void_while_ids_are_valid(compare: Any) -> None:
    done = compare([row(1, 2, text="there")], [row(1, 2, text=CASES["I7"]["first_delta"] + "there")])
    assert (done.pair["agree"], done.code) == (True, 0)
    assert "the text is void, the ids are valid" in done.pair["notes"][0]


def test_i8_ids_are_counted_not_chunks(compare: Any) -> None:
    case = CASES["I8"]
    side = row(*range(sum(case["chunks"])), usage={"completion_tokens": case["usage"]})
    assert compare([side], [side]).pair["agree"]


def test_schema_and_intervals(compare: Any) -> None:
    done = compare([row(1, 2, id=i) for i in range(10)], [row(1, 2, id=i) for i in range(10)])
    assert {"id", "agree", "position", "class", "notes"} <= set(done.pairs[0])
    share = done.totals["agreement"]
    assert (share["k"], share["n"]) == (10, 10)
    assert share["clopper_pearson95"]["low"] == pytest.approx(0.6915, abs=1e-4)
    assert done.totals["at_most"] == pytest.approx(0.3)
    assert "not 'identical'" in done.totals["verdict"]


def test_prompts_of_one_file_only_are_told_and_inconclusive(compare: Any) -> None:
    done = compare([row(1, id="a"), row(1, id="b")], [row(1, id="a"), row(1, id="c")])
    assert (done.totals["only_reference"], done.totals["only_candidate"], done.code) == (1, 1, 4)


def test_order_and_spelling_do_not_matter(compare: Any, tmp_path: Path) -> None:
    done = compare(
        [row(1, 2, id="a"), row(3, 4, id="b", extra={"ignored": True})],
        [row(3, 4, id="b"), row(1, 2, id="a")],
    )
    assert [p["agree"] for p in done.pairs] == [True, True]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl.gz"
    one.write_text('{"token_ids": [ 1,2 ], "id": "a"}\n\n')
    two.write_bytes(gzip.compress(b'{"id":"a","token_ids":[1,2]}'))
    again = CliRunner().invoke(cli, ["compare", str(one), str(two)], standalone_mode=False)
    assert again.return_value == 0
    assert "1 of 1 prompts agree" in again.output


def test_nan_in_a_line_is_read_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id":"a","token_ids":[1,2],"logprobs":[NaN,-Infinity]}\n')
    done = CliRunner().invoke(cli, ["compare", str(path), str(path)], standalone_mode=False)
    assert done.return_value == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"not json\n", "line 1: it is no JSON object"),
        (b'{"id":"a","token_ids":[1]}\n{"id":"b"}\n', "line 2: field `token_ids` is missing"),
        (b'{"token_ids":[1]}\n', "line 1"),
        (b'{"id":"a","token_ids":["x"]}\n', "no list of integers"),
        (b'{"id":"a","token_ids":"x"}\n', "no list of integers"),
        (b'{"id":"a","token_ids":[1],"finish_reason":5}\n', "line 1"),
        (b'{"id":"a","token_ids":[1', "line 1"),
        (b"[1,2]\n", "line 1"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidPlan) as caught:
        CliRunner().invoke(
            cli, ["compare", str(path), str(path)], standalone_mode=False, catch_exceptions=False
        )
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf_8_leave_the_ids_valid(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_bytes(b'{"id":"a","token_ids":[1,2],"text":"\xff\xfe"}\n')
    two.write_bytes(b'{"id":"a","token_ids":[1,3],"text":"\xff"}\n')
    done = CliRunner().invoke(cli, ["compare", str(one), str(two)], standalone_mode=False)
    assert done.return_value == 4
    assert "replacement characters" in done.output


def test_a_folder_or_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["compare", str(tmp_path), str(tmp_path / "none")])
    assert done.exit_code == 2


def test_plain_output_names_each_divergence(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text("".join(json.dumps(row(1, 2, id=i)) + "\n" for i in range(60)))
    two.write_text("".join(json.dumps(row(1, 2, 3, id=i)) + "\n" for i in range(60)))
    done = CliRunner().invoke(cli, ["compare", str(one), str(two)], standalone_mode=False)
    assert done.return_value == 1
    assert "0: length overrun from token 3." in done.output
    assert "and 10 more" in done.output
