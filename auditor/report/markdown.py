"""Markdown: the summary of a pipeline's page, and the stanza for a model card."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping

import msgspec

from auditor.model.judgement import Divergence
from auditor.model.record import AuditRecord
from auditor.report import numbers
from auditor.report.parts import CLASS_TONE
from auditor.report.sections.overview import in_order, unverified
from auditor.report.visible import plain

SIGNS = {"PASS": "✅", "FAIL": "❌", "INVALID": "❌", "ERROR": "❌"}
MOST = 5
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@$])")


def text(value: str) -> str:
    """Inline text in which nothing is markup, a mention, a link or an image; one line."""
    return _SPECIAL.sub(r"\\\1", plain(value)).replace("://", ":\\//")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(head)
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return lines + ["| " + " | ".join(text(cell) for cell in row) + " |" for row in rows]


def summary(record: AuditRecord) -> str:
    """summary.md: verdict, gates, agreement, accuracy, findings, the first five divergences."""
    judgement, verdict, plan = record.judgement, record.judgement.verdict, record.plan
    lines = [
        f"## {SIGNS.get(verdict.name, '⚠️')} {verdict.name}: {text(plan.name)}",
        "",
        f"{text(verdict.reason)} (exit code {verdict.exit_code})",
        "",
    ]
    if plan.target_kind != "trained":
        lines += [
            f"> The target is {text(plan.target_kind)}: its numbers say nothing of a production model.",
            "",
        ]
    if judgement.gates:
        rows = [(g.name, g.status, g.figure, g.bound, g.remedy or "nothing") for g in judgement.gates]
        lines += [*_table(("Gate", "Status", "Measured", "Bound", "What to do"), rows), ""]
    if judgement.agreement:
        lines += ["### Agreement at batch 1", "", *_agreement(record), ""]
    if judgement.accuracy:
        lines += ["### Task accuracy", "", *_accuracy(record), ""]
    found = in_order((*record.findings, *judgement.findings))
    if found:
        lines += ["### Findings", ""]
        lines += [f"- **{text(f.code)}** {text(f.subject)}: {text(f.seen)}. {text(f.remedy)}" for f in found]
        lines.append("")
    if judgement.divergences:
        lines += ["### Divergences", "", *_divergences(judgement.divergences), ""]
    return "\n".join(lines)


def _agreement(record: AuditRecord) -> list[str]:
    rows = (
        (
            a.corpus,
            a.arm,
            numbers.proportion(a.agreement),
            numbers.interval_percent(a.agreement.clopper_pearson95),
            numbers.proportion(a.control),
        )
        for a in record.judgement.agreement
    )
    return _table(("Corpus", "Arm", "Agree", "95% interval", "Control"), rows)


def _accuracy(record: AuditRecord) -> list[str]:
    rows = (
        (
            t.arm,
            f"{t.candidate_only:,} gained, {t.reference_only:,} lost of {t.n:,}",
            numbers.points(t.estimate),
            numbers.interval_points(t.ci90),
            numbers.margin(t.margin),
            t.verdict,
        )
        for t in record.judgement.accuracy
    )
    return _table(("Arm", "Discordant", "Difference", "90% interval", "Margin", "Verdict"), rows)


def _divergences(every: tuple[Divergence, ...]) -> list[str]:
    rank = {cls: i for i, cls in enumerate(CLASS_TONE)}
    worst = sorted(every, key=lambda d: rank[d.cls])[:MOST]
    rows = ((d.cls, d.arm, d.prompt, f"{d.position:,}", d.why) for d in worst)
    lines = _table(("Class", "Arm", "Prompt", "Token", "Why"), rows)
    rest = len(every) - len(worst)
    return [*lines, "", f"{rest:,} more are in the report."] if rest else lines


def append_step_summary(markdown: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Append to the file that $GITHUB_STEP_SUMMARY names; False where the variable is not set."""
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    with open(path, "a", encoding="utf-8") as file:
        file.write(markdown + "\n")
    return True


def evidence_digest(record: AuditRecord) -> str:
    """sha256 over the evidence files' digests and the plan: what the claim rests on."""
    digest = hashlib.sha256(msgspec.json.encode(record.plan, order="deterministic"))
    for file in sorted(record.files, key=lambda f: f.path):
        digest.update(f"\n{file.path} {file.sha256}".encode())
    return digest.hexdigest()


def model_card(record: AuditRecord) -> str:
    """A stanza for a model card: the claim, the figures, the conditions, the digest of the evidence."""
    verdict, plan = record.judgement.verdict, record.plan
    candidates = ", ".join(a.name for a in plan.candidates) or "no candidate"
    versions = sorted({launch.engine_version for launch in record.launches if launch.engine_version})
    lines = [
        "## Equivalence under speculative decoding",
        "",
        f"**{verdict.name}** for {text(candidates)} on {text(plan.target)} ({text(plan.target_kind)}): "
        f"{text(verdict.reason)}",
        "",
    ]
    if record.judgement.agreement:
        lines += ["Byte-exact agreement with the same target without speculation, batch 1, greedy:", ""]
        lines += [*_agreement(record), ""]
    if record.judgement.accuracy:
        lines += ["Task accuracy, paired by problem:", "", *_accuracy(record), ""]
    devices = "; ".join(record.environment.devices) or record.environment.cpu
    lines += ["Conditions:", ""]
    conditions = [
        f"engine: {', '.join(versions) or 'not reported'}",
        f"engine flags: {' '.join(plan.engine.args) or 'none'}; pin: {plan.pin}",
        f"host: {devices}",
        f"date: {record.date}; auditor {record.environment.auditor_version}; seed {plan.seed}",
        *(f"{i.name}: sha256 {i.digest or 'not readable'}" for i in record.identities),
    ]
    lines += [f"- {text(c)}" for c in conditions]
    limits = [*verdict.limits, *unverified(record)]
    if limits:
        lines += ["", "Not covered or not verified:", "", *(f"- {text(x)}" for x in limits)]
    lines += ["", f"Evidence: sha256 {evidence_digest(record)} (plan and evidence files).", ""]
    return "\n".join(lines)
