"""What a run prints when it is over."""

from __future__ import annotations

from auditor.model.record import AuditRecord
from auditor.report.progress import Progress, Step

__all__ = ["Progress", "Step", "summary"]


def summary(record: AuditRecord, report: str = "") -> str:
    """The last lines of a run, 80 columns; `report` is the path of the report."""
    raise NotImplementedError
