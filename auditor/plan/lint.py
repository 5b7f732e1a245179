"""What can be said of target and drafts from their files, before a server starts.

Errors cannot succeed and stop the plan; warnings go into the record with their remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from auditor.errors import InvalidPlan
from auditor.model.judgement import Finding
from auditor.model.plan import Arm, Draft
from auditor.plan.drafts import read_config
from auditor.plan.findings import Config, aux_layers, finding, inner_config, text_config
from auditor.plan.lint_weights import lint_weights
from auditor.plan.safetensors import BadHeader, read_headers

_HEADS = ("eagle", "eagle3", "medusa", "dflash", "mlp_speculator")
_LEAKS = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "min_p": 0.0,
}
"""Fields of generation_config.json that engines apply to requests which leave them out: neutral values."""
_MTP_LAYERS = re.compile(r"nextn|mtp|n_predict", re.I)
"""Names of a target's own prediction layers, in config.json and among tensors: they differ by family."""


def lint_draft(
    draft: Draft, folder: Path, target: Config, target_folder: Path, served_length: int | None
) -> tuple[Finding, ...]:
    """Findings on a head or draft model in `folder` against its target's config.json.

    `served_length` is the served length in tokens, None when unknown.
    """
    config = read_config(folder, f"the draft {draft.name}")
    return tuple(
        [
            *_sizes(draft, config, target),
            *_layers(draft, config, target),
            *_positions(draft, config, served_length),
            *lint_weights(draft, folder, config, target),
            *_tokenizer(draft, folder, target_folder),
            *_dtype(draft, config, target),
        ]
    )


def lint_native(draft: Draft, target: Config, folder: Path) -> tuple[Finding, ...]:
    """A draft without a folder of its own is the target's multi-token prediction layer: is there one?

    Some families have the layer without a field that counts it, so that without one the tensors decide;
    where those cannot be read nothing is said.
    """
    counts = {
        k: v for k, v in {**target, **text_config(target)}.items() if _MTP_LAYERS.search(k) and type(v) is int
    }
    if any(counts.values()):
        return ()
    seen = "the target's config.json has " + ", ".join(f"{k} {v}" for k, v in counts.items())
    if not counts:
        try:
            tensors = read_headers(folder)
        except BadHeader:
            return ()
        if not tensors or any(map(_MTP_LAYERS.search, tensors)):
            return ()
        seen += (
            "no field that counts multi-token prediction layers, and none of its "
            f"{len(tensors)} tensors is named after one"
        )
    return (
        finding(
            "DRAFT-NO-MTP-LAYER",
            "warning",
            seen,
            "a target with such a layer, for example num_nextn_predict_layers 1",
            "serve the checkpoint that has the layer, or name another draft",
            draft.name,
        ),
    )


def lint_generation_config(target_folder: Path) -> tuple[Finding, ...]:
    """Sampling defaults of the target that would leak into requests, and stop ids that differ."""
    path = target_folder / "generation_config.json"
    if not path.is_file():
        return ()
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        return (
            finding(
                "GENERATION-CONFIG-UNREADABLE",
                "warning",
                "generation_config.json cannot be read",
                "an object or no file",
                "repair or remove it",
                "target",
            ),
        )
    findings = []
    leaking = {
        key: found[key]
        for key, neutral in _LEAKS.items()
        if key in found and found[key] not in (None, neutral)
    }
    if leaking:
        shown = ", ".join(f"{key} {value}" for key, value in leaking.items())
        findings.append(
            finding(
                "GENERATION-CONFIG-SAMPLING",
                "warning",
                f"the target's generation_config.json sets {shown}",
                "neutral values, which the audit sends with every request",
                "expect other outputs in service unless clients also send 1.0 and 0",
                "target",
            )
        )
    findings += _stop_ids(found, target_folder)
    return tuple(findings)


def refuse_errors(findings: tuple[Finding, ...]) -> None:
    """Raise InvalidPlan for the first finding of severity error."""
    for found in findings:
        if found.severity == "error":
            raise InvalidPlan(f"{found.subject}: {found.seen}", expected=found.expected, todo=found.remedy)


def lint_arms(arms: tuple[Arm, ...]) -> tuple[Finding, ...]:
    """Arms that differ in more than the speculative configuration by the plan's own words."""
    findings = []
    for arm in arms:
        if arm.extra_args:
            findings.append(
                finding(
                    "ARM-EXTRA-FLAGS",
                    "warning",
                    f"{arm.name} alone gets {' '.join(arm.extra_args)}",
                    "arms that differ in the speculative configuration only",
                    "remove --candidate-args unless this is a negative control",
                    arm.name,
                )
            )
        if arm.target:
            findings.append(
                finding(
                    "ARM-OTHER-TARGET",
                    "warning",
                    f"{arm.name} serves {Path(arm.target).name} instead of the target",
                    "one target for all arms",
                    "remove --candidate-target unless this is a negative control",
                    arm.name,
                )
            )
    return tuple(findings)


