"""Shares of prompts in two runs: paired by prompt where both asked the same, and said so where not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from auditor.judge.shares import as_interval, proportion
from auditor.model.baseline import Change, CorpusPrompts, Marks, NonInferiority, Snapshot
from auditor.stats import multiplicity, paired, unpaired
from auditor.stats.exact import exact_p_lower
from auditor.stats.interval import Interval
from auditor.stats.table import (
    MissingAnswers,
    PairedTable,
    least_favourable_to_candidate,
    most_favourable_to_candidate,
)

ALPHA = 0.05
What = Literal["agreement", "accuracy", "self-agreement"]
Mark = bool | None
"""None: no completion, so neither right nor wrong."""
_MEANING: dict[str, Mark] = {"1": True, "0": False, "c": True, "w": False, "n": False, "t": False, "-": None}


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's marks on one corpus in both runs."""

    before: tuple[Mark, ...]
    after: tuple[Mark, ...]
    shared: tuple[tuple[Mark, Mark], ...]
    """(before, after) of the prompts that are the same in both runs."""

    @property
    def both(self) -> tuple[tuple[bool, bool], ...]:
        """Shared prompts with a mark in both runs."""
        return tuple((b, a) for b, a in self.shared if b is not None and a is not None)


def changes(before: Snapshot, after: Snapshot, pairs: Mapping[str, str]) -> tuple[Change, ...]:
    """All shares that both runs measured. Holm's p: candidates are one family, the other arms another."""
    found = [
        *_marked("agreement", before.agreement, after.agreement, before, after, pairs),
        *_marked("accuracy", before.grades, after.grades, before, after, pairs),
        *_self_agreement(before, after, pairs),
    ]
    adjusted: dict[int, float] = {}
    plain = {a.arm for a in after.arms if a.role != "candidate"}
    # What the drafts did is one question; whether the engine changed under them is another.
    for family in (True, False):
        p_values = {
            str(i): c.p for i, c in enumerate(found) if c.p is not None and (c.arm in plain) is family
        }
        if p_values:
            adjusted |= {int(t.name): t.adjusted for t in multiplicity.holm(p_values, ALPHA)}
    return tuple(msgspec.structs.replace(c, p_holm=adjusted.get(i)) for i, c in enumerate(found))


def series(
    before: Sequence[Marks], after: Sequence[Marks], runs: tuple[Snapshot, Snapshot], arms: tuple[str, str]
) -> dict[str, Series]:
    """By corpus that both runs have marks of; `arms`: the names of the arm before and after."""
    prompts = tuple({p.corpus: p for p in run.prompts} for run in runs)
    ours = {m.corpus: m for m in before if m.arm == arms[0]}
    theirs = {m.corpus: m for m in after if m.arm == arms[1]}
    return {
        corpus: _series(ours[corpus], theirs[corpus], prompts[0][corpus], prompts[1][corpus])
        for corpus in theirs
        if corpus in ours
    }


def _series(before: Marks, after: Marks, ours: CorpusPrompts, theirs: CorpusPrompts) -> Series:
    one, two = ([_MEANING[m] for m in marks.marks] for marks in (before, after))
    at = {key: mark for key, mark in zip(zip(ours.ids, ours.digests, strict=True), one, strict=True)}
    keys = zip(theirs.ids, theirs.digests, strict=True)
    return Series(
        before=tuple(one),
        after=tuple(two),
        shared=tuple((at[key], mark) for key, mark in zip(keys, two, strict=True) if key in at),
    )


def _marked(
    what: What,
    ours: Sequence[Marks],
    theirs: Sequence[Marks],
    before: Snapshot,
    after: Snapshot,
    pairs: Mapping[str, str],
) -> Iterator[Change]:
    for arm, other in pairs.items():
        found = series(ours, theirs, (before, after), (other, arm))
        for corpus, marks in found.items():
            yield change(what, arm, other, corpus, marks)
        if len(found) > 1 and any(m.both for m in found.values()):
            yield change(what, arm, other, "all", pooled(found.values()))


def pooled(found: Iterable[Series]) -> Series:
    """Several corpora as one: their shared prompts alone, so that both runs count the same ones."""
    shared = tuple(pair for one in found for pair in one.shared)
    return Series(before=tuple(b for b, _ in shared), after=tuple(a for _, a in shared), shared=shared)


def change(what: What, arm: str, before_arm: str, subject: str, marks: Series) -> Change:
    """Paired where any prompt is shared, unpaired over all prompts otherwise."""
    if not marks.both:
        return _unpaired(what, arm, before_arm, subject, marks)
    both = marks.both
    gained, lost, n = sum(a and not b for b, a in both), sum(b and not a for b, a in both), len(both)
    return Change(
        what=what,
        arm=arm,
        before_arm=before_arm,
        subject=subject,
        paired=True,
        note=_left_out(marks),
        before=proportion(sum(b for b, _ in both), n),
        after=proportion(sum(a for _, a in both), n),
        gained=gained,
        lost=lost,
        difference=(gained - lost) / n,
        interval95=as_interval(paired.score_interval(gained, lost, n, 0.95)),
        p=paired.mcnemar(gained, lost).exact,
        p_lower=paired.mcnemar_lower(gained, lost),
    )


