"""Prompts: frozen ids, lengths that fit, one BOS, ids that are unique over the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.errors import InvalidPlan
from auditor.model.completion import Prompt
from auditor.model.judgement import Finding
from auditor.model.record import Identity
from auditor.plan.encoder import LocalEncoder
from auditor.plan.prompts import (
    BuiltPrompts,
    _refuse_double_bos,
    build_prompts,
    fingerprint_ids,
    fingerprint_lengths,
)
from tests.plan import support


def build(
    folder: Path, length: int | None = 100_000, vocabulary: int | None = 259, **flags: object
) -> BuiltPrompts:
    return build_prompts(support.plan(folder, **flags), LocalEncoder(folder), vocabulary, length)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return support.target(tmp_path / "target")


def test_all_prompts_of_a_plan(target: Path) -> None:
    built = build(
        target, **{"agreement.limits": ("10",), "accuracy.limit": "20", "certification.prompts": "30"}
    )
    assert Counter(p.corpus for p in built.prompts) == {
        "certification": 30, "fingerprint": 8, "sums": 10, "sums+2shot": 20,
    }  # fmt: skip
    assert len({p.id for p in built.prompts}) == len(built.prompts)
    assert all(p.id.startswith(p.corpus + "/") for p in built.prompts)
    assert [i.name for i in built.identities] == ["corpus:certification", "corpus:sums", "tokenizer"]
    assert [f.path for f in built.identities[1].files] == ["sums.jsonl", "sums_shots.jsonl"]
    assert all((p.gold is not None) == (p.corpus == "sums+2shot") for p in built.prompts)
    assert built == build(target, **{
        "agreement.limits": ("10",), "accuracy.limit": "20", "certification.prompts": "30"})  # fmt: skip


def test_worked_examples_come_before_the_question(target: Path) -> None:
    built = build(target, **{"accuracy.limit": "1"})
    prompt = next(p for p in built.prompts if p.corpus == "sums+2shot")
    assert prompt.text.count("Question: ") == 3
    assert prompt.text.count("####") == 2
    assert prompt.text.endswith("\nAnswer:")
    assert prompt.token_ids == LocalEncoder(target).encode(prompt.text, chat=False)


def test_chat_prompts_go_through_the_template_where_there_is_one(tmp_path: Path, target: Path) -> None:
    def chats(folder: Path) -> tuple[set[tuple[int, ...]], tuple[Finding, ...]]:
        built = build(folder, **{"certification.prompts": "192"})
        found = {p.token_ids for p in built.prompts if p.text.startswith("My neighbour")}
        return found, built.findings

    with_template, findings = chats(target)
    plain, _ = chats(support.target(tmp_path / "plain", template=None))
    assert len(with_template) == len(plain) == 1
    (a,), (b,) = with_template, plain
    assert len(a) == len(b) + len("<user><assistant>")
    assert findings == ()


def test_a_chat_corpus_without_a_template_is_said(tmp_path: Path) -> None:
    folder = support.target(tmp_path / "plain", template=None)
    path = support.write_rows(tmp_path / "talk.jsonl", [{"turns": [f"hello {n}", "x"]} for n in range(3)])
    built = build(
        folder, **{"agreement.corpora": "talk", "corpora": (f"talk={path}",), "stages": "agreement"}
    )
    assert [f.code for f in built.findings] == ["CORPUS-NO-CHAT-TEMPLATE"]
    assert next(p.text for p in built.prompts if p.corpus == "talk").startswith("hello ")


def test_answers_are_clipped_to_the_served_length_and_it_is_said(target: Path) -> None:
    built = build(target, 512, **{"accuracy.limit": "5", "agreement.limits": ("5",), "accuracy.shots": "1"})
    assert all(len(p.token_ids) + p.max_tokens <= 512 for p in built.prompts)
    clipped = {f.subject: f for f in built.findings if f.code == "CORPUS-TOKENS-CLIPPED"}
    assert set(clipped) == {"sums", "sums+1shot"}
    assert clipped["sums"].seen.startswith("5 prompts of sums get fewer than 4096 tokens (at least ")
    assert not [f for f in build(target, 100_000).findings if f.code == "CORPUS-TOKENS-CLIPPED"]


def test_prompts_that_do_not_fit_are_left_out_or_refused(target: Path) -> None:
    built = build(target, 100, stages="agreement", **{"certification.prompts": "192"})
    (finding,) = (f for f in built.findings if f.code == "CORPUS-PROMPT-TOO-LONG" and f.subject != "sums")
    assert finding.severity == "warning"
    assert all(len(p.token_ids) < 100 for p in built.prompts)
    with pytest.raises(InvalidPlan, match=r"No prompt of certification fits the served length of 9"):
        build(target, 9, stages="agreement")
    with pytest.raises(InvalidPlan, match=r"with 2 worked examples has \d+ tokens.*lower accuracy.shots"):
        build(target, 200, stages="accuracy")


def test_accuracy_needs_reference_answers(target: Path, tmp_path: Path) -> None:
    path = support.write_rows(tmp_path / "plain.jsonl", [{"prompt": "a"}])
    flags = {"accuracy.corpus": "plain", "corpora": (f"plain={path}",), "accuracy.shots": "0"}
    with pytest.raises(InvalidPlan, match="no reference answers"):
        build(target, stages="accuracy", **flags)


def test_a_doubled_bos_is_refused(tmp_path: Path) -> None:
    """I1, through the corpus's own text."""
    folder = support.target(tmp_path / "m")
    path = support.write_rows(tmp_path / "mine.jsonl", [{"prompt": "<s>hello"}, {"prompt": "fine"}])
    with pytest.raises(InvalidPlan, match=r"beginning-of-sequence token 1 twice, first mine/0"):
        build(folder, **{"agreement.corpora": "mine", "corpora": (f"mine={path}",), "stages": "agreement"})