def _sizes(draft: Draft, config: Config, target: Config) -> Iterator[Finding]:
    inner, outer = inner_config(config), text_config(target)
    mine, theirs = inner.get("vocab_size"), outer.get("vocab_size")
    if isinstance(mine, int) and isinstance(theirs, int) and mine != theirs:
        # A draft model with a padded vocabulary is served; a head shares the target's embedding rows.
        severity: Literal["error", "warning"] = "error" if draft.method in _HEADS else "warning"
        yield finding(
            "DRAFT-VOCABULARY",
            severity,
            f"the draft's vocabulary has {mine} ids",
            f"{theirs}, the target's",
            "use a draft made for this target",
            draft.name,
        )
    small = config.get("draft_vocab_size")
    if isinstance(small, int) and isinstance(theirs, int) and not 0 < small <= theirs:
        yield finding(
            "DRAFT-VOCABULARY",
            "error",
            f"draft_vocab_size is {small}",
            f"1 to {theirs}, the target's",
            "correct config.json",
            draft.name,
        )
    width = config.get("target_hidden_size", inner.get("hidden_size"))
    wanted = outer.get("hidden_size")
    if draft.method in ("eagle", "eagle3", "medusa") and isinstance(width, int) and width != wanted:
        yield finding(
            "DRAFT-HIDDEN-SIZE",
            "error",
            f"the head takes hidden states of {width}",
            f"{wanted}, the target's",
            "use a head made for this target",
            draft.name,
        )


def _layers(draft: Draft, config: Config, target: Config) -> Iterator[Finding]:
    if draft.method not in ("eagle3", "dflash"):
        return
    depth = text_config(target).get("num_hidden_layers")
    ids = aux_layers(config)
    if not isinstance(depth, int):
        return
    if ids is None:
        # The engine's defaults are layers 2, depth // 2 and depth - 3.
        if draft.method == "eagle3" and not 2 < depth // 2 < depth - 3:
            yield finding(
                "DRAFT-AUX-LAYERS",
                "error",
                f"the head names no auxiliary layers and the target has {depth}",
                "eagle_aux_hidden_state_layer_ids: the engine's default layers 2, n/2 and n-3 coincide here",
                "add eagle_aux_hidden_state_layer_ids to the head's config.json",
                draft.name,
            )
        return
    if not isinstance(ids, list) or not all(isinstance(i, int) and 0 <= i <= depth for i in ids):
        yield finding(
            "DRAFT-AUX-LAYERS",
            "error",
            f"auxiliary layers {ids}",
            f"ids from 0 to {depth}, the target's depth",
            "correct eagle_aux_hidden_state_layer_ids",
            draft.name,
        )
    elif len(set(ids)) < len(ids):
        yield finding(
            "DRAFT-AUX-LAYERS",
            "warning",
            f"auxiliary layers {ids} repeat",
            "distinct layers",
            "check eagle_aux_hidden_state_layer_ids",
            draft.name,
        )


def _positions(draft: Draft, config: Config, served_length: int | None) -> Iterator[Finding]:
    positions = inner_config(config).get("max_position_embeddings")
    if isinstance(positions, int) and served_length is not None and positions < served_length:
        yield finding(
            "DRAFT-POSITIONS",
            "warning",
            f"the draft knows {positions} positions",
            f"at least {served_length}, the served length: some engine versions read past the table and die",
            f"serve with --max-model-len {positions}, or raise max_position_embeddings in its config.json",
            draft.name,
        )


def _tokenizer(draft: Draft, folder: Path, target_folder: Path) -> Iterator[Finding]:
    mine, theirs = _vocabulary(folder), _vocabulary(target_folder)
    if mine is None or theirs is None:
        return
    differing = [token for token, i in mine.items() if theirs.get(token) != i]
    if differing:
        yield finding(
            "DRAFT-TOKENIZER",
            "warning",
            f"{len(differing)} of {len(mine)} tokens of the draft have other ids in the target's tokenizer, "
            f"for example {differing[0]!r}",
            "the same tokenizer",
            "use a draft made for this target",
            draft.name,
        )


def _vocabulary(folder: Path) -> dict[str, int] | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        vocabulary = json.loads(path.read_text("utf-8"))["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return vocabulary if isinstance(vocabulary, dict) else None


def _dtype(draft: Draft, config: Config, target: Config) -> Iterator[Finding]:
    def dtype(config: Config) -> object:
        inner = text_config(config)
        return inner.get("dtype") or inner.get("torch_dtype")

    mine, theirs = dtype(config), dtype(target)
    if mine and theirs and mine != theirs:
        yield finding(
            "DRAFT-DTYPE",
            "note",
            f"the draft is saved as {mine}",
            f"{theirs}, the target's",
            "the engine serves both in the target's type",
            draft.name,
        )


def _stop_ids(generation: Config, target_folder: Path) -> Iterator[Finding]:
    try:
        config = text_config(read_config(target_folder, "the target"))
    except InvalidPlan:
        return
    ids, own = generation.get("eos_token_id"), config.get("eos_token_id")
    if ids is not None and own is not None and _as_set(ids) != _as_set(own):
        yield finding(
            "GENERATION-CONFIG-STOP",
            "note",
            f"generation_config.json stops at {sorted(_as_set(ids))}, config.json at {sorted(_as_set(own))}",
            "the same stop ids",
            "none needed: every arm gets the same ids, also with --generation-config vllm",
            "target",
        )


def _as_set(ids: object) -> set[int]:
    return {int(i) for i in ids} if isinstance(ids, list) else {int(str(ids))}
