"""audit schema"""

from __future__ import annotations

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of audit.json."""
    import json

    from auditor.record.schema import record_schema

    click.echo(json.dumps(record_schema(), indent=2, ensure_ascii=False))
