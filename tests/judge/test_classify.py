"""The classification engine: the prefix rule, symmetry, and one row per kind of divergence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.judge.classify import classify, first_difference
from auditor.judge.margin import Ruling
from auditor.judge.output import Output, loop_length

TOKENS = st.lists(st.integers(0, 3), max_size=40)


def out(*ids: int, finish: str | None = "length", **fields: Any) -> Output:
    return Output(token_ids=list(ids), finish_reason=finish, **fields)


@given(TOKENS, TOKENS)
def test_first_difference_is_symmetric_and_marks_the_common_prefix(a: list[int], b: list[int]) -> None:
    at = first_difference(a, b)
    assert at == first_difference(b, a)
    if at is None:
        assert a == b
    else:
        assert a[: at - 1] == b[: at - 1]
        assert a[at - 1 : at] != b[at - 1 : at]


@given(TOKENS, st.lists(st.integers(0, 3), min_size=1))
def test_a_strict_prefix_diverges_at_its_length_plus_one(a: list[int], more: list[int]) -> None:
    assert first_difference(a, a + more) == len(a) + 1


@given(TOKENS)
def test_lists_and_tuples_compare_alike(a: list[int]) -> None:
    assert first_difference(a, tuple(a)) is None


@given(TOKENS, TOKENS, st.sampled_from(["stop", "length", None]), st.sampled_from(["stop", "length", None]))
def test_classify_never_calls_equal_what_differs(
    a: list[int], b: list[int], one: str | None, two: str | None
) -> None:
    same = a == b and one == two
    assert (classify(out(*a, finish=one), out(*b, finish=two)) is None) == same


@given(st.lists(st.integers(0, 5), max_size=60))
def test_a_loop_is_what_it_says(ids: list[int]) -> None:
    length, period = loop_length(ids)
    if length:
        tail = ids[-length:]
        assert tail[period:] == tail[:-period]
        assert length >= max(8, 3 * period)


BASE = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]
ROWS = [
    # name, reference, candidate, class, position, a word of the reason
    ("overrun at the cap", out(*range(512)), out(*range(515)), "length overrun", 513, "3 more"),
    (
        "overrun of the asked cap, ids differing before",
        out(1, 2, 3, max_tokens=3),
        out(1, 9, 3, 4, max_tokens=3),
        "length overrun",
        2,
        "cap of 3",
    ),
    (
        "after the stop",
        out(5, 6, 2, finish="stop"),
        out(5, 6, 2, 9, finish="stop"),
        "post-stop leak",
        4,
        "1 more",
    ),
    (
        "stop id inside, ids differing before",
        out(5, 6, 2, finish="stop"),
        out(5, 7, 2, 9, finish="stop"),
        "post-stop leak",
        2,
        "stop id 2",
    ),
    (
        "delivered less than counted",
        out(*BASE[:8]),
        out(*BASE[:6], usage_completion=8),
        "short delivery",
        7,
        "8",
    ),
    (
        "counted more on equal ids",
        out(1, 2, usage_completion=2),
        out(1, 2, usage_completion=4),
        "short delivery",
        3,
        "candidate counts 4",
    ),
    (
        "the reference counts more",
        out(1, 2, usage_completion=4),
        out(1, 2, usage_completion=2),
        "short delivery",
        3,
        "reference counts 4",
    ),
    ("shorter, by length", out(*BASE), out(*BASE[:5]), "short delivery", 6, "fewer"),
    ("broken off", out(*BASE), out(*BASE[:5], finish="abort"), "short delivery", 6, "broke off"),
    ("stopped early", out(*BASE), out(*BASE[:4], finish="stop"), "stop policy", 5, "min_tokens"),
    (
        "min_tokens not enforced",
        out(*BASE),
        out(1, 2, 3, 4, finish="stop", min_tokens=10),
        "stop policy",
        1,
        "known cause",
    ),
    ("same ids, other finish", out(1, 2), out(1, 2, finish="stop"), "stop policy", 3, "finished by"),
    ("one token repeated", out(*BASE), out(*[1] * 10), "degenerate", 1, "NaN"),
    ("a cycle repeated", out(*BASE), out(11, *[7, 8] * 8), "degenerate", 2, "cycle of 2"),
    ("no logprobs", out(*BASE), out(*BASE[:5], 99, *BASE[6:]), "unknown", 6, "no logprobs"),
]


@pytest.mark.parametrize(
    ("reference", "other", "cls", "at", "why"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_kinds(reference: Output, other: Output, cls: str, at: int, why: str) -> None:
    found = classify(reference, other)
    assert found is not None
    assert (found.cls, found.position) == (cls, at)
    assert why in found.why


def test_a_gap_that_both_servers_have_is_the_engines_way_of_counting() -> None:
    assert classify(out(1, 2, usage_completion=3), out(1, 2, usage_completion=3)) is None


def test_two_loops_are_not_degenerate() -> None:
    found = classify(out(*[3] * 20), out(*[4] * 20))
    assert found is not None
    assert found.cls == "unknown"


def test_a_tie_explains_a_loop_that_starts_with_it() -> None:
    tie = Ruling(cls="near tie", why="close")
    found = classify(out(*BASE), out(*[1] * 10), lambda position: tie)
    assert found is not None
    assert found.cls == "near tie"
    assert any("loop" in note for note in found.notes)


def test_structure_comes_before_ties() -> None:
    tie = Ruling(cls="exact tie", why="close")
    found = classify(out(5, 6, 2, finish="stop"), out(5, 7, 2, 9, finish="stop"), lambda position: tie)
    assert found is not None
    assert found.cls == "post-stop leak"
    assert found.notes[0] == "the ids already differ from token 2"


def test_a_stop_string_is_no_stop_id() -> None:
    ended = out(5, 6, 13, finish="stop", stop_reason="\n")
    found = classify(ended, out(5, 7, 13, 9, finish="stop", stop_reason="\n"))
    assert found is not None
    assert found.cls == "unknown"


@pytest.mark.parametrize(
    ("reference", "other", "note"),
    [
        (out(1, 2, text="a"), out(1, 3, text="a"), "texts are equal"),
        (out(1, 2, text="\ufffd"), out(1, 3, text="\ufffd"), "replacement characters"),
        (out(1, 2, text='{"a"'), out(9, 3, text="```json\n{"), "grammar escape"),
        (
            out(1, 2, usage_completion=2),
            out(1, 3, usage_completion=2, usage_reasoning=5),
            "5 reasoning tokens of 2",
        ),
    ],
)
def test_notes(reference: Output, other: Output, note: str) -> None:
    found = classify(reference, other)
    assert found is not None
    assert any(note in n for n in found.notes)
