"""What the user named as a draft, to the engine's speculative configuration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from auditor.errors import InvalidPlan
from auditor.model.plan import Draft
from auditor.plan.values import existing_folder

WITHOUT_WEIGHTS = ("mtp", "ngram", "suffix", "ngram_gpu")
_BY_ARCHITECTURE = (
    # First match wins: EAGLE-3 classes also contain "Eagle", and EagleDeepSeekMTPModel is an EAGLE head.
    (re.compile(r"eagle_?3", re.I), "eagle3"),
    (re.compile(r"d_?flash", re.I), "dflash"),
    (re.compile(r"dspark", re.I), "dspark"),
    (re.compile(r"medusa", re.I), "medusa"),
    (re.compile(r"mlp_?speculator", re.I), "mlp_speculator"),
    (re.compile(r"eagle", re.I), "eagle"),
    (re.compile(r"mtp|nextn", re.I), "mtp"),
)
_LOSSLESS = ("standard", "block")
"""Values of rejection_sample_method that keep the target's distribution."""


def parse_draft(spec: str, num_speculative_tokens: int) -> Draft:
    """A draft from `[NAME=]DRAFT`: a folder, a word, draft_model:DIR, a JSON object, or method=…,key=….

    Raises InvalidPlan when nothing of the kind is meant, when no method can be told, and for speculative
    configurations that accept tokens which the target would not produce.
    """
    name, spec = _split_name(spec.strip())
    if spec.startswith("{"):
        config, default_name = _from_json(spec)
    elif spec.startswith("method="):
        config, default_name = _from_pairs(spec)
    elif spec in WITHOUT_WEIGHTS:
        config, default_name = {"method": spec}, spec
    elif spec.startswith("draft_model:"):
        path = _folder(spec.removeprefix("draft_model:"))
        config, default_name = {"method": "draft_model", "model": str(path)}, "draft_model"
    else:
        path = _folder(spec)
        config = _from_folder(path)
        default_name = str(config["method"])
    _refuse_lossy(config)
    config.setdefault("num_speculative_tokens", num_speculative_tokens)
    if config["method"] in ("ngram", "ngram_gpu") and not {"prompt_lookup_max", "prompt_lookup_min"} & set(
        config
    ):
        config |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
    model = config.get("model")
    _check_words(str(config["method"]), None if model is None else str(model))
    return Draft(
        name=name or re.sub(r"[^A-Za-z0-9._-]+", "-", default_name),
        method=str(config["method"]),
        path=str(model) if model is not None else None,
        speculative_config=json.dumps(config, sort_keys=True),
    )


def method_of(config: dict[str, Any]) -> str | None:
    """The speculative method of a head's or model's config.json; None when it says nothing of the kind."""
    speculators = config.get("speculators_config")
    if isinstance(speculators, dict) and isinstance(speculators.get("algorithm"), str):
        return str(speculators["algorithm"])
    if isinstance(config.get("speculators_model_type"), str):
        return str(config["speculators_model_type"])
    architectures = config.get("architectures")
    names = [str(a) for a in architectures] if isinstance(architectures, list) else []
    for text in (*names, str(config.get("model_type", ""))):
        for pattern, method in _BY_ARCHITECTURE:
            if pattern.search(text):
                return method
    if isinstance(config.get("dflash_config"), dict):
        return "dflash"
    if any(name.endswith(("ForCausalLM", "ForConditionalGeneration")) for name in names):
        return "draft_model"
    return None


