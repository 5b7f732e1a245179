"""The report: one self-contained HTML file, the same bytes for the same record.

Everything that reaches the page passes through `_shown`: strings are escaped with their control and
bidirectional characters made visible, a bare float is a programming error (a figure must come from
`numbers`, which never overclaims), a missing value is a dash.
"""

from __future__ import annotations

from functools import cache

import jinja2
from markupsafe import Markup

from auditor import resources
from auditor.model.record import AuditRecord, Evidence
from auditor.report import view
from auditor.report.numbers import ABSENT
from auditor.report.visible import plain


def render(record: AuditRecord, evidence: Evidence, *, max_divergences: int = 300) -> str:
    """HTML of the report. `evidence` supplies completions (divergences side by side); everything else comes
    from `record`. At most `max_divergences` are shown in full; the page says how many there were."""
    return lay_out("report.html.j2", view.page(record, evidence, max_divergences))


def lay_out(template: str, page: object) -> str:
    """`page` through one of the templates, with the style sheet that all pages share."""
    return _environment().get_template(template).render(page=page, style=_style())


def _shown(value: object) -> object:
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return plain(value)
    if value is None:
        return ABSENT
    if isinstance(value, float):
        raise TypeError(f"{value!r} reached a template unformatted")
    return value


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.data("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _style() -> Markup:
    return Markup((resources.data("templates") / "report.css").read_text(encoding="utf-8"))
