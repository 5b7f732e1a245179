"""The report: gold files, one file that loads nothing, hostile texts, size, determinism."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from auditor.model.completion import Completion, Prompt
from auditor.model.judgement import Divergence, SurvivalPoint
from auditor.model.record import AuditRecord
from auditor.report.html import _shown, render
from tests.fakes.evidence import MemoryEvidence
from tests.report import gold
from tests.report.golden import compare

VOID = frozenset({"meta", "input", "br", "hr", "link", "img"})
Make = Callable[[], tuple[AuditRecord, MemoryEvidence]]
RECORDS: dict[str, Make] = {
    "failing": gold.failing,
    "passing": gold.passing,
    "interrupted": gold.interrupted,
}


class Page(HTMLParser):
    """Checks nesting; collects elements, ids and texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> at line {self.getpos()[0]}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module", params=RECORDS)
def page(request: pytest.FixtureRequest) -> tuple[str, Page]:
    text = render(*RECORDS[request.param]())
    return text, Page(text)


@pytest.mark.parametrize("name", ["failing", "interrupted"])
def test_gold(name: str) -> None:
    compare(f"{name}.html", render(*RECORDS[name]()))


def test_same_record_same_bytes() -> None:
    assert render(*gold.failing()) == render(*gold.failing())


def test_it_loads_nothing_and_runs_nothing(page: tuple[str, Page]) -> None:
    text, parsed = page
    tags = {name for name, _ in parsed.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "video", "audio"}
    for _, attrs in parsed.elements:
        assert not any(name.startswith("on") for name in attrs)
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_links_lead_somewhere(page: tuple[str, Page]) -> None:
    _, parsed = page
    ids = Counter(attrs["id"] for _, attrs in parsed.elements if "id" in attrs)
    assert [i for i, n in ids.items() if n > 1] == []
    for attrs in parsed.all("a"):
        assert (attrs["href"] or "").removeprefix("#") in ids
    for attrs in parsed.all("svg"):
        assert set((attrs["aria-labelledby"] or "").split()) <= set(ids)


def test_every_plot_has_a_name_and_a_table(page: tuple[str, Page]) -> None:
    text, _ = page
    for figure in re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL):
        assert figure.count('<svg role="img"') == 1
        assert re.search(r"<title id=\"[^\"]+-t\">[^<]+</title><desc id=\"[^\"]+-d\">[^<]+</desc>", figure)
        assert "<table" in figure.split("</svg>")[1]


def test_it_opens_with_the_verdict_the_reason_and_the_exit_code() -> None:
    words = Page(render(*gold.failing())).words
    at = [
        words.index(part)
        for part in (
            "FAIL",
            "exit code 1",
            "agreement/eagle3: 1 divergence is unexplained",
            "Toy target",
            "What was asked",
            "What was measured",
            "What could not be verified",
            "Gates of the plan",
        )
    ]
    assert at == sorted(at)


@pytest.mark.parametrize(
    "said",
    [
        "control-1 failed: ValueError: No available memory for the cache blocks",
        "the sampler backend is not named in the log (reference-1, control-1",
        "phase accuracy/ngram-1/gsm8k is void: preemptions rose by 3",
        "control-2 against reference-1 (superseded by a later attempt)",
        "311 of 2,048",
        "5.503 against 5.712",
        "188 of 200 (94.0%)",
        "at most 1.5% differ",
        "24, not held",
        "the texts are equal; the token ids are not",
        "also prefers the other token: verify-shape numerics, not the head",
        "One launch an arm: nothing is claimed of other launches",
        "'it'\"'\"'s quoted'",
    ],
)
def test_it_says(said: str) -> None:
    assert said in words_of_failing()


def test_hostile_text_is_shown_and_does_not_act() -> None:
    text = render(*gold.failing())
    assert "</script><img" not in text
    assert "&lt;/script&gt;&lt;img" in text
    assert not set("\x1b\u202e\u202c\u200b\r") & set(text)
    assert "<b>\\x1b</b>" in text
    assert "<b>U+202E</b>" in text
    text.encode("utf-8")


@cache
def words_of_failing() -> str:
    return Page(render(*gold.failing())).words


HOSTILE = st.text(
    st.characters(codec=None, exclude_categories=()) | st.sampled_from("<>&\"'`\x1b\x00\u202e\ud800"),
    max_size=30,
)


