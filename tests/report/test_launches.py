"""The page and the last lines of `audit launches`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from auditor.judge.settings import diff
from auditor.judge.states import study as judge_states
from auditor.model.base import EnvVar
from auditor.model.launch import Diary, KernelChoice, Setting, Timing
from auditor.model.plan import Arm, AuditPlan, CertificationPlan, Draft, EnginePlan
from auditor.model.record import Environment, FileDigest, Identity
from auditor.model.study import LaunchStudy, StudyArm, StudyPlan
from auditor.report.charts.matrix import LEVELS, shade
from auditor.report.launches import headline, render, summary
from auditor.report.sections.tuning import differing_fields
from tests.fakes.evidence import EvidenceBuilder, answer_ids, differing
from tests.report.browser import CHROMIUM, Browser
from tests.report.test_html import Page

HOSTILE = '"><script>alert(1)</script>\x1b[31m\u202e'
N = 24


def diary(h: int) -> Diary:
    times = {2: (5.5, 5.7), 4: (5.72, 5.51)}[h]
    configs = ("BLOCK_SIZE_H: 2, num_warps: 4", "BLOCK_SIZE_H: 4, num_warps: 4")
    timings = tuple(Timing(config=c, microseconds=t) for c, t in zip(configs, times, strict=True))
    chosen = configs[0] if h == 2 else configs[1]
    choice = KernelChoice(
        kernel="_chunk_cumsum_fwd_kernel", key="(1,)", chosen=chosen, source="triton-cache", timings=timings
    )
    return Diary(choices=(choice,), backends=(Setting(name="attention", value="FLASH_ATTN"),), kv_blocks=1024)


def made(states: str = "ABBAA", *, speculative: str = "AB", **fields: Any) -> LaunchStudy:
    """A study of as many plain launches as `states` has letters (`x`: failed, `?`: does not repeat itself)
    and of the draft's launches in `speculative`."""
    arms = (
        Arm(name="plain", role="reference"),
        Arm(name="eagle3", role="candidate", draft=Draft(name="eagle3", method="eagle3", path="head")),
    )
    plan = AuditPlan(
        name="nemotron-launches",
        target="nemotron",
        target_kind="random-weight",
        arms=arms,
        engine=EnginePlan(),
        pin="none",
        certification=CertificationPlan(prompts=N),
        gates=(),
    )
    described = tuple(
        StudyArm(name=a.name, configuration=a.name, caches="cold")
        for a in arms
        if a.name == "plain" or speculative
    )
    build = EvidenceBuilder(plan)
    build.prompts("certification", N)
    for arm, letters in (("plain", states), ("eagle3", speculative)):
        for number, state in enumerate(letters, 1):
            if state == "x":
                build.launch(
                    arm,
                    number,
                    state="failed",
                    error=f"no memory {HOSTILE}",
                    log_tail=(HOSTILE,),
                    ready_s=None,
                )
                continue
            launch = build.launch(arm, number, ready_s=120.0 + number, diary=diary(2 if state == "A" else 4))
            build.fingerprint(launch, state)
            for n in (1, 2):
                wrong = 20 if state == "B" else 3 if state == "?" and n == 2 else 0
                replies = {
                    f"certification/{i}": differing(answer_ids(i), 3) if i < wrong else answer_ids(i)
                    for i in range(N)
                }
                drafts = None if arm == "plain" else (100, 150)
                build.phase(f"certify/{launch.id}/pass{n}", launch, replies, drafts=drafts)
    study = StudyPlan(count=len(states), arms=described)
    values: dict[str, Any] = {
        "status": "complete",
        "date": "2026-11-30T22:00:00Z",
        "command": ("audit", "launches", "--target", "nemotron"),
        "study": study,
        "plan": plan,
        "environment": Environment(
            auditor_version="0.1", python="3.11", platform="Linux", cpu="CPU", cpu_count=16, memory_gib=128.0,
            devices=("0, NVIDIA H200, 570.1, 143771 MiB",),
            packages=(EnvVar(name="engine:vllm", value="0.25.1"),),
        ),
        "identities": (Identity(name="target", source="nemotron", digest="0" * 64),),
        "launches": tuple(build.evidence.launches),
        "fingerprints": tuple(build.evidence.fingerprints),
        "phases": tuple(build.evidence.phases),
        "findings": (),
        "notes": (),
        "files": (FileDigest(path="journal.jsonl", size=1000, sha256="0" * 64),),
        "result": judge_states(build.evidence, study),
    }  # fmt: skip
    return LaunchStudy(**{**values, **fields})


def test_the_page_says_what_the_document_says() -> None:
    page = Page(render(made()))
    text = " ".join(" ".join(page.text).split())
    assert "2 launch states in 5 launches of the plain target" in text
    assert "plain: A 3 of 5, B 2 of 5" in text
    assert "4 of 24 in each of 6 pairs" in text, "across A and B"
    assert "5.50 against 5.70 (on plain-1)" in text
    assert "_chunk_cumsum_fwd_kernel" in text
    assert "BLOCK_SIZE_H: 2" in text
    assert "Random-weight target" in text
    assert "2.50" in text, "acceptance length"


