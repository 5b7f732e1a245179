"""SARIF 2.1.0: a rule for each gate and finding code, a result for each gate not passed and each finding."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from auditor.model.judgement import Finding, Gate
from auditor.model.record import AuditRecord
from auditor.report.visible import plain

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {"error": "error", "warning": "warning", "note": "note"}
DOCUMENT = "audit.json"
"""Results point at the record: that is where the evidence of each stands."""


def sarif(record: AuditRecord) -> str:
    verdict = record.judgement.verdict
    rules: dict[str, dict[str, Any]] = {}
    results: list[dict[str, Any]] = []
    for gate in record.judgement.gates:
        if gate.status != "PASS":
            results.append(_gate(gate, rules))
    for finding in dict.fromkeys((*record.findings, *record.judgement.findings)):
        results.append(_finding(finding, rules))
    order = {rule: i for i, rule in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = order[result["ruleId"]]
    run = {
        "tool": {
            "driver": {
                "name": "audit",
                "version": record.environment.auditor_version,
                "rules": list(rules.values()),
            }
        },
        "invocations": [
            {
                # Whether the audit ran to its end, not whether it passed: a FAIL is a successful execution.
                "executionSuccessful": record.status == "complete"
                and verdict.name not in ("ERROR", "INVALID"),
                "exitCode": verdict.exit_code,
                "exitCodeDescription": plain(f"{verdict.name}: {verdict.reason}"),
                "endTimeUtc": record.date,
            }
        ],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _gate(gate: Gate, rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    kind, _, subject = gate.name.partition("/")
    rule = "GATE-" + kind.upper()
    rules.setdefault(rule, {"id": rule, "shortDescription": {"text": f"The gate {plain(kind)} of the plan"}})
    text = f"{gate.name} is {gate.status}: {gate.figure}; bound: {gate.bound}. {gate.remedy}"
    return _result(rule, "error", text, subject or kind)


def _finding(finding: Finding, rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rules.setdefault(
        finding.code,
        {"id": finding.code, "shortDescription": {"text": plain(f"Expected: {finding.expected}")}},
    )
    about = f"{finding.subject}: " if finding.subject else ""
    text = f"{about}{finding.seen}; expected {finding.expected}. {finding.remedy}"
    return _result(finding.code, _LEVEL[finding.severity], text, finding.subject)


def _result(rule: str, level: str, text: str, subject: str) -> dict[str, Any]:
    # Stable over runs: figures change from run to run, what is wrong with which arm does not.
    digest = hashlib.sha256(f"{rule}\0{subject}".encode("utf-8", "backslashreplace")).hexdigest()
    location = {"artifactLocation": {"uri": DOCUMENT}, "region": {"startLine": 1}}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": plain(text).strip()},
        "locations": [
            {
                "physicalLocation": location,
                "logicalLocations": [{"fullyQualifiedName": plain(subject), "kind": "object"}]
                if subject
                else [],
            }
        ],
        "partialFingerprints": {"ruleAndSubject/v1": digest},
    }
