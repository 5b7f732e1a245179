"""All prompts of an audit as token ids, built once before the first server starts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from auditor.errors import InvalidPlan
from auditor.model.completion import Prompt
from auditor.model.judgement import Finding
from auditor.model.plan import AccuracyPlan, AuditPlan, CorpusUse
from auditor.model.record import Identity
from auditor.plan import corpora
from auditor.plan.corpora import Corpus
from auditor.plan.encoder import Encoder
from auditor.plan.rows import Row

CERTIFICATION = "certification"
FINGERPRINT = "fingerprint"
_SHORTEST, _LONGEST = 40, 700


Entry = tuple[str, str, tuple[int, ...], str | None]
"""Item id, text, token ids, reference answer."""


class BuiltPrompts(NamedTuple):
    prompts: tuple[Prompt, ...]
    """Certification, fingerprint, agreement corpora, accuracy; each in the order of use."""
    findings: tuple[Finding, ...]
    identities: tuple[Identity, ...]
    """One a corpus, and the tokenizer's."""


def build_prompts(
    plan: AuditPlan, encoder: Encoder, vocab_size: int | None, max_model_len: int | None
) -> BuiltPrompts:
    """Token ids of every prompt that the plan needs.

    `vocab_size` is the target's (None: as many as the tokenizer knows); `max_model_len` the served length in
    tokens (None: unknown, nothing is clipped). Accuracy prompts carry the corpus label
    `plan.accuracy.label`, for example `gsm8k+8shot`, because they hold worked examples and so have
    other ids than the same problems in an agreement corpus. No stop strings are used anywhere: an answer
    runs to its natural end or `max_tokens`, and grading cuts at the next question.
    Raises InvalidPlan for corpora that cannot be read, a doubled BOS, or accuracy prompts that do not fit.
    """
    builder = _Builder(plan, encoder, max_model_len)
    certification = CorpusUse(
        name=CERTIFICATION, limit=plan.certification.prompts, max_tokens=plan.certification.max_tokens
    )
    builder.add_corpus(certification)
    builder.add_fingerprints(vocab_size)
    for use in plan.agreement.corpora if plan.agreement else ():
        builder.add_corpus(use)
    if plan.accuracy is not None:
        builder.add_accuracy(plan.accuracy)
    return builder.finish()


