"""The divergence explorer: every difference at batch 1 side by side, worst classes first.

Texts come from the completions in the record. A page holds what fits its budget: each side shows the end of
the common text and the beginning of what follows, and the rest stays in completions.jsonl, counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from auditor.model.completion import Completion, Prompt
from auditor.model.judgement import Divergence, TokenMargin
from auditor.model.record import AuditRecord, Evidence
from auditor.report import numbers
from auditor.report.parts import CLASS_TONE, Cell, Table, Tone, Value, mono
from auditor.report.visible import block

MARKUP_BUDGET = 1_400_000
"""Bytes of texts on the whole page."""
_SHORTEST, _LONGEST = 300, 4000
_IDS_BEFORE, _IDS_AFTER = 4, 8

Pair = tuple[Completion | None, Completion | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a filter with the number of entries that have it."""

    id: str
    label: str
    count: int
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    label: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Side:
    title: str
    text: Markup
    ended: str


@dataclass(frozen=True, slots=True)
class Entry:
    marks: str
    """Class names that the filters select by."""
    cls: str
    tone: Tone
    arm: str
    corpus: str
    prompt: str
    position: int
    why: str
    notes: tuple[str, ...]
    sides: tuple[Side, ...]
    ids: Markup | None
    scores: Table | None
    question: Markup | None


@dataclass(frozen=True, slots=True)
class Explorer:
    total: int
    overview: Table | None
    filters: tuple[Filter, ...]
    entries: tuple[Entry, ...]
    left_out: str
    """Says how many are not shown, and where they are; empty when all are."""


