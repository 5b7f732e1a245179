"""The page and the lines of `audit diff`: what they say, that nothing overflows, that texts cannot act."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from auditor.judge.baseline import compare
from auditor.judge.figures import compute
from auditor.judge.snapshot import snapshot
from auditor.model.baseline import Condition, IdentityDigest, RunDiff
from auditor.report.diff import render, summary
from tests.fakes.evidence import EvidenceBuilder, honest_audit, plan, sample_audit
from tests.report.browser import CHROMIUM, Browser

OUTPUT = Path(__file__).parents[1] / "output"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def found(before: EvidenceBuilder, after: EvidenceBuilder) -> RunDiff:
    one, two = (
        snapshot(
            compute(build.evidence), (IdentityDigest(name="draft:eagle3", source="head", digest=mark * 64),)
        )
        for build, mark in ((before, "b"), (after, "c"))
    )
    return compare(replace(one, run="release"), replace(two, run="head"))


@pytest.fixture(scope="module")
def regression() -> RunDiff:
    return found(honest_audit(gsm8k=200), sample_audit())


def test_the_page_names_the_outcome_its_reason_and_each_figure(regression: RunDiff) -> None:
    page = render(regression)
    assert '<span class="word">Regression</span>' in page
    assert "exit code 1" in page
    assert regression.reason in page
    assert "36 of 40 (90.0%)" in page
    assert page.count("new fault") == 2
    assert render(regression) == page, "the same comparison gives the same bytes"


def test_conditions_come_first(regression: RunDiff) -> None:
    page = render(regression)
    places = [page.index(f'<section id="{name}">') for name in ("conditions", "states", "changes", "shares")]
    assert places == sorted(places)
    text = summary(regression)
    assert text.index("Not alike") < text.index("Shares, after against before")
    assert "draft:eagle3" in text


def test_the_lines_fit_a_terminal(regression: RunDiff) -> None:
    text = summary(regression, "diff.html")
    assert text.startswith("REGRESSION (exit code 1)\n")
    assert all(len(line) <= 80 for line in text.splitlines())
    for said in (*regression.arms[0].regressions, *regression.arms[0].compared):
        assert said in " ".join(text.split())


@pytest.mark.parametrize(
    ("before", "after", "headline"),
    [
        (honest_audit, honest_audit, "No regression"),
        (lambda: honest_audit(gsm8k=20), lambda: honest_audit(gsm8k=20), "Inconclusive"),
        (lambda: EvidenceBuilder(plan()), lambda: EvidenceBuilder(plan()), "Not comparable"),
        (honest_audit, lambda: EvidenceBuilder(plan()), "Not comparable"),
    ],
)
def test_every_outcome_has_a_page(before: object, after: object, headline: str) -> None:
    done = found(before(), after())  # type: ignore[operator]
    assert f'<span class="word">{headline}</span>' in render(done)
    assert summary(done).startswith(headline.upper())


def test_names_cannot_act(regression: RunDiff) -> None:
    odd = replace(
        regression,
        reason=HOSTILE,
        conditions=(Condition(what=HOSTILE, before=HOSTILE, after=None, bearing="listed"),),
        not_compared=(HOSTILE,),
    )
    page, text = render(odd), summary(odd)
    assert "<script>" not in page
    for bad in ("\x1b", "\u202e"):
        assert bad not in page
        assert bad not in text


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed (apt-get install chromium)")
def test_nothing_overflows_and_all_is_legible(regression: RunDiff, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    page.write_text(render(regression), encoding="utf-8")
    OUTPUT.mkdir(exist_ok=True)
    contrast = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
    with Browser() as browser:
        for width in (1280, 390):
            for dark in (False, True):
                browser.open(page, width, dark=dark)
                browser.picture(OUTPUT / f"diff-{width}-{'dark' if dark else 'light'}.png")
                browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                assert browser.evaluate(contrast) == []
