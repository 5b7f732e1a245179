"""Parts of model configurations, and findings about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from auditor.model.judgement import Finding

Config = Mapping[str, Any]


def text_config(config: Config) -> Config:
    """The language model's part of a multimodal configuration; the whole otherwise."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def inner_config(config: Config) -> Config:
    """The transformer's part of a head's configuration in the speculators layout; the whole otherwise."""
    inner = config.get("transformer_layer_config")
    return (
        {**inner, **{k: v for k, v in config.items() if k not in inner}}
        if isinstance(inner, dict)
        else config
    )


def aux_layers(config: Config) -> object:
    """Layers of the target whose hidden states the head takes, as written; None when it names none."""
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    for section in ("eagle_config", "dflash_config"):
        inner = config.get(section)
        if ids is None and isinstance(inner, dict):
            ids = inner.get("eagle_aux_hidden_state_layer_ids", inner.get("target_layer_ids"))
    return ids


def finding(
    code: str,
    severity: Literal["error", "warning", "note"],
    seen: str,
    expected: str,
    remedy: str,
    subject: str,
) -> Finding:
    return Finding(code=code, severity=severity, seen=seen, expected=expected, remedy=remedy, subject=subject)
