"""Comparison with a gold file, what may change scrubbed; the actual text is saved where they differ."""

from __future__ import annotations

import re
from pathlib import Path

GOLD = Path(__file__).parent / "expected"
OUTPUT = Path(__file__).parents[1] / "output"


def scrub(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ?", "DATE", text)
    # How the page looks is checked by looking (test_browser.py), what it says here.
    text = re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.DOTALL)
    # It covers the whole plan, so that a new plan field with a default changes it.
    return re.sub(r"Evidence: sha256 [0-9a-f]{64}", "Evidence: sha256 DIGEST", text)


def compare(name: str, text: str) -> None:
    """AssertionError naming the first differing line and the file to copy when the change is meant."""
    expected = GOLD / name
    actual = scrub(text)
    wanted = expected.read_text(encoding="utf-8") if expected.exists() else ""
    if actual == wanted:
        return
    OUTPUT.mkdir(exist_ok=True)
    saved = OUTPUT / name
    saved.write_text(actual, encoding="utf-8")
    pairs = zip([*wanted.splitlines(), ""], [*actual.splitlines(), ""], strict=False)
    line, (a, b) = next(((i, p) for i, p in enumerate(pairs, 1) if p[0] != p[1]), (0, ("", "")))
    raise AssertionError(
        f"{name} differs from its gold file at line {line}:\n  gold:   {a[:300]}\n  actual: {b[:300]}\n"
        f"Look at {saved}; if the change is meant, copy it to {expected}."
    )
