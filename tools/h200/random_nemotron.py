"""Write a random-weight nemotron_h target (Mamba-2, MoE, attention) at real layer shapes with few layers.

    python random_nemotron.py DIR [PATTERN]

PATTERN has a letter a layer: M Mamba-2, E mixture of experts, * attention. Good for launch states, agreement
and divergences; meaningless for accuracy. Needs torch with CUDA, transformers and safetensors; 5.6 GB of disk
for MEM*EM*M.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HIDDEN, VOCABULARY = 2688, 32768
MAMBA_HEADS, MAMBA_HEAD, STATE, GROUPS, CONV = 64, 64, 128, 8, 4
EXPERTS, TOP_K, EXPERT, SHARED_EXPERT = 128, 6, 1856, 3712
HEADS, KV_HEADS, HEAD = 32, 2, 128
BOS, EOS, PAD = 256, 257, 258

Tensors = dict[str, torch.Tensor]


def config(pattern: str) -> dict[str, object]:
    return {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": EXPERT,
        "num_hidden_layers": len(pattern),
        "hybrid_override_pattern": pattern,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "attention_head_dim": HEAD,
        "mlp_hidden_act": "relu2",
        "attention_bias": False,
        "mlp_bias": False,
        "use_bias": False,
        "layer_norm_epsilon": 1e-5,
        "ssm_state_size": STATE,
        "mamba_num_heads": MAMBA_HEADS,
        "mamba_head_dim": MAMBA_HEAD,
        "n_groups": GROUPS,
        "conv_kernel": CONV,
        "expand": 2,
        "mamba_hidden_act": "silu",
        "time_step_min": 0.001,
        "time_step_max": 0.1,
        "time_step_floor": 1e-4,
        "use_conv_bias": True,
        "mamba_proj_bias": False,
        "chunk_size": 128,
        "n_routed_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "n_shared_experts": 1,
        "moe_intermediate_size": EXPERT,
        "moe_shared_expert_intermediate_size": SHARED_EXPERT,
        "routed_scaling_factor": 2.5,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "torch_dtype": "bfloat16",
        "residual_in_fp32": False,
        "rescale_prenorm_residual": True,
        "mamba_ssm_cache_dtype": "float32",
    }


class Weights:
    """Seeded normal weights in bf16, drawn on the GPU."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(self, *shape: int, deviation: float = 0.02) -> torch.Tensor:
        drawn = torch.randn(*shape, generator=self._generator, device="cuda") * deviation
        return drawn.to(torch.bfloat16).cpu()

    def layer(self, prefix: str, kind: str) -> Tensors:
        mixer = f"{prefix}mixer."
        return {f"{prefix}norm.weight": ones(HIDDEN)} | {
            f"{mixer}{name}": tensor
            for name, tensor in {"M": self._mamba, "*": self._attention, "E": self._experts}[kind]().items()
        }

    def _mamba(self) -> Tensors:
        inner = MAMBA_HEADS * MAMBA_HEAD
        conv = inner + 2 * GROUPS * STATE
        return {
            "in_proj.weight": self.normal(inner + conv + MAMBA_HEADS, HIDDEN),
            "conv1d.weight": self.normal(conv, 1, CONV, deviation=0.3),
            "conv1d.bias": self.normal(conv, deviation=0.1),
            "A_log": torch.log(torch.arange(1, MAMBA_HEADS + 1).float()).to(torch.bfloat16),
            "D": ones(MAMBA_HEADS),
            "dt_bias": self.normal(MAMBA_HEADS, deviation=0.5),
            "norm.weight": ones(inner),
            "out_proj.weight": self.normal(HIDDEN, inner),
        }

    def _attention(self) -> Tensors:
        return {
            "q_proj.weight": self.normal(HEADS * HEAD, HIDDEN),
            "k_proj.weight": self.normal(KV_HEADS * HEAD, HIDDEN),
            "v_proj.weight": self.normal(KV_HEADS * HEAD, HIDDEN),
            "o_proj.weight": self.normal(HIDDEN, HEADS * HEAD),
        }

    def _experts(self) -> Tensors:
        tensors = {
            "gate.weight": self.normal(EXPERTS, HIDDEN),
            "gate.e_score_correction_bias": torch.zeros(EXPERTS),
            "shared_experts.up_proj.weight": self.normal(SHARED_EXPERT, HIDDEN),
            "shared_experts.down_proj.weight": self.normal(HIDDEN, SHARED_EXPERT),
        }
        for expert in range(EXPERTS):
            tensors[f"experts.{expert}.up_proj.weight"] = self.normal(EXPERT, HIDDEN)
            tensors[f"experts.{expert}.down_proj.weight"] = self.normal(HIDDEN, EXPERT)
        return tensors


def ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bfloat16)


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges: any text can be encoded."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate(alphabet)}
    vocabulary |= {f"<x{i}>": i for i in range(len(alphabet), VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=f"<x{BOS}>", eos_token=f"<x{EOS}>", pad_token=f"<x{PAD}>"
    ).save_pretrained(folder)


def main(folder: Path, pattern: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(pattern), indent=1))
    weights = Weights()
    index: dict[str, str] = {}

    def write(number: int, tensors: Tensors) -> None:
        name = f"model-{number:05d}.safetensors"
        save_file(tensors, folder / name)
        index.update(dict.fromkeys(tensors, name))

    write(
        0,
        {
            "backbone.embeddings.weight": weights.normal(VOCABULARY, HIDDEN, deviation=1.0),
            "backbone.norm_f.weight": ones(HIDDEN),
            "lm_head.weight": weights.normal(VOCABULARY, HIDDEN),
        },
    )
    for number, kind in enumerate(pattern):
        write(number + 1, weights.layer(f"backbone.layers.{number}.", kind))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    write_tokenizer(folder)
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": BOS, "eos_token_id": EOS}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "MEM*EM*M")
