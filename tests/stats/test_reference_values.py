"""Every checked reference value, each within its own tolerance; a case that no check covers fails."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from auditor.stats import paired, proportions, survival, unpaired
from auditor.stats.equivalence import assess
from auditor.stats.exact import exact_smallest_margin, exact_tost, score_test_size
from auditor.stats.power import equivalence_power
from auditor.stats.sprt import SequentialTest
from auditor.stats.table import MissingAnswers, PairedTable

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "reference_values.json").read_text(encoding="utf-8")
)

Values = Mapping[str, Any]


def table_of(i: Values) -> PairedTable:
    return PairedTable(both=i["a"], candidate_only=i["b"], reference_only=i["c"], neither=i["d"])


def size_of(i: Values) -> int:
    return int(i["n"]) if "n" in i else table_of(i).n


def score_at(i: Values) -> Values:
    b, c, n = i["b"], i["c"], size_of(i)
    z = paired.score_statistic(b, c, n, i["delta0"])
    p = paired.score_p_lower(b, c, n, -i["delta0"]) if i["delta0"] < 0 else None
    return {"z": z, "p_one_sided": p, "ci90": paired.score_interval(b, c, n, 0.9)}


def score_ci(i: Values) -> Values:
    return {"ci": paired.score_interval(i["b"], i["c"], size_of(i), i["conf"])}


def newcombe(i: Values) -> Values:
    return {"ci": paired.newcombe10(table_of(i), i["conf"])}


def agresti_min(i: Values) -> Values:
    return {"ci": paired.agresti_min(i["b"], i["c"], i["n"], i["conf"])}


def toster(i: Values) -> Values:
    x1, x2 = round(i["p1"] * i["n1"]), round(i["p2"] * i["n2"])
    result = unpaired.wald_tost(x1, i["n1"], x2, i["n2"], i["low"], i["high"])
    return {
        "zL": result.z_lower,
        "zU": result.z_upper,
        "ci90": unpaired.wald_interval(x1, i["n1"], x2, i["n2"], 0.9),
    }


def independent_score_ci(i: Values) -> Values:
    counts = (i["x1"], i["n1"], i["x2"], i["n2"], i["conf"])
    return {
        "MN": unpaired.score_interval_independent(*counts, miettinen_nurminen=True),
        "Mee_FM": unpaired.score_interval_independent(*counts),
    }


def kaplan_meier(i: Values) -> Values:
    data = survival.Observations(tuple(i["time"]), tuple(map(bool, i["event"])))
    points = survival.kaplan_meier(data)
    hazard = survival.hazard(data)
    return {
        "t": [point.time for point in points],
        "S": [point.survival for point in points],
        "se": [point.se for point in points],
        "D": data.divergences,
        "exposure": data.exposure,
        "rate": hazard.rate,
        "rate_ci95": hazard.interval,
    }


def whole_case(i: Values) -> Values:
    table, margin = table_of(i), i["margin"]
    n, b, c = table.n, table.candidate_only, table.reference_only
    result = assess(table, margin)
    arms = (table.candidate_right, n, table.reference_right, n, -margin, margin)
    wald = unpaired.wald_tost(*arms)
    fm = unpaired.farrington_manning_tost(*arms)
    assert result.exact == exact_tost(b, c, n, margin)
    assert result.unpaired_wald.p == wald.p
    assert result.farrington_manning_p == fm.p
    return {
        "delta": result.estimate,
        "tango90": result.score.ci90,
        "tango95": result.score.ci95,
        "zL": result.score.z_lower,
        "pL": result.score.p_lower,
        "zU": result.score.z_upper,
        "pU": result.score.p_upper,
        "tost_p": result.score.p,
        "exact_pL": result.exact.p_lower,
        "exact_pU": result.exact.p_upper,
        "exact_tost_p": result.exact.p,
        "unpaired_se": result.unpaired_wald.se,
        "unpaired_wald_zL": wald.z_lower,
        "unpaired_wald_zU": wald.z_upper,
        "unpaired_wald_p": wald.p,
        "fm_zL": fm.z_lower,
        "fm_zU": fm.z_upper,
        "fm_p": fm.p,
        "mn_p": unpaired.farrington_manning_tost(*arms, miettinen_nurminen=True).p,
        "mcnemar_exact": result.mcnemar.exact,
        "mcnemar_midp": result.mcnemar.mid_p,
        "min_margin": result.smallest_margin,
        "exact_min_margin": exact_smallest_margin(b, c, n),
        "unpaired_min_margin": wald.smallest_margin,
        "newcombe10_95": result.newcombe10_ci95,
    }


def margin_floor(i: Values) -> Values:
    assert i["m"] == i["b"] + i["c"]
    evenly_split = paired.smallest_margin(i["b"], i["c"], i["n"], i["alpha"])
    floor = paired.floor_margin(i["m"], i["n"], i["alpha"])
    assert floor == pytest.approx(evenly_split, abs=1e-12)
    return {"floor": floor}


def unpaired_floor(i: Values) -> Values:
    p, n = i["p"], i["n"]
    k = 10**6
    floor = unpaired.floor_margin_independent(p, n)
    # At equal accuracies two one-sided tests have 90% power where Δ = (z.95 + z.95)·SE = twice the floor.
    assert unpaired.power_independent(p, n, 2 * floor) == pytest.approx(0.9, abs=1e-12)
    se = unpaired.wald_tost(round(p * k), k, round(p * k), k).se * math.sqrt(k / n)
    return {
        "se": se,
        "floor": floor,
        "power90_margin": 2 * floor,
        "power_at_05_if_independent": unpaired.power_independent(p, n, 0.05),
    }


def study(i: Values) -> Values:
    result = unpaired.wald_tost(i["k_cand"], i["n"], i["k_ref"], i["n"], -i["margin"], i["margin"])
    return {
        "d": result.difference,
        "se": result.se,
        "zL": result.z_lower,
        "zU": result.z_upper,
        "pL": result.p_lower,
        "pU": result.p_upper,
        "p": result.p,
        "min_margin": result.smallest_margin,
        "floor": result.floor_margin,
    }


def power(i: Values) -> Values:
    return {"power": [equivalence_power(i["n"], i["margin"], i["psi"], d, i["alpha"]) for d in i["delta"]]}


def binomial(i: Values) -> Values:
    k, n, conf = i["k"], i["n"], i["conf"]
    return {
        "clopper_pearson": proportions.clopper_pearson(k, n, conf),
        "wilson": proportions.wilson(k, n, conf),
        "jeffreys_BCD": proportions.jeffreys(k, n, conf),
        "cp_one_sided_lower95": proportions.lower_bound(k, n),
        "cp_one_sided_upper95": proportions.upper_bound(k, n),
    }


def sequential(i: Values) -> Values:
    test = SequentialTest(p0=i["p0"], p1=i["p1"], alpha=i["alpha"], beta=i["beta"])
    return {
        "llr_success": test.agreement_step,
        "llr_fail": test.disagreement_step,
        "A": test.upper,
        "B": test.lower,
        "slope": test.slope,
        "intercept": test.intercept,
        "min_n_accept_by_failures": [test.least_n_for_same(f) for f in range(5)],
        "min_fail_reject_by_successes": [test.least_disagreements_for_other(s) for s in range(9)],
    }


def sequence(i: Values) -> Values:
    prior = (i["prior"][0], i["prior"][1])
    return {"lower": proportions.confidence_sequence(i["k"], i["n"], 1 - i["alpha"], prior).lower}


def agreement_pair(i: Values) -> Values:
    result = assess(table_of(i), band=None)
    return {
        "mcnemar": result.mcnemar.exact,
        "midp": result.mcnemar.mid_p,
        "tango95": result.score.ci95,
    }


def missing(i: Values) -> Values:
    # The keys give the reference's answer first, then the candidate's.
    cells = i["table"]
    answered = PairedTable(
        both=cells["11"], candidate_only=cells["01"], reference_only=cells["10"], neither=cells["00"]
    )
    unknown = MissingAnswers(
        candidate_when_reference_right=cells["1?"],
        candidate_when_reference_wrong=cells["0?"],
        reference_when_candidate_right=cells["?1"],
        reference_when_candidate_wrong=cells["?0"],
        both=cells["??"],
    )
    from auditor.stats.table import least_favourable_to_candidate, most_favourable_to_candidate

    low = least_favourable_to_candidate(answered, unknown)
    high = most_favourable_to_candidate(answered, unknown)
    result = assess(answered, i["margin"], missing=unknown)
    return {
        "b_L": low.candidate_only,
        "c_L": low.reference_only,
        "b_U": high.candidate_only,
        "c_U": high.reference_only,
        "n": result.n,
        "pL": result.score.p_lower,
        "pU": result.score.p_upper,
        "L": result.score.ci90.lower,
        "U": result.score.ci90.upper,
    }


def no_events(i: Values) -> Values:
    return {
        "two_sided95_upper": survival.garwood(i["D"], i["E"]).upper,
        "one_sided95_upper": survival.rate_upper_bound(i["D"], i["E"]),
    }


def rates(i: Values) -> Values:
    result = survival.rate_ratio(i["D1"], i["E1"], i["D2"], i["E2"])
    return {"ratio": result.ratio, "ci": result.interval, "p": result.p}


CHECKS: dict[str, Callable[[Values], Values]] = {
    "tango_z_": score_at,
    "tango_T0_": score_at,
    "tango_ci_": score_ci,
    "mcnemar_exact_": lambda i: {"p": paired.mcnemar(i["b"], i["c"]).exact},
    "mcnemar_midp_": lambda i: {"p": paired.mcnemar(i["b"], i["c"]).mid_p},
    "newcombe10_": newcombe,
    "agresti_min_": agresti_min,
    "unpaired_wald_TOSTER": toster,
    "MN_score_ci_": independent_score_ci,
    "lm_eval_stderr": lambda i: {"se": [proportions.sample_standard_error(p, i["n"]) for p in i["p"]]},
    "cp_": lambda i: {"ci": proportions.clopper_pearson(i["k"], i["n"])},
    "km_": kaplan_meier,
    "case ": whole_case,
    "margin_floor_": margin_floor,
    "unpaired_floor_": unpaired_floor,
    "study_reproduction": study,
    "power ": power,
    "size_score ": lambda i: {"max_size": score_test_size(i["n"], i["margin"], i["alpha"])},
    "binom ": binomial,
    "sprt ": sequential,
    "cs_beta_half ": sequence,
    "agreement_pair_": agreement_pair,
    "missing_worst_case": missing,
    "rate_0_events": no_events,
    "rate_ratio": rates,
}

TINY = 1e-4
"""Expected p values below it are held to the file's relative tolerance as well."""


