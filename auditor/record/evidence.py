"""Evidence from a run folder: an index of byte offsets, everything else read when it is asked for."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, TypeVar

import msgspec

from auditor.errors import RecordError
from auditor.model.baseline import Baseline
from auditor.model.completion import Answer, ForcedPath, Prompt, Score
from auditor.model.judgement import Finding
from auditor.model.launch import Fingerprint, Launch
from auditor.model.phase import Phase
from auditor.model.plan import AuditPlan
from auditor.model.record import AuditRecord
from auditor.record.lazy import FrozenPrompts, LazyLines
from auditor.record.lines import read_lines
from auditor.record.state import UNREADABLE, JournalState, decode_line, fold_journal

Status = Literal["running", "complete", "interrupted", "error"]
T = TypeVar("T")


class _Head(msgspec.Struct, frozen=True):
    """The fields of an answer that the index needs; the rest of the line is skipped unread."""

    kind: Literal["completion", "failure"]
    phase: str
    prompt: str
    repeat: int = 0


class StoredEvidence:
    """model.record.Evidence over a run folder, finished or still running.

    Memory: some bytes an answer and a prompt, plus the journal. Files may be gzipped (`.gz`), as committed
    records are; they are unpacked to a temporary file that lives as long as this object.
    """

    def __init__(
        self,
        run_dir: Path,
        plan: AuditPlan,
        record: AuditRecord | None,
        status: Status,
        error: str | None,
    ) -> None:
        self.run_dir = run_dir
        self.plan = plan
        self.record = record
        """audit.json when there is one."""
        self.status: Status = status
        self.error = error
        self._unpacked: list[IO[bytes]] = []
        self.baseline: Baseline | None = None
        """baseline.json, where the plan names a baseline."""
        if plan.baseline is not None:
            self.baseline = read_json(self.raw_file("baseline.json"), Baseline)
        self._state = self._fold(record)
        self._prompts = FrozenPrompts(self.raw_file("prompts.jsonl"))
        self._completions_path = self.raw_file("completions.jsonl")
        self._answers = _index_answers(self._completions_path)

    @classmethod
    def load(cls, run_dir: Path, *, status: Status | None = None, error: str | None = None) -> StoredEvidence:
        """Index a run folder in one pass over its files.

        `status` and `error` override those on disk: a run that is about to finish is judged as finished.
        Raises RecordError when a file is missing or does not follow the schema, naming the JSON path.
        """
        record = read_record(run_dir) if (run_dir / "audit.json").exists() else None
        if record is not None:
            found: Status = record.status
            return cls(run_dir, record.plan, record, status or found, error if status else record.error)
        plan = read_json(run_dir / "plan.json", AuditPlan)
        return cls(run_dir, plan, None, status or "running", error)

    @property
    def launches(self) -> Sequence[Launch]:
        return tuple(self._state.launches.values())

    @property
    def phases(self) -> Sequence[Phase]:
        return tuple(self._state.phases.values())

    @property
    def fingerprints(self) -> Sequence[Fingerprint]:
        return tuple(self._state.fingerprints)

    @property
    def scores(self) -> Sequence[Score]:
        return tuple(self._state.scores)

    @property
    def forced(self) -> Sequence[ForcedPath]:
        return tuple(self._state.forced.values())

    @property
    def findings(self) -> Sequence[Finding]:
        return tuple(self._state.findings)

    def prompts(self, corpus: str | None = None) -> Sequence[Prompt]:
        """Prompts of one corpus, or all, in the order of the file; decoded when read."""
        return self._prompts.all() if corpus is None else self._prompts.of(corpus)

    def answers(self, phase: str) -> Iterator[Answer]:
        """Answers of one phase in the order recorded. A failure that a resumed run asked again about is
        left out in favour of the later answer; it stays in the file."""
        lines: LazyLines[Answer] = LazyLines(
            self._completions_path, self._answers.get(phase, array("Q")), Answer
        )
        return iter(lines)

    def answer_count(self, phase: str) -> int:
        """Number of answers of one phase, from the index alone."""
        return len(self._answers.get(phase, ()))

    def raw_file(self, name: str) -> Path:
        """Where a raw file of the run can be read, unpacked where it is packed. Raises RecordError."""
        path = self.run_dir / name
        if path.exists():
            return path
        packed = self.run_dir / (name + ".gz")
        if not packed.exists():
            raise RecordError(
                f"{name} is missing in {self.run_dir}",
                expected="a complete run folder",
                todo="copy the raw files beside audit.json",
            )
        target = tempfile.NamedTemporaryFile(prefix="audit-", suffix=".jsonl")  # noqa: SIM115 (lives with self)
        self._unpacked.append(target)
        try:
            with gzip.open(packed) as source:
                shutil.copyfileobj(source, target)
        except (OSError, EOFError, zlib.error) as err:
            raise RecordError(f"Cannot unpack {packed.name}: {err}", expected="a whole gzip file") from err
        target.flush()
        return Path(target.name)

    def _fold(self, record: AuditRecord | None) -> JournalState:
        if record is None:
            return fold_journal(self.raw_file("journal.jsonl"))
        state = JournalState()
        state.launches = {launch.id: launch for launch in record.launches}
        state.phases = {phase.id: phase for phase in record.phases}
        state.fingerprints = list(record.fingerprints)
        state.scores = list(record.scores)
        state.forced = {(f.launch, f.prompt): f for f in record.forced}
        state.findings = list(record.findings)
        state.notes = list(record.notes)
        state.resumed = list(record.resumed)
        return state


def read_record(run_dir: Path) -> AuditRecord:
    """audit.json of a run folder. Raises RecordError naming the JSON path of what is wrong."""
    if (run_dir / "launches.json").exists():
        raise RecordError(
            f"{run_dir} holds a study of launch states (launches.json)",
            expected="the folder of an audit",
            todo="open its launches.html; verify, judge, report and diff are for audits",
        )
    return read_json(run_dir / "audit.json", AuditRecord)


def read_json(path: Path, kind: type[T]) -> T:
    """One JSON document. Raises RecordError naming the JSON path of what is wrong."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise RecordError(
            f"{path.name} is missing in {path.parent}",
            expected="the folder of a run",
            todo="give the folder that `audit equivalence` printed",
        ) from None
    except (OSError, *UNREADABLE) as err:
        raise RecordError(
            f"Cannot read {path}: {err}",
            expected="a file of this format version",
            todo="use the auditor version that wrote it, or restore the file",
        ) from err


def _index_answers(path: Path) -> dict[str, array[int]]:
    index: dict[str, array[int]] = {}
    failures: dict[tuple[str, str, int], int] = {}
    superseded: dict[str, set[int]] = {}
    decoder = msgspec.json.Decoder(_Head)
    for number, (offset, line) in enumerate(read_lines(path), 1):
        head = decode_line(line, decoder, path.name, number)
        offsets = index.setdefault(head.phase, array("Q"))
        if failures or head.kind == "failure":
            key = (head.phase, head.prompt, head.repeat)
            if (earlier := failures.pop(key, None)) is not None:
                superseded.setdefault(head.phase, set()).add(earlier)
            if head.kind == "failure":
                failures[key] = offset
        offsets.append(offset)
    for phase, gone in superseded.items():
        index[phase] = array("Q", (offset for offset in index[phase] if offset not in gone))
    return index
