"""Verifying: an untouched record is the same; every kind of change is found and named."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from auditor.cli.main import main
from auditor.cli.schema import schema
from auditor.record.schema import record_schema
from auditor.record.verify import first_difference, verify
from tests.record import support

RAW = ["plan.json", "prompts.jsonl", "journal.jsonl", "completions.jsonl"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    support.finished_run(tmp_path / "run")
    return tmp_path / "run"


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_info:
        main(args)
    code = exit_info.value.code
    assert isinstance(code, int)
    return code


def reseal(run: Path, change: Callable[[Any], None] | None = None) -> None:
    """Make audit.json's digests fit the files, as somebody who forges a record would."""
    document = json.loads((run / "audit.json").read_text())
    for file in document["files"]:
        data = (run / file["path"]).read_bytes()
        file["sha256"], file["size"] = hashlib.sha256(data).hexdigest(), len(data)
    if change is not None:
        change(document)
    (run / "audit.json").write_text(json.dumps(document))


def test_an_untouched_record_is_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("verify", str(run)) == 0
    assert capsys.readouterr().out.startswith("SAME: the verdict")


@pytest.mark.parametrize("name", RAW)
def test_a_changed_file_is_named_by_its_digest(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(bytes(data))
    assert audit("verify", "--json", str(run)) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "corrupt"
    assert found["reason"].startswith(f"{name} was changed: sha256 ")


def test_a_packed_record_verifies_too(run: Path) -> None:
    for name in ("completions.jsonl", "journal.jsonl"):
        (run / f"{name}.gz").write_bytes(gzip.compress((run / name).read_bytes()))
        (run / name).unlink()
    assert verify(run).status == "same"
    document = json.loads((run / "audit.json").read_text())
    document["phases"][0]["state"] = "void"
    (run / "audit.json").write_text(json.dumps(document))
    assert verify(run).status == "corrupt"


def test_a_missing_file_is_named(run: Path) -> None:
    (run / "completions.jsonl").unlink()
    assert verify(run).reason == "completions.jsonl is missing"
    assert verify(run).exit_code == 2


def test_completions_changed_with_their_digest_change_the_judgement(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "completions.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b"batch1/ngram-1/code" in line)
    lines[at] = lines[at].replace(b'"token_ids":[11,', b'"token_ids":[13,')
    path.write_bytes(b"".join(lines))
    reseal(run)
    assert audit("verify", str(run)) == 1
    out = capsys.readouterr().out
    assert out.startswith("DIFFERS: recorded ")
    assert "First difference at judgement." in out


def test_a_verdict_changed_by_hand_is_found(run: Path) -> None:
    def pass_it(document: Any) -> None:
        document["judgement"]["verdict"].update(name="PASS", exit_code=0)

    assert verify(run).verdict != "PASS"
    reseal(run, pass_it)
    result = verify(run)
    assert (result.status, result.verdict) == ("differs", "PASS")
    assert result.first_difference is not None
    assert result.first_difference.startswith("judgement.verdict.name: recorded 'PASS', recomputed ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["phases"][0].update(state="void"), r"journal\.jsonl at phases\[0\]\.state"),
        (lambda d: d["plan"].update(seed=5), r"another plan"),
        (lambda d: d["files"][0].update(path="../plan.json"), r"outside the run folder"),
        (lambda d: d["launches"].pop(), r"journal\.jsonl at launches\[2\]"),
    ],
)
def test_audit_json_that_does_not_follow_from_the_raw_files(
    run: Path, change: Callable[[Any], None], reason: str
) -> None:
    reseal(run, change)
    result = verify(run)
    assert result.status == "corrupt"
    assert re.search(reason, result.reason)


def test_a_completion_recorded_twice_is_found(run: Path) -> None:
    path = run / "completions.jsonl"
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(path.read_bytes() + first)
    reseal(run)
    result = verify(run)
    assert result.status == "corrupt"
    assert "repeats certification/0 (repeat 0) of certify/reference-1/pass1" in result.reason


def test_no_record_is_exit_2_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("verify", str(tmp_path)) == 2
    err = capsys.readouterr().err
    assert "audit.json is missing" in err
    assert "Traceback" not in err


def test_the_schema_holds_for_a_record_and_refuses_a_wrong_one(run: Path) -> None:
    result = CliRunner().invoke(schema)
    assert json.loads(result.output) == json.loads(json.dumps(record_schema()))
    validator = jsonschema.Draft202012Validator(record_schema())
    validator.check_schema(record_schema())
    document = json.loads((run / "audit.json").read_text())
    validator.validate(document)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document | {"surprise": 1})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_a_value_does_not_differ_from_itself_nor_from_its_copy_through_json(value: Any) -> None:
    assert first_difference(value, value, "$") is None
    assert first_difference(value, msgspec.json.decode(msgspec.json.encode(value)), "$") is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"x": [1, 2]}, {"x": [1, 3]}, "$.x[1]: recorded 2, recomputed 3"),
        ([1], [1, 2], "$[1]: recorded nothing, recomputed 2"),
        ({"x": None}, {}, "$.x: recorded None, recomputed nothing"),
        (0.1, 0.1 + 1e-16, None),
        (0.1, 0.1001, "$: recorded 0.1, recomputed 0.1001"),
        (1, True, "$: recorded 1, recomputed True"),
        (0.5, None, "$: recorded 0.5, recomputed None"),
    ],
)
def test_first_difference(a: Any, b: Any, expected: str | None) -> None:
    assert first_difference(a, b, "$") == expected
