"""Gates and families of tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from auditor.stats.multiplicity import holm, intersection_union

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(
    lambda values: {f"test {index}": value for index, value in enumerate(values)}
)


@given(P_VALUES)
@settings(max_examples=15)
def test_holm_equals_statsmodels(p_values: dict[str, float]) -> None:
    rows = holm(p_values)
    expected = multipletests(list(p_values.values()), 0.05, "holm")[1]
    assert [row.name for row in rows] == list(p_values)
    assert [row.adjusted for row in rows] == pytest.approx(list(expected), abs=1e-12)
    for row in rows:
        assert row.p <= row.adjusted <= 1.0
        assert row.rejected == (row.adjusted < 0.05)


@given(P_VALUES)
def test_a_gate_passes_only_if_every_test_does(p_values: dict[str, float]) -> None:
    gate = intersection_union(p_values)
    assert gate.p == max(p_values.values())
    assert gate.passed == all(p < 0.05 for p in p_values.values())
    assert gate.failed == tuple(name for name, p in p_values.items() if p >= 0.05)


def test_holm_holds_the_familywise_error_where_a_plain_level_does_not() -> None:
    drawn = np.random.default_rng(8).random((4000, 5))
    by_holm = np.mean(
        [any(row.rejected for row in holm(dict(zip("abcde", map(float, p), strict=True)))) for p in drawn]
    )
    assert by_holm < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 4000)
    assert np.mean((drawn < 0.05).any(axis=1)) > 0.2


@pytest.mark.parametrize("p_values", [{}, {"a": -0.1}, {"a": 1.2}, {"a": float("nan")}])
def test_no_test_and_impossible_p_are_refused(p_values: dict[str, float]) -> None:
    for rule in (holm, intersection_union):
        with pytest.raises(ValueError, match="expected"):
            rule(p_values)
