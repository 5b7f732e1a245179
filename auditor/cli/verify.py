"""audit verify"""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
def verify(run: Path, as_json: bool) -> int:
    """Check a record's digests and recompute its verdict from the raw completions.

    DIR is a run folder with audit.json and its raw files; these may be gzipped.

    \b
    Exit codes: 0 the verdict follows from the raw files, 1 another judgement follows,
    2 a file is missing, was changed, or cannot be read.
    """
    import msgspec

    from auditor.record.verify import verify as check

    result = check(run)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=1))
    else:
        mark = {"same": "SAME", "differs": "DIFFERS", "corrupt": "CORRUPT"}[result.status]
        click.echo(f"{mark}: {result.reason}.")
        if result.first_difference:
            click.echo(f"First difference at {result.first_difference}.")
    return result.exit_code
