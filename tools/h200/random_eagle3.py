"""Write a random-weight one-layer EAGLE-3 head for the target of random_nemotron.py.

python random_eagle3.py DIR
"""

import json
import sys
from pathlib import Path

import torch
from random_nemotron import BOS, EOS, HEAD, HEADS, HIDDEN, KV_HEADS, PAD, VOCABULARY, ones
from safetensors.torch import save_file

MLP, DRAFT_VOCABULARY = 7168, 8192
AUX_LAYERS = (1, 4, 7)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "num_hidden_layers": 1,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT_VOCABULARY,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "rope_theta": 10000.0,
        "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))

    def normal(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) * 0.02).to(torch.bfloat16)

    drafted = torch.arange(0, VOCABULARY, VOCABULARY // DRAFT_VOCABULARY)
    reachable = torch.zeros(VOCABULARY, dtype=torch.bool)
    reachable[drafted] = True
    tensors = {
        "fc.weight": normal(HIDDEN, len(AUX_LAYERS) * HIDDEN),
        "midlayer.hidden_norm.weight": ones(HIDDEN),
        "midlayer.input_layernorm.weight": ones(HIDDEN),
        "midlayer.post_attention_layernorm.weight": ones(HIDDEN),
        "midlayer.self_attn.q_proj.weight": normal(HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": normal(KV_HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": normal(KV_HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": normal(HIDDEN, HEADS * HEAD),
        "midlayer.mlp.gate_proj.weight": normal(MLP, HIDDEN),
        "midlayer.mlp.up_proj.weight": normal(MLP, HIDDEN),
        "midlayer.mlp.down_proj.weight": normal(HIDDEN, MLP),
        "norm.weight": ones(HIDDEN),
        "lm_head.weight": normal(DRAFT_VOCABULARY, HIDDEN),
        "d2t": drafted - torch.arange(DRAFT_VOCABULARY),
        "t2d": reachable,
    }
    save_file(tensors, folder / "model.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
