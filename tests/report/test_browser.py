"""The report in headless Chromium: nothing overflows, filters filter without a script, prints whole.

Pictures of every width and scheme are left in tests/output/ to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.report.html import render
from tests.report import gold
from tests.report.browser import CHROMIUM, Browser

OUTPUT = Path(__file__).parents[1] / "output"
MAKE = {"failing": gold.failing, "passing": gold.passing, "interrupted": gold.interrupted}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="Debian's chromium is not installed (apt-get install chromium)"
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    OUTPUT.mkdir(exist_ok=True)
    made = {}
    for name, make in MAKE.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(render(*make()), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    """The page never scrolls sideways, also with everything unfolded; wide tables scroll in their box."""
    for dark in (False, True):
        browser.open(pages[name], width, dark=dark)
        height = None if name == "failing" else 1500
        browser.picture(OUTPUT / f"{name}-{width}-{'dark' if dark else 'light'}.png", height=height)
        for unfold in ("", "document.querySelectorAll('details').forEach(d => { d.open = true })"):
            if unfold:
                browser.evaluate(unfold)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            outside = browser.evaluate(
                "[...document.querySelectorAll('body *')].filter(e => "
                "!e.closest('.scroll, .plot, nav, .skip, pre') && "
                f"e.getBoundingClientRect().right > {width} + 0.5).map(e => e.tagName + '.' + e.className)"
            )
            assert outside == []


def test_wide_tables_scroll_in_their_own_box(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["failing"], 390)
    assert browser.evaluate(
        "[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    )


def test_filters_work_without_a_script(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["failing"], 1280)
    shown = (
        "[...document.querySelectorAll('.entry')].filter(e => e.getClientRects().length)"
        ".map(e => e.querySelector('.mono').textContent)"
    )
    press = "document.querySelector(`.chip:has(#{})`).click()"
    labels = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.chip')].map(c => "
        "[c.innerText.trim(), c.querySelector('input').id]))"
    )
    by_label = {label.rsplit(" ", 1)[0]: id for label, id in labels.items()}
    counts = {label.rsplit(" ", 1)[0]: int(label.rsplit(" ", 1)[1]) for label in labels}
    assert browser.evaluate("document.scripts.length") == 0
    everything = browser.evaluate(shown)
    assert len(everything) == counts["all"] == 5
    for label in ("unexplained", "eagle3", "gsm8k"):
        browser.open(pages["failing"], 1280)
        browser.evaluate(press.replace("{}", by_label[label]))
        assert len(browser.evaluate(shown)) == counts[label]
    browser.evaluate(press.replace("{}", by_label["ngram"]))
    assert browser.evaluate(shown) == [], "filters of two kinds are combined"


def test_both_schemes_are_legible(browser: Browser, pages: dict[str, Path]) -> None:
    """Contrast of every text with what is behind it, WCAG 2 AA (4.5; 3 for large text)."""
    script = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
    for dark in (False, True):
        browser.open(pages["failing"], 1280, dark=dark)
        browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert browser.evaluate(script) == []


def test_it_prints_whole(browser: Browser, pages: dict[str, Path]) -> None:
    """On paper there is nothing to scroll and nothing to unfold but the divergences."""
    browser.open(pages["failing"], 760, media="print")
    assert browser.evaluate("document.querySelector('nav').getClientRects().length") == 0
    assert browser.evaluate(
        "[...document.querySelectorAll('details.fold > .inside')].every(e => e.checkVisibility())"
    )
    pdf = browser.call("Page.printToPDF", preferCSSPageSize=True)["data"]
    assert len(pdf) > 10_000