def test_every_reference_value_is_here() -> None:
    assert len(CASES) == 75


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_reference_value(case: dict[str, Any]) -> None:
    matching = [check for prefix, check in CHECKS.items() if case["name"].startswith(prefix)]
    assert len(matching) == 1, f"{case['name']}: expected exactly one check, found {len(matching)}"
    found = matching[0](case["inputs"])
    for key, expected in case["expected"].items():
        assert key in found, f"{case['name']}: nothing computes {key}"
        assert_close(f"{case['name']}: {key}", found[key], expected, case["tolerance"], key)


def assert_close(label: str, found: Any, expected: Any, tolerance: Any, key: str) -> None:
    if expected is None:
        assert found is None, f"{label} is undefined, got {found}"
        return
    if isinstance(expected, list):
        assert len(found) == len(expected), f"{label}: {found} against {expected}"
        for one, other in zip(found, expected, strict=True):
            assert_close(label, one, other, tolerance, key)
        return
    allowed = tolerance if isinstance(tolerance, float) else tolerance.get(key, tolerance["default"])
    if isinstance(tolerance, dict) and "p" in key and 0.0 < expected < TINY:
        allowed = min(allowed, tolerance["tiny_p_relative"] * expected)
    assert found == pytest.approx(expected, abs=allowed, rel=0), label
