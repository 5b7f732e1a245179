"""The record of a run while it is written: append-only, crash-safe, resumable."""

from __future__ import annotations

import datetime
import fcntl
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from auditor.errors import InvalidPlan, RecordError, StorageError
from auditor.model.baseline import Baseline
from auditor.model.completion import Answer, Completion, Prompt
from auditor.model.judgement import Judgement
from auditor.model.plan import AuditPlan
from auditor.model.record import AuditRecord, Environment, Event, FileDigest, Identity, Resumed
from auditor.record.digests import digest_file
from auditor.record.evidence import StoredEvidence, read_json
from auditor.record.lazy import FrozenPrompts
from auditor.record.lines import LineWriter, cut_torn_line, read_lines, storage_error
from auditor.record.state import UNREADABLE, JournalState, fold_journal

PLAN, PROMPTS, JOURNAL = "plan.json", "prompts.jsonl", "journal.jsonl"
COMPLETIONS, AUDIT, LOCK = "completions.jsonl", "audit.json", ".lock"
BASELINE = "baseline.json"
"""Only where the plan names a baseline."""
STUDY = "study.json"
"""Only in the folder of `audit launches`, which is no audit and cannot be continued."""
RAW_FILES = (PLAN, PROMPTS, JOURNAL, COMPLETIONS)

FinalStatus = Literal["complete", "interrupted", "error"]


class _Key(msgspec.Struct, frozen=True):
    """What resuming needs of an answer; the other fields of the line are skipped unread."""

    kind: Literal["completion", "failure"]
    phase: str
    prompt: str
    repeat: int = 0
    ended_s: float = 0.0


