"""How often does an audit of arms with known truth end in which verdict, and what do its error rates promise?

    python tools/operating_characteristics.py                # about 8,000 simulated and 24 whole audits
    python tools/operating_characteristics.py --no-pipeline  # without the whole audits on the scripted engine

Writes docs/operating-characteristics.md. Simulated audits are evidence drawn with a seed each and judged by
judge() (tools/simulated_audits.py); whole audits run `audit equivalence` on child processes that play vLLM
(tests/fakes). Needs the checkout: both use what tests/ has.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from simulated_audits import Truth, audit  # noqa: E402

from auditor.model.judgement import Judgement  # noqa: E402
from auditor.model.plan import GateName  # noqa: E402
from auditor.stats.power import equivalence_power  # noqa: E402
from auditor.stats.proportions import clopper_pearson  # noqa: E402
from auditor.stats.sprt import SequentialTest, operating_characteristics  # noqa: E402

VERDICTS = "PASS", "FAIL", "UNCERTIFIED", "INCONCLUSIVE", "ERROR"
OUT = ROOT / "docs" / "operating-characteristics.md"
BYTES: tuple[GateName, ...] = ("certification", "head-ran", "agreement")
LOAD: tuple[GateName, ...] = (*BYTES, "invariance")
TASK: tuple[GateName, ...] = ("accuracy",)
Bound = Literal["at most", "at least", "about"]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The share of audits that end as `verdict`, by the protocol's rates and the arms' truth."""

    verdict: str
    bound: Bound
    value: float
    why: str

    def kept(self, k: int, n: int) -> bool:
        """False when k of n contradicts the promise at 99%."""
        low, high = clopper_pearson(k, n, 0.99)
        return (self.bound == "at least" or low <= self.value) and (
            self.bound == "at most" or high >= self.value
        )


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    truth: Truth
    promise: Promise
    audits: int


def promised(verdict: str, bound: Bound, value: float, why: str) -> Promise:
    return Promise(verdict=verdict, bound=bound, value=value, why=why)


def scenarios(scale: float) -> Iterator[Scenario]:
    """All of them; `scale` multiplies the numbers of audits."""

    def made(name: str, truth: Truth, promise: Promise, audits: int) -> Scenario:
        return Scenario(name=name, truth=truth, promise=promise, audits=max(1, round(audits * scale)))

    yield made(
        "identical arms, every gate; 10% of the prompts vary under load, 6% of the problems are discordant",
        Truth(flips=(0.1, 0.1)),
        promised("FAIL", "at most", 0.05 + 0.05, "5% of the load gate and 5% of the accuracy gate"),
        400,
    )
    for hazard in (2e-4, 1e-3, 5e-3):
        truth = Truth(gates=BYTES, hazard=hazard)
        yield made(
            f"the candidate says another token at {hazard:g} of the tokens, 4 nats behind",
            truth,
            promised("FAIL", "about", caught(truth), "1 − (1 − hazard)^tokens: any unexplained divergence"),
            500,
        )
    yield made(
        "the same at 0.005, exact ties",
        Truth(gates=BYTES, hazard=5e-3, margin=0.0),
        promised("FAIL", "at most", 0.0, "ties are no fault"),
        500,
    )
    yield made(
        "identical arms, 20% of the prompts vary under load, three levels",
        Truth(gates=LOAD, flips=(0.2, 0.2)),
        promised("FAIL", "at most", 0.05, "90% paired interval over all levels"),
        500,
    )
    yield made(
        "10% of the prompts vary under load with the reference, 40% with the candidate",
        Truth(gates=LOAD, flips=(0.1, 0.4)),
        promised("FAIL", "at least", 0.8, "planted fault"),
        500,
    )
    yield from _accuracy(made)
    yield from _states(made)


Maker = Callable[[str, Truth, Promise, int], Scenario]


