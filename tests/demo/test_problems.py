"""The committed problems: reproducible, right, and unseen in training."""

import json
import re
from itertools import islice
from types import ModuleType

import pytest

from tests.demo.conftest import CORPUS

EQUATION = re.compile(r"((?:\d+ [-+*/] )+\d+) = \$?(\d+)")


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["test.jsonl", "fewshot.jsonl"])
def test_the_generator_reproduces_the_committed_file(problems: ModuleType, name: str) -> None:
    assert problems.corpus_files()[name] == (CORPUS / name).read_text(encoding="utf-8")


def test_counts_and_ids() -> None:
    test, fewshot = rows("test.jsonl"), rows("fewshot.jsonl")
    assert (len(test), len(fewshot)) == (1319, 8)
    assert len({row["id"] for row in test + fewshot}) == 1327
    assert len({row["question"] for row in test}) == 1319


def calculated(left: str) -> float:
    """Left to right, as in the worked answers: products and quotients never follow a sum there."""
    first, *rest = left.split(" ")
    value = float(first)
    for sign, number in zip(rest[::2], map(float, rest[1::2]), strict=True):
        value = {"+": value + number, "-": value - number, "*": value * number, "/": value / number}[sign]
    return value


@pytest.mark.parametrize("name", ["test.jsonl", "fewshot.jsonl"])
def test_every_worked_answer_is_right(name: str) -> None:
    for row in rows(name):
        equations = EQUATION.findall(row["answer"])
        assert len(equations) >= 2, row
        for left, right in equations:
            assert calculated(left) == int(right), row
        assert row["answer"].endswith(f"\n#### {equations[-1][1]}"), row


def test_no_test_numbers_are_drawn_in_training_or_validation(problems: ModuleType) -> None:
    test = {problem.key for problem in problems.unique("test", problems.SEEDS["test"], 1319)}
    for split, count in (("train", 5000), ("validation", 200)):
        seen = {problem.key for problem in islice(problems.stream(split, problems.SEEDS[split]), count)}
        assert not seen & test
        assert {problems.split_of(key) for key in seen} == {split}


def test_another_seed_draws_other_problems(problems: ModuleType) -> None:
    first, second = (list(islice(problems.stream("train", seed), 20)) for seed in (1, 2))
    assert first != second
    assert first == list(islice(problems.stream("train", 1), 20))


def test_every_template_and_wording_occurs(problems: ModuleType) -> None:
    drawn = problems.unique("test", problems.SEEDS["test"], 1319)
    assert {problem.template for problem in drawn} == {template.name for template in problems.TEMPLATES}
