"""The options as a click decorator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from auditor.plan.config import Resolved, find_config, presets, resolve
from auditor.plan.options import OPTIONS, Option

F = TypeVar("F", bound=Callable[..., Any])


def click_options() -> Callable[[F], F]:
    """Adds every option of the table, `--preset` and `--config` to a command.

    The command takes them as `**options` and hands them to `resolve_options`.
    """

    def add(command: F) -> F:
        for option in reversed(OPTIONS):
            command = click_option(option)(command)
        for decorate in (
            click.option(
                "--config",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Plan in TOML.  [default: audit.toml where there is one]",
            ),
            click.option(
                "--preset",
                metavar="NAME",
                help="Named set of options: default, demo, smollm2, section5.  [default: none]",
            ),
        ):
            command = decorate(command)
        return command

    return add


def resolve_options(options: Mapping[str, object]) -> Resolved:
    """The plan from a command's options, the environment and audit.toml. Raises InvalidPlan."""
    flags = dict(options)
    config, preset = flags.pop("config", None), flags.pop("preset", None)
    if config is None:
        named = os.environ.get("AUDITOR_CONFIG")
        config = Path(named) if named else find_config(Path.cwd())
    assert config is None or isinstance(config, Path)
    return resolve(flags, os.environ, config, str(preset) if preset else None)


def help_text(option: Option) -> str:
    """What it is, its unit and its default."""
    unit = (
        f"{option.unit}; " if option.unit and not option.unit.isupper() and option.unit[0] not in "['" else ""
    )
    choices = f"{', '.join(option.choices)}; " if option.choices else ""
    return f"{option.help}  [{unit}{choices}default: {option.shown_default}]"


def click_option(option: Option) -> Callable[[F], F]:
    """Adds one option of the table to a command."""
    if option.kind == "bool":
        names = f"{option.flag}/--no-{option.flag[2:]}"
        return click.option(names, option.param, default=None, help=help_text(option))
    metavar = option.unit if option.unit[:1].isupper() or option.unit[:1] in "['" else _METAVAR[option.kind]
    return click.option(
        option.flag,
        option.param,
        metavar=metavar,
        multiple=option.repeated,
        default=None,
        help=help_text(option),
    )


_METAVAR = {"int": "N", "float": "X", "text": "TEXT", "path": "PATH", "words": "A,B,…", "ints": "N,N,…"}

__all__ = ["click_option", "click_options", "help_text", "presets", "resolve_options"]