@settings(max_examples=12)
@given(HOSTILE)
def test_any_name_can_be_hostile(name: str) -> None:
    """Names of arms, corpora and prompts, reasons, log lines, settings: wherever a string can come from."""
    record, evidence = gold.failing()
    judgement = record.judgement
    arms = tuple(replace(a, name=name) if a.name == "eagle3" else a for a in record.plan.arms)
    hostile = replace(
        record,
        error=name,
        command=(name,),
        plan=replace(record.plan, name=name, target=name, arms=arms),
        launches=tuple(
            replace(x, error=name, log_tail=(name,), device=name, engine_version=name, unverified=(name,))
            for x in record.launches
        ),
        judgement=replace(
            judgement,
            agreement=tuple(
                replace(a, corpus=name, arm=name) if a.arm == "eagle3" and a.corpus == "gsm8k" else a
                for a in judgement.agreement
            ),
            certificates=tuple(replace(c, why=name) for c in judgement.certificates),
            divergences=tuple(replace(d, why=name, notes=(name,)) for d in judgement.divergences),
            gates=tuple(replace(g, figure=name, remedy=name) for g in judgement.gates),
            findings=tuple(replace(f, seen=name, subject=name) for f in judgement.findings),
            verdict=replace(judgement.verdict, reason=name, limits=(name,)),
        ),
    )
    text = render(hostile, evidence)
    text.encode("utf-8")
    parsed = Page(text)
    baseline = Counter(tag for tag, _ in parsed.elements)
    assert baseline["script"] == baseline["img"] == 0
    assert not any(key.startswith("on") for _, attrs in parsed.elements for key in attrs)
    assert not any(c in text for c in "\x1b\x00\u202e")


def test_a_bare_float_never_reaches_the_page() -> None:
    with pytest.raises(TypeError, match="unformatted"):
        _shown(0.9996)


def test_completions_of_the_judged_pair_are_shown() -> None:
    """An arm that was launched twice: the pair that differs where the judgement says."""
    record, evidence = gold.failing()
    stale = replace(record.phases[2], id="batch1/eagle3-0/gsm8k", launch="eagle3-0", arm="eagle3")
    assert stale.stage == "batch1"
    evidence.by_phase[stale.id] = [
        Completion(
            phase=stale.id,
            prompt="gsm8k/17",
            token_ids=(1, 2, 3),
            text="STALE",
            finish_reason="stop",
            started_s=0,
            ended_s=1,
        )
    ]
    text = render(replace(record, phases=(*record.phases, stale)), evidence)
    assert "STALE" not in text
    assert "market" in Page(text).words


def test_a_missing_completion_is_said() -> None:
    record, _ = gold.failing()
    assert "not in the record" in render(record, MemoryEvidence(record.plan))


def big(texts: Callable[[int], str]) -> tuple[AuditRecord, MemoryEvidence]:
    """Four arms × 1,319 problems × 3 corpora, every completion of every arm differing."""
    record, _ = gold.failing()
    evidence = MemoryEvidence(record.plan)
    divergences: list[Divergence] = []
    used = {"reference": "reference-1", "control": "control-3", "eagle3": "eagle3-1", "ngram": "ngram-1"}
    for corpus in gold.CORPORA:
        for i in range(1319):
            prompt = f"{corpus}/{i}"
            evidence.all_prompts.append(
                Prompt(id=prompt, corpus=corpus, token_ids=(1,), text="Question " * 400, max_tokens=512)
            )
            for n, (arm, launch) in enumerate(used.items()):
                phase = f"batch1/{launch}/{corpus}"
                evidence.by_phase.setdefault(phase, []).append(
                    Completion(
                        phase=phase,
                        prompt=prompt,
                        token_ids=(*range(40), 1000 + n, *range(100)),
                        text=texts(i) + arm + texts(i + 1) * 4,
                        finish_reason="stop",
                        started_s=0,
                        ended_s=1,
                    )
                )
                if arm != "reference":
                    divergences.append(
                        Divergence(
                            arm=arm,
                            corpus=corpus,
                            prompt=prompt,
                            position=41,
                            reference_token=1000,
                            other_token=1000 + n,
                            cls="near tie",
                            why="margin within the noise floor",
                        )
                    )
    points = tuple(
        SurvivalPoint(token=t, survival=1 - t / 4000, low=0.5, high=1.0, at_risk=1319) for t in range(1, 1320)
    )
    judgement = replace(
        record.judgement,
        divergences=tuple(divergences),
        agreement=tuple(replace(a, survival=points) for a in record.judgement.agreement),
    )
    return replace(record, judgement=judgement), evidence


@pytest.mark.parametrize(
    "texts",
    [lambda i: f"Step {i}: the answer is \n" * 60, lambda i: "\x1b\u202e\x00" * 500],
    ids=["ordinary", "every character is an escape"],
)
def test_size(texts: Callable[[int], str]) -> None:
    text = render(*big(texts))
    assert len(text.encode()) < 3_000_000
    shown = text.count('<details class="entry ')
    assert f"{shown:,} of {1319 * 9:,} divergences are shown" in text
    assert shown >= 50
