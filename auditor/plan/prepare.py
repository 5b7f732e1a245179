"""Everything that can be done for a plan before a server starts: lints, identities, prompts as ids."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auditor.errors import EngineError, InvalidPlan
from auditor.model.judgement import Finding
from auditor.model.plan import AuditPlan
from auditor.model.record import Identity
from auditor.plan import lint
from auditor.plan.drafts import read_config
from auditor.plan.encoder import LocalEncoder, RemoteEncoder
from auditor.plan.findings import text_config
from auditor.plan.prompts import BuiltPrompts, build_prompts
from auditor.plan.rows import hub_answers

_PROBE_TIMEOUT_S = 10.0


def prepare(plan: AuditPlan) -> BuiltPrompts:
    """Lint, identify and encode. Findings and identities cover target, drafts, corpora and tokenizer.

    Attach mode asks the reference server for its tokenizer and length. Raises InvalidPlan for what cannot
    succeed, EngineError when an attached server does not answer.
    """
    if plan.attached:
        return _attached(plan)
    folder = model_folder(plan.target)
    config = read_config(folder, "the target")
    length = served_length(plan, config)
    findings = [*lint.lint_arms(plan.arms), *lint.lint_generation_config(folder)]
    folders = {"target": folder}
    for arm in plan.candidates:
        served = folder
        if arm.target is not None:
            served = folders[f"target:{arm.name}"] = model_folder(arm.target)
        if arm.draft is not None and arm.draft.path is not None:
            draft_folder = model_folder(arm.draft.path)
            findings += lint.lint_draft(arm.draft, draft_folder, config, folder, length)
            folders[f"draft:{arm.name}"] = draft_folder
        elif arm.draft is not None and arm.draft.method == "mtp":
            findings += lint.lint_native(arm.draft, read_config(served, "the candidate's target"), served)
    lint.refuse_errors(tuple(findings))
    vocabulary = text_config(config).get("vocab_size")
    built = build_prompts(
        plan, LocalEncoder(folder), vocabulary if isinstance(vocabulary, int) else None, length
    )
    return BuiltPrompts(
        built.prompts,
        (*findings, *built.findings),
        (*identify_models(plan, folders), *built.identities),
    )


def served_length(plan: AuditPlan, config: dict[str, Any]) -> int | None:
    """Served length in tokens: --max-model-len among the engine's flags, else the target's own; None when
    neither says."""
    given = _flag_value(plan.engine.args, "--max-model-len")
    if given is not None:
        return _human_integer(given)
    inner = text_config(config)
    for key in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"):
        if isinstance(inner.get(key), int):
            return int(inner[key])
    return None


def model_folder(name: str) -> Path:
    """The folder of a model: as given, or the hub's snapshot of an id (downloaded when it is not cached).

    Raises InvalidPlan when it is neither.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import snapshot_download

    try:
        try:
            return Path(snapshot_download(name, local_files_only=True))
        except Exception:
            # Not cached; the library's own types for that changed between its versions.
            if not hub_answers():
                raise
            return Path(snapshot_download(name))
    except Exception as err:
        raise InvalidPlan(
            f"{name} is no folder and cannot be loaded from the hub: {type(err).__name__}",
            expected="a model folder, or a hub id that can be reached",
            todo="download it and give the folder",
        ) from err


def identify_models(plan: AuditPlan, folders: dict[str, Path]) -> Sequence[Identity]:
    """Manifests of target and drafts; drafts without weights have none."""
    from auditor.record.digests import identify

    found = []
    for name, folder in folders.items():
        snapshot = folder.parent.name == "snapshots"
        source = plan.target if name == "target" and snapshot else None
        found.append(identify(name, folder, source=source, revision=folder.name if snapshot else None))
    return found


def _attached(plan: AuditPlan) -> BuiltPrompts:
    reference = next(arm for arm in plan.arms if arm.role == "reference")
    assert reference.url is not None
    key = os.environ.get(plan.engine.api_key_env) if plan.engine.api_key_env else None
    model, length = _served_model(reference.url, key)
    encoder = RemoteEncoder(reference.url, model, key)
    try:
        built = build_prompts(plan, encoder, None, length)
    finally:
        encoder.close()
    target = Identity(name="target", source=model, digest=None)
    finding = Finding(
        code="ATTACHED-UNVERIFIED",
        severity="note",
        seen="the servers are somebody else's",
        expected="servers that the audit launched",
        remedy="read the list of what could not be verified",
        subject="target",
    )
    return BuiltPrompts(built.prompts, (finding, *built.findings), (target, *built.identities))


def _served_model(url: str, key: str | None) -> tuple[str, int | None]:
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = httpx.get(url + "/v1/models", headers=headers, timeout=_PROBE_TIMEOUT_S, trust_env=False)
        entry = reply.json()["data"][0]
        length = entry.get("max_model_len")
        return str(entry["id"]), length if isinstance(length, int) else None
    except httpx.HTTPError as err:
        raise EngineError(
            f"{url} does not answer: {err or type(err).__name__}",
            expected="a running server",
            todo="check the URL",
        ) from err
    except (ValueError, KeyError, IndexError, TypeError) as err:
        raise EngineError(
            f"{url}/v1/models answered {reply.status_code} {reply.text[:80]!r}",
            expected="a list of models",
            todo="check the URL and the API key",
        ) from err


def _flag_value(args: Sequence[str], flag: str) -> str | None:
    """The last value of an engine flag, in either form; dashes and underscores alike."""
    found = None
    for number, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            found = value if equals else args[number + 1] if number + 1 < len(args) else None
    return found


def _human_integer(text: str) -> int | None:
    """`4096`, `4k` (4,000) or `4K` (4,096), as the engine reads it; None for `auto` and the like."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
    if match is None:
        return None
    scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
    return int(float(match[1]) * scale)