def _accuracy(made: Maker) -> Iterator[Scenario]:
    for problems, discordance in ((400, 0.06), (200, 0.10), (100, 0.02)):
        truth = Truth(gates=TASK, certification=8, problems=problems, discordance=discordance)
        yield made(
            f"equal accuracy, {problems} problems, {discordance:.0%} discordant",
            truth,
            promised("FAIL", "at most", 0.05, "no more than α of equal arms"),
            300,
        )
    for shift in (-0.05, 0.05):
        truth = Truth(gates=TASK, certification=8, discordance=0.1, difference=shift)
        yield made(
            f"accuracy {shift:+.2f} at the margin of 0.05, 400 problems",
            truth,
            promised("PASS", "at most", 0.05, "α of either one-sided test"),
            300,
        )
    truth = Truth(gates=TASK, certification=8)
    yield made(
        "equal accuracy, 400 problems, 6% discordant: power",
        truth,
        promised("PASS", "about", power(truth), "exact power, both tests"),
        300,
    )
    truth = Truth(gates=TASK, certification=8, discordance=0.14, difference=-0.12)
    yield made(
        "accuracy −0.12, 400 problems",
        truth,
        promised("FAIL", "at least", 0.95, "planted fault"),
        300,
    )


def _states(made: Maker) -> Iterator[Scenario]:
    for attempts in (1, 3):
        truth = Truth(gates=BYTES, other_state=0.5, attempts=attempts)
        lost = 1.0 - (1.0 - 0.5**attempts) ** 2
        yield made(
            f"two launch states at random, {attempts} launch{'es' if attempts > 1 else ''} allowed",
            truth,
            promised("UNCERTIFIED", "about", lost, "1 − (1 − ½^attempts)²: control and candidate"),
            500,
        )
    test = SequentialTest()
    for rate in (0.5, 0.8, 0.95):
        exact = operating_characteristics(test, rate)
        truth = Truth(gates=BYTES, alike=rate, attempts=1)
        yield made(
            f"one state, but {rate:.0%} of the candidate's certification prompts agree",
            truth,
            promised("UNCERTIFIED", "about", exact.other, f"exact P(OTHER STATE) of the test at {rate:g}"),
            500,
        )


def caught(truth: Truth) -> float:
    return 1.0 - (1.0 - truth.hazard) ** (truth.prompts * truth.tokens)


def power(truth: Truth) -> float:
    return equivalence_power(
        truth.problems, truth.margin_accuracy, truth.discordance, truth.difference, with_exact_test=True
    )


# ------------------------------------------------------------------ running


def simulate(truth: Truth, audits: int, first_seed: int = 0) -> tuple[Counter[str], int]:
    """Verdicts, and how many launches in another state were certified as the reference's."""
    counts: Counter[str] = Counter()
    wrong = 0
    for seed in range(first_seed, first_seed + audits):
        judgement, evidence = audit(truth, seed)
        counts[judgement.verdict.name] += 1
        other = {f.launch for f in evidence.fingerprints if is_other(f.prompts[0].bits)}
        wrong += _certified(judgement, other)
    return counts, wrong


def is_other(bits: str) -> bool:
    """Whether a simulated fingerprint is of the other state (tests/fakes/evidence.py: 0.125 lower)."""
    import struct

    return float(struct.unpack(">f", bytes.fromhex(bits[:8]))[0]) < -1.1


def _certified(judgement: Judgement, other: set[str]) -> int:
    return sum(c.state == "SAME STATE" and c.other in other for c in judgement.certificates)


def whole(script: Mapping[str, object], audits: int, *args: str) -> Counter[str]:
    """Whole audits through the command line on the scripted engine, a seed each."""
    from tests.cases.audits import audit as run

    counts: Counter[str] = Counter()
    for seed in range(audits):
        with tempfile.TemporaryDirectory() as folder:
            ran = run(Path(folder), script, f"--seed={seed}", *args)
            counts[ran.record.judgement.verdict.name] += 1
    return counts


def pipeline(audits: int) -> Iterator[tuple[str, Counter[str], Counter[str]]]:
    """(truth, whole audits, simulated audits with that truth)."""
    small = "--gates=certification,head-ran,agreement", "--limit=8", "--certification-prompts=16"
    shared = {"gates": BYTES, "prompts": 8, "certification": 16}
    yield (
        "identical arms",
        whole({}, audits, *small),
        simulate(Truth(**shared), 500)[0],  # type: ignore[arg-type]
    )
    share = 0.1
    fault = {"arms": {"ngram": {"diverge": {"at": 3, "share": share, "margin": 4.0}}}}
    # A prompt is hit with probability `share`, wherever in its answer.
    hazard = 1.0 - (1.0 - share) ** (1.0 / 20)
    yield (
        "one prompt in ten diverges, 4 nats",
        whole(fault, audits, *small),
        simulate(Truth(**shared, same_prints=True, hazard=hazard), 500)[0],  # type: ignore[arg-type]
    )
    random = {"all": {"state": "random", "flip_rate": 0.3}}
    yield (
        "two launch states at random, one launch allowed",
        whole(random, audits, *small, "--attempts=1"),
        simulate(Truth(**shared, other_state=0.5, attempts=1, alike_across=0.1), 500)[0],  # type: ignore[arg-type]
    )


