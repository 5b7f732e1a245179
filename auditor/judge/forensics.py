"""Stage 5: from scores to margins, the noise that they are held against, and where they may be believed.

The noise floor is measured, not assumed: the largest |Δ logprob| of one forced token between reference and
control, and between decoding and rescoring on the reference, plus one unit in the last place of the served
dtype at the logits' magnitude. Logprobs do not reveal the logits, so their magnitude is taken to be that of
large models' best logits, in [32, 64): 2^5 · 2^-7 = 0.25 for bfloat16, 2^5 · 2^-10 for float16, 2^5 · 2^-23
for float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from auditor.judge.margin import Floor, Reading, Ruling, read_margin, rule
from auditor.judge.scene import Scene
from auditor.model.completion import Score
from auditor.model.judgement import Calibration, NoiseFloor
from auditor.model.launch import Launch

ULP = {"bfloat16": 0.25, "float16": 2.0**-5, "float32": 2.0**-18}
"""One unit in the last place of a logit in [32, 64), nats."""
BINS: tuple[tuple[int, int | None], ...] = ((1, 64), (65, 256), (257, 1024), (1025, None))
"""Generated positions, both ends included, over which rescoring is calibrated."""
LEAST_REPRODUCED = 0.9
"""Share of the reference's own tokens that rescoring must find again, ties counted as found."""
WIDEST_FLOOR = 2.0
"""A floor above this many nats would call a sevenfold probability a tie: margins are then no evidence."""
CALIBRATION_ARM = "calibration"


class Forensics:
    """The scores of one audit, ready to rule on divergences."""

    def __init__(self, scene: Scene, reference: Launch | None, control: Launch | None) -> None:
        family = scene.family(reference) if reference else frozenset[str]()
        others = scene.family(control) if control else frozenset[str]()
        self._scores: dict[tuple[str, str, int], list[Score]] = {}
        for score in scene.evidence.scores:
            self._scores.setdefault((score.pair_arm, score.prompt, score.position), []).append(score)
        self._reference = family
        mine = [s for s in scene.evidence.scores if s.pair_arm == CALIBRATION_ARM and s.launch in family]
        self.asked = scene.plan.forensics is not None
        self.limit = scene.plan.forensics.max_divergences if scene.plan.forensics else 0
        dtype = served_dtype(reference)
        self.calibration = calibrate(mine, ULP.get(dtype or "", 0.0))
        self._calibrated = sorted(s.position for s in mine if s.error is None)
        equal_prints = _equal_fingerprints(scene, reference, control)
        self.floor = noise_floor(scene.evidence.scores, family, others, mine, dtype, equal_prints)

    def readings(
        self, arm: str, prompt: str, position: int, reference_token: int, other_token: int
    ) -> tuple[Reading | None, Reading | None]:
        """(reference, other) at one divergence; None where that server scored nothing."""
        found: list[Reading | None] = [None, None]
        for score in self._scores.get((arm, prompt, position), ()):
            side = 0 if score.launch in self._reference else 1
            found[side] = read_margin(
                launch=score.launch,
                top=score.top,
                reference_token=reference_token,
                other_token=other_token,
                chosen=score.chosen,
                own_token=(reference_token, other_token)[side],
            )
        return found[0], found[1]

    def ruling(self, readings: tuple[Reading | None, Reading | None], position: int, other: int) -> Ruling:
        """What the margins say about a divergence at `position` where the other server said token `other`."""
        return rule(readings[0], readings[1], self.floor_at(position), other)

    def floor_at(self, position: int) -> Floor:
        """The bound for margins at one generated position."""
        if not self.asked:
            return Floor(nats=None, problem="the plan asks for no second pass")
        if self.floor.floor is None:
            return Floor(nats=None, problem=_floor_problem(self.floor))
        problem = self._uncalibrated(position)
        if problem:
            return Floor(nats=None, problem=problem)
        return Floor(
            nats=self.floor.floor,
            unknown_step=ULP["bfloat16"] if self.floor.dtype is None else 0.0,
        )

    def _uncalibrated(self, position: int) -> str | None:
        for found in self.calibration:
            if found.bin_start <= position and (found.bin_end is None or position <= found.bin_end):
                if found.n == 0:
                    return self._between(position)
                return None if found.usable else _not_reproduced(found)
        return None

    def _between(self, position: int) -> str | None:
        """A bin without calibration borrows from a calibrated position at least half as far."""
        near = [p for p in self._calibrated if p <= position <= 2 * p]
        if not near:
            return f"rescoring was not calibrated near token {position}"
        bins = [c for c in self.calibration if c.bin_start <= near[-1] <= (c.bin_end or near[-1])]
        return None if bins[0].usable else _not_reproduced(bins[0])


