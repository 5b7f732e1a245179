"""Everything that judging can say renders: audits judged by auditor.judge, not by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from auditor.judge.judge import judge
from auditor.model.record import AuditRecord
from auditor.report import markdown
from auditor.report.html import render
from auditor.report.junit import junit
from auditor.report.sarif import sarif
from auditor.report.terminal import summary
from tests.fakes.evidence import EvidenceBuilder, MemoryEvidence, honest_audit, plan, sample_audit
from tests.report import gold

AUDITS = {
    "found something": sample_audit,
    "honest": honest_audit,
    "nothing measured": lambda: EvidenceBuilder(plan()),
    "accuracy alone": lambda: honest_audit(plan_fields={"agreement": None, "invariance": None}),
    "one prompt": lambda: honest_audit(n=1, gsm8k=1, certification=1),
    "all differ": lambda: honest_audit(batch1={f"code/{i}": (7, 8, 9) for i in range(20)}),
}


def record_of(evidence: MemoryEvidence) -> AuditRecord:
    base, _ = gold.failing()
    return replace(
        base,
        plan=evidence.plan,
        launches=tuple(evidence.launches),
        fingerprints=tuple(evidence.fingerprints),
        phases=tuple(evidence.phases),
        scores=tuple(evidence.scores),
        findings=tuple(evidence.findings),
        judgement=judge(evidence),
    )


@pytest.mark.parametrize("name", AUDITS)
def test_every_document(name: str) -> None:
    evidence = AUDITS[name]().evidence
    record = record_of(evidence)
    verdict = record.judgement.verdict
    page = render(record, evidence)
    assert f'<span class="word">{verdict.name}</span>' in page
    assert f"exit code {verdict.exit_code}" in page
    assert page.count('<details class="entry ') == len(record.judgement.divergences)
    for text in (junit(record), markdown.summary(record), markdown.model_card(record), summary(record)):
        assert verdict.name in text
    assert f'"exitCode": {verdict.exit_code}' in sarif(record)
    assert all(len(line) <= 80 for line in summary(record).splitlines())
