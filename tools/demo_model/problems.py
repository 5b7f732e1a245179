"""Seeded word problems in GSM8K's form, split by template values.

The split is a function of (template, numbers) alone: names, things and wording do not enter it, so a test
problem's numbers were never seen in training under the same template.
"""

import argparse
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from template import Numbers, Template

from templates import TEMPLATES

CORPUS = Path(__file__).resolve().parents[2] / "corpora" / "demo-sums"
SEEDS = {"train": 11, "validation": 12, "test": 13, "fewshot": 14}
TEST_PROBLEMS = 1319
HARD_SHARE = 0.2
DISTRACTOR_SHARE = 0.15

WOMEN = ("Ada", "Bella", "Carla", "Dora", "Emma", "Fay", "Gina", "Hanna", "Iris", "June", "Kate", "Lena")
MEN = ("Adam", "Ben", "Carl", "Dan", "Erik", "Finn", "Gus", "Hugo", "Ivan", "Jack", "Karl", "Leo")
PEOPLE = tuple([(name, "she", "her") for name in WOMEN] + [(name, "he", "his") for name in MEN])
THINGS = (
    "apples",
    "books",
    "cards",
    "coins",
    "cups",
    "flowers",
    "hats",
    "keys",
    "lamps",
    "marbles",
    "pears",
    "pens",
    "plates",
    "ribbons",
    "rocks",
    "shells",
    "stamps",
    "stickers",
    "toys",
    "tiles",
)
DISTRACTORS = (
    "{name} is {z} years old. ",
    "{other} lives {z} miles away. ",
    "It is {z} degrees outside. ",
    "{name} has {z} cousins. ",
)


@dataclass(frozen=True)
class Problem:
    """One problem; `key` is what the split hashes, `answer` ends with a line `#### N`."""

    template: str
    key: str
    question: str
    answer: str


def split_of(key: str) -> str:
    """'test' for 6 of 100 hash buckets, 'validation' for 2, else 'train'."""
    bucket = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100
    return "test" if bucket < 6 else "validation" if bucket < 8 else "train"


def _draw(template: Template, rng: random.Random) -> tuple[dict[str, int], dict[str, int]]:
    hard = rng.random() < HARD_SHARE
    while True:
        drawn = {
            letter: rng.randrange(low, (hard_high if hard else high) + 1, step)
            for letter, (low, high, hard_high, step) in template.numbers.items()
        }
        derived = template.derive(Numbers(drawn))
        if derived is not None:
            return drawn, derived


def make(rng: random.Random) -> Problem:
    """One problem of a random template: numbers, people, thing, wording and perhaps an idle remark."""
    template = rng.choice(TEMPLATES)
    drawn, derived = _draw(template, rng)
    (name, he, his), (other, _, _), (third, _, _) = rng.sample(PEOPLE, 3)
    wording = rng.randrange(len(template.questions))
    fields: dict[str, int | str] = {
        **drawn,
        **derived,
        "name": name,
        "he": he,
        "He": he.capitalize(),
        "his": his,
        "other": other,
        "third": third,
        "things": rng.choice(THINGS),
        "z": rng.randint(3, 60),
    }
    remark = rng.choice(DISTRACTORS) if rng.random() < DISTRACTOR_SHARE else ""
    final = list(derived.values())[-1]
    return Problem(
        template=template.name,
        key=f"{template.name}:{','.join(map(str, drawn.values()))}",
        question=(remark + template.questions[wording]).format(**fields),
        answer=f"{template.answers[wording].format(**fields)}\n#### {final}",
    )


def stream(split: str, seed: int) -> Iterator[Problem]:
    """Endless problems of one split, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        problem = make(rng)
        if split_of(problem.key) == split:
            yield problem


def unique(split: str, seed: int, count: int) -> list[Problem]:
    """The first `count` problems of a split whose (template, numbers) differ from one another."""
    seen: dict[str, Problem] = {}
    for problem in stream(split, seed):
        seen.setdefault(problem.key, problem)
        if len(seen) == count:
            return list(seen.values())
    raise AssertionError("the stream does not end")


def jsonl(problems: list[Problem], prefix: str) -> str:
    """`{"id","question","answer"}` a line; ids are `prefix-0000`, …."""
    rows = (
        {"id": f"{prefix}-{index:04d}", "question": problem.question, "answer": problem.answer}
        for index, problem in enumerate(problems)
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def corpus_files() -> dict[str, str]:
    """The committed corpus: file name -> exact content."""
    return {
        "test.jsonl": jsonl(unique("test", SEEDS["test"], TEST_PROBLEMS), "demo-sums"),
        "fewshot.jsonl": jsonl(unique("train", SEEDS["fewshot"], 8), "demo-sums-train"),
    }


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=CORPUS)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, content in corpus_files().items():
        (out / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
