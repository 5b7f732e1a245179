"""The JSON Schema of audit.json."""

from __future__ import annotations

from typing import Any

import msgspec

from auditor.model.record import SCHEMA_VERSION, AuditRecord

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def record_schema() -> dict[str, Any]:
    """Draft 2020-12 schema of AuditRecord; unknown fields are errors."""
    (reference,), definitions = msgspec.json.schema_components([AuditRecord], ref_template="#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "title": f"audit.json, format version {SCHEMA_VERSION}",
        **reference,
        "$defs": dict(sorted(definitions.items())),
    }
