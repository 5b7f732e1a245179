"""The table of all options, from options.toml beside this file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["text", "path", "int", "float", "bool", "words", "ints", "specs", "pairs", "args"]
"""How a value is written; options.toml explains each."""

STAGES = ("agreement", "forensics", "invariance", "accuracy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `low` and `high` are inclusive unless `open`."""

    name: str
    flag: str
    kind: Kind
    default: object
    help: str
    unit: str = ""
    """Unit of the value, or the form of it; empty for switches."""
    default_text: str = ""
    """Shown instead of the default where that is derived."""
    low: float | None = None
    high: float | None = None
    open: bool = False
    choices: tuple[str, ...] = ()

    @property
    def param(self) -> str:
        return self.name.replace(".", "_")

    @property
    def env(self) -> str:
        return "AUDITOR_" + self.param.upper()

    @property
    def repeated(self) -> bool:
        return self.kind in ("specs", "pairs")

    @property
    def shown_default(self) -> str:
        """The default as help and README print it."""
        if self.default_text:
            return self.default_text
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, float):
            return f"{self.default:g}"
        if self.default is None or self.default in ("", (), {}):
            return "none"
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)


def _load() -> tuple[Option, ...]:
    table = tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))
    return tuple(
        Option(name=name, **{key: _frozen(value) for key, value in {"default": None, **entry}.items()})
        for name, entry in table.items()
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


OPTIONS: tuple[Option, ...] = _load()
BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_PARAM: dict[str, Option] = {option.param: option for option in OPTIONS}
BY_ENV: dict[str, Option] = {option.env: option for option in OPTIONS}
EXTRA_ENV = {"AUDITOR_CONFIG": "path of audit.toml", "AUDITOR_PRESET": "name of a preset"}
"""Variables that are read but are no options of the plan."""
