"""How small a change of weights the audit finds: seven servers at once, some 14 GiB, and none beside them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from auditor.demo.models import TARGET
from tests.engine.real import (
    EAGLE3,
    SPECULATE,
    audited,
    copied,
    needs_engine,
    noisy,
    ready,
    reweighted,
    serving,
    status,
)

pytestmark = needs_engine
OUTPUT = Path(__file__).parents[1] / "output"
SCALES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""Noise on every weight of the candidate's target, as a share of its tensor's standard deviation."""


@pytest.mark.slow
def test_the_smallest_change_of_weights_that_is_found(tmp_path: Path) -> None:
    with ExitStack() as stack:
        plain = stack.enter_context(serving(tmp_path / "plain", TARGET))
        candidates = {}
        for scale in SCALES:
            weights = reweighted(copied(TARGET, tmp_path / f"noise-{scale:g}"), noisy(scale))
            server = serving(tmp_path / f"server-{scale:g}", weights, SPECULATE, EAGLE3)
            candidates[f"noise-{scale:g}"] = stack.enter_context(server)
            ready(candidates[f"noise-{scale:g}"])
        ready(plain)
        ran = audited(tmp_path, plain, candidates, "--gates=certification,agreement")
    judgement = ran.record.judgement
    table: list[dict[str, Any]] = []
    for scale in SCALES:
        arm = f"noise-{scale:g}"
        certificate = next(c for c in judgement.certificates if c.arm == arm)
        agreed = next((a.agreement for a in judgement.agreement if a.arm == arm), None)
        classes = sorted(d.cls for d in judgement.divergences if d.arm == arm)
        gates = status(ran, arm)
        table.append(
            {
                "noise": scale,
                "certified": certificate.state,
                "certification prompts alike": f"{certificate.agreement.k} of {certificate.agreement.n}",
                "batch 1 alike": f"{agreed.k} of {agreed.n}" if agreed else None,
                "classes": {c: classes.count(c) for c in dict.fromkeys(classes)},
                "gates": gates,
                "found": {gates["certification"], gates["agreement"]} != {"PASS"},
            }
        )
    smallest = next((row["noise"] for row in table if row["found"]), None)
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "sensitivity.json").write_text(
        json.dumps({"smallest found": smallest, "by noise": table}, indent=1)
    )
    print(json.dumps(table, indent=1))
    assert smallest is not None, table
    assert smallest <= 1e-2, table
    assert all(row["found"] for row in table if row["noise"] >= smallest), "what is larger is found too"
    assert ran.code in (1, 3)
