"""Compares two files' completions prompt by prompt: the offline face of the classification engine.

Repeats of a prompt count once: a prompt that differs in 20 of 20 repeats is one divergent prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from auditor.judge import lines
from auditor.judge.classify import Classified, agreeing_notes, classify
from auditor.judge.lines import Line
from auditor.judge.margin import Floor, Ruling, read_margin, rule
from auditor.judge.output import Output, is_one_token
from auditor.judge.shares import proportion
from auditor.model.judgement import EXPLAINED, DivergenceClass, Proportion
from auditor.stats import survival

DEFAULT_FLOOR = 0.25
"""Nats: one unit in the last place of bfloat16 logits in [32, 64)."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """One prompt."""

    id: str
    agree: bool
    position: int | None
    """1-based index of the first differing token; None when they agree."""
    cls: DivergenceClass | None
    why: str = ""
    notes: tuple[str, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All prompts that both files have a completion for."""

    prompts: int
    agreement: Proportion
    classes: dict[str, int]
    errors: int
    """Prompts with a failed request on either side: neither agreement nor divergence."""
    only_reference: int
    only_candidate: int
    at_most: float | None
    """3/n when nothing disagreed; None otherwise."""
    hazard: float | None
    """First divergences per token compared; None without a token."""
    hazard95: tuple[float, float] | None
    verdict: str
    """One sentence."""
    warnings: tuple[str, ...]


class Comparison:
    """Collects pairs one prompt at a time and then sums them up."""

    def __init__(self, floor: float = DEFAULT_FLOOR) -> None:
        self.floor = Floor(nats=floor)
        self.pairs: list[Pair] = []
        self.warnings: list[str] = []
        self.only_reference = 0
        self.only_candidate = 0
        self._failed: Counter[str] = Counter()
        self._broken: set[str] = set()
        self._trailing = 0
        self._cached = [0, 0]
        self._cached_known = [False, False]
        self._times: list[int] = []

    def add(self, name: str, references: Sequence[Line], candidates: Sequence[Line]) -> None:
        """One prompt with its repeats on either side. ValueError when the prompts' ids differ."""
        self._cache(references, candidates)
        if len(references) == len(candidates) == 1:
            length = lines.same_at_a_glance(references[0], candidates[0])
            if length is not None:
                self._agree(name, length, _sampling_notes(candidates[0]))
                return
        _same_prompt(references, candidates)
        one, two = ([x for x in side if x.error is None] for side in (references, candidates))
        if not one or not two:
            self._failure(name, references if not one else candidates, "candidate" if one else "reference")
            return
        self._trailing = 0
        pair, length = compare(name, one, two, self.floor)
        if pair.agree:
            self._agree(name, length, pair.notes)
            return
        self.pairs.append(pair)
        self._times.append(pair.position or 1)

    def totals(self) -> Totals:
        """Of what was added."""
        compared = [p for p in self.pairs if p.id not in self._broken]
        agreed = sum(p.agree for p in compared)
        classes = Counter(p.cls for p in compared if p.cls is not None)
        rate = self._hazard(compared)
        return Totals(
            prompts=len(compared),
            agreement=proportion(agreed, len(compared)),
            classes=dict(sorted(classes.items())),
            errors=len(self._broken),
            only_reference=self.only_reference,
            only_candidate=self.only_candidate,
            at_most=min(1.0, 3.0 / len(compared)) if compared and agreed == len(compared) else None,
            hazard=rate.rate if rate else None,
            hazard95=(rate.interval.lower, rate.interval.upper) if rate and rate.interval else None,
            verdict=_verdict(len(compared), agreed, classes),
            warnings=(*self.warnings, *self._late_warnings()),
        )

    def exit_code(self) -> int:
        """1: a divergence that is no tie; 4: only unknown ones, failures or missing prompts; 0: neither."""
        kinds = {p.cls for p in self.pairs if p.cls is not None}
        if kinds - {*EXPLAINED, "unknown"}:
            return 1
        incomplete = self._broken or self.only_reference or self.only_candidate
        return 4 if "unknown" in kinds or incomplete or not self.pairs else 0

    def _agree(self, name: str, length: int, notes: tuple[str, ...]) -> None:
        self.pairs.append(Pair(id=name, agree=True, position=None, cls=None, notes=notes))
        self._times.append(max(1, length))
        self._trailing = 0

    def _failure(self, name: str, side: Sequence[Line], whose: str) -> None:
        self._failed[whose] += 1
        self._broken.add(name)
        self._trailing += 1
        self.pairs.append(
            Pair(
                id=name,
                agree=False,
                position=None,
                cls=None,
                why=f"The {whose} has no completion: {side[0].error}.",
                notes=("a failed request is neither agreement nor divergence",),
            )
        )

    def _cache(self, references: Sequence[Line], candidates: Sequence[Line]) -> None:
        for side, listed in enumerate((references, candidates)):
            for line in listed:
                hits = lines.cached(line)
                if hits is not None:
                    self._cached_known[side] = True
                    self._cached[side] += hits

    def _late_warnings(self) -> list[str]:
        found = []
        one, two = self._cached
        if all(self._cached_known) and (one == 0) != (two == 0):
            found.append(
                f"prefix cache hits are {one} tokens on the reference and {two} on the candidate: the "
                f"launches are "
                "not comparable, run both again without prefix caching"
            )
        for whose, failed in self._failed.items():
            end = (
                f", the last {self._trailing} in a row: the server probably died"
                if self._trailing > 1
                else ""
            )
            found.append(f"{failed} requests to the {whose} failed{end}; they are not counted as divergences")
        return found

    def _hazard(self, compared: Sequence[Pair]) -> survival.Hazard | None:
        if not self._times:
            return None
        events = tuple(not p.agree for p in compared)
        return survival.hazard(survival.Observations(tuple(self._times), events))


