"""Checking a finished record: are the raw files those it was made from, and does its verdict follow?"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from auditor.model.base import Model
from auditor.model.plan import AuditPlan
from auditor.model.record import AuditRecord, FileDigest
from auditor.record.digests import identity_digests
from auditor.record.evidence import StoredEvidence, read_json, read_record
from auditor.record.lines import read_lines
from auditor.record.state import decode_line, fold_journal
from auditor.record.store import RAW_FILES

_RELATIVE, _ABSOLUTE = 1e-9, 1e-12
"""Floats of a recomputed judgement may differ by the last bits of another machine's arithmetic."""


class VerifyResult(Model, frozen=True, kw_only=True):
    """What `audit verify` found."""

    run: str
    """Base name of the run folder."""
    status: Literal["same", "differs", "corrupt"]
    """differs: the digests are right and the recomputed judgement is another one."""
    verdict: str
    """The recorded verdict."""
    recomputed: str | None = None
    """The recomputed verdict; None when a file is corrupt."""
    reason: str
    """One sentence."""
    first_difference: str | None = None
    """JSON path of the first difference, with both values."""

    @property
    def exit_code(self) -> int:
        return {"same": 0, "differs": 1, "corrupt": 2}[self.status]


def verify(run_dir: Path) -> VerifyResult:
    """Check the digests of the raw files, then recompute the judgement from them and compare.

    Raises RecordError when audit.json or a raw file cannot be read at all or breaks the schema.
    """
    record = read_record(run_dir)

    def result(status: Literal["same", "differs", "corrupt"], reason: str, **more: Any) -> VerifyResult:
        return VerifyResult(
            run=run_dir.resolve().name,
            status=status,
            verdict=record.judgement.verdict.name,
            reason=reason,
            **more,
        )

    for expected in record.files:
        if (problem := check_digest(run_dir, expected)) is not None:
            return result("corrupt", problem)
    if (problem := _unlisted(record)) is not None:
        return result("corrupt", problem)
    evidence = StoredEvidence.load(run_dir)
    problem = _check_copies(evidence, record) or _check_duplicates(evidence.raw_file("completions.jsonl"))
    if problem is not None:
        return result("corrupt", problem)
    from auditor.judge.judge import judge

    try:
        recomputed = judge(evidence)
    except (ArithmeticError, LookupError, TypeError, ValueError) as err:
        # the digests fit and every line follows the schema, but no auditor measured such a run
        return result("corrupt", f"the raw files contradict one another: {type(err).__name__}: {err}")
    difference = first_difference(
        msgspec.to_builtins(record.judgement), msgspec.to_builtins(recomputed), "judgement"
    )
    if difference is None:
        reason = f"the verdict {recomputed.verdict.name} follows from the raw files"
        return result("same", reason, recomputed=recomputed.verdict.name)
    reason = f"recorded {record.judgement.verdict.name}, recomputed {recomputed.verdict.name}"
    return result("differs", reason, recomputed=recomputed.verdict.name, first_difference=difference)


def _unlisted(record: AuditRecord) -> str | None:
    """A raw file without a digest could be changed unseen."""
    listed = {file.path for file in record.files}
    missing = next((name for name in RAW_FILES if name not in listed), None)
    return None if missing is None else f"audit.json lists no digest of {missing}"


def check_digest(run_dir: Path, expected: FileDigest) -> str | None:
    """What is wrong with one file, packed (`.gz`) or not; None when it is as recorded."""
    digest, size = hashlib.sha256(), 0
    try:
        path = run_dir / expected.path
        if path.resolve().parent != run_dir.resolve():
            return f"{expected.path} names a file outside the run folder"
        packed = path.with_name(path.name + ".gz")
        if not path.exists() and not packed.exists():
            return f"{expected.path} is missing"
        with gzip.open(packed) if not path.exists() else path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    except (OSError, EOFError, zlib.error, ValueError, RuntimeError) as err:
        # ValueError: a name with a NUL; RuntimeError: links in a circle
        return f"{expected.path!r} cannot be read: {err}"
    if digest.hexdigest() != expected.sha256:
        return (
            f"{expected.path} was changed: sha256 {digest.hexdigest()[:16]}… of {size} bytes, "
            f"recorded {expected.sha256[:16]}… of {expected.size} bytes"
        )
    return None


def first_difference(recorded: Any, recomputed: Any, path: str) -> str | None:
    """JSON path of the first difference of two JSON-like values, with both values; None when equal."""
    for where, a, b in _differences(recorded, recomputed, path):
        return f"{where}: recorded {_short(a)}, recomputed {_short(b)}"
    return None


def _differences(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from _differences(a.get(key, _ABSENT), b.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        for number in range(max(len(a), len(b))):
            mine = a[number] if number < len(a) else _ABSENT
            other = b[number] if number < len(b) else _ABSENT
            yield from _differences(mine, other, f"{path}[{number}]")
    elif isinstance(a, float) or isinstance(b, float):
        if not _close(a, b):
            yield path, a, b
    elif a != b or type(a) is not type(b):
        yield path, a, b


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _close(a: Any, b: Any) -> bool:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return False
    return math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _check_copies(evidence: StoredEvidence, record: AuditRecord) -> str | None:
    """audit.json repeats the journal: a record edited there alone is caught here."""
    state = fold_journal(evidence.raw_file("journal.jsonl"))
    copies: tuple[tuple[str, tuple[object, ...], tuple[object, ...]], ...] = (
        ("launches", record.launches, tuple(state.launches.values())),
        ("phases", record.phases, tuple(state.phases.values())),
        ("fingerprints", record.fingerprints, tuple(state.fingerprints)),
        ("scores", record.scores, tuple(state.scores)),
        ("forced", record.forced, tuple(state.forced.values())),
        ("findings", record.findings, tuple(state.findings)),
    )
    for name, recorded, replayed in copies:
        if recorded != replayed:
            where = first_difference(msgspec.to_builtins(recorded), msgspec.to_builtins(replayed), name)
            return f"audit.json does not follow from journal.jsonl at {where}"
    if read_json(evidence.raw_file("plan.json"), AuditPlan) != record.plan:
        return "audit.json holds another plan than plan.json"
    return _check_baseline(evidence, record)


def _check_baseline(evidence: StoredEvidence, record: AuditRecord) -> str | None:
    """The comparison rests on baseline.json: it must be listed, and be about this run."""
    if evidence.baseline is None:
        return None
    if not any(file.path == "baseline.json" for file in record.files):
        return "audit.json lists no digest of baseline.json"
    if evidence.baseline.identities != identity_digests(record.identities):
        return "baseline.json names other weights or corpora than audit.json"
    return None


class _Key(msgspec.Struct, frozen=True):
    kind: Literal["completion", "failure"]
    phase: str
    prompt: str
    repeat: int = 0


def _check_duplicates(path: Path) -> str | None:
    """A completion that is recorded twice was measured twice, or copied."""
    decoder = msgspec.json.Decoder(_Key)
    # One process's hashes are enough to tell repetitions within one file, at eight bytes a completion.
    seen: set[int] = set()
    for number, (_, line) in enumerate(read_lines(path), 1):
        key = decode_line(line, decoder, "completions.jsonl", number)
        if key.kind == "completion":
            token = hash((key.phase, key.prompt, key.repeat))
            if token in seen:
                return (
                    f"line {number} of {path.name} repeats {key.prompt} (repeat {key.repeat}) of {key.phase}"
                )
            seen.add(token)
    return None
