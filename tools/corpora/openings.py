"""Writes corpora/code.jsonl and corpora/chat.jsonl: 24 prompts each of our own, for agreement where no public
corpus can be had. None of them is a certification prompt.

    python tools/corpora/openings.py corpora/
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FUNCTIONS = [
    ("count_vowels", "text", "how many vowels text has"),
    ("clamp", "value, low, high", "value moved into the range from low to high"),
    ("pairs_with_sum", "numbers, total", "all pairs of numbers that add up to total"),
    ("to_base", "n, base", "the digits of n in another base, most significant first"),
    ("longest_word", "sentence", "the longest word of a sentence, the first of equal ones"),
    ("moving_average", "values, width", "the means of all windows of the given width"),
    ("is_sorted", "items", "True when no item is smaller than the one before it"),
    ("unique", "items", "the items without repetitions, in order of first appearance"),
]
PATTERNS = [
    'def {name}({args}):\n    """Return {what}."""\n',
    "# Returns {what}.\nfunction {name}({args})\n",
    "/* {name}: {what} */\nstatic int {name}(",
]
OPENINGS = [
    "What should I pack for three days of walking in the hills in October?",
    "My plant's leaves turn yellow from the bottom up. What may be wrong?",
    "Write four lines about a tram that got lost.",
    "How do I read a bus timetable with footnotes?",
    "Explain the difference between a loan and a lease with one example each.",
    "A colleague takes credit for my work. What can I say in the next meeting?",
    "Suggest a warm dish with lentils that takes less than half an hour.",
    "Which two questions tell most about a flat that is for rent?",
    "Describe the smell of rain without using the word wet.",
    "Why does bread get hard and a biscuit get soft?",
    "Give me a rule of thumb for tipping in a country I have never been to.",
    "Write the first sentence of a detective novel that is set in a post office.",
    "How could a village of two hundred people share five cars?",
    "I have to choose between two job offers by Friday. Ask me three questions.",
    "What makes a good key ring?",
    "Explain how a lock on a canal works to somebody who has never seen one.",
    "Turn these notes into a sentence: train late, missed talk, met Ruth, good idea.",
    "Is it better to learn knots from pictures or from videos?",
    "Name a thing that was better in the year 1990 and one that was worse.",
    "How do I tell my landlord that the heating makes a noise only at night?",
    "Invent a holiday for people who repair things.",
    "What is a good first chess opening for somebody who forgets openings?",
    "Write a label for a jar of jam that did not set.",
    "Why do maps put north at the top?",
]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main(folder: Path) -> None:
    code = [p.format(name=n, args=a, what=w) for n, a, w in FUNCTIONS for p in PATTERNS]
    write(folder / "code.jsonl", [{"id": str(i), "prompt": text} for i, text in enumerate(code)])
    write(folder / "chat.jsonl", [{"id": str(i), "prompt": text} for i, text in enumerate(OPENINGS)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