def test_the_matrix_has_a_name_and_every_count_in_a_table() -> None:
    study = made("AABB", speculative="")
    page = render(study)
    svg = re.search(r'<svg role="img" aria-labelledby="launch-matrix-t launch-matrix-d".*?</svg>', page, re.S)
    assert svg is not None
    assert '<title id="launch-matrix-t">Agreement of every launch with every other</title>' in svg[0]
    assert svg[0].count('<rect class="h h') == 16 + LEVELS + 1
    rows = re.findall(r"<tr><td[^>]*><span class=\"mono \">(plain-\d)</span></td>(.*?)</tr>", page)
    table = {name: re.sub(r"<[^>]+>", " ", cells).split() for name, cells in rows if " =" in cells}
    assert table["plain-1"] == ["A", "24", "24", "=", "4", "4"]
    assert table["plain-4"] == ["B", "4", "4", "24", "=", "24"]


def test_one_file_that_loads_nothing_and_the_same_bytes() -> None:
    study = made()
    page = render(study)
    assert page == render(study)
    found = Page(page)
    assert not found.all("script")
    assert not [a for tag, a in found.elements if a.get("src") or (a.get("href") or "#")[0] != "#"]


def test_hostile_texts_are_shown_not_run() -> None:
    page = render(made("Ax", speculative=""))
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "no memory" in page


def test_failed_and_unstable_launches_are_named() -> None:
    study = made("A?x", speculative="", status="error", error="plain-3: no memory")
    text = " ".join(Page(render(study)).text)
    assert "not observed: failed" in text
    assert "does not repeat itself" in text
    assert "This study is error: plain-3: no memory" in text
    assert "no state" in summary(study)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ("A", "1 launch state in 1 launch"),
        ("AAA", "1 launch state in 3 launches"),
        ("ABA", "2 launch states in 3 launches"),
        ("??", "No launch state: 2 of 2 launches do not repeat themselves"),
        ("xx", "No launch was observed"),
    ],
)
def test_headline(states: str, said: str) -> None:
    assert headline(made(states, speculative="")) == said


def test_one_launch_claims_nothing_of_the_share() -> None:
    study = made("A", speculative="")
    assert "95%" not in summary(study)
    assert "nothing of how often" in " ".join(Page(render(study)).text)


def test_the_summary_fits_80_columns_and_holds_no_control_character() -> None:
    text = summary(made("ABx?", error=HOSTILE, status="error"), "reports/x/launches.html")
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    assert "Report: reports/x/launches.html" in text


def test_settings_that_differ_are_listed() -> None:
    study = made("AA", speculative="")
    other = replace(study.launches[1], resolved=(Setting(name="dtype", value="float16"),))
    assert "No resolved setting differs" in " ".join(Page(render(study)).text)
    pair = study.result.pairs[0]
    found = tuple(s for s in diff(study.launches[0], other) if s.kind != "allowed")
    changed = replace(study.result, pairs=(replace(pair, settings=found),))
    text = " ".join(Page(render(replace(study, result=changed))).text)
    assert "float16" in text
    assert "not comparable" in text


@pytest.mark.parametrize(
    ("choices", "short"),
    [
        (["H: 2, W: 4", "H: 4, W: 4"], ["H: 2", "H: 4"]),
        (["H: 2, W: 4", "H: 2, W: 8", "H: 4, W: 8"], ["H: 2, W: 4", "H: 2, W: 8", "H: 4, W: 8"]),
        (["A: 1", "A: 1, B: 2"], ["A: 1", "B: 2"]),
        (["one way", "another"], ["one way", "another"]),
        (["H: 2, W: 4"], ["H: 2, W: 4"]),
    ],
)
def test_only_differing_fields_are_shown(choices: list[str], short: list[str]) -> None:
    assert list(differing_fields(choices).values()) == short


@given(
    st.lists(st.dictionaries(st.sampled_from("ABC"), st.integers(0, 2), min_size=1), min_size=1, max_size=5)
)
def test_choices_that_differ_stay_distinct(configs: list[dict[str, int]]) -> None:
    choices = list(dict.fromkeys(", ".join(f"{k}: {v}" for k, v in sorted(c.items())) for c in configs))
    assert len(set(differing_fields(choices).values())) == len(choices)


@given(st.integers(0, 400), st.integers(0, 400))
def test_shades_do_not_overclaim(k: int, n: int) -> None:
    k = min(k, n)
    level = shade(k, n)
    assert 0 <= level <= LEVELS
    assert (level == LEVELS) == (n > 0 and k == n)
    assert (level == 0) == (k == 0)


# ------------------------------------------------------------------ looked at


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [1180, 390])
@pytest.mark.parametrize("states", ["AB", "ABBAAB", "ABCAB" * 6])
def test_nothing_runs_out_of_the_page_or_the_plot(
    browser: Browser, tmp_path: Path, states: str, width: int
) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(made(states.replace("C", "B"))), encoding="utf-8")
    browser.open(file, width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = """[...document.querySelectorAll('#matrix svg text')].filter(t => {
        const s = t.ownerSVGElement.getBoundingClientRect(), b = t.getBoundingClientRect();
        return b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1;
    }).map(t => t.textContent)"""
    assert browser.evaluate(outside) == []
