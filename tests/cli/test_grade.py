"""`audit grade gsm8k`: the open grading cases by id, the schema, and refusals."""

from __future__ import annotations

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


@pytest.fixture
def grade(tmp_path: Path) -> Any:
    def run(*rows: dict[str, Any]) -> dict[str, Any]:
        path = tmp_path / "answers.jsonl"
        path.write_text("".join(json.dumps({"id": i, **r}) + "\n" for i, r in enumerate(rows)))
        done = CliRunner().invoke(
            cli, ["grade", "gsm8k", str(path), "--json"], standalone_mode=False, catch_exceptions=False
        )
        assert done.return_value == 0
        document: dict[str, Any] = json.loads(done.output)
        return document

    return run


@pytest.mark.parametrize("case", ["G1", "G2"])
def test_g1_g2_by_the_flexible_rule(grade: Any, case: str) -> None:
    (found,) = grade({"completion": CASES[case]["text"], "gold": CASES[case]["gold"]})["answers"]
    assert found["status"] == "no-answer"
    assert found["flexible"] == {"answer": CASES[case]["gold"], "correct": True}


def test_g3_the_sign_is_kept(grade: Any) -> None:
    found = grade(*({"completion": t, "gold": g} for t, g, _ in CASES["G3"]["cases"]))["answers"]
    right = [a["status"] == "correct" or a["flexible"]["correct"] for a in found]
    assert right == [expected for _, _, expected in CASES["G3"]["cases"]]


def test_g5_cut_at_the_next_question_then_the_last_marker(grade: Any) -> None:
    found = grade(*({"completion": t, "gold": g} for t, g, _ in CASES["G5"]["cases"]))["answers"]
    assert [a["status"] for a in found] == ["correct", "correct"]


def test_g6_a_wrong_gold_is_wrong_in_both_arms(grade: Any) -> None:
    case = CASES["G6"]
    found = grade(*({"completion": f"#### {case[arm]}", "gold": case["gold"]} for arm in ("plain", "spec")))
    assert [a["status"] for a in found["answers"]] == ["wrong", "wrong"]


def test_g7_null_after_the_budget_is_no_answer(grade: Any) -> None:
    case = CASES["G7"]
    (found,) = grade(
        {
            "completion": case["content"],
            "gold": "18",
            "finish_reason": case["finish"],
            "reasoning_content": case["reasoning_content"],
        }
    )["answers"]
    assert found["status"] == "no-answer"
    assert "cut at the cap" in found["note"]


def test_g8_a_floor_is_void(grade: Any) -> None:
    totals = grade(*({"completion": "So", "gold": "18"} for _ in range(CASES["G8"]["plain"][1])))["totals"]
    assert (totals["correct"], totals["no-answer"]) == (0, 200)
    assert "VOID" in totals["warnings"][0]


def test_statuses_and_totals(grade: Any) -> None:
    document = grade(
        {"completion": "#### 18", "gold": "18", "finish_reason": "stop"},
        {"completion": "#### 17", "gold": 18, "finish_reason": "stop"},
        {"completion": "well", "gold": "18", "finish_reason": "stop"},
        {"completion": "we first", "gold": "18", "finish_reason": "length"},
        {"completion": None, "gold": "18", "error": "timeout"},
    )
    assert [a["status"] for a in document["answers"]] == [
        "correct",
        "wrong",
        "no-answer",
        "truncated",
        "error",
    ]
    totals = document["totals"]
    assert (totals["n"], totals["strict"]["k"], totals["strict"]["n"]) == (5, 1, 4)
    assert set(document["answers"][0]) == {"id", "status", "answer", "flexible", "vllm", "note"}


def test_rules_that_disagree_are_told(grade: Any) -> None:
    totals = grade(*({"completion": f"It is {i}", "gold": str(i)} for i in range(10)))["totals"]
    assert (totals["correct"], totals["flexible_correct"], totals["vllm_correct"]) == (0, 10, 10)
    assert any("quote it" in w for w in totals["warnings"])


def test_plain_output(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"q{i}", "gold": "1", "completion": "#### 2"}) + "\n" for i in range(60))
    )
    done = CliRunner().invoke(cli, ["grade", "gsm8k", str(path)], standalone_mode=False)
    assert done.return_value == 0
    assert "q0: wrong, answered 2" in done.output
    assert "and 10 more" in done.output
    assert "0 correct, 60 wrong" in done.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"nonsense\n", "line 1"),
        (b'{"id":"a","completion":"#### 1"}\n', "line 1"),
        (b'{"id":"a","gold":"none","completion":"#### 1"}\n', "holds no number"),
        (b'{"id":"a","gold":"1","completion":5}\n', "line 1"),
    ],
)
def test_refusals(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidPlan) as caught:
        CliRunner().invoke(cli, ["grade", "gsm8k", str(path)], standalone_mode=False, catch_exceptions=False)
    assert said in str(caught.value)
