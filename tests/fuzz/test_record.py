"""Run folders, torn, mutated or rubbish: a RecordError or a result, and no change passes for the same."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from auditor.errors import AuditError, RecordError
from auditor.record.evidence import StoredEvidence, read_record
from auditor.record.state import fold_journal
from auditor.record.store import RAW_FILES, Recorder
from auditor.record.verify import VerifyResult, verify
from tests.fuzz.mutation import SEEDS, Mutator, dumped, fuzz, outcome
from tests.record import support

LINES = ("prompts.jsonl", "journal.jsonl", "completions.jsonl")
Files = dict[str, bytes]


@cache
def whole() -> Files:
    """The files of a small finished run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        support.finished_run(run)
        return {name: (run / name).read_bytes() for name in (*RAW_FILES, "audit.json")}


@contextmanager
def written(files: Files) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        yield Path(folder)


def verified(run: Path) -> VerifyResult | None:
    """None: refused with a sentence."""
    return outcome(lambda: verify(run), RecordError)


def read_all(run: Path) -> None:
    """Everything that a folder's evidence can be asked for; a RecordError ends it."""
    outcome(lambda: _read(StoredEvidence.load(run)), RecordError)


def _read(evidence: StoredEvidence) -> None:
    list(evidence.prompts())
    for phase in (*(p.id for p in evidence.phases), "batch1/ngram-1/code", "nowhere"):
        assert len(list(evidence.answers(phase))) == evidence.answer_count(phase)
    assert evidence.launches is not None


def resealed(files: Files) -> Files:
    """audit.json with digests that fit, as somebody who forges a record would write it."""
    document = json.loads(files["audit.json"])
    for file in document["files"]:
        data = files[file["path"]]
        file["sha256"], file["size"] = hashlib.sha256(data).hexdigest(), len(data)
    return {**files, "audit.json": dumped(document)}


def mutated_lines(mutator: Mutator, data: bytes) -> bytes:
    """Lines dropped, repeated, swapped; fields of one line mutated; or bytes."""
    lines = data.splitlines(keepends=True)
    one, two = (mutator.random.randrange(len(lines)) for _ in range(2))
    match mutator.random.randrange(6):
        case 0:
            del lines[one]
        case 1:
            lines.insert(one, lines[two])
        case 2:
            lines[one], lines[two] = lines[two], lines[one]
        case 3:
            return mutator.raw(data)
        case _:
            try:
                lines[one] = mutator.json(json.loads(lines[one])) + b"\n"
            except (ValueError, RecursionError):  # mutated before
                return mutator.raw(data)
    return b"".join(lines)


@fuzz(900, seed=SEEDS, name=st.sampled_from(RAW_FILES), packed=st.booleans())
def test_a_mutated_raw_file_is_never_the_same(seed: int, name: str, packed: bool) -> None:
    mutator, files = Mutator(seed), dict(whole())
    before = files.pop(name)
    if packed:
        data = gzip.compress(before, mtime=0)
        data = mutator.raw(data) if mutator.random.random() < 0.7 else gzip.compress(mutator.raw(before))
        files[name + ".gz"] = data
    else:
        structural = name in LINES and mutator.random.random() < 0.7
        files[name] = mutated_lines(mutator, before) if structural else mutator.raw(before)
    with written(files) as run:
        found = verified(run)
        same = unpacked(files[name + ".gz"]) == before if packed else files[name] == before
        if found is not None and found.status == "same":
            assert same, "a changed file passed for the recorded one"
        read_all(run)


def unpacked(data: bytes) -> bytes | None:
    try:
        return gzip.decompress(data)
    except Exception:  # whatever is wrong with it: it is not what was packed
        return None


@fuzz(900, seed=SEEDS, name=st.sampled_from(LINES))
def test_a_forged_folder_gives_a_result_or_a_sentence(seed: int, name: str) -> None:
    """The digests fit, so that reading and judging meet what was mutated."""
    mutator, files = Mutator(seed), dict(whole())
    for _ in range(mutator.random.randint(1, 2)):
        files[name] = mutated_lines(mutator, files[name] or b"{}\n")
    if name == "journal.jsonl" and mutator.random.random() < 0.8:
        files = with_journal(files)
    with written(resealed(files)) as run:
        verified(run)
        read_all(run)


def with_journal(files: Files) -> Files:
    """audit.json with the mutated journal's copies too, where it can be folded."""
    with written(files) as run:
        try:
            state = fold_journal(run / "journal.jsonl")
        except RecordError:
            return files
    import msgspec

    document = json.loads(files["audit.json"])
    document |= {
        "launches": msgspec.to_builtins(list(state.launches.values())),
        "phases": msgspec.to_builtins(list(state.phases.values())),
        "fingerprints": msgspec.to_builtins(state.fingerprints),
        "scores": msgspec.to_builtins(state.scores),
        "findings": msgspec.to_builtins(state.findings),
    }
    return {**files, "audit.json": dumped(document)}


@fuzz(900, seed=SEEDS)
def test_a_mutated_audit_json_gives_a_result_or_a_sentence(seed: int) -> None:
    mutator, files = Mutator(seed), dict(whole())
    before = files["audit.json"]
    document = json.loads(before)
    if mutator.random.random() < 0.3:
        document["files"] = mutator.document(document["files"])
    elif mutator.random.random() < 0.7:
        document = mutator.document(document)
    files["audit.json"] = dumped(document) if mutator.random.random() < 0.8 else mutator.raw(before)
    broken = mutator.random.choice(RAW_FILES)
    changed = mutator.random.random() < 0.5
    if changed:
        files[broken] += b"\n"
    with written(files) as run:
        found = verified(run)
        assert not changed or found is None or found.status != "same"
        outcome(lambda: read_record(run), RecordError)
        read_all(run)


@fuzz(500, seed=SEEDS, name=st.sampled_from(RAW_FILES), noise=st.binary(max_size=200))
def test_an_unfinished_folder_is_read_and_resumed_or_refused(seed: int, name: str, noise: bytes) -> None:
    mutator, files = Mutator(seed), dict(whole())
    del files["audit.json"]
    match mutator.random.randrange(4):
        case 0:
            files[name] = noise
        case 1:
            files[name] = files[name][: mutator.random.randrange(len(files[name]))]
        case 2 if name in LINES:
            files[name] = mutated_lines(mutator, files[name])
        case _:
            files[name] = mutator.raw(files[name])
    with written(files) as run:
        read_all(run)
        outcome(lambda: fold_journal(run / "journal.jsonl"), RecordError)
        outcome(lambda: Recorder.resume(run).close(), AuditError)


ODD: dict[str, Callable[[Path], Any]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "half of a line": lambda path: path.write_bytes(b'{"kind"'),
    "deeply nested": lambda path: path.write_bytes(b'{"x":' + b"[" * 9000 + b"]" * 9000 + b"}\n"),
}


@fuzz(
    200, name=st.sampled_from((*RAW_FILES, "audit.json")), odd=st.sampled_from(sorted(ODD)), gz=st.booleans()
)
def test_odd_files_are_refused(name: str, odd: str, gz: bool) -> None:
    files = dict(whole())
    del files[name]
    with written(files) as run:
        ODD[odd](run / (name + ".gz" if gz and name in LINES else name))
        found = verified(run)
        assert found is None or found.status == "corrupt"
        read_all(run)
        shutil.rmtree(run / name, ignore_errors=True)
