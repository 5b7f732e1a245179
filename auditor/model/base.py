"""The base of every domain type: frozen, keyword-only, closed (an unknown field is an error)."""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Immutable record type; lists are tuples, so that nothing measured can be changed afterwards."""


class Interval(Model):
    """A closed interval. `low` and `high` share the unit of the estimate they belong to."""

    low: float
    high: float


class EnvVar(Model):
    """One environment variable; `value` is already redacted where the name looks secret."""

    name: str
    value: str