def compare(
    name: str, references: Sequence[Line], candidates: Sequence[Line], floor: Floor
) -> tuple[Pair, int]:
    """(the pair, tokens of the reference). Both sides have at least one completion."""
    ones, twos = [lines.output(x) for x in references], [lines.output(x) for x in candidates]
    distinct = len({_key(x) for x in ones}), len({_key(x) for x in twos})
    notes = [*_repeat_notes(references, candidates, distinct), *_sampling_notes(candidates[0])]
    found, at, differing = None, 0, 0
    for i in range(max(len(ones), len(twos))):
        one, two = ones[min(i, len(ones) - 1)], twos[min(i, len(twos) - 1)]
        sides = references[min(i, len(ones) - 1)], candidates[min(i, len(twos) - 1)]
        kind = classify(one, two, lambda p, one=one, two=two, sides=sides: _ruling(one, two, sides, p, floor))  # type: ignore[misc]
        differing += kind is not None
        if found is None and kind is not None:
            found, at = kind, i
    size = len(ones[0].token_ids)
    if found is None:
        extra = agreeing_notes(ones[0], twos[0])
        if is_one_token(ones[0].token_ids):
            extra = (*extra, "both are one token repeated throughout: NaN logits look like this")
        return Pair(id=name, agree=True, position=None, cls=None, notes=(*notes, *extra)), size
    if max(len(ones), len(twos)) > 1:
        notes.append(f"{differing} of {max(len(ones), len(twos))} repeats differ; the prompt counts once")
    for whose, line in (("reference", references[0]), ("candidate", candidates[at if at < len(twos) else 0])):
        value = lines.constant_logprob(line)
        if value is not None:
            notes.append(f"every logprob of the {whose} is {value:g}: no evidence, so no margin from it")
    return _differing(name, found, distinct, candidates[0], notes), size


def _differing(
    name: str, found: Classified, distinct: tuple[int, int], candidate: Line, notes: list[str]
) -> Pair:
    cls, why = found.cls, found.why
    temperature = candidate.request.temperature if candidate.request else None
    if temperature:
        cls, why = (
            "unknown",
            (
                f"Sampled at temperature {temperature:g}: only greedy completions can be certified; "
                "ask again at 0."
            ),
        )
    elif distinct[0] > 1 and cls not in ("post-stop leak", "length overrun", "short delivery", "degenerate"):
        cls, why = (
            "unknown",
            (
                f"The reference itself gives {distinct[0]} distinct completions to this prompt and the "
                f"candidate {distinct[1]}: the engine varies, and blaming the head is inconclusive."
            ),
        )
    return Pair(id=name, agree=False, position=found.position, cls=cls, why=why, notes=(*found.notes, *notes))


