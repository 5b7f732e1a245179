"""Recording: nothing lost, nothing doubled, nothing half written, whatever happens to the process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from auditor.errors import AuditError, InvalidPlan, RecordError, StorageError
from auditor.model.completion import Completion
from auditor.model.record import AuditRecord, Event
from auditor.record.evidence import StoredEvidence
from auditor.record.store import Recorder
from tests.record import support

ROOT = Path(__file__).resolve().parents[2]


def child(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def keys(run: Path) -> list[tuple[str, str, int]]:
    lines = (run / "completions.jsonl").read_bytes().splitlines()
    return [(row["phase"], row["prompt"], row.get("repeat", 0)) for row in map(json.loads, lines)]


def test_a_finished_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    record = support.finished_run(tmp_path / "run")
    document = (tmp_path / "run" / "audit.json").read_bytes()
    assert msgspec.json.decode(document, type=AuditRecord) == record
    assert {file.path for file in record.files} == {
        "plan.json", "prompts.jsonl", "journal.jsonl", "completions.jsonl",
    }  # fmt: skip
    assert [launch.id for launch in record.launches] == ["reference-1", "control-1", "ngram-1"]
    assert all(phase.state == "done" for phase in record.phases)
    evidence = StoredEvidence.load(tmp_path / "run")
    assert evidence.status == "complete"
    assert tuple(evidence.prompts()) == support.prompts()
    answers = list(evidence.answers("batch1/ngram-1/code"))
    assert answers == [support.completion("batch1/ngram-1/code", f"code/{n}") for n in range(support.ITEMS)]


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    support.finished_run(tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.part"))


@pytest.mark.parametrize("occupant", ["file inside", "file in its place"])
def test_an_existing_folder_is_refused(tmp_path: Path, occupant: str) -> None:
    folder = tmp_path / "run"
    if occupant == "file inside":
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
    else:
        folder.write_text("mine")
    with pytest.raises(InvalidPlan, match=r"not empty.*audit resume"):
        Recorder.create(folder, support.plan(), support.prompts())


def test_an_unwritable_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Could not write"):
        Recorder.create(tmp_path / ("x" * 300), support.plan(), ())


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()):
        other = child(
            "import sys; from pathlib import Path; from auditor.record.store import Recorder\n"
            "from auditor.errors import RecordError\n"
            "try: Recorder.resume(Path(sys.argv[1]))\n"
            "except RecordError as error: print(error)",
            str(run),
        )
        out, err = other.communicate(timeout=60)
    assert f"Process {os.getpid()} is writing" in out, err
    Recorder.resume(run).close()


def test_resuming_keeps_what_is_there_and_asks_for_the_rest(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        support.write(recorder, limit=17)
    before = keys(run)
    with Recorder.resume(run) as recorder:
        assert recorder.plan == support.plan()
        assert tuple(recorder.prompts.all()) == support.prompts()
        assert recorder.offset_s == 2.0
        assert recorder.done("certify/reference-1/pass1") == {(f"certification/{n}", 0) for n in range(6)}
        support.write(recorder)
        record = support.finish(recorder)
    assert keys(run)[: len(before)] == before
    assert len(set(keys(run))) == len(keys(run)) == 9 * support.ITEMS
    assert [r.note for r in record.resumed] == ["nothing was torn"]
    undisturbed = support.finished_run(tmp_path / "other")
    assert record.judgement == undisturbed.judgement


def test_failures_are_asked_again_and_stay_in_the_file(tmp_path: Path) -> None:
    run, ident = tmp_path / "run", "batch1/ngram-1/code"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        recorder.answer(support.failure(ident, "code/0"))
        recorder.answer(support.completion(ident, "code/1"))
    with Recorder.resume(run) as recorder:
        assert recorder.done(ident) == {("code/1", 0)}
        assert len(list(recorder.evidence().answers(ident))) == 2
        recorder.answer(support.completion(ident, "code/0"))
        answers = list(recorder.evidence().answers(ident))
    assert [type(a).__name__ for a in answers] == ["Completion", "Completion"]
    assert [a.prompt for a in answers] == ["code/1", "code/0"]
    assert len(keys(run)) == 3


@pytest.mark.parametrize("name", ["completions.jsonl", "journal.jsonl"])
@pytest.mark.parametrize("torn", [b'{"kind":"completion","pha', b"{", b'{"a":"\xe2\x80'])
def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path, name: str, torn: bytes) -> None:
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        support.write(recorder, limit=10)
    whole = (run / name).read_bytes()
    with (run / name).open("ab") as file:
        file.write(torn)
    with Recorder.resume(run) as recorder:
        assert (run / name).read_bytes()[: len(whole)] == whole
        recorder.flush()
        (note,) = (r.note for r in recorder.state.resumed)
    assert note == f"dropped a torn last line of {len(torn)} bytes from {name}"


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()):
        pass
    (run / "completions.jsonl").write_bytes(b"x" * 200_000)
    with Recorder.resume(run):
        assert (run / "completions.jsonl").read_bytes() == b""


def test_a_damaged_line_inside_is_refused_and_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        support.write(recorder, limit=17)
    lines = (run / "completions.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b'{"kind":"completion","phase":7}\n'
    (run / "completions.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=r"Line 4 of completions.jsonl is damaged.*\$\.phase"):
        Recorder.resume(run)
    # The lock of the failed attempt is gone.
    with pytest.raises(RecordError, match="Line 4"):
        Recorder.resume(run)


@pytest.mark.parametrize("case", ["nothing there", "complete"])
def test_what_cannot_be_resumed_is_said(tmp_path: Path, case: str) -> None:
    if case == "complete":
        support.finished_run(tmp_path / "run")
    with pytest.raises(RecordError, match=r"complete|holds no plan"):
        Recorder.resume(tmp_path / "run")


def test_an_interrupted_run_has_a_record_and_can_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        support.write(recorder, limit=20)
        record = support.finish(recorder, "interrupted", "stopped by a signal")
    assert record.judgement.verdict.exit_code == 5
    with Recorder.resume(run) as recorder:
        assert not (run / "audit.json").exists()
        support.write(recorder)
        record = support.finish(recorder)
    assert record.status == "complete"
    assert (run / "audit-1.json").exists()


def test_lone_surrogates_in_a_reply_do_not_stop_the_recording(tmp_path: Path) -> None:
    run, ident = tmp_path / "run", "batch1/ngram-1/code"
    answer = msgspec.structs.replace(support.completion(ident, "code/0"), text="a\ud800b")
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        recorder.answer(answer)
        (read,) = recorder.evidence().answers(ident)
    assert isinstance(read, Completion)
    assert read.text == "a?b"
    assert read.token_ids == answer.token_ids


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from auditor.errors import StorageError
from auditor.record.store import Recorder
from tests.record import support
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
recorder = Recorder.create(Path(sys.argv[1]), support.plan(), support.prompts())
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
sent = 0
try:
    while sent < 100000:
        recorder.answer(support.completion("batch1/ngram-1/code", "code/0", sent))
        sent += 1
except StorageError as error:
    print(error)
try:
    support.finish(recorder)
except StorageError as error:
    print("finish:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
recorder.close()
"""


