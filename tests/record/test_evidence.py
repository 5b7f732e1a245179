"""Reading a record: lazily, by phase, in order, with errors that name the place."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from auditor.errors import RecordError
from auditor.record.evidence import StoredEvidence
from auditor.record.store import Recorder
from tests.record import support


def test_phases_are_told_apart_though_their_lines_are_interleaved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    phases = ["load/ngram-1/n2/run1", "load/reference-1/n2/run1", "replay/ngram-1"]
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        for n in range(30):
            recorder.answer(support.completion(phases[n % 3], "code/1", n))
    evidence = StoredEvidence.load(run)
    assert evidence.status == "running"
    for offset, ident in enumerate(phases):
        assert [a.repeat for a in evidence.answers(ident)] == list(range(offset, 30, 3))
        assert evidence.answer_count(ident) == 10
    assert list(evidence.answers("replay/none")) == []


def test_prompts_by_corpus_slice_and_index(tmp_path: Path) -> None:
    support.finished_run(tmp_path / "run")
    evidence = StoredEvidence.load(tmp_path / "run")
    code = [p for p in support.prompts() if p.corpus == "code"]
    assert list(evidence.prompts("code")) == code
    assert evidence.prompts("code")[2] == code[2]
    assert evidence.prompts("code")[-1] == code[-1]
    assert list(evidence.prompts("code")[1:3]) == code[1:3]
    assert len(evidence.prompts()) == 2 * support.ITEMS
    assert len(evidence.prompts("gsm8k")) == 0


def test_a_packed_record_reads_like_the_unpacked_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    support.finished_run(run)
    plain = StoredEvidence.load(run)
    expected = [list(plain.answers(phase.id)) for phase in plain.phases]
    for name in ("completions.jsonl", "prompts.jsonl"):
        (run / f"{name}.gz").write_bytes(gzip.compress((run / name).read_bytes()))
        (run / name).unlink()
    packed = StoredEvidence.load(run)
    assert [list(packed.answers(phase.id)) for phase in packed.phases] == expected
    assert list(packed.prompts()) == list(support.prompts())


def test_the_index_costs_bytes_and_not_completions(tmp_path: Path) -> None:
    """20,000 completions: the index may take 32 bytes each, where decoded ones would take over 500."""
    run = tmp_path / "run"
    with Recorder.create(run, support.plan(), support.prompts()) as recorder:
        for n in range(20_000):
            recorder.answer(support.completion(f"load/ngram-1/n2/run{n % 3}", "code/1", n))
    tracemalloc.start()
    try:
        evidence = StoredEvidence.load(run)
        held, _ = tracemalloc.get_traced_memory()
        count = sum(1 for n in range(3) for _ in evidence.answers(f"load/ngram-1/n2/run{n}"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert held < 20_000 * 32
    assert peak < 8_000_000


@pytest.mark.parametrize(
    ("name", "damage", "expected"),
    [
        ("audit.json", b'{"schema_version": "x"}', r"audit\.json.*\$\.schema_version"),
        ("audit.json", b"{", "audit.json"),
        ("audit.json", b'{"surprise": 1}', "audit.json.*surprise"),
        ("completions.jsonl", b'{"kind":"other"}\n', r"Line 1 of completions\.jsonl.*\$\.kind"),
        ("prompts.jsonl", b'{"id":"a"}\n', r"Line 1 of prompts\.jsonl.*corpus"),
        ("completions.jsonl", b"\xff\xfe\n", r"Line 1 of completions\.jsonl"),
    ],
)
def test_schema_violations_name_the_place(tmp_path: Path, name: str, damage: bytes, expected: str) -> None:
    support.finished_run(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(damage)
    with pytest.raises(RecordError, match=expected):
        StoredEvidence.load(tmp_path / "run")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    support.finished_run(tmp_path / "run")
    (tmp_path / "run" / "completions.jsonl").unlink()
    with pytest.raises(RecordError, match=r"completions.jsonl is missing"):
        StoredEvidence.load(tmp_path / "run")
    with pytest.raises(RecordError, match=r"plan.json is missing"):
        StoredEvidence.load(tmp_path)
