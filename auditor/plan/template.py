"""A model's chat template, rendered in a sandbox and without today's date."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from auditor.errors import InvalidPlan

FROZEN = datetime.datetime(2024, 7, 26, 12, 0, 0)
"""Stands for `now` in every template; the day that the first date-printing templates default to."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a trainer learns from; it renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as an instance attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One user message to the text of a prompt."""

    date = FROZEN.date().isoformat()

    def __init__(self, source: str, special_tokens: Mapping[str, str], owner: str) -> None:
        self.asked_for_date = False
        self._owner = owner
        self._special = dict(special_tokens)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = self._strftime_now
        try:
            self._template = environment.from_string(source)
        except TemplateError as err:
            raise self._invalid(err) from err

    def render(self, text: str) -> str:
        """Raises InvalidPlan when the template refuses or fails."""
        try:
            return self._template.render(
                messages=[{"role": "user", "content": text}],
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._special,
            )
        except Exception as err:
            # A template is a program by somebody else: it may raise anything.
            raise self._invalid(err) from err

    def _strftime_now(self, pattern: str) -> str:
        self.asked_for_date = True
        return FROZEN.strftime(pattern)

    def _invalid(self, err: Exception) -> InvalidPlan:
        return InvalidPlan(
            f"The chat template of {self._owner} cannot be rendered: {err}",
            expected="a template that takes one user message",
            todo="use corpora of completion prompts, or repair the template",
        )


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """Unlike jinja2's own filter, without HTML escapes: the text goes to a model."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def _raise(message: str) -> None:
    raise TemplateError(message)