def prompt(number: int, ids: Sequence[int]) -> Prompt:
    return Prompt(id=f"c/{number}", corpus="c", token_ids=tuple(ids), text="", max_tokens=1)


def test_a_doubled_bos_of_an_unknown_tokenizer_shows_in_every_prompt() -> None:
    """I1: prompt ids [2, 2, 105, …]."""
    with pytest.raises(InvalidPlan, match="token 2 twice"):
        _refuse_double_bos([prompt(0, [2, 2, 105]), prompt(1, [2, 2, 9])], None)
    with pytest.raises(InvalidPlan, match="token 2 twice"):
        _refuse_double_bos([prompt(0, [2, 2, 105]), prompt(1, [2, 9])], 2)
    _refuse_double_bos([prompt(0, [2, 2, 105]), prompt(1, [2, 9])], None)
    _refuse_double_bos([prompt(0, [5, 5, 105]), prompt(1, [2, 9])], 2)


def test_lengths_that_replay_a_decode_graph_are_named(tmp_path: Path) -> None:
    folder = support.target(tmp_path / "m")
    path = support.write_rows(tmp_path / "mine.jsonl", [{"prompt": "abc"}, {"prompt": "abcdef"}])
    flags = {"agreement.corpora": "mine", "corpora": (f"mine={path}",), "stages": "agreement"}
    built = build(folder, **flags)
    (finding,) = (f for f in built.findings if f.code == "PROMPT-LENGTH-K1")
    assert "1 prompts have 1 or k+1 tokens: mine/0" in finding.seen
    assert not [f for f in build(folder, num_speculative_tokens="4", **flags).findings if "K1" in f.code]


@given(st.integers(1, 12), st.none() | st.integers(4, 5000), st.frozensets(st.integers(1, 9), max_size=3))
def test_fingerprint_lengths_fit_and_avoid_what_is_forbidden(
    count: int, length: int | None, forbidden: frozenset[int]
) -> None:
    found = fingerprint_lengths(count, length, forbidden | {1})
    assert len(found) == count
    assert all(n <= min(700, (length or 701) - 1) for n in found)
    if length is None or length > 10:
        assert not set(found) & (forbidden | {1})


def test_fingerprint_lengths_of_a_long_model() -> None:
    assert fingerprint_lengths(8, None, frozenset({1, 4})) == (40, 60, 91, 136, 205, 309, 465, 700)
    assert fingerprint_lengths(8, 512, frozenset({1, 4}))[-1] == 511


@pytest.mark.parametrize("vocabulary", [259, 512, 150_000])
def test_fingerprint_ids_are_ordinary_distinct_and_fixed(vocabulary: int) -> None:
    special = frozenset({0, 1, 2, 200})
    prompts = [fingerprint_ids(300, vocabulary, special, str(n)) for n in range(8)]
    assert len(set(prompts)) == 8
    for ids in prompts:
        assert not set(ids) & special
        assert max(ids) < vocabulary
        assert len(set(ids)) > 100
    # Pinned: other ids would be another fingerprint.
    assert (
        fingerprint_ids(4, 512, frozenset({0, 1, 2}), "0")
        == fingerprint_ids(300, 512, frozenset({0, 1, 2}), "0")[:4]
    )


def test_fingerprints_never_use_ids_beyond_the_tokenizer(target: Path) -> None:
    """A padded embedding has rows that no token has, and engines refuse them."""
    built = build(target, vocabulary=1024)
    assert max(i for p in built.prompts if p.corpus == "fingerprint" for i in p.token_ids) < 259


class TextOnly:
    """An encoder that knows no vocabulary, as in attach mode: ids are bytes, 7 in front."""

    has_chat = False
    bos_id = None
    special_ids: frozenset[int] = frozenset()
    vocab_size = None

    def encode(self, text: str, chat: bool) -> tuple[int, ...]:
        return (7, *text.encode())

    def encode_many(self, texts: Sequence[str], chat: bool) -> list[tuple[int, ...]]:
        return [self.encode(text, chat) for text in texts]

    def findings(self) -> tuple[Finding, ...]:
        return ()

    def identity(self) -> Identity:
        return Identity(name="tokenizer", source="server", digest=None)


def test_fingerprints_of_our_own_text_where_the_vocabulary_is_unknown(target: Path) -> None:
    built = build_prompts(support.plan(target, stages="agreement"), TextOnly(), None, None)
    fingerprints = [p.token_ids for p in built.prompts if p.corpus == "fingerprint"]
    assert [len(ids) for ids in fingerprints] == [40, 60, 91, 136, 205, 309, 465, 700]
    assert len({ids[:40] for ids in fingerprints}) == 8
    assert all(p.max_tokens == 1 for p in built.prompts if p.corpus == "fingerprint")
