"""What a head's weight files say against its configuration and its target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from auditor.model.judgement import Finding
from auditor.model.plan import Draft
from auditor.plan.findings import Config, aux_layers, finding, text_config
from auditor.plan.safetensors import BadHeader, Tensor, read_headers, read_integers


def lint_weights(draft: Draft, folder: Path, config: Config, target: Config) -> Iterator[Finding]:
    try:
        tensors = read_headers(folder)
    except BadHeader as err:
        yield finding(
            "DRAFT-WEIGHTS",
            "error",
            f"unreadable weights: {err}",
            "whole safetensors files",
            "copy the draft again",
            draft.name,
        )
        return
    if not tensors:
        if not any(folder.glob("*.bin")) and not any(folder.glob("*.pt")):
            yield finding(
                "DRAFT-WEIGHTS",
                "error",
                "the folder holds no weights",
                "*.safetensors",
                "copy the draft again",
                draft.name,
            )
        return
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            named = set(json.loads(index.read_text("utf-8"))["weight_map"])
        except (OSError, ValueError, KeyError, TypeError):
            named = set()
        if missing := sorted(named - set(tensors)):
            yield finding(
                "DRAFT-WEIGHTS",
                "error",
                f"{len(missing)} tensors are missing, first {missing[0]}",
                "all shards",
                "copy the draft again",
                draft.name,
            )
    if draft.method == "eagle3":
        yield from _eagle3_tensors(draft, folder, tensors, config, target)


def _eagle3_tensors(
    draft: Draft, folder: Path, tensors: Mapping[str, Tensor], config: Config, target: Config
) -> Iterator[Finding]:
    vocabulary = text_config(target).get("vocab_size")
    small = config.get("draft_vocab_size", vocabulary)
    wanted = {"d2t": (small,), "t2d": (vocabulary,)}
    by_name = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    for name, shape in wanted.items():
        tensor = by_name.get(name)
        if tensor is not None and tensor.shape != shape:
            yield finding(
                "DRAFT-VOCABULARY-MAP",
                "error",
                f"{name} has the shape {list(tensor.shape)}",
                f"{list(shape)}",
                "correct draft_vocab_size or rebuild the map",
                draft.name,
            )
        elif tensor is None and name == "d2t" and small != vocabulary:
            yield finding(
                "DRAFT-VOCABULARY-MAP",
                "error",
                f"draft_vocab_size is {small} of {vocabulary}, without d2t",
                "a d2t tensor of offsets",
                "save the head with its vocabulary map",
                draft.name,
            )
    head = by_name.get("lm_head.weight")
    if head is not None and isinstance(small, int) and head.shape[:1] != (small,):
        yield finding(
            "DRAFT-VOCABULARY",
            "error",
            f"lm_head has {head.shape[0]} rows",
            f"{small}, draft_vocab_size",
            "correct draft_vocab_size",
            draft.name,
        )
    if head is None and small != vocabulary:
        yield finding(
            "DRAFT-WEIGHTS",
            "error",
            "the head has no lm_head.weight",
            f"one with {small} rows",
            "save the head with its lm_head",
            draft.name,
        )
    if "fc.weight" not in by_name:
        yield finding(
            "DRAFT-WEIGHTS",
            "warning",
            "the head has no fc.weight",
            "the projection of the target's hidden states",
            "check the export",
            draft.name,
        )
    yield from _projection(draft, by_name, config, target)
    yield from _map_values(draft, folder, tensors, vocabulary)


def _projection(
    draft: Draft, by_name: Mapping[str, Tensor], config: Config, target: Config
) -> Iterator[Finding]:
    """`fc` takes one target hidden state an auxiliary layer."""
    fc, width = by_name.get("fc.weight"), text_config(target).get("hidden_size")
    ids = aux_layers(config)
    count = len(ids) if isinstance(ids, list) else 3
    if fc is not None and isinstance(width, int) and fc.shape[1:] != (count * width,):
        yield finding(
            "DRAFT-AUX-LAYERS",
            "error",
            f"fc takes {fc.shape[-1]} values",
            f"{count * width}: {count} hidden states of {width}",
            "correct eagle_aux_hidden_state_layer_ids",
            draft.name,
        )


def _map_values(
    draft: Draft, folder: Path, tensors: Mapping[str, Tensor], vocabulary: object
) -> Iterator[Finding]:
    """d2t holds offsets: draft id + offset is a target id."""
    name = next((n for n in ("d2t", "model.d2t") if n in tensors), None)
    offsets = read_integers(folder, name) if name else None
    if offsets is None or not isinstance(vocabulary, int):
        return
    mapped = [i + offset for i, offset in enumerate(offsets)]
    outside = sum(not 0 <= t < vocabulary for t in mapped)
    repeated = len(mapped) - len(set(mapped))
    if outside or repeated:
        yield finding(
            "DRAFT-VOCABULARY-MAP",
            "error",
            f"d2t maps {outside} draft ids outside the target's vocabulary and {repeated} to taken ids",
            "offsets from draft id to target id, each target id once",
            "d2t holds offsets, not target ids: rebuild it",
            draft.name,
        )
