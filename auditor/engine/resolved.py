"""What a running vLLM made of its flags: /server_info, /metrics and start-up lines -> Settings.

Names are `section.field` as vLLM calls them (`scheduler_config.async_scheduling`), deeper objects stay JSON.
The speculative and the compilation configuration are one Setting each: their fields repeat names of the
target's own configuration (`model`, `dtype`, `backend`), and must not be taken for it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx

from auditor.engine.diary import parse_json, strip_prefix
from auditor.engine.readiness import http_client
from auditor.model.launch import Setting
from auditor.redact import is_secret, redact_value

_WHOLE = ("speculative_config", "compilation_config")
_COPIES = ("target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config")
"""Inside speculative_config: copies of whole configurations."""
_PRIVATE = re.compile(
    r"served_model_name|instance_id|(?:^|_)port(?:$|_)|port_list|cache_dir$|dump_path|traced_files|compilation_time"
    r"|_object_at_|^hf_config$|^hf_text_config$|static_forward_context|static_all_moe_layers|^_data_parallel"
)
"""Fields that differ between any two launches, or hold whole objects."""
_RENAMED = {"attention_config.backend": "attention_config.attention_backend"}
_INFO_LINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)$")
_MAX_LEN = re.compile(r"Using max model len (?P<n>\d+)")
_ASYNC = re.compile(r"[Aa]synchronous scheduling is (?P<state>enabled|disabled)")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


async def read(
    base_url: str, api_key: str | None, log: Sequence[str], env: Mapping[str, str]
) -> tuple[tuple[Setting, ...], tuple[str, ...], str | None]:
    """(settings sorted by name, what could not be read, engine version). `env`: variables that were set."""
    unverified: list[str] = []
    # /server_info collects the versions of the whole environment when it is first asked
    async with http_client(timeout_s=120.0, api_key=api_key) as http:
        info = await _json(http, f"{base_url}/server_info?config_format=json")
        version = await _json(http, f"{base_url}/version")
        labels = cache_config_labels(await _text(http, f"{base_url}/metrics") or "")
    found: dict[str, str] = {}
    if isinstance(info, dict) and isinstance(info.get("vllm_config"), dict):
        found |= flatten(info["vllm_config"])
        seen_env = info.get("vllm_env")
        if isinstance(seen_env, dict):
            found |= {f"env.{k}": _as_text(k, seen_env[k]) for k in env if k in seen_env}
            unverified += unreached(env, seen_env)
    else:
        unverified.append("resolved configuration (/server_info is not open): start-up log and /metrics only")
        found |= from_log(log)
    if not labels:
        unverified.append("KV cache configuration (/metrics has no cache_config_info)")
    for name, value in labels.items():
        found.setdefault(f"cache_config.{name}", value)
    found |= {k: v for k, v in from_log(log).items() if k == "scheduler_config.async_scheduling"} | found
    number = str(version.get("version")) if isinstance(version, dict) and version.get("version") else None
    if number is None:
        unverified.append("engine version (/version does not answer)")
    settings = tuple(Setting(name=k, value=v) for k, v in sorted(found.items()))
    return settings, tuple(unverified), number


async def _text(http: httpx.AsyncClient, url: str) -> str | None:
    try:
        reply = await http.get(url)
    except httpx.HTTPError:
        return None
    return reply.text if reply.status_code == 200 else None


async def _json(http: httpx.AsyncClient, url: str) -> Any:
    text = await _text(http, url)
    try:
        return parse_json(text) if text is not None else None
    except ValueError:
        return None


def flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings of vLLM's configuration object as JSON."""
    pairs = list(_pairs(config))
    repeated = {k for k, n in Counter(name.rpartition(".")[2] for name, _ in pairs).items() if n > 1}
    found: dict[str, str] = {}
    for name, value in pairs:
        name = _RENAMED.get(name, name)
        section, _, field = name.rpartition(".")
        if field in repeated and section:
            # `backend` of the structured outputs is not `backend` of the attention
            name = f"{section}.{section.removesuffix('_config')}_{field}"
        found[name] = _as_text(field, value)
    return found


def _pairs(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, fields in config.items():
        if section in _WHOLE:
            if fields:
                yield section, _cleaned(fields)
            continue
        if not isinstance(fields, dict):
            if not _PRIVATE.search(section):
                yield section, fields
            continue
        for field, value in fields.items():
            if not _PRIVATE.search(field):
                yield f"{section}.{field}", value


def _cleaned(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {
        k: _cleaned(v)
        for k, v in fields.items()
        if k not in _COPIES and not _PRIVATE.search(k) and v is not None
    }


def _as_text(name: str, value: Any) -> str:
    if is_secret(name) and value not in (None, ""):
        return redact_value(name, str(value))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def unreached(env: Mapping[str, str], seen: Mapping[str, Any]) -> Iterator[str]:
    """Variables that were set but that the server read as something else: the switch never arrived."""
    for name, value in sorted(env.items()):
        if name in seen and not _equal(value, seen[name]):
            yield f"{name} was set to {redact_value(name, value)}, but the server reads {seen[name]!r}"


def _equal(asked: str, seen: Any) -> bool:
    if isinstance(seen, bool):
        return (asked.strip().lower() in ("1", "true", "yes", "on")) == seen
    if isinstance(seen, int | float):
        try:
            return float(asked) == float(seen)
        except (ValueError, OverflowError):
            return False
    # lists, enums and paths are rewritten by the engine: only plain text is compared
    return not isinstance(seen, str) or asked.strip().lower() == seen.strip().lower()


def cache_config_labels(metrics: str) -> dict[str, str]:
    """Labels of the cache_config_info gauge of engine 0, as JSON-like text; empty when it is absent."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in metrics.splitlines() if "cache_config_info" in line]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):
        return {}
    for family in families:
        for sample in family.samples:
            if sample.labels.get("engine", "0") == "0":
                return {
                    k: _PYTHON_WORDS.get(v, v)
                    for k, v in sorted(sample.labels.items())
                    if k != "engine" and not _PRIVATE.search(k)
                }
    return {}


def from_log(log: Iterable[str]) -> dict[str, str]:
    """Resolved values that start-up lines tell, for servers whose /server_info is closed."""
    found: dict[str, str] = {}
    for line in log:
        text = strip_prefix(line)
        if match := _INFO_LINE.search(text):
            for name, value in top_level_pairs(match["config"]):
                if not _PRIVATE.search(name) and name not in _WHOLE and not name.endswith("_config"):
                    found[f"log.{name}"] = _PYTHON_WORDS.get(value, value.strip("'"))
        elif match := _MAX_LEN.search(text):
            found.setdefault("model_config.max_model_len", match["n"])
        elif match := _ASYNC.search(text):
            found["scheduler_config.async_scheduling"] = json.dumps(match["state"] == "enabled")
    return found


def top_level_pairs(text: str) -> Iterator[tuple[str, str]]:
    """`a=1, b=C(x=2, y=[3]), …` -> (a, 1), (b, C(x=2, y=[3])), …: commas inside brackets and quotes stay."""
    depth, quote, start = 0, "", 0
    pieces: list[str] = []
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    pieces.append(text[start:])
    for piece in pieces:
        name, mark, value = piece.strip().partition("=")
        if mark and name.isidentifier():
            yield name, value