# ------------------------------------------------------------------ the table


def document(rows: Sequence[str], wrong: tuple[int, int], compared: Sequence[str], seconds: float) -> str:
    command = " ".join(["python tools/operating_characteristics.py", *sys.argv[1:]])
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    lines = [
        "# Operating characteristics",
        "",
        "How often audits of arms with known truth end in which verdict, against what the protocol's error",
        f"rates promise. `{command}`, seeds fixed, {day}, {platform.machine()}, {os.cpu_count()} CPU cores,",
        f"Python {platform.python_version()}, {seconds:.0f} s.",
        "",
        "Evidence is drawn at random and judged by the real `judge()`. A promise is kept when the 99%",
        "Clopper–Pearson interval of the observed share does not contradict it.",
        "",
        f"| Truth | Audits | {' | '.join(VERDICTS[:4])} | Promised | Observed, 95% interval | Kept |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
        *rows,
        "",
        f"Launches in the other state that were certified as the reference's: {wrong[0]}, in {wrong[1]} "
        "audits with two states.",
        "",
        "## The same through the whole program",
        "",
        "`audit equivalence` on scripted engines, child processes that speak vLLM's interface, with the",
        "simulation of the same truth beside it. p: Fisher's exact test that both come from one rate.",
        "The engines draw their launch states themselves, without a seed.",
        "",
        "| Truth | Verdict | Whole audits | Simulated | p |",
        "| --- | --- | ---: | ---: | ---: |",
        *compared,
        "",
    ]
    return "\n".join(lines)


def row(scenario: Scenario, counts: Counter[str]) -> tuple[str, bool]:
    n, promise = sum(counts.values()), scenario.promise
    k = counts[promise.verdict]
    low, high = clopper_pearson(k, n, 0.95)
    kept = promise.kept(k, n)
    cells = (
        scenario.name,
        str(n),
        *(str(counts[v]) for v in VERDICTS[:4]),
        f"{promise.verdict} {promise.bound} {promise.value:.4g}: {promise.why}",
        f"{k} of {n}, {low:.3f} to {high:.3f}",
        "yes" if kept else "NO",
    )
    return f"| {' | '.join(cells)} |", kept


def fisher(mine: Counter[str], simulated: Counter[str], verdict: str) -> float:
    from scipy.stats import fisher_exact

    table = [[c[verdict], sum(c.values()) - c[verdict]] for c in (mine, simulated)]
    return float(fisher_exact(table).pvalue)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of simulated audits")
    parser.add_argument("--no-pipeline", action="store_true", help="leave the whole audits out")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    started = time.monotonic()
    rows, broken, wrong, of = [], 0, 0, 0
    for scenario in scenarios(given.scale):
        counts, mistaken = simulate(scenario.truth, scenario.audits)
        text, kept = row(scenario, counts)
        print(text, flush=True)
        rows.append(text)
        broken += not kept
        if scenario.truth.other_state:
            wrong, of = wrong + mistaken, of + scenario.audits
    compared = []
    for name, mine, simulated in () if given.no_pipeline else pipeline(8):
        for verdict in VERDICTS:
            if mine[verdict] or simulated[verdict]:
                p = fisher(mine, simulated, verdict)
                broken += p < 0.001
                compared.append(
                    f"| {name} | {verdict} | {mine[verdict]} of {sum(mine.values())} | "
                    f"{simulated[verdict]} of {sum(simulated.values())} | {p:.2g} |"
                )
                print(compared[-1], flush=True)
    given.out.write_text(document(rows, (wrong, of), compared, time.monotonic() - started), "utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
