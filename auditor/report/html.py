"""The report: one self-contained HTML file, the same bytes for the same record."""

from __future__ import annotations

from auditor.model.record import AuditRecord, Evidence


def render(record: AuditRecord, evidence: Evidence, *, max_divergences: int = 300) -> str:
    """HTML of the report. `evidence` supplies completions (divergences side by side); everything else comes
    from `record`. At most `max_divergences` are shown in full; the page says how many there were."""
    raise NotImplementedError