def served_dtype(launch: Launch | None) -> str | None:
    """`bfloat16`, `float16` or `float32` from the resolved configuration; None when it does not say."""
    names = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}
    for setting in launch.resolved if launch else ():
        if setting.name.lower().rsplit(".", 1)[-1] in ("dtype", "model_dtype"):
            value = setting.value.strip().strip("'\"").lower().removeprefix("torch.")
            value = names.get(value, value)
            return value if value in ULP else None
    return None


def calibrate(scores: Sequence[Score], ulp: float) -> tuple[Calibration, ...]:
    """Per bin: how many of the reference's decoded tokens rescoring chose again.

    A token that rescoring puts within one unit in the last place of its best one counts as found.
    """
    found = []
    for start, end in BINS:
        inside = [
            s
            for s in scores
            if s.expected is not None and start <= s.position and (end is None or s.position <= end)
        ]
        reproduced = sum(s.chosen == s.expected for s in inside)
        tied = sum(s.chosen != s.expected and _gap(s) <= ulp for s in inside)
        found.append(
            Calibration(
                bin_start=start,
                bin_end=end,
                reproduced=reproduced,
                n=len(inside),
                usable=bool(inside) and reproduced + tied >= LEAST_REPRODUCED * len(inside),
            )
        )
    return tuple(found)


def noise_floor(
    scores: Iterable[Score],
    reference: frozenset[str],
    control: frozenset[str],
    calibration: Sequence[Score],
    dtype: str | None,
    equal_fingerprints: int,
) -> NoiseFloor:
    """`equal_fingerprints`: float32 values equal bit for bit in reference and control; 0 if any differed."""
    between = _between_launches(scores, reference, control)
    reference_control = max(between, default=0.0 if equal_fingerprints else None)
    decode = [
        abs(value - s.decode_logprob)
        for s in calibration
        if s.decode_logprob is not None and s.chosen == s.expected
        for value in (_logprob(s, s.expected),)
        if value is not None
    ]
    decode_rescore = max(decode, default=None)
    ulp = ULP.get(dtype) if dtype else None
    floor = None
    if decode_rescore is not None:
        floor = max(decode_rescore, reference_control or 0.0) + (ulp or 0.0)
    return NoiseFloor(
        reference_control_max=reference_control,
        reference_control_n=len(between) or equal_fingerprints,
        decode_rescore_max=decode_rescore,
        decode_rescore_n=len(decode),
        ulp=ulp,
        dtype=dtype,
        floor=None if floor is None or floor > WIDEST_FLOOR else floor,
    )


def _between_launches(
    scores: Iterable[Score], reference: frozenset[str], control: frozenset[str]
) -> list[float]:
    """|Δ logprob| of the same forced token at the same position, reference against control."""
    sides: Mapping[bool, dict[tuple[str, str, int], Score]] = {True: {}, False: {}}
    for score in scores:
        if score.launch in reference or score.launch in control:
            key = (score.pair_arm, score.prompt, score.position)
            sides[score.launch in reference][key] = score
    found = []
    for key, mine in sides[True].items():
        theirs = sides[False].get(key)
        token = mine.expected if mine.expected is not None else mine.chosen
        if theirs is None or token is None:
            continue
        one, two = _logprob(mine, token), _logprob(theirs, token)
        if one is not None and two is not None:
            found.append(abs(one - two))
    return found


def _logprob(score: Score, token: int | None) -> float | None:
    return next((e.logprob for e in score.top if e.token == token), None)


def _gap(score: Score) -> float:
    """How far rescoring puts the expected token behind its best one; infinite when it is not listed."""
    one, best = _logprob(score, score.expected), score.top[0].logprob if score.top else None
    return float("inf") if one is None or best is None else best - one


def _equal_fingerprints(scene: Scene, reference: Launch | None, control: Launch | None) -> int:
    if reference is None or control is None:
        return 0
    one, two = scene.fingerprint(reference), scene.fingerprint(control)
    if one is None or two is None or one.digest != two.digest:
        return 0
    return sum(len(p.bits) // 8 for p in one.prompts)


def _floor_problem(floor: NoiseFloor) -> str:
    if floor.decode_rescore_max is None:
        return "rescoring reproduced none of the reference's own tokens, or was not calibrated"
    return f"decoding and rescoring differ by up to {floor.decode_rescore_max:.4g} nats"


def _not_reproduced(found: Calibration) -> str:
    end = "" if found.bin_end is None else f" to {found.bin_end}"
    return (
        f"from token {found.bin_start}{end} rescoring reproduces only {found.reproduced} of {found.n} of the "
        "reference's own tokens"
    )
