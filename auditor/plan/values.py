"""One option's value from text or TOML, checked. Errors name the option, the origin and the range."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from auditor.errors import InvalidPlan
from auditor.plan.options import Option

_LONGEST_SHOWN = 200
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def parse(option: Option, raw: object, source: str) -> Any:
    """`raw` as the option's type. `source` says where it came from. Raises InvalidPlan."""
    try:
        value = _PARSERS[option.kind](raw)
        _refuse_unwritable(value)
    except (ValueError, TypeError, RecursionError):
        raise _invalid(option, raw, source, _EXPECTED[option.kind]) from None
    for single in value if isinstance(value, tuple) else (value,):
        _check(option, single, source)
    return value


def _check(option: Option, value: object, source: str) -> None:
    if option.choices and value not in option.choices:
        raise _invalid(option, value, source, f"one of {', '.join(option.choices)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or option.low is None:
        return
    high = math.inf if option.high is None else option.high
    inside = option.low < value < high if option.open else option.low <= value <= high
    if not inside:
        word = "between" if option.open else "from"
        join = "and" if option.open else "to"
        unit = f" {option.unit}" if option.unit and "," not in option.unit else ""
        raise _invalid(option, value, source, f"a value {word} {option.low:g} {join} {high:g}{unit}")


def _refuse_unwritable(value: object) -> None:
    """Arguments and variables that are no UTF-8 arrive as lone surrogates, which no record can hold."""
    texts: Iterable[object] = (value,)
    if isinstance(value, dict):
        texts = (*value, *value.values())
    elif isinstance(value, tuple):
        texts = value
    for text in texts:
        if isinstance(text, str) and b"\0" in text.encode():
            raise ValueError


def existing_folder(text: str) -> Path | None:
    """The folder that `text` names, `~` expanded. None where there is none, and where there cannot be one:
    a name that is too long, the home of an unknown user."""
    try:
        path = Path(text).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _invalid(option: Option, value: object, source: str, expected: str) -> InvalidPlan:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):
        shown = "a number or a list without end"
    if len(shown) > _LONGEST_SHOWN:
        shown = shown[:_LONGEST_SHOWN] + "…"
    return InvalidPlan(
        f"{option.name} is {shown} ({source})",
        expected=expected,
        todo=f"set {option.flag}, {option.env} or `{option.name}` in audit.toml",
    )


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError
    return raw


def _path(raw: object) -> str:
    return str(raw)


def _int(raw: object) -> int:
    if isinstance(raw, bool | float):
        raise ValueError
    return int(str(raw))


def _float(raw: object) -> float:
    if isinstance(raw, bool):
        raise ValueError
    text = str(raw).strip()
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ValueError
    return text in _TRUE


def _split(raw: object) -> list[object]:
    if isinstance(raw, str):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(raw, Sequence):
        return list(raw)
    return [raw]


def _words(raw: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(part) for part in _split(raw)))


def _ints(raw: object) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(_int(part) for part in _split(raw)))
    if not found:
        raise ValueError
    return found


def _specs(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return tuple(_text(part) for part in json.loads(raw)) if raw.startswith("[") else (raw,)
    if isinstance(raw, Sequence):
        return tuple(part if isinstance(part, str) else json.dumps(part) for part in raw)
    raise ValueError


def _pairs(raw: object) -> dict[str, str]:
    """NAME=VALUE; VALUE alone stands for every name and gets the name `*`."""
    if isinstance(raw, Mapping):
        return {str(name): str(value) for name, value in raw.items()}
    if isinstance(raw, int) and not isinstance(raw, bool):
        return {"*": str(raw)}
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, Sequence):
        raise ValueError
    found = {}
    for part in parts:
        name, equals, value = str(part).partition("=")
        found.update({name: value} if equals else {"*": name})
    return found


def _args(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return tuple(shlex.split(raw))
    if isinstance(raw, Sequence):
        return tuple(str(part) for part in raw)
    raise ValueError


_PARSERS: dict[str, Any] = {
    "text": _text,
    "path": _path,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "words": _words,
    "ints": _ints,
    "specs": _specs,
    "pairs": _pairs,
    "args": _args,
}
_EXPECTED = {
    "text": "text",
    "path": "a path",
    "int": "a whole number",
    "float": "a number, or a percentage with %",
    "bool": "true or false",
    "words": "words separated by commas",
    "ints": "whole numbers separated by commas",
    "specs": "one value, or a list of values",
    "pairs": "NAME=VALUE",
    "args": "flags as on a command line",
}