def test_a_full_disk_keeps_everything_before_it(tmp_path: Path) -> None:
    """The kernel's file size limit refuses a write in the middle of a line, as a full disk does."""
    run = tmp_path / "run"
    process = child(FULL_DISK, str(run), "50001")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Could not write completions.jsonl: File too large" in out
    assert "audit resume" in out
    assert "finish:" in out
    assert not (run / "audit.json").exists()
    data = (run / "completions.jsonl").read_bytes()
    assert data.endswith(b"\n")
    repeats = [repeat for _, _, repeat in keys(run)]
    assert repeats == list(range(len(repeats)))
    assert len(repeats) > 50
    with Recorder.resume(run) as recorder:
        assert len(recorder.done("batch1/ngram-1/code")) == len(repeats)
        assert recorder.state.resumed[0].note == "nothing was torn"


ENDLESS = """
import sys
from pathlib import Path
from auditor.record.store import Recorder
from tests.record import support
run = Path(sys.argv[1])
recorder = Recorder.resume(run) if run.exists() else Recorder.create(run, support.plan(), support.prompts())
done = recorder.done("batch1/ngram-1/code")
n = 0
while True:
    if ("code/0", n) not in done:
        recorder.answer(support.completion("batch1/ngram-1/code", "code/0", n))
    if n % 7 == 0:
        recorder.flush()
        print(n, flush=True)
    n += 1
"""


def test_sigkill_at_any_moment_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    run, rng, seen = tmp_path / "run", random.Random(5), -1
    for _ in range(4):
        process = child(ENDLESS, str(run))
        assert process.stdout is not None
        for _ in range(rng.randint(1, 60)):
            seen = max(seen, int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, err
        seen = max([seen, *map(int, out.split())])
        with Recorder.resume(run) as recorder:
            repeats = sorted(repeat for _, repeat in recorder.done("batch1/ngram-1/code"))
        assert repeats == list(range(len(repeats)))
        assert repeats[-1] >= seen
        assert len(keys(run)) == len(repeats)


def test_a_judgement_with_nan_is_not_written(tmp_path: Path) -> None:
    """JSON has no NaN: it would become null and every reader would fail."""
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        support.write(recorder)
        broken = msgspec.structs.replace(support.ENVIRONMENT, memory_gib=float("nan"))
        judgement = support.judged(recorder, "complete")
        with pytest.raises(msgspec.ValidationError):
            recorder.finish(
                status="complete",
                error=None,
                environment=broken,
                identities=(),
                command=(),
                judgement=judgement,
            )
    assert not (run / "audit.json").exists()


def test_recording_after_the_end_of_the_disk_raises_at_once(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path / "run", support.plan(), support.prompts())
    os.close(recorder._writer._fds["journal"])
    readonly = os.open("/dev/full", os.O_WRONLY)
    recorder._writer._fds["journal"] = readonly
    recorder.event(Event())
    with pytest.raises(AuditError, match=r"Could not write journal.jsonl: No space left on device"):
        recorder.flush()
    with pytest.raises(StorageError):
        recorder.event(Event())
    with pytest.raises(StorageError):
        recorder.answer(support.completion("batch1/ngram-1/code", "code/0"))
    recorder.close()
