"""Corpora: the pinned files, our own, and every way in which a file can be wrong."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from auditor.errors import InvalidPlan
from auditor.model.plan import CorpusUse
from auditor.plan import corpora
from auditor.plan.corpora import content_digest, fields, gold_of, load, manifest, text_of
from auditor.plan.rows import read_hub, read_local
from tests.plan import support

ROOT = Path(__file__).resolve().parents[2]
OWN = ("certification", "sums", "demo-sums")
PINNED = {"gsm8k": ("gsm8k_test.jsonl", 1319), "humaneval": ("HumanEval.jsonl.gz", 164),
          "mt-bench": ("mt_bench_question.jsonl", 80)}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_user_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.mark.parametrize("name", sorted(corpora.known()))
def test_manifests_are_complete(name: str) -> None:
    found = manifest(name)
    assert found is not None
    assert found.name == name
    assert found.licence in {"MIT", "Apache-2.0"}
    assert found.data.sha256 is not None
    assert len(found.data.sha256) == 64
    assert found.grading == "none" or found.gold is not None
    assert found.shot is None or found.shots is not None
    assert found.data.packaged or found.hub is not None


@pytest.mark.parametrize("name", OWN)
def test_our_own_corpora_load_and_are_those_of_the_manifest(name: str) -> None:
    corpus = load(CorpusUse(name=name), seed=0)
    assert len(corpus.items) == corpus.total == corpus.manifest.data.rows
    assert corpus.identity.source == "packaged"
    texts = {text_of(corpus.manifest, item.row) for item in corpus.items}
    assert len(texts) == corpus.total


def test_certification_prompts_are_varied_and_no_other_corpus_has_them() -> None:
    rows = [item.row for item in load(CorpusUse(name="certification"), seed=0).items]
    assert {row["kind"] for row in rows} == {"code", "mathematics", "chat", "prose"}
    own = {str(row["prompt"]) for row in rows}
    for name in ("sums", "demo-sums"):
        other = load(CorpusUse(name=name), seed=0)
        assert not own & {str(item.row["question"]) for item in other.items}


@pytest.mark.parametrize(("script", "args", "names"), [
    ("certification.py", ["{folder}/certification.jsonl"], ["certification.jsonl"]),
    ("sums.py", ["{folder}"], ["sums.jsonl", "sums_shots.jsonl"]),
])  # fmt: skip
def test_our_own_corpora_are_made_again_byte_for_byte(
    tmp_path: Path, script: str, args: list[str], names: list[str]
) -> None:
    command = [sys.executable, str(ROOT / "tools" / "corpora" / script)]
    subprocess.run(command + [arg.format(folder=tmp_path) for arg in args], check=True)
    for name in names:
        assert (tmp_path / name).read_bytes() == (ROOT / "corpora" / name).read_bytes()


def test_the_sums_are_right_and_the_shots_are_others() -> None:
    corpus = load(CorpusUse(name="sums"), seed=0, shots=8)
    for row in [*(item.row for item in corpus.items), *corpus.shots]:
        sum_, _, result = str(row["answer"]).split("\n")[0].partition(" = ")
        a, sign, b = sum_.split()
        assert int(result) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
        assert gold_of(corpus.manifest, row) == result
    assert not {row["question"] for row in corpus.shots} & {item.row["question"] for item in corpus.items}


@pytest.mark.parametrize("name", sorted(PINNED))
@pytest.mark.parametrize("by", ["file", "folder"])
def test_the_pinned_files_load(name: str, by: str) -> None:
    file, rows = PINNED[name]
    if not (support.SHARED / file).exists():
        pytest.skip(support.NO_SHARED)
    path = support.SHARED / file if by == "file" else support.SHARED
    corpus = load(CorpusUse(name=name, path=str(path)), seed=0, shots=8 if name == "gsm8k" else 0)
    assert corpus.total == rows
    assert corpus.findings == ()
    assert len(corpus.shots) == (8 if name == "gsm8k" else 0)
    assert corpus.identity.files[0].path == file


def test_gsm8k_golds() -> None:
    """1,319 golds: 14 with a thousands separator in the file, 2 negative."""
    path = support.SHARED / "gsm8k_test.jsonl"
    if not path.exists():
        pytest.skip(support.NO_SHARED)
    corpus = load(CorpusUse(name="gsm8k", path=str(path)), seed=0)
    golds = [gold_of(corpus.manifest, item.row) for item in corpus.items]
    assert sorted(g for g in golds if g and g.startswith("-")) == ["-10", "-3"]
    raw = [str(item.row["answer"]).rsplit("#### ", 1)[1] for item in corpus.items]
    assert sum("," in text for text in raw) == 14
    assert all(g is not None and g.lstrip("-").isdigit() for g in golds)


def test_the_seeded_order_is_stable_and_a_limit_is_its_beginning() -> None:
    full = [item.id for item in load(CorpusUse(name="sums"), seed=7).items]
    assert full == [item.id for item in load(CorpusUse(name="sums"), seed=7).items]
    assert full != [item.id for item in load(CorpusUse(name="sums"), seed=8).items]
    part = load(CorpusUse(name="sums", limit=25), seed=7)
    assert [item.id for item in part.items] == full[:25]
    assert part.total == 320
    # Pinned: a change of the order would make older audits incomparable without a word.
    assert full[:4] == ["281", "204", "81", "197"]


GOOD = [{"question": f"q{n}?", "answer": f"so {n}\n#### {n}"} for n in range(5)]


def write(folder: Path, suffix: str, rows: list[dict[str, object]]) -> Path:
    path = folder / f"mine{suffix}"
    if suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_a_user_s_own_file(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, suffix, [*GOOD])
    corpus = load(CorpusUse(name="mine", path=str(path)), seed=0)
    assert sorted(item.id for item in corpus.items) == ["0", "1", "2", "3", "4"]
    assert corpus.manifest.grading == "gsm8k"
    assert gold_of(corpus.manifest, GOOD[3]) == "3"


@pytest.mark.parametrize(
    ("row", "text", "mode"),
    [
        ({"prompt": "a"}, "a", "completion"),
        ({"turns": ["first", "second"]}, "first", "chat"),
        ({"question": "a"}, "Question: a\nAnswer:", "completion"),
    ],
)
def test_the_shape_of_a_user_s_rows(tmp_path: Path, row: dict[str, object], text: str, mode: str) -> None:
    path = write(tmp_path, ".jsonl", [row])
    corpus = load(CorpusUse(name="mine", path=str(path)), seed=0)
    assert text_of(corpus.manifest, corpus.items[0].row) == text
    assert corpus.manifest.mode == mode


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", r"has no rows"),
        (b"\n\n", r"has no rows"),
        (b'{"question": "a\xff"}\n', r"Line 1 of mine.jsonl is not UTF-8 \(byte 0xff\)"),
        (b'{"question": "a"}\n{"question": \n', r"Cannot read mine.jsonl"),
        (b'{"text": "a"}\n', r"has the fields text; expected one of `question`"),
        (
            b'{"id": "x", "prompt": "a"}\n{"id": "x", "prompt": "b"}\n',
            r"id 'x' occurs twice in mine \(row 2\)",
        ),
        (b'{"prompt": "a"}\n{"other": "b"}\n', r"Row 2 of mine.jsonl lacks prompt"),
    ],
)
def test_wrong_files_are_one_sentence(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidPlan, match=expected):
        load(CorpusUse(name="mine", path=str(path)), seed=0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mine.txt", "unknown ending"),
        ("gone.jsonl", "There is no file"),
        ("broken.parquet", "Cannot read broken"),
        ("broken.jsonl.gz", "Cannot read"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, expected: str) -> None:
    if name.startswith(("mine", "broken")):
        (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(InvalidPlan, match=expected):
        read_local(tmp_path / name, "mine", direct=False)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (GOOD, r"has 5 rows; expected 1319, the whole of gsm8k.*limit"),
        (
            [{"question": f"q{n}", "answer": f"#### {n}"} for n in range(1319)],
            r"does not hold gsm8k.*another corpus",
        ),
        ([{"question": "q"}], r"lacks answer"),
    ],
)
def test_another_file_under_a_known_name_is_refused(
    tmp_path: Path, rows: list[dict[str, object]], expected: str
) -> None:
    path = write(tmp_path, ".jsonl", rows)
    with pytest.raises(InvalidPlan, match=expected):
        load(CorpusUse(name="gsm8k", path=str(path)), seed=0)


def test_a_copy_in_another_format_is_known_by_its_contents(tmp_path: Path) -> None:
    rows = [dict(row) for row in read_local(ROOT / "corpora" / "sums.jsonl", "sums", direct=True)]
    found = manifest("sums")
    assert found is not None
    parquet = read_local(write(tmp_path, ".parquet", rows), "sums", direct=False)
    assert content_digest(found, parquet) == content_digest(found, rows)
    rows[3]["question"] = "another"
    assert content_digest(found, rows) != content_digest(found, parquet)


def test_unknown_and_unavailable_corpora() -> None:
    with pytest.raises(InvalidPlan, match=r"no corpus called gsm8.*did you mean gsm8k\?.*--corpus gsm8=PATH"):
        load(CorpusUse(name="gsm8"), seed=0)
    without_shots = manifest("mt-bench")
    assert without_shots is not None
    with pytest.raises(InvalidPlan, match=r"mt-bench has no worked examples.*accuracy.shots"):
        corpora._read_shots(without_shots, None, 2)
    with pytest.raises(InvalidPlan, match=r"sums has 8 worked examples; expected at least 9"):
        load(CorpusUse(name="sums"), seed=0, shots=9)


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that nobody listens on stands for the hub."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(InvalidPlan, match=r"hub cannot be reached.*--corpus gsm8k=PATH"):
        read_hub("gsm8k", "openai/gsm8k", "main", "test", "0" * 40)


def test_fields_of_templates() -> None:
    assert fields("Question: {question}\nAnswer: {answer}", "{turns[0]} {question}") == (
        "question",
        "answer",
        "turns",
    )
    assert fields("no field", None) == ()
