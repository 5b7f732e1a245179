"""Writes corpora/sums.jsonl and corpora/sums_shots.jsonl: small sums in GSM8K's form.

    python tools/corpora/sums.py corpora --count 320 --largest 9 --seed 1

Every problem is one addition or subtraction in a sentence; `--largest` is the largest addend, and with
`--largest 9` a model of a hundred million parameters answers some but not all. Shots and problems share no
question.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

PEOPLE = ["Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"]
PEOPLE += ["Ivo", "Jill", "Kofi", "Lena", "Mila", "Noor", "Omar", "Pia"]
THINGS = ["apples", "pens", "stamps", "coins", "books", "shells"]
THINGS += ["cards", "eggs", "plums", "keys", "balls", "cups"]
MORE = [
    "{who} has {a} {things} and gets {b} more. How many {things} does {who} have?",
    "{who} picks {a} {things} in the morning and {b} in the evening. How many {things} is that in all?",
    "There are {a} {things} in a box. {who} puts in {b} more. How many {things} are in the box?",
]
LESS = [
    "{who} has {a} {things} and gives away {b}. How many {things} are left?",
    "There are {a} {things} on a table. {who} takes {b}. How many {things} are still there?",
    "{who} had {a} {things} and lost {b} of them. How many {things} does {who} have now?",
]


def problems(rng: random.Random, largest: int) -> Iterator[dict[str, str]]:
    """An endless stream of distinct problems."""
    seen = set()
    while True:
        who, things = rng.choice(PEOPLE), rng.choice(THINGS)
        a, b = rng.randint(2, largest), rng.randint(2, largest)
        adding = rng.random() < 0.5
        if not adding:
            a = a + b
        question = rng.choice(MORE if adding else LESS).format(who=who, things=things, a=a, b=b)
        if question in seen:
            continue
        seen.add(question)
        result, sign = (a + b, "+") if adding else (a - b, "-")
        yield {"question": question, "answer": f"{a} {sign} {b} = {result}\n#### {result}"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=320)
    parser.add_argument("--shots", type=int, default=8)
    parser.add_argument("--largest", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    stream = problems(random.Random(given.seed), given.largest)
    for name, count in (("sums_shots", given.shots), ("sums", given.count)):
        rows = ({"id": f"{name}-{n}", **next(stream)} for n in range(count))
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (given.folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
