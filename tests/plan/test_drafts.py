"""From what a user calls a draft to the engine's speculative configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auditor.errors import InvalidPlan
from auditor.plan.drafts import method_of, parse_draft


def config_of(spec: str, tokens: int = 3) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(parse_draft(spec, tokens).speculative_config)
    return found


def folder(path: Path, config: object) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}, "eagle3"),
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3"),
        ({"architectures": ["EagleLlamaForCausalLM"], "model_type": "eagle"}, "eagle"),
        ({"architectures": ["MedusaModel"], "model_type": "medusa"}, "medusa"),
        ({"model_type": "medusa"}, "medusa"),
        ({"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, "dflash"),
        ({"architectures": ["Qwen3DSparkModel"]}, "dspark"),
        (
            {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"},
            "mlp_speculator",
        ),
        ({"architectures": ["DeepSeekMTPModel"], "model_type": "deepseek_mtp"}, "mtp"),
        ({"architectures": ["EagleDeepSeekMTPModel"], "model_type": "eagle"}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "draft_model"),
        ({"architectures": ["Eagle3Speculator"], "speculators_config": {"algorithm": "eagle3"}}, "eagle3"),
        ({"architectures": ["X"], "speculators_config": {"algorithm": "dflash"}}, "dflash"),
        ({"architectures": ["BertModel"], "model_type": "bert"}, None),
        ({}, None),
    ],
)
def test_the_method_is_read_from_the_configuration(config: dict[str, Any], method: str | None) -> None:
    assert method_of(config) == method


def test_a_head_s_folder(tmp_path: Path) -> None:
    path = folder(tmp_path / "head", {"architectures": ["LlamaForCausalLMEagle3"]})
    draft = parse_draft(str(path), 4)
    assert (draft.name, draft.method, draft.path) == ("eagle3", "eagle3", str(path))
    assert json.loads(draft.speculative_config) == {
        "method": "eagle3", "model": str(path), "num_speculative_tokens": 4,
    }  # fmt: skip


def test_a_head_that_states_its_own_number_of_tokens(tmp_path: Path) -> None:
    speculators = {"algorithm": "eagle3", "proposal_methods": [{"speculative_tokens": 5}]}
    path = folder(tmp_path / "head", {"speculators_config": speculators})
    assert config_of(str(path))["num_speculative_tokens"] == 5


@pytest.mark.parametrize("word", ["mtp", "suffix"])
def test_words(word: str) -> None:
    assert config_of(word) == {"method": word, "num_speculative_tokens": 3}


def test_ngram_has_its_window() -> None:
    assert config_of("ngram", 5) == {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
    }  # fmt: skip
    assert "prompt_lookup_max" not in config_of("method=ngram,prompt_lookup_min=1")


@pytest.mark.parametrize(
    "spec", ['{"method": "ngram", "prompt_lookup_max": 3}', "method=ngram,prompt_lookup_max=3"]
)
def test_the_engine_s_own_configuration(spec: str) -> None:
    assert config_of(spec) == {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}


def test_names_and_draft_models(tmp_path: Path) -> None:
    path = folder(tmp_path / "m=1", {"architectures": ["LlamaForCausalLM"]})
    assert parse_draft(f"draft_model:{path}", 3).method == "draft_model"
    named = parse_draft(f"small={path}", 3)
    assert (named.name, named.path) == ("small", str(path))
    assert parse_draft("fast=ngram", 3).name == "fast"
    assert parse_draft('fast={"method": "mtp"}', 3).name == "fast"


def test_keys_are_sorted_so_that_equal_configurations_are_equal_text() -> None:
    one = parse_draft("method=ngram,prompt_lookup_min=1,prompt_lookup_max=3", 3)
    two = parse_draft("method=ngram,prompt_lookup_max=3,prompt_lookup_min=1", 3)
    assert one == two


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("nowhere", "there is no such folder"),
        ("draft_model:nowhere", "there is no such folder"),
        ("{", "is not JSON"),
        ("{}", "names no method"),
        ("method=ngram,oops", "'oops' has no value"),
        ('{"method": "eagle3", "rejection_sample_method": "synthetic"}', "lossy rule"),
        ("method=mtp,synthetic_acceptance_length=3", "lossy rule"),
        ("method=mtp,posterior_threshold=0.1", "lossy rule"),
        ("method=mtp,acceptance_method=typical_acceptance_sampler", "lossy rule"),
    ],
)
def test_what_cannot_be_meant_is_refused(spec: str, expected: str) -> None:
    with pytest.raises(InvalidPlan, match=expected):
        parse_draft(spec, 3)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "has no config.json"),
        ("{", "Cannot read"),
        ("[]", "is no JSON object"),
        ('{"architectures": ["BertModel"]}', "does not tell the speculative method.*method"),
    ],
)
def test_folders_that_are_no_draft(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidPlan, match=expected):
        parse_draft(str(tmp_path), 3)


def test_block_verification_is_lossless() -> None:
    assert config_of("method=mtp,rejection_sample_method=block")["rejection_sample_method"] == "block"
