"""The documents beside the record. Rendered from the record alone; each appears by rename."""

from __future__ import annotations

import os
from pathlib import Path

from auditor.model.record import AuditRecord
from auditor.record.evidence import StoredEvidence
from auditor.record.lines import storage_error
from auditor.report.html import render
from auditor.report.junit import junit
from auditor.report.markdown import append_step_summary, summary
from auditor.report.sarif import sarif


def write_outputs(record: AuditRecord, run_dir: Path) -> Path:
    """report.html, junit.xml, audit.sarif and summary.md into the run folder; the report's path."""
    evidence = StoredEvidence.load(run_dir)
    report = run_dir / "report.html"
    _write(report, render(record, evidence))
    _write(run_dir / "junit.xml", junit(record))
    _write(run_dir / "audit.sarif", sarif(record))
    text = summary(record)
    _write(run_dir / "summary.md", text)
    append_step_summary(text)
    return report


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise storage_error(error, path.name) from error
