"""JUnit, SARIF, Markdown, model card and the last lines of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from auditor.model.judgement import Gate, Status
from auditor.model.record import AuditRecord
from auditor.report import junit as junit_module
from auditor.report import markdown
from auditor.report.junit import junit
from auditor.report.sarif import sarif
from auditor.report.terminal import summary
from tests.report import gold
from tests.report.golden import compare

STATUSES: tuple[Status, ...] = ("PASS", "FAIL", "UNCERTIFIED", "INCONCLUSIVE", "ERROR", "NOT RUN")


def with_gates(*gates: Gate) -> AuditRecord:
    record, _ = gold.failing()
    return replace(record, judgement=replace(record.judgement, gates=gates))


def hostile() -> AuditRecord:
    """Every text that reaches these documents is hostile."""
    record, _ = gold.failing()
    bad = gold.HOSTILE + "]]>|`@here [x](http://e.x) ![i](http://e.x/i.png)"
    j = record.judgement
    return replace(
        record,
        plan=replace(record.plan, name=bad, target=bad),
        judgement=replace(
            j,
            gates=tuple(replace(g, figure=bad, bound=bad, remedy=bad) for g in j.gates),
            findings=tuple(replace(f, seen=bad, subject=bad, remedy=bad) for f in j.findings),
            divergences=tuple(replace(d, why=bad, prompt=bad) for d in j.divergences),
            verdict=replace(j.verdict, reason=bad, limits=(bad,)),
        ),
    )


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("failing.junit.xml", lambda: junit(gold.failing()[0])),
        ("failing.sarif", lambda: sarif(gold.failing()[0])),
        ("failing.md", lambda: markdown.summary(gold.failing()[0])),
        ("failing.card.md", lambda: markdown.model_card(gold.failing()[0])),
        ("failing.txt", lambda: summary(gold.failing()[0], "reports/x/report.html")),
        ("interrupted.txt", lambda: summary(gold.interrupted()[0])),
    ],
)
def test_gold(name: str, make: Any) -> None:
    compare(name, make())


def check_junit(text: str) -> ET.Element:
    """The structure that CI systems read (the `junit-10` schema's core)."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))
        assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped")) == 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        assert {child.tag for child in suite} <= {"properties", "testcase"}
        for case in cases:
            assert case.attrib.keys() >= {"name", "classname", "time"}
            float(case.attrib["time"])
            assert len(case) == 1
            for outcome in case:
                assert outcome.tag in ("failure", "error", "system-out")
                if outcome.tag != "system-out":
                    assert outcome.attrib.keys() == {"type", "message"}
    for key in ("tests", "failures", "errors"):
        assert root.attrib[key] == root[0].attrib[key]
    return root


@pytest.mark.parametrize("status", STATUSES)
def test_junit_outcome_of_each_status(status: Status) -> None:
    record = with_gates(Gate(name="g", status=status, figure="1 of 2", bound="2 of 2", remedy="look"))
    record = replace(
        record, judgement=replace(record.judgement, verdict=replace(record.judgement.verdict, name="PASS"))
    )
    case = check_junit(junit(record)).find("testsuite/testcase")
    assert case is not None
    wanted = {"PASS": "system-out", "UNCERTIFIED": "error", "ERROR": "error"}.get(status, "failure")
    assert [child.tag for child in case] == [wanted]


def test_junit_never_looks_green_when_the_verdict_is_not() -> None:
    """No gates at all, or gates that passed under a verdict that did not."""
    for gates in ((), (Gate(name="g", status="PASS", figure="", bound="", remedy=""),)):
        root = check_junit(junit(with_gates(*gates)))
        assert root.attrib["errors"] == "1"


def test_junit_covers_every_status() -> None:
    assert set(junit_module._OUTCOME) == set(STATUSES)


def check_sarif(text: str) -> dict[str, Any]:
    """What SARIF 2.1.0 requires of the parts that are used (sections 3.13 to 3.27 of the standard)."""
    document: dict[str, Any] = json.loads(text)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        for location in result["locations"]:
            assert location["physicalLocation"]["artifactLocation"]["uri"] == "audit.json"
            assert location["physicalLocation"]["region"]["startLine"] >= 1
        assert all(isinstance(v, str) and v for v in result["partialFingerprints"].values())
    return run  # type: ignore[no-any-return]


def test_sarif_results() -> None:
    run = check_sarif(sarif(gold.failing()[0]))
    ids = [r["ruleId"] for r in run["results"]]
    assert ids.count("GATE-AGREEMENT") == 2
    assert {"GATE-INVARIANCE", "GATE-ACCURACY", "ACCURACY-BEYOND-MARGIN", "DRAFT-BOS-DRIFT"} <= set(ids)
    assert "GATE-CERTIFICATION" not in ids
    assert run["invocations"][0]["exitCode"] == 1
    fingerprints = [r["partialFingerprints"]["ruleAndSubject/v1"] for r in run["results"]]
    assert len(set(fingerprints)) == len(fingerprints)


def test_sarif_fingerprints_do_not_follow_the_figures() -> None:
    def fingerprint(figure: str) -> str:
        record = with_gates(Gate(name="agreement/eagle3", status="FAIL", figure=figure, bound="0", remedy=""))
        result = check_sarif(sarif(record))["results"][0]
        return str(result["partialFingerprints"]["ruleAndSubject/v1"])

    assert fingerprint("1 of 10") == fingerprint("2 of 10")


@pytest.mark.parametrize(
    ("make", "successful"), [(gold.failing, True), (gold.passing, True), (gold.interrupted, False)]
)
def test_sarif_says_whether_the_audit_ran_to_its_end(make: Any, successful: bool) -> None:
    assert check_sarif(sarif(make()[0]))["invocations"][0]["executionSuccessful"] is successful


def test_hostile_text_in_every_document() -> None:
    record = hostile()
    check_junit(junit(record))
    check_sarif(sarif(record))
    for text in (
        junit(record),
        sarif(record),
        markdown.summary(record),
        markdown.model_card(record),
        summary(record),
    ):
        text.encode("utf-8")
        assert not set("\x1b\u202e\u202c\u200b\r\t\x00") & set(text)
    for text in (markdown.summary(record), markdown.model_card(record)):
        assert not re.search(r"(?<!\\)[<`@]", text.replace("> The target", ""))
        assert "](" not in text.replace("\\]", "")
        assert "http://" not in text


def test_tables_keep_their_columns_whatever_the_cells_say() -> None:
    for line in markdown.summary(hostile()).splitlines():
        if line.startswith("| ") and "---" not in line:
            assert len(re.findall(r"(?<!\\)\|", line)) in (6, 7)


def test_only_the_first_five_divergences() -> None:
    record, _ = gold.failing()
    many = replace(record, judgement=replace(record.judgement, divergences=record.judgement.divergences * 30))
    text = markdown.summary(many)
    assert "145 more are in the report." in text
    assert text.count("| unexplained |") == 5


def test_step_summary_is_appended(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    file.write_text("before\n", encoding="utf-8")
    assert markdown.append_step_summary("one", {"GITHUB_STEP_SUMMARY": str(file)})
    assert markdown.append_step_summary("two", {"GITHUB_STEP_SUMMARY": str(file)})
    assert not markdown.append_step_summary("three", {})
    assert file.read_text(encoding="utf-8") == "before\none\ntwo\n"


def test_the_model_card_names_claim_figures_conditions_and_evidence() -> None:
    record, _ = gold.failing()
    text = markdown.model_card(record)
    assert "**FAIL** for eagle3, ngram" in text
    assert "(toy)" in text
    assert "188 of 200 (94.0%)" in text
    assert "vLLM 0.25.1" in text
    assert markdown.evidence_digest(record) in text


def test_the_evidence_digest_follows_the_evidence() -> None:
    record, _ = gold.failing()
    other = replace(record, files=(replace(record.files[0], sha256="34" * 32),))
    assert markdown.evidence_digest(record) != markdown.evidence_digest(other)
    assert markdown.evidence_digest(record) != markdown.evidence_digest(
        replace(record, plan=replace(record.plan, seed=1))
    )


@pytest.mark.parametrize("make", [gold.failing, gold.passing, gold.interrupted])
def test_the_last_lines_fit_a_terminal(make: Any) -> None:
    record = make()[0]
    text = summary(record, "reports/2026-01-02-smollm2-eagle3/report.html")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.startswith(record.judgement.verdict.name)
    assert text.rstrip().endswith("report.html")
