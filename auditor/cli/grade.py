"""`audit grade`: answers of a file graded by the rules that the audit uses, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from auditor.judge.grading import Grade

STATUSES = ("correct", "wrong", "no-answer", "truncated", "error")


@click.group()
def grade() -> None:
    """Grade a file of answers, without a server."""


@grade.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object: `answers` and `totals`.")
def gsm8k(file: Path, as_json: bool) -> int:
    """Grade GSM8K answers, one a line, by three rules.

    Fields of a line: id, gold (a number, or a worked answer ending in '#### N'), completion (text or null);
    and where known finish_reason, stop_reason, error (a failed request: never a wrong answer).

    \b
    strict    the last '#### N' before any next 'Question:' (`status`, `answer`)
    flexible  the last number before any next 'Question:'
    vllm      the last run of digits anywhere, as vLLM's own evaluation

    Exit code 0 when the file could be graded, whatever the score; 2 when it could not.
    """
    answers = list(_grade_file(file))
    totals = _totals([g for _, g in answers])
    if as_json:
        import msgspec

        rows = [_row(name, found) for name, found in answers]
        click.echo(msgspec.json.encode({"answers": rows, "totals": totals}).decode())
        return 0
    _print(answers, totals)
    return 0


def _grade_file(file: Path) -> list[tuple[str, Grade]]:
    import gzip
    import zlib

    from auditor.errors import InvalidPlan
    from auditor.judge.grading import grade as grade_one
    from auditor.judge.lines import decode_answer

    graded = []
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rb") as lines:
            for number, raw in enumerate(lines, 1):
                if not raw.strip():
                    continue
                try:
                    line = decode_answer(raw)
                    found = grade_one(
                        line.completion, str(line.gold), finish_reason=line.finish_reason, error=line.error
                    )
                except ValueError as error:
                    raise InvalidPlan(
                        f"{file.name} line {number}: {error}",
                        expected="one JSON object a line with `id`, `gold` and `completion`",
                        todo="see `audit grade gsm8k --help` for the fields",
                    ) from None
                graded.append((str(line.id), found))
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidPlan(
            f"{file.name} cannot be read ({error})", expected="a file of answers", todo="check the path"
        ) from None
    if not graded:
        raise InvalidPlan(f"{file.name} is empty", expected="one answer a line", todo="check the file name")
    return graded


def _row(name: str, found: Grade) -> dict[str, Any]:
    return {
        "id": name,
        "status": found.status,
        "answer": found.answer,
        "flexible": {"answer": found.flexible, "correct": found.flexible_correct},
        "vllm": {"answer": found.vllm, "correct": found.vllm_correct},
        "note": found.note,
    }


def _totals(graded: list[Grade]) -> dict[str, Any]:
    """Counts, and the interval of the strict accuracy over the answers that arrived."""
    from auditor.judge.shares import proportion
    from auditor.stats.equivalence import DEFAULT_BAND

    counts = {status: sum(g.status == status for g in graded) for status in STATUSES}
    answered = len(graded) - counts["error"]
    share = proportion(counts["correct"], answered)
    warnings = []
    if answered and not DEFAULT_BAND[0] <= share.k / share.n <= DEFAULT_BAND[1]:
        warnings.append(
            f"{share.k} of {share.n} correct is outside {DEFAULT_BAND[0]:g} to {DEFAULT_BAND[1]:g}: such a "
            f"run cannot "
            "tell arms apart (VOID); check the stop list, the prompt format and the extracted answers"
        )
    flexible = sum(g.flexible_correct for g in graded)
    if answered and abs(flexible - share.k) > 0.1 * answered:
        warnings.append(
            f"strict finds {share.k} correct and flexible {flexible}: the rule decides the figure, so "
            f"quote it"
        )
    return {
        "n": len(graded),
        **counts,
        "strict": share,
        "flexible_correct": flexible,
        "vllm_correct": sum(g.vllm_correct for g in graded),
        "warnings": warnings,
    }


def _print(answers: list[tuple[str, Grade]], totals: dict[str, Any]) -> None:
    shown = [(name, found) for name, found in answers if found.status != "correct"]
    for name, found in shown[:50]:
        got = "" if found.answer is None else f", answered {found.answer}"
        loose = " (correct by the flexible rule)" if found.flexible_correct else ""
        note = f": {found.note}" if found.note else ""
        click.echo(f"{name}: {found.status}{got}{note}{loose}")
    if len(shown) > 50:
        click.echo(f"… and {len(shown) - 50} more; --json lists all")
    for warning in totals["warnings"]:
        click.echo(f"warning: {warning}")
    click.echo(", ".join(f"{totals[status]} {status}" for status in STATUSES) + f" of {totals['n']}")
    click.echo(
        f"correct by rule: strict {totals['correct']}, flexible {totals['flexible_correct']}, "
        f"vLLM's own {totals['vllm_correct']}"
    )
