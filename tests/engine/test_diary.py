"""Launch diaries from small excerpts, in the formats of Triton, Inductor, FlashInfer and vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.engine import diary

PRINTED = """\
(EngineCore pid=77) INFO 11-30 21:47:45 [core.py:133] Initializing a V1 LLM engine (v0.25.1)
Triton autotuning for function _chunk_cumsum_fwd_kernel,
with key as (256, 64, 'torch.bfloat16', 'torch.float32'),
finished after 1.93s,
best config selected: BLOCK_SIZE_H: 4, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None;
Triton autotuning for function _state_passing_fwd_kernel,
(APIServer pid=9) INFO 11-30 21:47:46 [api.py:1] a line of another process
with key as (128,),
finished after 0.20s,
best config selected: BLOCK_SIZE: 64, num_warps: 2, num_ctas: 1, num_stages: 3, maxnreg: None;
Triton autotuning for function old, with key as (1, 2), finished after 0.10s, best config selected: B: 1;
"""

CACHED = {
    "key": [256, 64, "torch.bfloat16", "torch.float32"],
    "configs_timings": [
        [{"kwargs": {"BLOCK_SIZE_H": 2}, "num_warps": 4, "num_stages": 2, "num_ctas": 1, "maxnreg": None,
          "pre_hook": None, "ir_override": None}, [0.0057, 0.0056, 0.0059]],
        [{"kwargs": {"BLOCK_SIZE_H": 4}, "num_warps": 4, "num_stages": 2, "num_ctas": 1, "maxnreg": None,
          "pre_hook": None, "ir_override": None}, [0.0055, 0.0055, 0.0056]],
        [{"kwargs": {"BLOCK_SIZE_H": 8}, "num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": None,
          "pre_hook": None, "ir_override": None}, [float("inf")] * 3],
    ],
}  # fmt: skip

INDUCTOR = """\
V1130 21:40:00.1 77 triton_heuristics.py:1596] [0/0] Best config for \
triton_red_fused_add_rms_norm_0: XBLOCK: 1, R0_BLOCK: 2048, num_warps: 16, num_stages: 1: \
0.006304, nreg 32, nspill 0, #shared-mem 64
V1130 21:40:01.1 77 triton_heuristics.py:807] Dynamically scale down \
triton_red_1 from TritonConfig(XBLOCK: 8, R0_BLOCK: 512) and get a new TritonConfig(XBLOCK: 8, R0_BLOCK: 256)
"""

STARTUP = """\
(EngineCore pid=5) INFO 11-30 12:00:00 [cuda.py:507] Using FLASH_ATTN attention backend out of \
potential backends: ['FLASH_ATTN', 'FLASHINFER'].
(EngineCore pid=5) INFO 11-30 12:00:00 [unquantized.py:266] Using TRITON Unquantized MoE backend out of
(EngineCore pid=5) INFO 11-30 12:00:00 [ssu_dispatch.py:635] Using triton Mamba SSU backend.
(EngineCore pid=5) INFO 11-30 12:00:01 [backends.py:1105] Using cache directory: \
/x/torch_compile_cache/0123456789/rank_0_0/backbone for vLLM's torch.compile
(EngineCore pid=5) INFO 11-30 12:00:02 [executor.py:1] # GPU blocks: 12,345, # CPU blocks: 0
(APIServer pid=4) WARNING 11-30 12:00:03 [x.py:1] Default vLLM sampling parameters have been overridden
(APIServer pid=4) WARNING 11-30 12:00:04 [x.py:1] Default vLLM sampling parameters have been overridden
"""


def test_triton_prints() -> None:
    found = diary.triton_prints(PRINTED)
    assert [c.kernel for c in found] == ["_chunk_cumsum_fwd_kernel", "_state_passing_fwd_kernel", "old"]
    assert found[0].key == "(256, 64, 'torch.bfloat16', 'torch.float32')"
    assert found[0].chosen == "BLOCK_SIZE_H: 4, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None"
    assert found[1].key == "(128,)"


def test_autotune_cache_holds_the_race() -> None:
    choice = diary.parse_autotune_json("_chunk_cumsum_fwd_kernel", json.dumps(CACHED))
    assert choice is not None
    assert choice.chosen == "BLOCK_SIZE_H: 4, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None"
    assert [t.microseconds for t in choice.timings] == [5.5, 5.7, None]
    assert choice.key == "(256, 64, 'torch.bfloat16', 'torch.float32')"


def test_inductor_lines() -> None:
    best, scaled = diary.inductor_lines(INDUCTOR.splitlines())
    assert best.kernel == "triton_red_fused_add_rms_norm_0"
    assert best.chosen.startswith("XBLOCK: 1, R0_BLOCK: 2048")
    assert best.timings[0].microseconds == pytest.approx(6.304)
    assert (scaled.kernel, scaled.chosen) == ("triton_red_1", "XBLOCK: 8, R0_BLOCK: 256")


def test_start_up_lines() -> None:
    lines = STARTUP.splitlines()
    assert {b.name: b.value for b in diary.backends(lines)} == {
        "attention": "FLASH_ATTN",
        "moe": "TRITON",
        "mamba": "triton",
    }
    assert diary.kv_blocks(lines) == 12345
    assert diary.compile_hash(lines) == "0123456789"


def test_a_whole_diary(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(PRINTED + STARTUP + INDUCTOR)
    cache = tmp_path / "triton-cache" / "ABC"
    cache.mkdir(parents=True)
    (cache / "_chunk_cumsum_fwd_kernel.autotune.json").write_text(json.dumps(CACHED))
    (cache / "broken.autotune.json").write_text('{"configs_timings": [[1]]}')
    inductor = tmp_path / "vllm-cache" / "inductor"
    inductor.mkdir(parents=True)
    (inductor / "cabc.best_config").write_text('{"XBLOCK": 1, "num_warps": 8, "configs_hash": "ff"}')
    (tmp_path / "vllm-cache" / "autotuner_cache.json").write_text('{"_meta": 1, "(\'moe\', 8)": [3, 2]}')
    found = diary.read_diary(log, tmp_path)
    by_kernel = {c.kernel: c for c in found.choices}
    # the cache's choice, with timings, stands for the printed one
    assert by_kernel["_chunk_cumsum_fwd_kernel"].source == "triton-cache"
    assert by_kernel["_state_passing_fwd_kernel"].source == "triton-log"
    assert by_kernel["inductor cabc"].chosen == "XBLOCK: 1, num_warps: 8"
    assert by_kernel["flashinfer"].key == "('moe', 8)"
    assert sum(c.kernel == "_chunk_cumsum_fwd_kernel" for c in found.choices) == 1
    assert any("broken.autotune.json" in w for w in found.warnings)
    assert sum("sampling parameters" in w for w in found.warnings) == 1
    assert found.kv_blocks == 12345


def test_no_log_and_no_cache_is_an_empty_diary(tmp_path: Path) -> None:
    found = diary.read_diary(tmp_path / "none.log", tmp_path / "nowhere")
    assert found == diary.Diary()
    assert found.kv_blocks is None


@given(st.text(max_size=400))
def test_no_text_breaks_the_log_parsers(text: str) -> None:
    lines = text.splitlines()
    diary.triton_prints(text)
    list(diary.inductor_lines(lines))
    diary.backends(lines)
    diary.kv_blocks(lines)
    assert all(isinstance(diary.strip_prefix(line), str) for line in lines)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda leaf: (
            st.lists(leaf, max_size=3) | st.dictionaries(st.sampled_from(["key", "configs_timings"]), leaf)
        ),
        max_leaves=8,
    )
)
def test_no_json_breaks_the_cache_reader(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    folder = tmp_path_factory.mktemp("cache")
    (folder / "k.autotune.json").write_text(json.dumps(data))
    found = diary.read_diary(folder / "no.log", folder)
    assert len(found.choices) + len(found.warnings) <= 1
