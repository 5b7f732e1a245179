"""JUnit XML: one testcase a gate. What did not pass is never 'skipped': pipelines hide skips."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from auditor.model.judgement import Gate, Status
from auditor.model.record import AuditRecord
from auditor.report.sections.overview import end_of
from auditor.report.visible import plain

_OUTCOME: dict[Status, str] = {
    "PASS": "",
    "FAIL": "failure",
    "INCONCLUSIVE": "failure",
    "NOT RUN": "failure",
    "UNCERTIFIED": "error",
    "ERROR": "error",
}


def junit(record: AuditRecord) -> str:
    """The document. A verdict that is no PASS although every gate passed gets a testcase of its own."""
    judgement, verdict = record.judgement, record.judgement.verdict
    cases = [_case(record, gate) for gate in judgement.gates]
    outcomes = [_OUTCOME[g.status] for g in judgement.gates]
    if verdict.name != "PASS" and not any(outcomes):
        cases.append(_element(record, "verdict", "error", verdict.name, verdict.reason))
        outcomes.append("error")
    counts = {
        "tests": str(len(cases)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "time": f"{end_of(record):.3f}",
    }
    suites = ET.Element("testsuites", {"name": "audit", **counts})
    suite = ET.SubElement(
        suites,
        "testsuite",
        {
            "name": plain(record.plan.name),
            "timestamp": record.date.removesuffix("Z"),
            "skipped": "0",
            **counts,
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("verdict", verdict.name),
        ("exit_code", str(verdict.exit_code)),
        ("reason", verdict.reason),
        ("target", record.plan.target),
        ("target_kind", record.plan.target_kind),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": plain(value)})
    suite.extend(cases)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _case(record: AuditRecord, gate: Gate) -> ET.Element:
    detail = f"measured: {gate.figure}\nbound: {gate.bound}\nwhat to do: {gate.remedy or 'nothing'}"
    return _element(record, gate.name, _OUTCOME[gate.status], gate.status, gate.figure, detail)


def _element(
    record: AuditRecord, name: str, outcome: str, kind: str, message: str, detail: str = ""
) -> ET.Element:
    # Time belongs to phases, which gates share; a gate has none of its own.
    case = ET.Element(
        "testcase", {"classname": f"audit.{plain(record.plan.name)}", "name": plain(name), "time": "0"}
    )
    text = plain(detail or message, keep="\n")
    if outcome:
        ET.SubElement(case, outcome, {"type": kind, "message": plain(f"{kind}: {message}")}).text = text
    else:
        ET.SubElement(case, "system-out").text = text
    return case