def _left_out(marks: Series) -> str:
    parts = []
    shared, most = len(marks.shared), max(len(marks.before), len(marks.after))
    if shared < most:
        parts.append(f"{shared} prompts are in both runs, of {len(marks.before)} and {len(marks.after)}")
    if len(marks.both) < shared:
        parts.append(f"{shared - len(marks.both)} without an answer in one of them")
    return "; ".join(parts)


def _unpaired(what: What, arm: str, before_arm: str, subject: str, marks: Series) -> Change:
    one, two = ([m for m in side if m is not None] for side in (marks.before, marks.after))
    interval, difference = None, None
    if one and two:
        ours, theirs = (sum(two), len(two)), (sum(one), len(one))
        difference = ours[0] / ours[1] - theirs[0] / theirs[1]
        interval = as_interval(unpaired.score_interval_independent(*ours, *theirs, 0.95))
    return Change(
        what=what,
        arm=arm,
        before_arm=before_arm,
        subject=subject,
        paired=False,
        note="no prompt is the same in both runs (ids, tokens, cap or reference answer differ)"
        if not marks.shared
        else "no shared prompt has an answer in both runs",
        before=proportion(sum(one), len(one)),
        after=proportion(sum(two), len(two)),
        difference=difference,
        interval95=interval,
    )


def _self_agreement(before: Snapshot, after: Snapshot, pairs: Mapping[str, str]) -> Iterator[Change]:
    digests = tuple(
        {i: d for p in run.prompts for i, d in zip(p.ids, p.digests, strict=True)} for run in (before, after)
    )
    ours = {(m.arm, m.level): m for m in before.load}
    for theirs in after.load:
        mine = ours.get((pairs.get(theirs.arm, ""), theirs.level))
        if mine is None:
            continue
        one, two = ({p: _MEANING[m] for p, m in zip(x.prompts, x.marks, strict=True)} for x in (mine, theirs))
        same = [p for p in two if p in one and digests[0].get(p) == digests[1].get(p)]
        marks = Series(
            before=tuple(one.values()),
            after=tuple(two.values()),
            shared=tuple((one[p], two[p]) for p in same),
        )
        found = change("self-agreement", theirs.arm, mine.arm, f"n{theirs.level}", marks)
        unheld = [name for name, x in (("before", mine), ("after", theirs)) if not x.held]
        if unheld:
            notes = (found.note, f"the level was not held in the run {' and '.join(unheld)}")
            found = msgspec.structs.replace(found, note="; ".join(n for n in notes if n))
        yield found


def non_inferiority(arm: str, corpus: str, marks: Series, margin: float) -> NonInferiority | None:
    """Score and exact test of 'lower by the margin or more' on the shared problems, missing answers at their
    worst; None without a shared problem. Undecided where so few problems could not have shown it."""
    if not marks.shared:
        return None
    table, missing = _table(marks.shared)
    worst, best = least_favourable_to_candidate(table, missing), most_favourable_to_candidate(table, missing)
    b, c, n = worst.candidate_only, worst.reference_only, worst.n
    p_score, p_exact = paired.score_p_lower(b, c, n, margin), exact_p_lower(b, c, n, margin)
    floor = paired.floor_margin(table.discordant, n, ALPHA)
    interval = Interval(
        paired.score_interval(b, c, n, 0.90).lower,
        paired.score_interval(best.candidate_only, best.reference_only, n, 0.90).upper,
    )
    needed = paired.minimum_n(margin, ALPHA)
    if max(p_score, p_exact) < ALPHA:
        result, why = "not inferior", f"score and exact test reject a loss of {margin:g}"
    elif interval.upper < -margin:
        result, why = "inferior", f"the 90% interval lies wholly below −{margin:g}"
    elif n < needed:
        result, why = "undecided", f"{n} problems cannot show a margin of {margin:g}: at least {needed} can"
    elif missing.total:
        result, why = "undecided", f"{missing.total} answers are missing and count against it"
    elif floor < margin:
        result = "inferior"
        why = (
            f"a loss below {margin:g} was not shown, although as many discordant problems, evenly split, "
            f"would have shown {floor:.4f}"
        )
    else:
        result, why = "undecided", f"so many discordant problems can show no margin below {floor:.4f}"
    return NonInferiority(
        arm=arm,
        corpus=corpus,
        n=n,
        missing=missing.total,
        margin=margin,
        interval90=as_interval(interval),
        p_score=p_score,
        p_exact=p_exact,
        floor_margin=floor,
        result=result,  # type: ignore[arg-type]
        why=why,
    )


def _table(shared: Sequence[tuple[Mark, Mark]]) -> tuple[PairedTable, MissingAnswers]:
    """The run after as candidate, the run before as reference."""
    counts = Counter(shared)
    table = PairedTable(
        both=counts[(True, True)],
        candidate_only=counts[(False, True)],
        reference_only=counts[(True, False)],
        neither=counts[(False, False)],
    )
    missing = MissingAnswers(
        candidate_when_reference_right=counts[(True, None)],
        candidate_when_reference_wrong=counts[(False, None)],
        reference_when_candidate_right=counts[(None, True)],
        reference_when_candidate_wrong=counts[(None, False)],
        both=counts[(None, None)],
    )
    return table, missing
