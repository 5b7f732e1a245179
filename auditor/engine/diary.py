"""What a launch tells about the kernels it chose: logs and tuning caches -> Diary.

Formats read (Triton 3.3 to 3.9, PyTorch 2.6 to 2.13, vLLM 0.25 to 0.33):
- `Triton autotuning for function X,\\nwith key as (…),\\nfinished after S s,\\nbest config selected: C;`
  (TRITON_PRINT_AUTOTUNING=1; one line in older versions; nothing on a cache hit)
- `<cache>/**/<kernel>.autotune.json`:
  {"key": [...], "configs_timings": [[{kwargs, num_warps, …}, [ms, ms, ms]], …]}
- Inductor: `Best config for …: …: <ms>, …`, `Dynamically scale down X from TritonConfig(A) and get a new
  TritonConfig(B)`, and `<cache>/**/*.best_config` (JSON)
- FlashInfer: `<cache>/**/autotuner*.json`, `flashinfer…autotune*.json`
- start-up lines that name a backend, KV blocks, the compile cache folder
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from auditor.model.launch import Diary, KernelChoice, Setting, Timing

_LARGEST_FILE = 32 << 20
_LONGEST_MS = 1e12
"""Larger timings, infinite ones among them, are how autotuners mark a configuration that failed."""
_PREFIX = re.compile(
    r"^(?:\((?P<proc>[^)]*pid=\d+[^)]*)\)\s*)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\s+"
    r"\[(?P<where>[^\]]*)\]\s?)?"
)
# another process's line may come between the four that Triton prints
_BETWEEN = r"(?:\s+|\s*\n[^\n]{0,400}\n\s*)"
_TRITON = re.compile(
    r"Triton autotuning for function (?P<kernel>[^\s,]+),?"
    + _BETWEEN
    + r"with key as (?P<key>\([^\n]*?\)),"
    + _BETWEEN
    + r"finished after (?P<seconds>[\d.]+)s,"
    + _BETWEEN
    + r"best config selected: (?P<best>[^;\n]*);"
)
_INDUCTOR_BEST = re.compile(
    r"Best config for (?P<kernel>[^\s:]+):\s*(?P<config>.*):\s*(?P<ms>\d{1,15}\.\d+)(?:, nreg|\s*$)"
)
_INDUCTOR_SCALED = re.compile(
    r"Dynamically scale down (?P<kernel>\S+) from TritonConfig\((?P<before>.*?)\) "
    r"and get a new TritonConfig\((?P<after>.*?)\)"
)
_BACKENDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"Using (?P<name>[\w ]+?) attention backend(?! for ViT)")),
    ("attention", re.compile(r"Using (?P<name>Flash Attention|FlashInfer|Triton|[A-Z_]+_ATTN) backend\b")),
    ("attention.mla", re.compile(r"Using (?P<name>\S+) MLA prefill backend")),
    ("moe", re.compile(r"Using '?(?P<name>[\w ]+?)'? (?:[\w\d]+ )?MoE backend", re.IGNORECASE)),
    ("mamba", re.compile(r"Using (?P<name>\S+) Mamba (?:SSU )?backend")),
    ("ssm", re.compile(r"Using (?P<name>\S+) ReplaySSM backend")),
    ("sampler", re.compile(r"Using (?P<name>FlashInfer|PyTorch-native|[\w-]+) (?:for )?top-p")),
    ("kda", re.compile(r"Using (?P<name>.+? KDA (?:decode|prefill)) backend")),
    ("all-reduce", re.compile(r"Using (?P<name>\[.*?\]) all-reduce backends")),
    ("collective", re.compile(r"world_size=\d+ rank=0 .*?backend=(?P<name>\w+)")),
    ("model-runner", re.compile(r"using the (?P<name>V\d) model runner")),
    ("kv-layout", re.compile(r"Using (?P<name>[A-Z]+) KV cache layout")),
    ("kernel-priority", re.compile(r"Final IR op priority after setting platform defaults: (?P<name>.*)$")),
)
_KV_BLOCKS = (
    re.compile(r"# (?:GPU|CPU|\w+) blocks: (?P<n>\d[\d,]{0,17})(?!\d)"),
    re.compile(r"num_gpu_blocks(?:_override)?[ =:]+(?P<n>\d[\d,]{0,17})(?!\d)"),
)
_COMPILE_DIR = re.compile(r"Using cache directory: \S*?torch_compile_cache/(?P<hash>[0-9a-f]{6,})")
_WARNING_LIMIT = 40


def read_diary(log: Path, cache_root: Path) -> Diary:
    """Everything that the log and the caches below `cache_root` tell. Unreadable pieces become warnings."""
    try:
        text = log.read_bytes().decode(errors="replace")
    except OSError:
        text = ""
    warnings: list[str] = []
    cached = list(_read_caches(cache_root, warnings))
    lines = text.splitlines()
    return Diary(
        choices=_merge([*triton_prints(text), *cached, *inductor_lines(lines)]),
        backends=backends(lines),
        kv_blocks=kv_blocks(lines),
        compile_hash=compile_hash(lines),
        warnings=(*warnings, *_log_warnings(lines)),
    )


def strip_prefix(line: str) -> str:
    """A log line without vLLM's process, level, time and source."""
    return line[_PREFIX.match(line).end() :] if line else line  # type: ignore[union-attr]


