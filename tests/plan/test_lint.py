"""What is said of target and drafts before a server starts."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from auditor.errors import InvalidPlan
from auditor.model.judgement import Finding
from auditor.model.plan import Draft
from auditor.plan.drafts import parse_draft
from auditor.plan.lint import lint_arms, lint_draft, lint_generation_config, lint_native, refuse_errors
from auditor.plan.safetensors import BadHeader, read_headers, read_integers
from tests.plan import support


def findings(tmp_path: Path, head: Path, served: int | None = 2048, **target: Any) -> dict[str, Finding]:
    folder = support.target(tmp_path / "target", **target)
    found = lint_draft(parse_draft(str(head), 3), head, {**support.CONFIG, **target}, folder, served)
    # The first of a code: later ones follow from it.
    return {finding.code: finding for finding in reversed(found)}


def test_a_fitting_head_has_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, support.head(tmp_path / "head")) == {}


@pytest.mark.parametrize(
    ("config", "code", "severity", "seen"),
    [
        ({"vocab_size": 300}, "DRAFT-VOCABULARY", "error", "300 ids"),
        ({"draft_vocab_size": 0}, "DRAFT-VOCABULARY", "error", "draft_vocab_size is 0"),
        ({"hidden_size": 32}, "DRAFT-HIDDEN-SIZE", "error", "hidden states of 32"),
        ({"target_hidden_size": 8}, "DRAFT-HIDDEN-SIZE", "error", "hidden states of 8"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "DRAFT-AUX-LAYERS", "error", r"[1, 2, 9]"),
        ({"eagle_aux_hidden_state_layer_ids": "1"}, "DRAFT-AUX-LAYERS", "error", "1"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 2]}, "DRAFT-AUX-LAYERS", "warning", "repeat"),
        ({"max_position_embeddings": 512}, "DRAFT-POSITIONS", "warning", "512 positions"),
        ({"torch_dtype": "float16"}, "DRAFT-DTYPE", "note", "float16"),
    ],
)
def test_configurations_that_do_not_fit(
    tmp_path: Path, config: dict[str, Any], code: str, severity: str, seen: str
) -> None:
    found = findings(tmp_path, support.head(tmp_path / "head", **config))
    assert found[code].severity == severity
    assert seen in found[code].seen
    assert found[code].remedy


def test_c7_a_draft_with_fewer_positions_than_are_served(tmp_path: Path) -> None:
    """C7: draft 2,048 positions, served 8,192."""
    head = support.head(tmp_path / "head", max_position_embeddings=2048)
    found = findings(tmp_path, head, served=8192, max_position_embeddings=8192)
    assert found["DRAFT-POSITIONS"].severity == "warning"
    assert "--max-model-len 2048" in found["DRAFT-POSITIONS"].remedy
    assert "DRAFT-POSITIONS" not in findings(tmp_path, head, served=2048)
    assert "DRAFT-POSITIONS" not in findings(tmp_path, head, served=None)


@pytest.mark.parametrize(
    ("config", "tensor", "seen"),
    [
        ({}, "layers.0.mlp", "no field that counts multi-token prediction layers, and none of its 1 tensors"),
        ({"mtp_loss_factor": 0.3, "mtp_shared": True}, "layers.0.mlp", "no field that counts"),
        ({"num_nextn_predict_layers": 0}, "mtp.layers.0.mlp", "num_nextn_predict_layers 0"),
        ({"num_nextn_predict_layers": 1}, "layers.0.mlp", None),
        ({"text_config": {"mtp_num_hidden_layers": 1}}, None, None),
        ({}, "mtp.layers.0.mlp", None),
        ({}, None, None),
    ],
)
def test_mtp_needs_a_layer_of_the_target(
    tmp_path: Path, config: dict[str, Any], tensor: str | None, seen: str | None
) -> None:
    if tensor is not None:
        support.weights(tmp_path, {tensor: ("F32", (2,))})
    found = lint_native(Draft(name="mtp", method="mtp"), config, tmp_path)
    assert [f.code for f in found] == ([] if seen is None else ["DRAFT-NO-MTP-LAYER"])
    assert all(seen is not None and seen in f.seen and f.severity == "warning" for f in found)


def test_mtp_is_not_judged_by_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    assert not lint_native(Draft(name="mtp", method="mtp"), {}, tmp_path)


@pytest.mark.parametrize(("layers", "bad"), [(4, True), (6, True), (7, False), (32, False)])
def test_a_head_without_layer_ids_needs_a_deep_target(tmp_path: Path, layers: int, bad: bool) -> None:
    """On four layers the engine's defaults 2, 2 and 1 coincide: healthy, and dead at the first request."""
    head = support.head(tmp_path / "head", eagle_aux_hidden_state_layer_ids=None)
    assert ("DRAFT-AUX-LAYERS" in findings(tmp_path, head, num_hidden_layers=layers)) == bad


