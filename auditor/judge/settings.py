"""Two launches' configurations, field by field: they may differ in the speculative configuration only.

Sources, the resolved configuration first, because flags do not say what the engine made of them:
`Launch.resolved`, the backends named at start-up, the flags whose name the first two do not have, the
environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from auditor.model.judgement import SettingDiff
from auditor.model.launch import Launch

Kind = Literal["allowed", "listed", "not comparable"]

_ALLOWED = re.compile(
    r"speculative|^spec_|draft|num_lookahead|served_model_name|^port$|^host$|^pid$|^nonce$|instance_id|^uuid$"
    r"|cache_dir|cache_root|_dir$|cache_path|log_file|hash$|^api_key|^timestamp|^cuda_visible_devices$|^device_ids?$"
)
_NUMERIC = re.compile(
    r"^(model|revision|tokenizer|tokenizer_revision|load_format|block_size|tp_size|engine_version)$"
    # The engine adapter writes `section_field` where two sections have a field of one name.
    r"|(?:^|_)(dtype|quantization|enforce_eager|async_scheduling|prefix_caching|enable_chunked_prefill"
    r"|chunked_prefill_enabled|max_num_batched_tokens|tensor_parallel_size|pipeline_parallel_size"
    r"|data_parallel_size|expert_parallel_size|enable_expert_parallel|context_parallel_size"
    r"|disable_cascade_attn|generation_config|hf_overrides|rope_scaling|rope_theta|cudagraph_mode)$"
    r"|attention_backend|attn_backend|^attention|moe_backend|^moe|mamba_backend|^mamba|linear_backend|gemm_backend"
    r"|^inductor|compilation_(mode|level)|^optimization_level|batch_invariant|force_first_config"
    r"|use_v2_model_runner"
)
_NUMERIC_ENV = re.compile(
    r"BATCH_INVARIANT|FORCE_FIRST_CONFIG|ATTENTION|DETERMINISTIC|CUBLAS|TF32|USE_V2_MODEL_RUNNER|FLASHINFER"
    r"|^NVIDIA_TF32|MOE|^TORCHINDUCTOR_(?!CACHE)|^TRITON_(?!CACHE|PRINT)|DTYPE|ENABLE_V1"
)
_ALLOWED_ENV = re.compile(
    r"CACHE_(ROOT|DIR|PATH)|CACHE_HOME|VISIBLE_DEVICES|PORT$|_HOST$|LOG|^TMPDIR$|^PRINT|TRITON_PRINT"
)
_ALIASES = {
    "tp_size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "model_path": "model",
    "context_length": "max_model_len",
    "prefix_caching": "enable_prefix_caching",
    "attention_backend_name": "attention_backend",
}
_COMPILATION_FIELDS = ("mode", "level", "backend", "custom_ops", "inductor_compile_config", "pass_config")
"""Parts of compilation_config that choose kernels; its sizes and paths follow the speculative settings."""


def diff(reference: Launch, other: Launch) -> tuple[SettingDiff, ...]:
    """Every setting that differs, the ones that make the pair not comparable first, then by name."""
    found = [
        *_unreached(reference, "reference"),
        *_unreached(other, "other"),
        *_compare(_resolved(reference), _resolved(other)),
    ]
    known = _resolved(reference).keys() | _resolved(other).keys()
    flags = _flags(reference.argv), _flags(other.argv)
    if reference.argv and other.argv:
        found += _compare(
            {k: v for k, v in flags[0].items() if k not in known},
            {k: v for k, v in flags[1].items() if k not in known},
            absent_counts=True,
        )
    found += _environment(reference, other)
    if reference.diary.kv_blocks != other.diary.kv_blocks:
        found.append(
            _diff("kv_blocks", _text(reference.diary.kv_blocks), _text(other.diary.kv_blocks), "listed")
        )
    if reference.engine_version and other.engine_version and reference.engine_version != other.engine_version:
        found.append(
            _diff("engine_version", reference.engine_version, other.engine_version, "not comparable")
        )
    order = {"not comparable": 0, "listed": 1, "allowed": 2}
    unique = {d.name: _derived(d, reference, other) for d in reversed(found)}
    return tuple(sorted(unique.values(), key=lambda d: (order[d.kind], d.name)))


def _derived(found: SettingDiff, reference: Launch, other: Launch) -> SettingDiff:
    """A block size that nobody asked for follows from the speculative configuration: hybrid models size the
    attention block by the Mamba state, which speculation enlarges. It is listed; certification decides."""
    asked = any("block_size" in _flags(launch.argv) for launch in (reference, other))
    if _normal(found.name) != "block_size" or asked or not (reference.argv and other.argv):
        return found
    return _diff(found.name, found.reference, found.other, "listed")


def kind_of(name: str) -> Kind:
    """What a difference in the setting called `name` means."""
    last = _normal(name)
    if _ALLOWED.search(last) or _ALLOWED.search(name.lower()):
        return "allowed"
    return "not comparable" if _NUMERIC.search(last) else "listed"


def _diff(name: str, reference: str | None, other: str | None, kind: Kind) -> SettingDiff:
    return SettingDiff(name=name, reference=reference, other=other, kind=kind)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _normal(name: str) -> str:
    last = name.lower().lstrip("-").replace("-", "_").rsplit(".", 1)[-1]
    return _ALIASES.get(last, last)


def _same(one: str | None, two: str | None) -> bool:
    if one == two:
        return True
    if one is None or two is None:
        return False
    return _value(one) == _value(two)


def _value(text: str) -> str:
    # "torch.bfloat16", "bfloat16" and "BFLOAT16" are one dtype; "True", "true" and "1" one switch.
    plain = text.strip().strip("'\"").lower().removeprefix("torch.")
    return {"true": "1", "false": "0", "none": "", "null": ""}.get(plain, plain)


def _resolved(launch: Launch) -> dict[str, str]:
    values = {_normal(s.name): s.value for s in launch.resolved}
    for setting in launch.diary.backends:
        name = _normal(setting.name)
        values.setdefault(name if name.endswith("backend") else f"{name}_backend", setting.value)
    return values


def _compare(
    reference: Mapping[str, str], other: Mapping[str, str], *, absent_counts: bool = False
) -> Iterable[SettingDiff]:
    # What only one server reported is unknown on the other; a flag that only one got is a difference.
    for name in sorted(reference.keys() | other.keys()):
        one, two = reference.get(name), other.get(name)
        if _same(one, two):
            continue
        if (one is None or two is None) and not absent_counts:
            if kind_of(name) != "allowed":
                yield _diff(name, one, two, "listed")
            continue
        if name == "compilation_config":
            yield from _compilation(one, two)
            continue
        yield _diff(name, one, two, kind_of(name))


def _compilation(reference: str | None, other: str | None) -> Iterable[SettingDiff]:
    parts = []
    for text in (reference, other):
        try:
            parts.append(msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw]))
        except msgspec.MsgspecError:
            yield _diff("compilation_config", reference, other, "listed")
            return
    for field in sorted(parts[0].keys() | parts[1].keys()):
        one, two = (_text(bytes(p[field]).decode()) if field in p else None for p in parts)
        if not _same(one, two):
            kind: Kind = "not comparable" if field in _COMPILATION_FIELDS else "listed"
            yield _diff(f"compilation_config.{field}", one, two, kind)


def _flags(argv: Iterable[str]) -> dict[str, str]:
    """`--name value`, `--name=value`, `--name` and `--no-name`; positional arguments are left out."""
    flags: dict[str, str] = {}
    name: str | None = None
    for word in argv:
        if re.match(r"--?[a-zA-Z]", word):
            flag, equals, value = word.partition("=")
            name = _normal(flag)
            if name.startswith("no_"):
                flags[name.removeprefix("no_")] = "false"
                name = None
            else:
                flags[name] = value if equals else "true"
                name = None if equals else name
        elif name is not None:
            flags[name] = word if flags[name] == "true" else f"{flags[name]} {word}"
    # `python -m module`: the interpreter's own flag, no setting of the server.
    flags.pop("m", None)
    return flags


def _environment(reference: Launch, other: Launch) -> Iterable[SettingDiff]:
    one, two = ({v.name: v.value for v in x.env} for x in (reference, other))
    if not one or not two:
        return
    for name in sorted(one.keys() | two.keys()):
        if one.get(name) == two.get(name) or _ALLOWED_ENV.search(name):
            continue
        kind: Kind = "not comparable" if _NUMERIC_ENV.search(name) else "listed"
        yield _diff(f"env {name}", one.get(name), two.get(name), kind)


def _unreached(launch: Launch, side: str) -> Iterable[SettingDiff]:
    """Variables that the audit set and that the server process does not have: the switch never reached it."""
    if not launch.environ_checked:
        return
    seen = {v.name: v.value for v in launch.environ_checked}
    for variable in launch.env:
        if seen.get(variable.name) != variable.value and not _ALLOWED_ENV.search(variable.name):
            name = f"env {variable.name} as read back from {launch.id}"
            asked = f"{variable.value} (asked for)"
            got = seen.get(variable.name)
            if side == "other":
                yield _diff(name, asked, got, "not comparable")
            else:
                yield _diff(name, got, asked, "not comparable")