def _ruling(one: Output, two: Output, sides: tuple[Line, Line], position: int, floor: Floor) -> Ruling | None:
    tokens = one.token_ids[position - 1], two.token_ids[position - 1]
    readings = []
    for i, side in enumerate(sides):
        top = lines.top_at(side, position)
        readings.append(
            read_margin(
                launch=("reference", "candidate")[i],
                top=top,
                reference_token=tokens[0],
                other_token=tokens[1],
                chosen=None,
                own_token=tokens[i],
            )
            if top
            else None
        )
    if lines.constant_logprob(sides[0]) is not None:
        return Ruling(
            cls="unknown", why="The margin is not known: every logprob of the reference is the same."
        )
    return rule(readings[0], readings[1], floor, tokens[1]) if readings[0] else None


def _key(side: Output) -> tuple[tuple[int, ...], str | None]:
    return tuple(side.token_ids), side.finish_reason


def _same_prompt(references: Sequence[Line], candidates: Sequence[Line]) -> None:
    asked = [lines.ids(x.prompt_ids) for x in (*references, *candidates) if bytes(x.prompt_ids)]
    if any(p != asked[0] for p in asked):
        raise ValueError(
            "the prompt ids differ between the two files (a template that embeds the date does that)"
        )


def _repeat_notes(
    references: Sequence[Line], candidates: Sequence[Line], distinct: tuple[int, int]
) -> list[str]:
    notes = []
    for whose, side, kinds in zip(
        ("reference", "candidate"), (references, candidates), distinct, strict=True
    ):
        if kinds < 2:
            continue
        if _by_cache(side):
            notes.append(
                f"the {whose} answers differently from a cold and from a warm prefix cache: a cache-path "
                f"difference, "
                "not noise from run to run; warm both alike or switch caching off in both"
            )
        else:
            notes.append(f"the {whose} does not repeat itself: {kinds} distinct completions in {len(side)}")
    return notes


def _by_cache(side: Sequence[Line]) -> bool:
    """Whether cold and warm requests each repeat themselves, so that only the cache separates answers."""
    answers: dict[bool, set[bytes]] = {}
    for line in side:
        hits = lines.cached(line)
        if hits is None:
            return False
        answers.setdefault(hits > 0, set()).add(bytes(line.token_ids))
    return len(answers) == 2 and all(len(kinds) == 1 for kinds in answers.values())


def _sampling_notes(line: Line) -> tuple[str, ...]:
    request = line.request
    if request is None:
        return ()
    notes = []
    if request.temperature:
        seed = "" if request.seed is None else f" with seed {request.seed}"
        notes.append(
            f"warning: sampled at temperature {request.temperature:g}{seed}: speculative servers do not "
            f"honour seeds "
            "alike; certify greedy completions only"
        )
    if (request.repetition_penalty or 1.0) != 1.0 or request.presence_penalty or request.frequency_penalty:
        notes.append(
            "penalties are in force and are known to break under speculation: run again with them off"
        )
    return tuple(notes)


def _verdict(n: int, agreed: int, classes: Counter[DivergenceClass]) -> str:
    if n == 0:
        return "No prompt has a completion in both files: nothing was compared."
    if agreed == n:
        bound = min(1.0, 3.0 / n)
        return f"{agreed} of {n} prompts agree: at most {bound:.4f} (3/n) differ, which is not 'identical'."
    faults = sum(v for k, v in classes.items() if k not in (*EXPLAINED, "unknown"))
    ties = sum(classes[k] for k in EXPLAINED)
    if faults:
        return (
            f"{agreed} of {n} prompts agree; {faults} differ by a fault, not by numerics"
            + (f", {ties} by ties" if ties else "")
            + ": see the class and the reason of each pair."
        )
    if classes["unknown"]:
        return (
            f"{agreed} of {n} prompts agree; {classes['unknown']} differ for an unknown reason: add "
            f"top_logprobs at "
            "the first difference, or let `audit equivalence` score it."
        )
    return f"{agreed} of {n} prompts agree; the other {ties} differ by ties within the noise floor."