def test_layer_ids_may_lie_in_eagle_config(tmp_path: Path) -> None:
    nested = {"eagle_aux_hidden_state_layer_ids": [1, 2, 30]}
    head = support.head(tmp_path / "head", eagle_aux_hidden_state_layer_ids=None, eagle_config=nested)
    assert "30" in findings(tmp_path, head)["DRAFT-AUX-LAYERS"].seen


@pytest.mark.parametrize(
    ("tensors", "code", "seen"),
    [
        ({"d2t": ("I64", (63,))}, "DRAFT-VOCABULARY-MAP", "[63]"),
        ({"t2d": ("BOOL", (64,))}, "DRAFT-VOCABULARY-MAP", "t2d has the shape [64]"),
        ({"d2t": ("I64", ())}, "DRAFT-VOCABULARY-MAP", "without d2t"),
        ({"lm_head.weight": ("F32", (63, 16))}, "DRAFT-VOCABULARY", "lm_head has 63 rows"),
        ({"lm_head.weight": ("F32", ())}, "DRAFT-WEIGHTS", "no lm_head"),
        ({"fc.weight": ("F32", ())}, "DRAFT-WEIGHTS", "no fc.weight"),
        ({"fc.weight": ("F32", (16, 32))}, "DRAFT-AUX-LAYERS", "fc takes 32"),
    ],
)
def test_weights_that_do_not_fit(
    tmp_path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], code: str, seen: str
) -> None:
    found = findings(tmp_path, support.head(tmp_path / "head", tensors))
    assert seen in found[code].seen


@pytest.mark.parametrize(("offset", "seen"), [(300, "1 draft ids outside"), (-5, "1 to taken ids")])
def test_d2t_must_hold_offsets(tmp_path: Path, offset: int, seen: str) -> None:
    head = support.head(tmp_path / "head")
    offsets = [0] * 63 + [offset]
    tensors = {"d2t": ("I64", (64,)), "t2d": ("BOOL", (259,)), "lm_head.weight": ("F32", (64, 16)),
               "fc.weight": ("F32", (16, 48))}  # fmt: skip
    support.weights(head, tensors, {"d2t": struct.pack("<64q", *offsets)})
    assert seen in findings(tmp_path, head)["DRAFT-VOCABULARY-MAP"].seen


def test_missing_shards_and_missing_weights(tmp_path: Path) -> None:
    head = support.head(tmp_path / "head")
    index = {"weight_map": {"fc.weight": "model.safetensors", "midlayer.q": "gone.safetensors"}}
    support.write_json(head / "model.safetensors.index.json", index)
    assert "1 tensors are missing, first midlayer.q" in findings(tmp_path, head)["DRAFT-WEIGHTS"].seen
    (head / "model.safetensors").unlink()
    assert "no weights" in findings(tmp_path, head)["DRAFT-WEIGHTS"].seen


