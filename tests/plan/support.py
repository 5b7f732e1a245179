"""Small model folders: a byte-level tokenizer with a BOS, a configuration, and weights of zeros."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from auditor.model.plan import AuditPlan
from auditor.plan.config import resolve

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
NO_SHARED = "the corpora of ../shared/data are not beside this clone, and are not the project's to hold"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 259,
    "hidden_size": 16,
    "num_hidden_layers": 8,
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
_SIZES = {"F32": 4, "BF16": 2, "I64": 8, "BOOL": 1}


def tokenizer(*, bos: bool = True) -> Tokenizer:
    """256 bytes and three special tokens; every byte is one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {c: 3 + i for i, c in enumerate(alphabet)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<pad>", "<s>", "</s>"])
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def target(folder: Path, *, bos: bool = True, template: str | None = TEMPLATE, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(bos=bos).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": {"content": "</s>"}})
    write_json(folder / "config.json", {**CONFIG, **config})
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    weights(folder, {"lm_head.weight": ("F32", (4, 4))})
    return folder


def head(folder: Path, tensors: Mapping[str, tuple[str, Sequence[int]]] | None = None, **config: Any) -> Path:
    """An EAGLE-3 head that fits `target`."""
    folder.mkdir(parents=True, exist_ok=True)
    base = {
        **CONFIG,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 64,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 4],
    }
    merged = {key: value for key, value in {**base, **config}.items() if value is not None}
    write_json(folder / "config.json", merged)
    fitting = {
        "fc.weight": ("F32", (16, 48)),
        "lm_head.weight": ("F32", (64, 16)),
        "d2t": ("I64", (64,)),
        "t2d": ("BOOL", (259,)),
    }
    weights(folder, fitting if tensors is None else {**fitting, **tensors})
    return folder


def weights(
    folder: Path,
    tensors: Mapping[str, tuple[str, Sequence[int]]],
    values: Mapping[str, bytes] | None = None,
) -> None:
    """model.safetensors; a tensor without elements in its shape is left out."""
    header, data = {}, b""
    for name, (dtype, shape) in tensors.items():
        if not shape:
            continue
        raw = (values or {}).get(name, bytes(_SIZES[dtype] * math.prod(shape)))
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def plan(target: Path, **flags: object) -> AuditPlan:
    """A plan that needs no file outside the checkout, with more flags."""
    base: dict[str, object] = {
        "target": str(target),
        "draft": ("ngram",),
        "agreement.corpora": "sums",
        "accuracy.corpus": "sums",
        "accuracy.shots": "2",
    }
    return resolve(base | flags, {}).plan