def read_config(folder: Path, what: str) -> dict[str, Any]:
    """config.json of a model folder. Raises InvalidPlan."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidPlan(
            f"{folder} has no config.json", expected=f"the folder of {what}", todo="check the path"
        ) from None
    except (OSError, ValueError, RecursionError) as err:
        raise InvalidPlan(f"Cannot read {path}: {err}", expected="a JSON object", todo="repair it") from err
    if not isinstance(config, dict):
        raise InvalidPlan(
            f"{path} is no JSON object", expected=f"the configuration of {what}", todo="repair it"
        )
    return config


def _split_name(spec: str) -> tuple[str | None, str]:
    name, equals, rest = spec.partition("=")
    if equals and name != "method" and re.fullmatch(r"[A-Za-z0-9._-]+", name) and not existing_folder(spec):
        return name, rest
    return None, spec


def _from_json(spec: str) -> tuple[dict[str, Any], str]:
    try:
        config = json.loads(spec)
    except (ValueError, RecursionError) as err:
        raise InvalidPlan(
            f"--draft {spec[:60]} is not JSON: {err}", expected="a speculative configuration"
        ) from err
    return _with_method(config), str(config.get("method"))


def _from_pairs(spec: str) -> tuple[dict[str, Any], str]:
    config: dict[str, Any] = {}
    for part in spec.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidPlan(f"--draft {spec}: {part!r} has no value", expected="method=…,key=value,…")
        try:
            config[key.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            config[key.strip()] = value
    return _with_method(config), str(config.get("method"))


def _with_method(config: dict[str, Any]) -> dict[str, Any]:
    if not config.get("method") and isinstance(config.get("model"), str):
        config["method"] = _from_folder(_folder(config["model"]))["method"]
    if not isinstance(config.get("method"), str):
        raise InvalidPlan(
            "The speculative configuration names no method",
            expected='a key "method", for example "eagle3"',
            todo="add it",
        )
    return config


def _from_folder(path: Path) -> dict[str, Any]:
    config = read_config(path, "a head or a draft model")
    method = method_of(config)
    if method is None:
        raise InvalidPlan(
            f"{path / 'config.json'} does not tell the speculative method",
            expected="architectures, model_type or speculators_config that name it",
            todo=f'say it: --draft \'{{"method": "eagle3", "model": "{path}"}}\'',
        )
    found: dict[str, Any] = {"method": method, "model": str(path)}
    speculators = config.get("speculators_config")
    proposals = speculators.get("proposal_methods") if isinstance(speculators, dict) else None
    if isinstance(proposals, list) and proposals and isinstance(proposals[0], dict):
        tokens = proposals[0].get("speculative_tokens")
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
            found["num_speculative_tokens"] = tokens
    return found


def _folder(text: str) -> Path:
    path = existing_folder(text)
    if path is None:
        raise InvalidPlan(
            f"--draft {text}: there is no such folder",
            expected=f"a head's folder, {', '.join(WITHOUT_WEIGHTS[:3])}, draft_model:DIR, or a JSON object",
            todo="check the path",
        )
    return path


def _check_words(method: str, model: str | None) -> None:
    """Both come from files and command lines, and go to the record and to the engine."""
    if not re.fullmatch(r"[A-Za-z0-9_.:/-]+", method):
        raise InvalidPlan(
            f"The speculative method is {method[:80]!r}", expected="a word such as eagle3", todo="correct it"
        )
    if model is not None and not model.isprintable():
        raise InvalidPlan(
            f"The draft's model is {model[:80]!r}",
            expected="a path of printable characters",
            todo="rename it",
        )


def _refuse_lossy(config: dict[str, Any]) -> None:
    method = config.get("rejection_sample_method", "standard")
    lossy = [key for key in config if key.startswith(("synthetic_", "posterior_", "typical_"))]
    if method not in _LOSSLESS:
        lossy.append(f"rejection_sample_method={method}")
    acceptance = config.get("spec_decoding_acceptance_method") or config.get("acceptance_method")
    if acceptance not in (None, "rejection_sampler"):
        lossy.append(f"acceptance method {acceptance}")
    if lossy:
        raise InvalidPlan(
            f"The speculative configuration accepts tokens by a lossy rule: {', '.join(lossy)}",
            expected="acceptance of the target's own tokens alone",
            todo="remove it",
        )