def fingerprint_lengths(count: int, max_model_len: int | None, forbidden: frozenset[int]) -> tuple[int, ...]:
    """`count` prompt lengths from 40 to 700 tokens in equal ratios, shorter where the model's length is.

    `forbidden` lengths replay a decode graph in the prefill of some engine versions: never probe with them.
    """
    longest = min(_LONGEST, (max_model_len or _LONGEST + 1) - 1)
    shortest = min(_SHORTEST, max(2, longest // 2))
    ratio = (longest / shortest) ** (1 / max(1, count - 1))
    allowed = [n for n in range(2, longest + 1) if n not in forbidden] or [longest]
    wanted = (shortest * ratio**i for i in range(count))
    return tuple(min(allowed, key=lambda n: (abs(n - length), n)) for length in wanted)


def fingerprint_ids(length: int, vocab_size: int, special: frozenset[int], salt: str) -> tuple[int, ...]:
    """Deterministic ordinary token ids, drawn over the whole vocabulary."""
    rng = random.Random(f"fingerprint {salt}")
    ordinary = [i for i in range(vocab_size) if i not in special]
    return tuple(ordinary[int(rng.random() * len(ordinary))] for _ in range(length))


class _Builder:
    def __init__(self, plan: AuditPlan, encoder: Encoder, max_model_len: int | None) -> None:
        self._plan = plan
        self._encoder = encoder
        self._max_model_len = max_model_len
        self._prompts: dict[str, Prompt] = {}
        self._findings: list[Finding] = []
        self._identities: dict[str, Identity] = {}
        # A prompt of 1 or k+1 tokens takes a decode path in the prefill of vLLM 0.25.1.
        self._forbidden = frozenset({1, *(k + 1 for k in _speculative_tokens(plan))})

    def add_corpus(self, use: CorpusUse) -> None:
        corpus = corpora.load(use, self._plan.seed)
        self._take(corpus)
        encoded = self._encode(corpus, ())
        fitting = [entry for entry in encoded if self._room(entry[2]) > 0]
        if len(fitting) < len(encoded):
            left_out = [f"{use.name}/{item}" for item, _, ids, _ in encoded if self._room(ids) <= 0]
            self._note(
                "CORPUS-PROMPT-TOO-LONG",
                "warning",
                f"{len(left_out)} of {len(encoded)} prompts fill the served length of {self._max_model_len} "
                f"tokens and are left out: {', '.join(left_out[:3])}",
                "prompts that leave room for an answer",
                "serve a longer length, or use another corpus",
                use.name,
            )
        if not fitting:
            raise InvalidPlan(
                f"No prompt of {use.name} fits the served length of {self._max_model_len} tokens",
                expected="prompts that leave room for an answer",
                todo="serve a longer length, or use another corpus",
            )
        self._add(use.name, use.max_tokens, fitting)

    def add_accuracy(self, accuracy: AccuracyPlan) -> None:
        use = accuracy.corpus
        corpus = corpora.load(use, self._plan.seed, accuracy.shots)
        if corpus.manifest.grading == "none":
            raise InvalidPlan(
                f"{use.name} has no reference answers to grade by",
                expected="a graded corpus such as gsm8k",
                todo="choose another with --accuracy-corpus",
            )
        self._take(corpus)
        entries = []
        golds = {item.id: corpora.gold_of(corpus.manifest, item.row) for item in corpus.items}
        for item, text, ids, _ in self._encode(corpus, corpus.shots):
            if self._room(ids) <= 0:
                raise InvalidPlan(
                    f"{use.name}/{item} with {accuracy.shots} worked examples has {len(ids)} tokens",
                    expected=f"fewer than the served length of {self._max_model_len}",
                    todo="serve a longer length or lower accuracy.shots",
                )
            entries.append((item, text, ids, golds[item]))
        self._add(accuracy.label, use.max_tokens, entries)

    def add_fingerprints(self, vocab_size: int | None) -> None:
        lengths = fingerprint_lengths(self._plan.fingerprint_prompts, self._max_model_len, self._forbidden)
        known = [size for size in (vocab_size, self._encoder.vocab_size) if size]
        for number, length in enumerate(lengths):
            if known:
                ids = fingerprint_ids(length, min(known), self._encoder.special_ids, str(number))
            else:
                ids = self._ids_of_text(number, length)
            name = f"{FINGERPRINT}/{number}"
            text = f"{len(ids)} token ids, fixed by their position"
            self._prompts[name] = Prompt(id=name, corpus=FINGERPRINT, token_ids=ids, text=text, max_tokens=1)

    def finish(self) -> BuiltPrompts:
        prompts = tuple(self._prompts.values())
        _refuse_double_bos(prompts, self._encoder.bos_id)
        odd = [p.id for p in prompts if len(p.token_ids) in self._forbidden]
        if odd:
            self._note(
                "PROMPT-LENGTH-K1",
                "warning",
                f"{len(odd)} prompts have 1 or k+1 tokens: {', '.join(odd[:3])}",
                "other lengths: some engine versions answer these from a wrong graph",
                "read divergences of these prompts as the engine's",
                "prompts",
            )
        tokenizer = self._encoder.identity()
        return BuiltPrompts(
            prompts,
            (*self._findings, *self._encoder.findings()),
            (*self._identities.values(), tokenizer),
        )

    def _take(self, corpus: Corpus) -> None:
        """Keep the corpus's identity and findings once."""
        name = corpus.identity.name
        before = self._identities.get(name)
        if before is None:
            self._findings.extend(corpus.findings)
        if before is None or len(corpus.identity.files) > len(before.files):
            self._identities[name] = corpus.identity
        if corpus.manifest.mode == "chat" and not self._encoder.has_chat:
            self._note(
                "CORPUS-NO-CHAT-TEMPLATE",
                "note",
                f"{corpus.manifest.name} is a chat corpus and the target has no chat template",
                "a chat template",
                "its prompts are sent as plain text",
                corpus.manifest.name,
            )

    def _encode(self, corpus: Corpus, shots: Sequence[Row]) -> list[Entry]:
        """(item, text, ids, no gold) of every item; chat items through the template where there is one."""
        found: dict[str, Entry] = {}
        for chat in (False, True):
            items = [item for item in corpus.items if self._is_chat(corpus, item.row) == chat]
            if not items:
                continue
            texts = [corpora.text_of(corpus.manifest, item.row, shots) for item in items]
            encoded = self._encoder.encode_many(texts, chat)
            for item, text, ids in zip(items, texts, encoded, strict=True):
                if not ids:
                    raise InvalidPlan(
                        f"{corpus.manifest.name}/{item.id} has no token", expected="non-empty prompts"
                    )
                found[item.id] = (item.id, text, ids, None)
        return [found[item.id] for item in corpus.items]

    def _is_chat(self, corpus: Corpus, row: Row) -> bool:
        return bool(row.get("chat", corpus.manifest.mode == "chat")) and self._encoder.has_chat

    def _add(
        self,
        label: str,
        max_tokens: int,
        entries: Iterable[Entry],
    ) -> None:
        clipped, smallest = 0, max_tokens
        for item, text, ids, gold in entries:
            room = self._room(ids)
            clipped += room < max_tokens
            smallest = min(smallest, room)
            name = f"{label}/{item}"
            self._prompts[name] = Prompt(
                id=name, corpus=label, token_ids=ids, text=text, gold=gold, max_tokens=min(max_tokens, room)
            )
        if clipped:
            self._note(
                "CORPUS-TOKENS-CLIPPED",
                "note",
                f"{clipped} prompts of {label} get fewer than {max_tokens} tokens (at least {smallest}), so "
                f"that prompt and answer fit the served length of {self._max_model_len}",
                f"{max_tokens} tokens an answer",
                "serve a longer length for longer answers",
                label,
            )

    def _room(self, ids: Sequence[int]) -> int:
        """Tokens that an answer may have; a very large number when the served length is unknown."""
        return (self._max_model_len or 1 << 30) - len(ids)

    def _ids_of_text(self, number: int, length: int) -> tuple[int, ...]:
        """Ids from our own text where the vocabulary is unknown: a window that starts at another sentence
        for each prompt."""
        items = corpora.load(CorpusUse(name=CERTIFICATION), seed=0).items
        texts = [str(item.row["prompt"]) for item in items]
        ids: list[int] = []
        for text in (texts[number:] + texts[:number]) * (1 + length // len(texts)):
            ids.extend(self._encoder.encode(text + "\n", chat=False)[1:])
            if len(ids) >= length:
                break
        return tuple(ids[:length])

    def _note(self, code: str, severity: str, seen: str, expected: str, remedy: str, subject: str) -> None:
        self._findings.append(
            Finding(
                code=code,
                severity="warning" if severity == "warning" else "note",
                seen=seen,
                expected=expected,
                remedy=remedy,
                subject=subject,
            )
        )


def _refuse_double_bos(prompts: Sequence[Prompt], bos_id: int | None) -> None:
    """Two BOS in front change every answer. Where the BOS is unknown, one id doubled in front of every
    prompt is the sign of it."""
    texts = [p for p in prompts if p.corpus != FINGERPRINT]
    doubled = [p for p in texts if len(p.token_ids) > 1 and p.token_ids[0] == p.token_ids[1]]
    if bos_id is not None:
        doubled = [p for p in doubled if p.token_ids[0] == bos_id]
    elif len(doubled) < len(texts) or len({p.token_ids[0] for p in doubled}) != 1:
        return
    if doubled:
        raise InvalidPlan(
            f"{len(doubled)} prompts start with the beginning-of-sequence token {doubled[0].token_ids[0]} "
            f"twice, first {doubled[0].id}",
            expected="one",
            todo="remove it from the corpus's text or from the chat template",
        )


def _speculative_tokens(plan: AuditPlan) -> set[int]:
    return {arm.draft.tokens for arm in plan.candidates if arm.draft is not None and arm.draft.tokens}
