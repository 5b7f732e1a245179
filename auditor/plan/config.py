"""Options from flags, environment, audit.toml, preset and defaults to one plan, each with its origin."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.errors import InvalidPlan
from auditor.model.plan import AuditPlan
from auditor.plan.options import BY_ENV, BY_NAME, BY_PARAM, EXTRA_ENV, OPTIONS, Option
from auditor.plan.values import parse

CONFIG_NAME = "audit.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the value of one option comes from."""

    option: str
    value: str
    source: str
    """`--margin`, `AUDITOR_ACCURACY_MARGIN`, `audit.toml`, `preset demo`, `derived` or `default`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    plan: AuditPlan
    origins: tuple[Origin, ...]
    """One an option, in the order of the table."""


def resolve(
    flags: Mapping[str, object],
    env: Mapping[str, str],
    file: Path | None = None,
    preset: str | None = None,
) -> Resolved:
    """The plan that flag > environment > file > preset > default make.

    `flags` are keyed by dotted names or click's parameter names; None and empty tuples count as not given.
    `preset` may also come from AUDITOR_PRESET or from `preset` in the file. Raises InvalidPlan for unknown
    names (naming the nearest known one), values out of range, and plans that cannot succeed.
    """
    from auditor.plan.build import build_plan

    given: dict[str, tuple[Any, str]] = {}
    from_file = _read_file(file) if file is not None else {}
    preset = preset or env.get("AUDITOR_PRESET") or from_file.pop("preset", None)
    from_file.pop("preset", None)
    layers = [_preset_values(preset)] if preset else []
    if file is not None:
        layers.append((from_file, file.name))
    for values, source in layers:
        for name, raw in values.items():
            given[name] = (parse(BY_NAME[name], raw, source), source)
    for name, raw_text in _environment(env).items():
        option = BY_ENV[name]
        given[option.name] = (parse(option, raw_text, name), name)
    for name, raw in flags.items():
        if raw is None or raw == ():
            continue
        option = _flag_option(name)
        given[option.name] = (parse(option, raw, option.flag), option.flag)
    values = {o.name: given[o.name][0] if o.name in given else o.default for o in OPTIONS}
    plan, derived = build_plan(values, frozenset(given))
    origins = tuple(
        Origin(
            option=o.name,
            value=_shown(derived.get(o.name, values[o.name])),
            source=given[o.name][1] if o.name in given else "derived" if o.name in derived else "default",
        )
        for o in OPTIONS
    )
    return Resolved(plan=plan, origins=origins)


def presets() -> dict[str, str]:
    """Known presets and what each is about."""
    return {name: str(values["about"]) for name, values in _presets().items()}


def find_config(folder: Path) -> Path | None:
    """audit.toml in `folder`, if there is one."""
    path = folder / CONFIG_NAME
    return path if path.is_file() else None


def _presets() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))


def _preset_values(name: str) -> tuple[dict[str, Any], str]:
    known = _presets()
    if not isinstance(name, str) or name not in known:
        raise _unknown(
            "preset",
            name if isinstance(name, str) else "no text",
            {key: key for key in known},
            "one of " + ", ".join(known),
        )
    return {key: value for key, value in known[name].items() if key != "about"}, f"preset {name}"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise InvalidPlan(f"There is no file {path}", expected="a plan", todo="check --config") from None
    except (OSError, ValueError, RecursionError) as err:
        raise InvalidPlan(f"Cannot read {path}: {err}", expected="TOML in UTF-8", todo="correct it") from err
    return _flatten(document, "", path.name)


def _flatten(table: Mapping[str, Any], prefix: str, source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        option = BY_NAME.get(name)
        if name == "preset" or (option and (option.kind == "pairs" or not isinstance(value, dict))):
            found[name] = value
        elif isinstance(value, dict) and any(o.name.startswith(name + ".") for o in OPTIONS):
            found.update(_flatten(value, name + ".", source))
        else:
            raise _unknown(f"key in {source}", name, _names(), "an option that `audit plan` prints")
    return found


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in env.items():
        if not name.startswith("AUDITOR_") or name in EXTRA_ENV:
            continue
        if name not in BY_ENV:
            raise _unknown("variable", name, _env_names(), "a variable that the auditor reads")
        found[name] = value
    return found


def _flag_option(name: str) -> Option:
    option = BY_NAME.get(name) or BY_PARAM.get(name)
    if option is None:
        raise _unknown("option", name, _names(), "an option that `audit plan` prints")
    return option


def _unknown(what: str, name: str, known: Mapping[str, str], expected: str) -> InvalidPlan:
    """`known` maps every spelling that may have been meant to the name that is right."""
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    todo = f"perhaps {known[near[0]]} is meant" if near else "remove it"
    return InvalidPlan(f"Unknown {what}: {name}", expected=expected, todo=todo)


def _names() -> dict[str, str]:
    return {o.name.rsplit(".", 1)[-1]: o.name for o in OPTIONS} | {o.name: o.name for o in OPTIONS}


def _env_names() -> dict[str, str]:
    by_flag = {"AUDITOR_" + o.flag[2:].upper().replace("-", "_"): o.env for o in OPTIONS}
    return by_flag | {name: name for name in (*BY_ENV, *EXTRA_ENV)}


def _shown(value: object) -> str:
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
