"""Judging a finished record again, after the rules changed: nothing is measured."""

from __future__ import annotations

from pathlib import Path

import msgspec

from auditor.errors import RecordError
from auditor.judge.judge import judge
from auditor.model.record import AuditRecord
from auditor.record.evidence import StoredEvidence, read_record
from auditor.record.store import AUDIT, write_whole
from auditor.record.verify import verify


def rejudge(run_dir: Path) -> AuditRecord:
    """Write audit.json with the judgement that this version makes of the raw files, and return it.

    Raises RecordError when the files are not those that the record was made from.
    """
    checked = verify(run_dir)
    if checked.status == "corrupt":
        raise RecordError(f"The record in {run_dir.name} is damaged: {checked.reason}")
    before = read_record(run_dir)
    record = msgspec.structs.replace(before, judgement=judge(StoredEvidence.load(run_dir)))
    write_whole(run_dir / AUDIT, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return record
