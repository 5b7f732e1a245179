"""Stage 4: byte-exact agreement at batch 1, per corpus, and every divergence with its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from auditor.judge.answers import Answers, Entry, Index, Key, agree
from auditor.judge.classify import Classified, classify, first_difference
from auditor.judge.controls import Controls
from auditor.judge.forensics import Forensics
from auditor.judge.output import from_completion
from auditor.judge.scene import Scene
from auditor.judge.shares import as_interval, proportion
from auditor.model.base import Interval
from auditor.model.completion import Completion
from auditor.model.judgement import Agreement, Divergence, Hazard, Proportion, SurvivalPoint
from auditor.model.launch import Launch
from auditor.model.phase import Phase
from auditor.stats import paired, survival

__all__ = ["ArmAgreement", "compare_arm", "divergences", "first_difference", "summaries"]


class ArmAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the reference on one corpus."""

    arm: str
    corpus: str
    reference_phase: Phase
    phase: Phase
    agreed: frozenset[str]
    """Prompt ids whose every repeat agreed."""
    differing: tuple[Key, ...]
    """The first differing repeat of each prompt that did not, in prompt order."""
    lengths: dict[str, int]
    """Tokens compared on the agreed prompts."""
    errors: int
    """Prompts without a completion on either side."""
    stuck: int
    """Prompts to which the reference said one and the same token throughout."""


def compare_arm(scene: Scene, answers: Answers, reference: Launch, other: Launch) -> list[ArmAgreement]:
    """Pairs the batch-1 phases of two launches, corpus by corpus, in the plan's order."""
    ours = scene.corpus_phases("batch1", reference)
    theirs = scene.corpus_phases("batch1", other)
    return [
        _compare(other.arm, corpus, ours[corpus], theirs[corpus], answers)
        for corpus in ours
        if corpus in theirs
    ]


def _compare(arm: str, corpus: str, ours: Phase, theirs: Phase, answers: Answers) -> ArmAgreement:
    one, two = answers.index(ours.id), answers.index(theirs.id)
    keys = one.entries.keys() & two.entries.keys()
    differing: dict[str, Key] = {}
    for key in keys:
        if not agree(one.entries[key], two.entries[key]):
            differing[key[0]] = min(key, differing.get(key[0], key))
    failed = {k[0] for k in (*one.failures, *two.failures)}
    prompts = {k[0] for k in keys}
    agreed = prompts - differing.keys() - failed
    return ArmAgreement(
        arm=arm,
        corpus=corpus,
        reference_phase=ours,
        phase=theirs,
        agreed=frozenset(agreed),
        differing=tuple(sorted(differing.values(), key=lambda k: (_item(k[0]), k))),
        lengths={p: _length(one, p) for p in agreed},
        errors=len(failed - differing.keys()),
        stuck=sum(e.stuck for k, e in one.entries.items() if k[1] == 0),
    )


def _item(prompt: str) -> tuple[str, int, str]:
    """Sorts `code/9` before `code/10`."""
    corpus, _, item = prompt.rpartition("/")
    return (corpus, int(item), "") if item.isdigit() else (corpus, -1, item)


def _length(index: Index, prompt: str) -> int:
    entry: Entry | None = index.entries.get((prompt, 0))
    return max(1, entry.length) if entry else 1


def divergences(
    pairs: Sequence[ArmAgreement],
    answers: Answers,
    scene: Scene,
    forensics: Forensics,
    controls: Controls,
) -> list[Divergence]:
    """Every divergence of one arm, classified. Details are read for the differing pairs only."""
    found = []
    scored = 0
    for pair in pairs:
        caps = _caps(scene, pair)
        for one, two in _in_full(pair, answers):
            cap = caps.get(one.prompt)
            entry = _divergence(pair, one, two, cap, forensics, controls, within=scored < forensics.limit)
            scored += _scorable(one, two, entry.position)
            found.append(entry)
    return found


def _caps(scene: Scene, pair: ArmAgreement) -> dict[str, int]:
    """Most tokens that the differing prompts may be answered with."""
    wanted = {prompt for prompt, _ in pair.differing}
    if not wanted:
        return {}
    use = scene.plan.agreement.corpora if scene.plan.agreement else ()
    cap = {u.name: u.max_tokens for u in use}.get(pair.corpus)
    found = (p for p in scene.evidence.prompts(pair.corpus) if p.id in wanted)
    return {p.id: p.max_tokens if cap is None else min(p.max_tokens, cap) for p in found}


def _in_full(pair: ArmAgreement, answers: Answers) -> Iterator[tuple[Completion, Completion]]:
    ours = answers.fetch(pair.reference_phase.id, pair.differing)
    theirs = answers.fetch(pair.phase.id, pair.differing)
    for key in pair.differing:
        yield ours[key], theirs[key]


def _scorable(one: Completion, two: Completion, position: int) -> bool:
    """Whether both said a token there, so that a margin between the two exists."""
    return position <= min(len(one.token_ids), len(two.token_ids)) and (
        one.token_ids[position - 1] != two.token_ids[position - 1]
    )


