"""`audit compare`: two files of completions, prompt by prompt, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from auditor.judge.lines import Line
    from auditor.judge.pairs import Comparison

Offsets = dict[str, list[tuple[int, int, int]]]
"""By prompt id: (line number, start, end) of each of its lines."""


@click.command()
@click.argument("reference", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("candidate", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object: `pairs` and `totals`.")
@click.option(
    "--noise-floor",
    type=click.FloatRange(min=0.0),
    default=0.25,
    show_default=True,
    metavar="NATS",
    help="Largest margin that still counts as a near tie; the default is one bfloat16 step at logits of 32 "
    "to 64.",
)
def compare(reference: Path, candidate: Path, as_json: bool, noise_floor: float) -> int:
    """Compare two files of completions, one completion a line.

    Fields of a line: id, token_ids; and where known prompt_ids, text, finish_reason, stop_reason, usage,
    top_logprobs ({"POSITION": {"TOKEN ID": LOGPROB}}, positions from 1, or a list with one object a token),
    logprobs, request (max_tokens, min_tokens, temperature, seed, penalties), error (a failed request).
    Several lines with one id are repeats of that prompt and count once. Files ending in .gz are unpacked.

    \b
    Exit codes
      0  no divergence, or ties within the noise floor only
      1  a divergence that is no tie
      2  a file cannot be read, or the prompts differ
      4  no fault was seen, but something is unknown, failed or missing
    """
    from auditor.judge.pairs import Comparison

    done = Comparison(noise_floor)
    _compare_files(reference, candidate, done)
    _print(done, as_json)
    return done.exit_code()


def _compare_files(reference: Path, candidate: Path, done: Comparison) -> None:
    from auditor.errors import InvalidPlan

    ours, theirs = _File(reference), _File(candidate)
    for name, places in theirs.offsets.items():
        if name not in ours.offsets:
            done.only_candidate += 1
            theirs.check(places)
    for name, places in ours.offsets.items():
        others = theirs.offsets.get(name)
        if others is None:
            done.only_reference += 1
            ours.check(places)
            continue
        lines = _lines(ours, places, theirs, others)
        try:
            done.add(name, *lines)
        except ValueError as error:
            raise InvalidPlan(
                f"{candidate.name} line {others[0][0]}, id {name}: {error}",
                expected="both files to answer the same prompts",
                todo="freeze the prompts as token ids and ask both servers for those",
            ) from None


def _lines(
    ours: _File, places: list[tuple[int, int, int]], theirs: _File, others: list[tuple[int, int, int]]
) -> tuple[list[Line], list[Line]]:
    """The lines of one prompt. Most pairs agree, so a line that equals its partner is not read again."""
    references = [ours.line(p) for p in places]
    if len(places) == len(others) == 1:
        if ours.raw(places[0]) == theirs.raw(others[0]):
            return references, references
        return references, [theirs.line(others[0], references[0])]
    return references, [theirs.line(p) for p in others]


class _File:
    """One file, indexed by id in a first reading; lines are decoded when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _read(path)
        self.offsets: Offsets = {}
        from auditor.judge.lines import decode_id

        for place in _places(self._data):
            number, start, end = place
            try:
                name = decode_id(self._data[start:end])
            except ValueError as error:
                raise self._bad(number, error) from None
            self.offsets.setdefault(name, []).append(place)
        if not self.offsets:
            from auditor.errors import InvalidPlan

            raise InvalidPlan(
                f"{path.name} is empty", expected="one completion a line", todo="check the file name"
            )

    def check(self, places: list[tuple[int, int, int]]) -> None:
        """Refuses broken lines that have no partner and would not be decoded otherwise."""
        for place in places:
            self.line(place)

    def raw(self, place: tuple[int, int, int]) -> bytes:
        """The bytes of a line."""
        return self._data[place[1] : place[2]]

    def line(self, place: tuple[int, int, int], twin: Line | None = None) -> Line:
        """A line decoded. `twin`: its partner, whose ids are probably the same."""
        from auditor.judge.lines import decode_line

        number, start, end = place
        try:
            return decode_line(self._data[start:end], twin)
        except ValueError as error:
            raise self._bad(number, error) from None

    def _bad(self, number: int, error: ValueError) -> Exception:
        from auditor.errors import InvalidPlan

        return InvalidPlan(
            f"{self.path.name} line {number}: {error}",
            expected="one JSON object a line with at least `id` and `token_ids`",
            todo="see `audit compare --help` for the fields",
        )


def _read(path: Path) -> bytes:
    """The whole file as bytes, mapped where possible, so that memory holds no second copy."""
    import gzip
    import mmap
    import zlib

    from auditor.errors import InvalidPlan

    try:
        if path.suffix == ".gz":
            return gzip.decompress(path.read_bytes())
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                return b""
            # A map slices to bytes like bytes do, which is all that is asked of it.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # type: ignore[return-value]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InvalidPlan(
            f"{path.name} cannot be read ({error})", expected="a file of completions", todo="check the path"
        ) from None


def _places(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(line number from 1, start, end) of each line that is not blank."""
    start, number, size = 0, 0, len(data)
    while start < size:
        number += 1
        end = data.find(b"\n", start)
        end = size if end < 0 else end
        if end - start > 2 or data[start:end].strip():
            yield number, start, end
        start = end + 1


def _print(done: Comparison, as_json: bool) -> None:
    import msgspec

    totals = done.totals()
    if as_json:
        click.echo(msgspec.json.encode({"pairs": done.pairs, "totals": totals}).decode())
        return
    shown = [p for p in done.pairs if not p.agree]
    for pair in shown[:50]:
        where = "" if pair.position is None else f" from token {pair.position}"
        click.echo(f"{pair.id}: {pair.cls or 'failed'}{where}. {pair.why}")
        for note in pair.notes:
            click.echo(f"    {note}")
    if len(shown) > 50:
        click.echo(f"… and {len(shown) - 50} more; --json lists all")
    for warning in totals.warnings:
        click.echo(f"warning: {warning}")
    missing = totals.only_reference, totals.only_candidate
    if any(missing):
        click.echo(
            f"only in the reference: {missing[0]} prompts; only in the candidate: {missing[1]} prompts"
        )
    share = totals.agreement
    if share.clopper_pearson95 is not None:
        low, high = share.clopper_pearson95.low, share.clopper_pearson95.high
        click.echo(f"agreement {share.k} of {share.n} (95% Clopper–Pearson {low:.4f} to {high:.4f})")
    click.echo(totals.verdict)
