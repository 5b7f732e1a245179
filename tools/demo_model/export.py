"""Write the models as checkpoints that vLLM loads, and the manifest over them."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
from draft import AUX_LAYERS, MTP, Eagle3
from model import Shape, Target
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokens import BOS, BOS_ID, EOS, EOS_ID, PAD, PAD_ID
from torch import Tensor

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}Question: {{ message['content'] }}\n"
    "{% elif message['role'] == 'assistant' %}Answer: {{ message['content'] }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}Answer:{% endif %}"
)


def rounded(target: Target) -> Target:
    """The target with its weights rounded to bf16, in place: drafts learn from what will be served."""
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return target


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _config(shape: Shape, **more: object) -> dict[str, object]:
    return {
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "max_position_embeddings": shape.positions,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.heads,
        "rms_norm_eps": shape.epsilon,
        "rope_parameters": {"rope_theta": shape.rope_base, "rope_type": "default"},
        "rope_theta": shape.rope_base,
        "tie_word_embeddings": False,
        "vocab_size": shape.vocabulary,
    } | more


def _save(tensors: dict[str, Tensor], folder: Path) -> None:
    """bf16 for weights; integer and boolean tensors (d2t, t2d) stay what they are."""
    rows = {
        name: (tensor.detach().bfloat16() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    path = folder / "model.safetensors"
    save_file(rows, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors creates it readable by its owner alone


def _language_model(folder: Path, shape: Shape, tokenizer: Tokenizer) -> None:
    """The files that a served model has beside its weights and config.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": BOS,
            "eos_token": EOS,
            "pad_token": PAD,
            "clean_up_tokenization_spaces": False,
            "model_max_length": shape.positions,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_json(
        folder / "generation_config.json",
        {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID},
    )


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def export_target(target: Target, tokenizer: Tokenizer, folder: Path) -> None:
    """A Llama checkpoint."""
    _fresh(folder)
    _save(target.state_dict(), folder)
    config = _config(
        target.shape,
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        head_dim=target.shape.hidden // target.shape.heads,
        attention_bias=False,
        mlp_bias=False,
    )
    _write_json(folder / "config.json", config)
    _language_model(folder, target.shape, tokenizer)


def export_head(head: Eagle3, folder: Path) -> None:
    """An EAGLE-3 checkpoint without an embedding: the engine shares the target's.

    d2t[i] is target id minus draft id i; t2d marks the target ids that can be proposed.
    """
    _fresh(folder)
    size = len(head.tokens)
    reachable = torch.zeros(head.shape.vocabulary, dtype=torch.bool)
    reachable[head.tokens] = True
    _save(head.state_dict() | {"d2t": head.tokens - torch.arange(size), "t2d": reachable}, folder)
    config = _config(
        head.shape,
        architectures=["LlamaForCausalLMEagle3"],
        model_type="llama",
        head_dim=head.shape.hidden // head.shape.heads,
        attention_bias=False,
        mlp_bias=False,
        num_hidden_layers=1,
        draft_vocab_size=size,
        eagle_aux_hidden_state_layer_ids=list(AUX_LAYERS),
    )
    _write_json(folder / "config.json", config)


def export_mtp(target: Target, mtp: MTP, tokenizer: Tokenizer, folder: Path) -> None:
    """A MiMo checkpoint: Qwen2 is Llama with biases on q, k and v, here zero, plus the MTP layer."""
    _fresh(folder)
    tensors = target.state_dict() | {
        f"model.mtp_layers.0.{name}": tensor for name, tensor in mtp.state_dict().items()
    }
    for name in [
        name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    ]:
        tensors[name.replace(".weight", ".bias")] = torch.zeros(target.shape.hidden)
    _save(tensors, folder)
    config = _config(
        target.shape,
        architectures=["MiMoForCausalLM"],
        model_type="qwen2",
        num_nextn_predict_layers=1,
        attention_dropout=0.0,
        use_sliding_window=False,
    )
    _write_json(folder / "config.json", config)
    _language_model(folder, target.shape, tokenizer)


def write_manifest(demo: Path, corpus: Path, root: Path, machine: str, date: str) -> None:
    """auditor/demo/MANIFEST.toml: provenance, and size and sha256 of every artefact."""
    lines = [
        "# The demo's trained models and test problems. Written by tools/demo_model/train.py.",
        "[provenance]",
        'origin = "trained from scratch by tools/demo_model on problems generated there"',
        'licence = "Apache-2.0, as the project"',
        f'machine = "{machine}"',
        f'date = "{date}"',
        'command = "python tools/demo_model/train.py --all (README.md there: devices and seeds)"',
        "",
    ]
    files = [path for name in ("target", "head", "mtp") for path in sorted((demo / name).glob("*"))]
    for path in files + sorted(corpus.glob("*.jsonl")):
        content = path.read_bytes()
        lines += [
            "[[files]]",
            f'path = "{path.relative_to(root).as_posix()}"',
            f"bytes = {len(content)}",
            f'sha256 = "{hashlib.sha256(content).hexdigest()}"',
            "",
        ]
    (demo / "MANIFEST.toml").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