def _divergence(
    pair: ArmAgreement,
    one: Completion,
    two: Completion,
    cap: int | None,
    forensics: Forensics,
    controls: Controls,
    within: bool,
) -> Divergence:
    sides = from_completion(one, cap), from_completion(two, cap)
    at = first_difference(one.token_ids, two.token_ids)
    readings = width_flip = self_draft = None
    if at is not None and _scorable(one, two, at):
        tokens = one.token_ids[at - 1], two.token_ids[at - 1]
        readings = forensics.readings(pair.arm, one.prompt, at, *tokens)
        width_flip = controls.width_flip(pair.arm, one.prompt, at, tokens[1])
        self_draft = controls.self_draft(one.prompt, at, one.token_ids, tokens[1])
    kind = classify(
        *sides,
        lambda position: (
            forensics.ruling(readings, position, two.token_ids[position - 1]) if readings else None
        ),
    )
    if kind is None:
        raise AssertionError(f"{one.prompt}: digests differ but the completions agree")
    notes = kind.notes
    if kind.cls == "unknown" and forensics.asked and not within:
        notes = (f"not scored: the plan scores at most {forensics.limit} divergences a pair", *notes)
    return Divergence(
        arm=pair.arm,
        corpus=pair.corpus,
        prompt=one.prompt,
        position=kind.position,
        reference_token=_token(one, kind),
        other_token=_token(two, kind),
        cls=kind.cls,
        why=kind.why,
        notes=notes,
        reference_score=readings[0].margin if readings and readings[0] else None,
        other_score=readings[1].margin if readings and readings[1] else None,
        drafter_free_flip=kind.flip,
        width_flip=width_flip,
        self_draft=self_draft,
    )


def _token(completion: Completion, kind: Classified) -> int | None:
    ids = completion.token_ids
    return ids[kind.position - 1] if kind.position <= len(ids) else None


def to_score(pairs: Sequence[ArmAgreement], answers: Answers, limit: int) -> Iterator[tuple[str, str, int]]:
    """(arm, prompt, position) of one arm's first `limit` divergences with two tokens to compare."""
    left = limit
    for pair in pairs:
        for one, two in _in_full(pair, answers):
            at = first_difference(one.token_ids, two.token_ids)
            if left > 0 and at is not None and _scorable(one, two, at):
                left -= 1
                yield pair.arm, one.prompt, at


def summaries(
    pairs: Sequence[ArmAgreement], found: Sequence[Divergence], control: Sequence[ArmAgreement]
) -> list[Agreement]:
    """One Agreement a corpus, and one for all. `control`: the control's own pairs, empty for itself."""
    names = [p.corpus for p in pairs]
    groups = [(name, [p for p in pairs if p.corpus == name]) for name in names]
    if len(names) > 1:
        groups.append(("all", list(pairs)))
    return [
        _summary(
            name, group, found, [c for c in control if c.corpus in {p.corpus for p in group}], bool(control)
        )
        for name, group in groups
    ]


def _summary(
    name: str,
    pairs: Sequence[ArmAgreement],
    found: Sequence[Divergence],
    control: Sequence[ArmAgreement],
    has_control: bool,
) -> Agreement:
    agreed = {p for pair in pairs for p in pair.agreed}
    differing = {k[0] for pair in pairs for k in pair.differing}
    n = len(agreed) + len(differing)
    shown = _against(agreed, differing, control) if has_control else None
    corpora = {p.corpus for p in pairs}
    hazards, points = _survival(pairs, [d for d in found if d.corpus in corpora])
    return Agreement(
        arm=pairs[0].arm,
        corpus=name,
        planned=sum(p.phase.planned for p in pairs),
        errors=sum(p.errors for p in pairs),
        agreement=proportion(len(agreed), n),
        control=shown[0] if shown else None,
        mcnemar_exact=shown[1] if shown else None,
        tango95=shown[2] if shown else None,
        zero_bound=min(1.0, 3.0 / n) if n and not differing else None,
        hazard=hazards,
        survival=points,
    )


def _against(
    agreed: set[str], differing: set[str], control: Sequence[ArmAgreement]
) -> tuple[Proportion, float | None, Interval | None]:
    """The control on the same prompts: its k of n, exact McNemar, 95% interval of the difference."""
    theirs = {p for c in control for p in c.agreed}
    theirs_not = {k[0] for c in control for k in c.differing}
    both = (agreed | differing) & (theirs | theirs_not)
    if not both:
        return proportion(0, 0), None, None
    more, fewer = len(both & agreed & theirs_not), len(both & differing & theirs)
    return (
        proportion(len(both & theirs), len(both)),
        paired.mcnemar(more, fewer).exact,
        as_interval(paired.score_interval(more, fewer, len(both), 0.95)),
    )


def _survival(
    pairs: Sequence[ArmAgreement], found: Sequence[Divergence]
) -> tuple[tuple[Hazard, ...], tuple[SurvivalPoint, ...]]:
    times = [*(length for p in pairs for length in p.lengths.values()), *(d.position for d in found)]
    if not times:
        return (), ()
    events = [False] * (len(times) - len(found)) + [True] * len(found)
    data = survival.Observations(tuple(times), tuple(events))
    hazards = tuple(
        Hazard(
            start=h.first,
            end=h.last,
            divergences=h.divergences,
            exposure=h.exposure,
            rate=h.rate,
            interval95=as_interval(h.interval) if h.interval else None,
        )
        for h in (survival.hazard(data), *survival.binned_hazard(data))
    )
    points = tuple(
        SurvivalPoint(
            token=p.time,
            survival=p.survival,
            low=p.interval.lower if p.interval else 0.0,
            high=p.interval.upper if p.interval else p.survival,
            at_risk=p.at_risk,
        )
        for p in survival.kaplan_meier(data)
    )
    return hazards, points