@pytest.mark.parametrize("content", [b"", b"\x00" * 7, b"\xff" * 16, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_unreadable_weights(tmp_path: Path, content: bytes) -> None:
    head = support.head(tmp_path / "head")
    (head / "model.safetensors").write_bytes(content)
    found = findings(tmp_path, head)["DRAFT-WEIGHTS"]
    assert found.severity == "error"
    assert "model.safetensors" in found.seen


def test_weights_cut_off_in_the_middle(tmp_path: Path) -> None:
    head = support.head(tmp_path / "head")
    data = (head / "model.safetensors").read_bytes()
    (head / "model.safetensors").write_bytes(data[:-10])
    with pytest.raises(BadHeader, match="where the header promises"):
        read_headers(head)


def test_integers_of_a_tensor(tmp_path: Path) -> None:
    support.weights(
        tmp_path, {"a": ("F32", (2,)), "n": ("I64", (3,))}, {"n": struct.pack("<3q", 5, -1, 2**40)}
    )
    assert read_integers(tmp_path, "n") == (5, -1, 2**40)
    assert read_integers(tmp_path, "a") is None
    assert read_integers(tmp_path, "gone") is None


def test_another_tokenizer(tmp_path: Path) -> None:
    head = support.head(tmp_path / "head")
    other = support.tokenizer()
    other.save(str(head / "tokenizer.json"))
    assert "DRAFT-TOKENIZER" not in findings(tmp_path, head)
    text = (head / "tokenizer.json").read_text()
    (head / "tokenizer.json").write_text(text.replace('"A":', '"\u00ff\u00fe":', 1))
    assert findings(tmp_path, head)["DRAFT-TOKENIZER"].severity == "warning"


def test_a_draft_model_with_a_padded_vocabulary_is_no_error(tmp_path: Path) -> None:
    draft = support.target(tmp_path / "small", vocab_size=320)
    assert findings(tmp_path, draft)["DRAFT-VOCABULARY"].severity == "warning"


@pytest.mark.parametrize(
    ("generation", "code", "seen"),
    [
        ({"repetition_penalty": 1.05}, "GENERATION-CONFIG-SAMPLING", "repetition_penalty 1.05"),
        ({"repetition_penalty": 1.0, "temperature": 0.6}, None, ""),
        (
            {"presence_penalty": 0.5, "min_p": 0.1},
            "GENERATION-CONFIG-SAMPLING",
            "presence_penalty 0.5, min_p 0.1",
        ),
        ({"eos_token_id": [2, 5]}, "GENERATION-CONFIG-STOP", "stops at [2, 5]"),
        ({"eos_token_id": 2}, None, ""),
        ([], "GENERATION-CONFIG-UNREADABLE", "cannot be read"),
    ],
)
def test_i3_generation_config(tmp_path: Path, generation: Any, code: str | None, seen: str) -> None:
    """I3: defaults of the model that servers apply unasked."""
    folder = support.target(tmp_path / "m")
    support.write_json(folder / "generation_config.json", generation)
    found = lint_generation_config(folder)
    assert [f.code for f in found] == ([code] if code else [])
    assert all(seen in f.seen for f in found)


def test_no_generation_config_is_fine(tmp_path: Path) -> None:
    assert lint_generation_config(support.target(tmp_path / "m")) == ()


def test_c8_flags_of_the_candidates_alone_are_said(tmp_path: Path) -> None:
    """C8: the candidate with other parallelism than the reference."""
    target = support.target(tmp_path / "m")
    other = support.target(tmp_path / "other")
    plan = support.plan(
        target, **{"candidate.args": "--tensor-parallel-size 1", "candidate.target": str(other)}
    )
    found = {f.code: f for f in lint_arms(plan.arms)}
    assert "--tensor-parallel-size 1" in found["ARM-EXTRA-FLAGS"].seen
    assert "serves other" in found["ARM-OTHER-TARGET"].seen
    assert lint_arms(support.plan(target).arms) == ()


def test_an_error_stops_the_plan_in_one_sentence(tmp_path: Path) -> None:
    head = support.head(tmp_path / "head", vocab_size=300)
    with pytest.raises(InvalidPlan, match=r"eagle3: the draft's vocabulary has 300 ids; expected 259"):
        refuse_errors(tuple(findings(tmp_path, head).values()))