def parse_json(text: str) -> Any:
    """JSON of a server or of a cache, lone surrogates replaced: the record is UTF-8. Raises ValueError."""
    try:
        document = json.loads(text)
        if "\\ud" in text.lower():
            document = json.loads(printable(json.dumps(document, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return document


def printable(text: str) -> str:
    """The text with lone surrogates replaced, which names of files may hold too."""
    return text.encode("utf-8", "replace").decode("utf-8")


def triton_prints(text: str) -> tuple[KernelChoice, ...]:
    """Winners that Triton printed, in order; no timings there."""
    return tuple(
        KernelChoice(
            kernel=m["kernel"], key=_squeeze(m["key"]), chosen=_squeeze(m["best"]), source="triton-log"
        )
        for m in _TRITON.finditer(text)
    )


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def parse_autotune_json(name: str, text: str) -> KernelChoice | None:
    """One `*.autotune.json`; None when it holds no config. Raises ValueError when it is not that format.

    Triton stores milliseconds, the median first; the choice is the fastest, as Triton's own reading is.
    """
    data = parse_json(text)
    if not isinstance(data, dict) or not isinstance(data.get("configs_timings"), list):
        raise ValueError("no configs_timings")
    timed: list[tuple[float, Timing]] = []
    for entry in data["configs_timings"]:
        config, timing = entry
        milliseconds = timing[0] if isinstance(timing, list) else timing
        finite = isinstance(milliseconds, int | float) and abs(milliseconds) < _LONGEST_MS
        described = _config_text(config)
        microseconds = float(milliseconds) * 1000 if finite else None
        timed.append(
            (milliseconds if finite else math.inf, Timing(config=described, microseconds=microseconds))
        )
    if not timed:
        return None
    timed.sort(key=lambda pair: pair[0])  # stable: a tie goes to the first config, as in Triton
    key = data.get("key")
    return KernelChoice(
        kernel=name,
        key="(" + ", ".join(map(repr, key)) + ")" if isinstance(key, list) else str(key),
        chosen=timed[0][1].config,
        source="triton-cache",
        timings=tuple(t for _, t in timed),
    )


def _config_text(config: Mapping[str, Any]) -> str:
    """As Triton prints a Config: its kwargs, then warps, CTAs, stages, registers."""
    words = [f"{k}: {v}" for k, v in dict(config.get("kwargs", {})).items()]
    words += [f"{k}: {config[k]}" for k in ("num_warps", "num_ctas", "num_stages") if k in config]
    words.append(f"maxnreg: {config.get('maxnreg')}")
    return ", ".join(words)


def inductor_lines(lines: Iterable[str]) -> Iterator[KernelChoice]:
    """Inductor's winners and its dynamic shrinking of reduction blocks, from TORCH_LOGS output."""
    for line in lines:
        if found := _INDUCTOR_BEST.search(line):
            timing = Timing(config=_squeeze(found["config"]), microseconds=float(found["ms"]) * 1000)
            yield KernelChoice(
                kernel=found["kernel"],
                key="inductor",
                chosen=timing.config,
                source="inductor-log",
                timings=(timing,),
            )
        elif found := _INDUCTOR_SCALED.search(line):
            yield KernelChoice(
                kernel=found["kernel"],
                key=f"scaled down from {_squeeze(found['before'])}",
                chosen=_squeeze(found["after"]),
                source="inductor-log",
            )


def backends(lines: Iterable[str]) -> tuple[Setting, ...]:
    """Backends that the start-up log names, sorted by kind; several of one kind are joined by ` + `."""
    seen: dict[str, list[str]] = {}
    for line in lines:
        for kind, pattern in _BACKENDS:
            if found := pattern.search(line):
                name = found["name"].strip()
                if name not in seen.setdefault(kind, []):
                    seen[kind].append(name)
    return tuple(Setting(name=kind, value=" + ".join(names)) for kind, names in sorted(seen.items()))


def kv_blocks(lines: Iterable[str]) -> int | None:
    """KV blocks where the log names them (newer versions tell tokens only, then /metrics has them)."""
    for line in lines:
        for pattern in _KV_BLOCKS:
            if found := pattern.search(line):
                return int(found["n"].replace(",", ""))
    return None


def compile_hash(lines: Iterable[str]) -> str | None:
    """Hash of the compiled graph's cache folder; None when nothing was compiled."""
    return next((m["hash"] for line in lines if (m := _COMPILE_DIR.search(line))), None)


def _log_warnings(lines: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for line in lines:
        prefix = _PREFIX.match(line)
        if prefix and prefix["level"] == "WARNING":
            text = strip_prefix(line)[:300]
            if text not in seen and len(seen) < _WARNING_LIMIT:
                seen.add(text)
                yield text


def _read_caches(root: Path, warnings: list[str]) -> Iterator[KernelChoice]:
    if not root.is_dir():
        return
    for path in sorted(root.rglob("*")):
        read = _reader(path.name)
        if read is None or not path.is_file():
            continue
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError("larger than 32 MiB")
            yield from read(path, path.read_text(errors="replace"))
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            RecursionError,
        ) as error:
            why = f"{path.name}: not a tuning cache that can be read ({error})"
            warnings.append(printable(why)[:200])


def _reader(name: str) -> Any:
    if name.endswith(".autotune.json"):
        return _triton_file
    if name.endswith(".best_config"):
        return _inductor_file
    if "autotun" in name and name.endswith(".json"):
        return _flashinfer_file
    return None


def _triton_file(path: Path, text: str) -> Iterator[KernelChoice]:
    choice = parse_autotune_json(printable(path.name.removesuffix(".autotune.json")), text)
    if choice is not None:
        yield choice


def _inductor_file(path: Path, text: str) -> Iterator[KernelChoice]:
    config = parse_json(text)
    # the file is named by a hash of the kernel's source, which is the only stable name it has
    kept = {k: v for k, v in sorted(config.items()) if k not in ("time_taken_ms", "triton_cache_hash")}
    yield KernelChoice(
        kernel=printable(f"inductor {path.stem[:16]}"),
        key=str(config.get("configs_hash", ""))[:16],
        chosen=", ".join(f"{k}: {v}" for k, v in kept.items() if k != "configs_hash"),
        source="inductor-log",
    )


def _flashinfer_file(path: Path, text: str) -> Iterator[KernelChoice]:
    for key, value in sorted(parse_json(text).items()):
        if not str(key).startswith("_"):
            yield KernelChoice(
                kernel="flashinfer",
                key=str(key),
                chosen=json.dumps(value, sort_keys=True),
                source="flashinfer",
            )


def _merge(choices: Iterable[KernelChoice]) -> tuple[KernelChoice, ...]:
    """Sorted by kernel and key; a printed winner that the cache has too is kept once, with its timings."""
    best: dict[tuple[str, str, str], KernelChoice] = {}
    for choice in choices:
        family = "triton" if choice.source.startswith("triton") else choice.source
        identity = (choice.kernel, _loose(choice.key), family)
        if identity not in best or len(choice.timings) > len(best[identity].timings):
            best[identity] = choice
    return tuple(best[identity] for identity in sorted(best))


def _loose(key: str) -> str:
    """Keys without quotes and blanks: the print shows a tuple, the cache a JSON list."""
    return re.sub(r"[\s'\"()\[\]]", "", key).rstrip(",")
