"""The base of every domain type: frozen, keyword-only, closed (an unknown field is an error).

msgspec inherits `forbid_unknown_fields` but not `kw_only`, and mypy wants `frozen` on each class, so
subclasses repeat both.
"""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Immutable record type; lists are tuples, so that nothing measured can be changed afterwards."""


class Interval(Model, frozen=True, kw_only=True):
    """A closed interval. `low` and `high` share the unit of the estimate they belong to."""

    low: float
    high: float


class EnvVar(Model, frozen=True, kw_only=True):
    """One environment variable; `value` is already redacted where the name looks secret."""

    name: str
    value: str