def explorer(record: AuditRecord, evidence: Evidence, most: int) -> Explorer:
    """At most `most` entries, fewer where their texts would not fit the page."""
    every = record.judgement.divergences
    arms = {arm.name: i for i, arm in enumerate(record.plan.arms)}
    rank = {cls: i for i, cls in enumerate(CLASS_TONE)}
    ordered = sorted(every, key=lambda d: (rank[d.cls], arms.get(d.arm, 99)))[:most]
    pairs = completions(record, evidence, ordered)
    prompts = _prompts(evidence, ordered)
    each = max(_SHORTEST, min(_LONGEST, MARKUP_BUDGET // (16 * max(1, len(ordered)))))
    filters = _filters(ordered)
    keys = [{choice.label: choice.id for choice in f.choices} for f in filters]
    entries: list[Entry] = []
    used = 0
    for d in ordered:
        marks = " ".join(key[value] for key, value in zip(keys, (d.cls, d.arm, d.corpus), strict=True))
        entry = _entry(d, pairs.get(_key(d), (None, None)), prompts.get(d.prompt), marks, each)
        used += sum(len(s.text) for s in entry.sides) + len(entry.ids or "") + len(entry.question or "")
        if used > MARKUP_BUDGET and entries:
            break
        entries.append(entry)
    rest = len(every) - len(entries)
    left = ""
    if rest:
        left = (
            f"{len(entries):,} of {len(every):,} divergences are shown, the worst classes first; "
            f"the other {rest:,} are in audit.json, their completions in completions.jsonl."
        )
    return Explorer(
        len(every),
        _overview(every, record),
        _filters([d for d in ordered[: len(entries)]]),
        tuple(entries),
        left,
    )


def _key(d: Divergence) -> tuple[str, str, str]:
    return d.arm, d.corpus, d.prompt


def _overview(every: Sequence[Divergence], record: AuditRecord) -> Table | None:
    """Divergences by arm and class, all of them, also those not shown."""
    if not every:
        return None
    counted = Counter((d.arm, d.cls) for d in every)
    classes = [c for c in CLASS_TONE if any(d.cls == c for d in every)]
    arms = [a.name for a in record.plan.arms if any(d.arm == a.name for d in every)]
    rows: list[tuple[Value, ...]] = [
        (
            arm,
            *(_count(counted[arm, c], CLASS_TONE[c]) for c in classes),
            f"{sum(counted[arm, c] for c in classes):,}",
        )
        for arm in arms
    ]
    width = frozenset(range(1, len(classes) + 2))
    return Table("Divergences by arm and class, all of them.", ("Arm", *classes, "All"), tuple(rows), width)


def _count(count: int, tone: Tone) -> Cell:
    return Cell(f"{count:,}", tone if count else "mute")


def _filters(shown: Sequence[Divergence]) -> tuple[Filter, ...]:
    classes = Counter(d.cls for d in shown)
    by_class = tuple(
        Choice(f"k{i}", cls, classes[cls], tone)
        for i, (cls, tone) in enumerate(CLASS_TONE.items())
        if classes[cls]
    )
    arms = Counter(d.arm for d in shown)
    corpora = Counter(d.corpus for d in shown)
    return (
        Filter("k", "Class", by_class),
        Filter("a", "Arm", tuple(Choice(f"a{i}", a, n) for i, (a, n) in enumerate(arms.items()))),
        Filter(
            "c", "Corpus", tuple(Choice(f"c{i}", c, n) for i, (c, n) in enumerate(sorted(corpora.items())))
        ),
    )


def completions(
    record: AuditRecord, evidence: Evidence, wanted: Iterable[Divergence]
) -> dict[tuple[str, str, str], Pair]:
    """Reference and other completion of each divergence, from the batch-1 phases.

    An arm may have been launched more than once: the latest pair whose ids differ where the judgement says
    is the one that was judged.
    """
    reference = next((a.name for a in record.plan.arms if a.role == "reference"), "")
    needed: dict[tuple[str, str], set[str]] = {}
    listed = list(wanted)
    for d in listed:
        needed.setdefault((d.arm, d.corpus), set()).add(d.prompt)
        needed.setdefault((reference, d.corpus), set()).add(d.prompt)
    found: dict[tuple[str, str, str], list[Completion]] = {}
    for phase in record.phases:
        prompts = needed.get((phase.arm, phase.corpus or "")) if phase.stage == "batch1" else None
        for answer in evidence.answers(phase.id) if prompts else ():
            if prompts and answer.prompt in prompts and isinstance(answer, Completion) and answer.repeat == 0:
                found.setdefault((phase.arm, phase.corpus or "", answer.prompt), []).append(answer)
    out: dict[tuple[str, str, str], Pair] = {}
    for d in listed:
        left, right = found.get((reference, d.corpus, d.prompt), []), found.get(_key(d), [])
        fitting = [(a, b) for a in reversed(left) for b in reversed(right) if _fits(d, a, b)]
        out[_key(d)] = fitting[0] if fitting else (_last(left), _last(right))
    return out


def _last(items: Sequence[Completion]) -> Completion | None:
    return items[-1] if items else None


def _fits(d: Divergence, a: Completion, b: Completion) -> bool:
    at = d.position - 1
    return (
        a.token_ids[:at] == b.token_ids[:at]
        and _token(a, at) == d.reference_token
        and _token(b, at) == d.other_token
    )


def _token(c: Completion, index: int) -> int | None:
    return c.token_ids[index] if index < len(c.token_ids) else None


def _prompts(evidence: Evidence, wanted: Iterable[Divergence]) -> dict[str, Prompt]:
    names = {d.prompt for d in wanted}
    return {p.id: p for p in evidence.prompts() if p.id in names} if names else {}


def _entry(d: Divergence, pair: Pair, prompt: Prompt | None, marks: str, budget: int) -> Entry:
    left, right = pair
    common = _common(left.text, right.text) if left and right else 0
    sides = (
        _side("reference", left, common, budget),
        _side(d.arm, right, common, budget),
    )
    notes = d.notes
    if left and right and left.text == right.text:
        notes = (*notes, "the texts are equal; the token ids are not")
    return Entry(
        marks=marks,
        cls=d.cls,
        tone=CLASS_TONE[d.cls],
        arm=d.arm,
        corpus=d.corpus,
        prompt=d.prompt,
        position=d.position,
        why=d.why,
        notes=notes,
        sides=sides,
        ids=_ids(d, left, right),
        scores=_scores(d),
        question=_tail(prompt.text, budget // 2) if prompt else None,
    )


def _common(a: str, b: str) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def _tail(text: str, budget: int) -> Markup:
    cut = len(text) - budget
    return _more(cut, "before") + block(text[cut:]) if cut > 0 else block(text)


def _side(title: str, c: Completion | None, common: int, budget: int) -> Side:
    if c is None:
        return Side(title, Markup("<em>not in the record</em>"), "no completion")
    same, first, rest = c.text[:common], c.text[common : common + 1], c.text[common + 1 :]
    keep = max(80, budget // 3)
    cut = len(rest) - budget
    parts = [
        Markup('<span class="same">{}</span>').format(_tail(same, keep)),
        Markup("<mark>{}</mark>").format(block(first) if first else Markup("<b>end</b>")),
        block(rest[:budget]),
        _more(cut, "after") if cut > 0 else Markup(),
    ]
    reason = c.finish_reason or "no finish reason"
    stop = "" if c.stop_reason is None else f", stop {c.stop_reason}"
    ended = f"{numbers.integer(len(c.token_ids))} tokens, finish: {reason}{stop}"
    return Side(title, Markup().join(parts), ended)


def _more(count: int, where: str) -> Markup:
    return Markup("<em>… {} characters {} in completions.jsonl </em>").format(f"{count:,}", where)


def _ids(d: Divergence, left: Completion | None, right: Completion | None) -> Markup | None:
    """Token ids around the position, one column an index; the position is marked."""
    if left is None or right is None:
        return None
    first = max(1, d.position - _IDS_BEFORE)
    last = min(d.position + _IDS_AFTER, max(len(left.token_ids), len(right.token_ids)) + 1)
    columns = range(first, last + 1)

    def row(label: str, values: Iterable[tuple[int, str]]) -> str:
        cells = "".join(f"<td{' class=at' if i == d.position else ''}>{escape(v)}</td>" for i, v in values)
        return f"<tr><th scope=row>{escape(label)}</th>{cells}</tr>"

    def shown(c: Completion) -> list[tuple[int, str]]:
        n = len(c.token_ids)
        return [(i, str(c.token_ids[i - 1]) if i <= n else "end" if i == n + 1 else "") for i in columns]

    rows = (
        row("token", ((i, f"{i:,}") for i in columns)),
        row("reference", shown(left)),
        row(d.arm, shown(right)),
    )
    return Markup("<table class=ids>" + "".join(rows) + "</table>")


def _scores(d: Divergence) -> Table | None:
    scored = [(who, s) for who, s in (("reference", d.reference_score), (d.arm, d.other_score)) if s]
    if not scored:
        return None
    flip = {
        None: "not scored",
        True: "also prefers the other token: verify-shape numerics, not the head",
        False: "keeps the reference's token",
    }[d.drafter_free_flip]
    return Table(
        f"The two tokens as each server scores them after the common prefix "
        f"(reference {_id(d.reference_token)}, other {_id(d.other_token)}).",
        (
            "Server",
            "Reference's token",
            "Rank",
            "Other token",
            "Rank",
            "Margin, nats",
            "Reproduces its own token",
        ),
        tuple((mono(f"{who} ({s.launch})"), *_score(s)) for who, s in scored),
        frozenset({1, 2, 3, 4, 5}),
        note=f"The reference scoring the prefix as a batch, without a drafter: {flip}.{_controls(d)}",
    )


def _controls(d: Divergence) -> str:
    width = {
        None: "",
        True: " At k + 1 tokens a pass without a drafter: says the other token as well.",
        False: " At k + 1 tokens a pass without a drafter: does not say the other token.",
    }[d.width_flip]
    drafted = {
        None: "",
        "other": " Drafting for itself the target says the other token: not this head.",
        "reference": " Drafting for itself the target keeps the reference's token.",
        "third": " Drafting for itself the target says a third token.",
        "earlier": " Drafting for itself the target leaves the reference's path earlier.",
    }[d.self_draft]
    return width + drafted


def _id(token: int | None) -> str:
    return "end" if token is None else str(token)


def _score(s: TokenMargin) -> tuple[Value, ...]:
    return (
        numbers.signed(s.reference_logprob, 4),
        numbers.integer(s.reference_rank),
        numbers.signed(s.other_logprob, 4),
        numbers.integer(s.other_rank),
        numbers.signed(s.margin, 4) if s.margin is not None else "unusable",
        {None: Cell("not scored", "mute"), True: Cell("yes", "good"), False: Cell("no", "warn")}[
            s.reproduces
        ],
    )
