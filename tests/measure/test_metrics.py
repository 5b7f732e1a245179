"""Reading /metrics: renamed families, engines, created timestamps, absence, rubbish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.measure.metrics import COUNTERS, Load, parse_counters, parse_load
from auditor.model.phase import Counters

LABELS = 'engine="0",model_name="m"'


def counter(name: str, values: dict[str, float], created: float | None = None) -> str:
    """One counter family as prometheus_client exposes it; `values` by engine."""
    lines = [f"# HELP {name}_total x", f"# TYPE {name}_total counter"]
    lines += [f'{name}_total{{engine="{e}",model_name="m"}} {v}' for e, v in values.items()]
    if created is not None:
        lines += [f"# HELP {name}_created x", f"# TYPE {name}_created gauge"]
        lines += [f'{name}_created{{engine="{e}",model_name="m"}} {created}' for e in values]
    return "\n".join(lines) + "\n"


def test_f3_engines_are_summed_and_created_is_skipped() -> None:
    found = parse_counters(counter("vllm:spec_decode_num_drafts", {"0": 31.0, "1": 12.0}, 1.7e9))
    assert found == Counters(drafts=43)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"vllm:spec_decode_draft_acceptance_rate{{{LABELS}}} 0.61\n", Counters(acceptance_rate_gauge=0.61)),
        (
            counter("vllm:spec_decode_num_accepted_tokens", {"0": 100.0})
            + counter("vllm:spec_decode_num_draft_tokens", {"0": 164.0}),
            Counters(accepted_tokens=100, draft_tokens=164),
        ),
        ("", Counters()),
    ],
    ids=["old gauge", "counters", "none"],
)
def test_f1_families_old_new_and_none(text: str, expected: Counters) -> None:
    assert parse_counters(text) == expected


@pytest.mark.parametrize(("field", "name"), [(f, n) for f, names in COUNTERS.items() for n in names])
def test_every_name_in_the_table_is_read(field: str, name: str) -> None:
    found = parse_counters(f"{name}{{{LABELS}}} 7.0\n")
    assert found is not None
    assert getattr(found, field) == 7


def test_newest_name_wins_where_two_are_exposed() -> None:
    text = "vllm:gpu_prefix_cache_hits_total 5.0\nvllm:prefix_cache_hits_total 5.0\n"
    found = parse_counters(text)
    assert found is not None
    assert found.prefix_cache_hits == 5


def test_positions_are_summed_over_engines_in_numeric_order() -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    values = [("0", 9), ("2", 3), ("1", 6), ("10", 1), *((str(p), 2) for p in range(3, 10))]
    text = "".join(f'{name}{{engine="0",position="{p}"}} {v}\n' for p, v in values)
    text += f'{name}{{engine="1",position="0"}} 1\n'
    found = parse_counters(text)
    assert found is not None
    assert found.accepted_per_position == (10, 6, 3, 2, 2, 2, 2, 2, 2, 2, 1)


@pytest.mark.parametrize("positions", [("0", "2"), ("first",), ("",)])
def test_positions_with_a_gap_are_unknown(positions: tuple[str, ...]) -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    found = parse_counters("".join(f'{name}{{position="{p}"}} 1\n' for p in positions))
    assert found == Counters()


@pytest.mark.parametrize("value", ["abc", "", "0x1f"])
def test_an_unreadable_line_of_a_family_that_matters_is_no_reading(value: str) -> None:
    text = f"vllm:generation_tokens_total 8\nvllm:spec_decode_num_drafts_total {value}\n"
    assert parse_counters(text) is None


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_value_that_is_no_number_is_absent(value: str) -> None:
    assert parse_counters(f"vllm:spec_decode_num_drafts_total {value}\n") == Counters()


def test_load_is_summed_over_engines() -> None:
    text = (
        'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n'
        'vllm:num_requests_waiting{engine="0"} 0.0\nvllm:num_requests_waiting{engine="1"} 2.0\n'
        'vllm:num_requests_waiting_by_reason{reason="x"} 9.0\n'
        "vllm:generation_tokens_total 50\n"
    )
    assert parse_load(text) == Load(running=7, waiting=2, generation_tokens=50, prompt_tokens=None)
    assert parse_load("<html>not found</html>") == Load(None, None, None, None)


@given(st.text() | st.sampled_from(sorted({n for v in COUNTERS.values() for n in v})).flatmap(
    lambda name: st.text(max_size=30).map(lambda tail: name + tail)
))  # fmt: skip
def test_no_text_breaks_the_parser(text: str) -> None:
    found = parse_counters(text)
    assert found is None or isinstance(found, Counters)
    parse_load(text)