class Recorder:
    """Writes one run folder. Made by `create` or `resume`; holds the folder's lock until `close`.

    `answer` and `event` encode and enqueue; a thread writes, so that neither waits for the disk. Both raise
    StorageError from the first call after the disk refused a line; what was written before stays.
    """

    def __init__(
        self,
        run_dir: Path,
        plan: AuditPlan,
        prompts: FrozenPrompts,
        lock: int,
        state: JournalState,
        done: dict[str, set[tuple[str, int]]],
    ) -> None:
        self.run_dir = run_dir
        self.plan = plan
        self.prompts = prompts
        self.state = state
        self._done = done
        self._lock = lock
        self._encoder = msgspec.json.Encoder()
        self._writer = LineWriter({"journal": run_dir / JOURNAL, "completions": run_dir / COMPLETIONS})

    @classmethod
    def create(
        cls, run_dir: Path, plan: AuditPlan, prompts: Iterable[Prompt], baseline: Baseline | None = None
    ) -> Recorder:
        """A new run folder with plan.json, prompts.jsonl and, where there is one, baseline.json on disk.

        Raises InvalidPlan when the folder exists and is not empty, StorageError when it cannot be written.
        """
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            occupied = any(run_dir.iterdir())
        except FileExistsError:
            occupied = True
        except OSError as err:
            raise storage_error(err, str(run_dir)) from err
        if occupied:
            raise InvalidPlan(
                f"The output folder {run_dir} exists and is not empty",
                expected="a new or empty folder, so that no record is overwritten",
                todo="choose another folder, or continue an unfinished run with `audit resume DIR`",
            )
        lock = _lock(run_dir)
        try:
            write_whole(run_dir / PROMPTS, (msgspec.json.encode(p) + b"\n" for p in prompts))
            if baseline is not None:
                write_whole(run_dir / BASELINE, msgspec.json.encode(baseline) + b"\n")
            write_whole(run_dir / PLAN, msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
            return cls(run_dir, plan, FrozenPrompts(run_dir / PROMPTS), lock, JournalState(), {})
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def resume(cls, run_dir: Path) -> Recorder:
        """Continue a run that was killed, interrupted or ended in an error.

        Torn last lines are cut off, and an Event with Resumed says so. An audit.json of the earlier end is
        kept as `audit-<k>.json`. Raises RecordError when the folder is no record, is complete, is being
        written by another process, or holds a damaged line other than the last.
        """
        if not (run_dir / PLAN).is_file() or not (run_dir / PROMPTS).is_file():
            if (run_dir / AUDIT).exists():
                raise RecordError(
                    f"{run_dir} holds an audit.json and packed raw files",
                    expected="an unfinished run",
                    todo="unpack the .gz files if it is to go on; start a new audit otherwise",
                )
            raise RecordError(
                f"{run_dir} holds no plan.json and prompts.jsonl",
                expected="the folder of an audit that had started",
                todo="start a new audit instead",
            )
        if (run_dir / STUDY).exists():
            raise RecordError(
                f"{run_dir} is a study of launch states",
                expected="the folder of an audit",
                todo="start `audit launches` again: what was measured stays in the folder",
            )
        lock = _lock(run_dir)
        try:
            _refuse_complete(run_dir)
            plan = read_plan(run_dir)
            _refuse_paths(plan)
            prompts = FrozenPrompts(run_dir / PROMPTS, check=True)
            notes = [note for name in (JOURNAL, COMPLETIONS) if (note := _mend(run_dir / name))]
            state = fold_journal(run_dir / JOURNAL)
            done, last_s = _scan_done(run_dir / COMPLETIONS)
            state.last_s = max(state.last_s, last_s)
            if (run_dir / AUDIT).exists():
                os.replace(run_dir / AUDIT, run_dir / f"audit-{len(state.resumed) + 1}.json")
            recorder = cls(run_dir, plan, prompts, lock, state, done)
        except BaseException:
            os.close(lock)
            raise
        note = "; ".join(notes) if notes else "nothing was torn"
        recorder.event(Event(resumed=Resumed(offset_s=state.last_s, note=note)))
        return recorder

    @property
    def offset_s(self) -> float:
        """Latest moment of the record, seconds: where the clock of a resumed run goes on."""
        return self.state.last_s

    def answer(self, answer: Answer) -> None:
        """Record one answer. Raises StorageError once the disk has refused a line."""
        try:
            line = self._encoder.encode(answer)
        except UnicodeEncodeError:
            # Lone surrogates in a reply: JSON cannot hold them. Text is for people; the ids stay exact.
            line = self._encoder.encode(_without_surrogates(answer))
        self._writer.append("completions", line)

    def event(self, event: Event) -> None:
        """Record one journal event. Raises StorageError once the disk has refused a line."""
        self._writer.append("journal", self._encoder.encode(event))
        self.state.apply(event)

    def done(self, phase: str) -> frozenset[tuple[str, int]]:
        """(prompt id, repeat) of the phase's completions that were there when this run was resumed. Failures
        are not among them: nothing was measured, so that they may be asked again."""
        return frozenset(self._done.get(phase, ()))

    def flush(self) -> None:
        """Wait until everything so far is on the device. Raises StorageError when it could not be."""
        self._writer.flush()

    def end_measuring(self) -> None:
        """Give up what only measuring needs, which requests were answered: judging needs the memory."""
        self._done = {}

    def evidence(self, status: FinalStatus | None = None, error: str | None = None) -> StoredEvidence:
        """What is on disk now, as it will be judged; `status` and `error` as `finish` will get them."""
        self._writer.flush()
        return StoredEvidence.load(self.run_dir, status=status or "running", error=error)

    def finish(
        self,
        *,
        status: FinalStatus,
        error: str | None,
        environment: Environment,
        identities: Sequence[Identity],
        command: Sequence[str],
        judgement: Judgement,
    ) -> AuditRecord:
        """Write audit.json by rename, with the digests of the other files, and return it.

        After the disk refused a line, only a status other than `complete` may be finished; the document
        then covers what is on disk. Raises StorageError when audit.json itself cannot be written.
        """
        state = self.end(status)
        record = AuditRecord(
            status=status,
            error=error,
            date=utc_now(),
            command=tuple(command),
            plan=self.plan,
            environment=environment,
            identities=tuple(identities),
            launches=tuple(state.launches.values()),
            fingerprints=tuple(state.fingerprints),
            phases=tuple(state.phases.values()),
            scores=tuple(state.scores),
            forced=tuple(state.forced.values()),
            findings=tuple(state.findings),
            notes=tuple(state.notes),
            resumed=tuple(state.resumed),
            files=self.raw_files(),
            judgement=judgement,
        )
        self.write_document(AUDIT, record)
        return record

    def end(self, status: FinalStatus) -> JournalState:
        """Stop writing to the raw files; the state that a closing document covers.

        After the disk refused a line this is what is on disk, and `complete` raises the StorageError.
        """
        try:
            self._writer.flush()
        except StorageError:
            if status == "complete":
                raise
        self._writer.close()
        return self.state if status == "complete" else fold_journal(self.run_dir / JOURNAL)

    def raw_files(self) -> tuple[FileDigest, ...]:
        """Digests of the raw files as they are now."""
        names = RAW_FILES if self.plan.baseline is None else (*RAW_FILES, BASELINE)
        return tuple(digest_file(self.run_dir / name, name) for name in names)

    def write_document(self, name: str, document: msgspec.Struct) -> None:
        """Write one JSON document of the run folder by rename. Raises StorageError, or ValidationError for a
        document that could not be read back."""
        encoded = msgspec.json.encode(document)
        # NaN and infinities become null: better to fail here than in every reader.
        msgspec.json.decode(encoded, type=type(document))
        write_whole(self.run_dir / name, msgspec.json.format(encoded, indent=1) + b"\n")

    def close(self) -> None:
        """Write what is queued, close the files and release the lock. Idempotent."""
        self._writer.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def utc_now() -> str:
    """The moment as documents have it: UTC, ISO 8601, seconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def read_plan(run_dir: Path) -> AuditPlan:
    """plan.json of a run folder. Raises RecordError naming the JSON path of what is wrong."""
    return read_json(run_dir / PLAN, AuditPlan)


def _lock(run_dir: Path) -> int:
    """Lock the folder for this process. The kernel releases it when the process ends, however it ends."""
    try:
        fd = os.open(run_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as err:
        raise storage_error(err, str(run_dir / LOCK)) from err
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise RecordError(
            f"Process {owner} is writing the record in {run_dir}",
            expected="one writer for a run folder",
            todo="wait until it ends",
        ) from None
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    return fd


def write_whole(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write by rename, so that the file is never seen half written."""
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as err:
        partial.unlink(missing_ok=True)
        raise storage_error(err, path.name) from err


def _refuse_paths(plan: AuditPlan) -> None:
    """Arms name folders below the run folder; a plan.json that was edited must not lead out of it."""
    for arm in plan.arms:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", arm.name) or ".." in arm.name:
            raise RecordError(
                f"{PLAN} names an arm {arm.name!r}",
                expected="letters, digits, dots, dashes and underscores: it names a folder of the run",
                todo="restore plan.json, or start a new audit",
            )


class _Named(msgspec.Struct):
    name: str


class _Judged(msgspec.Struct):
    verdict: _Named


class _Ended(msgspec.Struct):
    """What resuming needs of an earlier audit.json."""

    status: str
    judgement: _Judged


def _refuse_complete(run_dir: Path) -> None:
    try:
        ended = msgspec.json.decode((run_dir / AUDIT).read_bytes(), type=_Ended)
    except FileNotFoundError:
        return
    except (OSError, *UNREADABLE) as err:
        raise RecordError(f"Cannot read {run_dir / AUDIT}: {err}", expected="an audit record") from err
    # ERROR although every stage ran: requests failed, and can be asked again
    if ended.status == "complete" and ended.judgement.verdict.name != "ERROR":
        raise RecordError(
            f"The audit in {run_dir} is complete",
            expected="an interrupted or failed audit to continue",
            todo="render it with `audit report DIR` or start a new audit",
        )


def _mend(path: Path) -> str:
    """Cut a torn or unreadable last line; the sentence that says so, or an empty string."""
    try:
        if not path.exists():
            path.touch()
            return ""
        torn = cut_torn_line(path)
    except OSError as err:
        raise storage_error(err, path.name) from err
    return f"dropped a torn last line of {torn} bytes from {path.name}" if torn else ""


def _scan_done(path: Path) -> tuple[dict[str, set[tuple[str, int]]], float]:
    decoder = msgspec.json.Decoder(_Key)
    done: dict[str, set[tuple[str, int]]] = {}
    names: dict[str, str] = {}
    last_s = 0.0
    for number, (_, line) in enumerate(read_lines(path), 1):
        try:
            key = decoder.decode(line)
        except UNREADABLE as err:
            raise RecordError(
                f"Line {number} of {path.name} is damaged: {err}",
                expected="one answer a line",
                todo="the record cannot be continued; start a new audit",
            ) from err
        last_s = max(last_s, key.ended_s)
        if key.kind == "completion":
            prompt = names.setdefault(key.prompt, key.prompt)
            done.setdefault(key.phase, set()).add((prompt, key.repeat))
    return done, last_s


def _without_surrogates(answer: Answer) -> Answer:
    def clean(text: str) -> str:
        return text.encode("utf-8", "replace").decode("utf-8")

    if isinstance(answer, Completion):
        return msgspec.structs.replace(answer, text=clean(answer.text))
    return msgspec.structs.replace(answer, detail=clean(answer.detail), reason=clean(answer.reason))
