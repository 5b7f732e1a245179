"""Which kernels can be the reason for launch states."""

from __future__ import annotations

import pytest

from auditor.judge.kernels import kernel_splits
from auditor.model.launch import Diary, KernelChoice, Launch, Timing


def choice(kernel: str, chosen: str, times: dict[str, float] | None = None, **fields: str) -> KernelChoice:
    timings = tuple(Timing(config=c, microseconds=t) for c, t in (times or {}).items())
    values = {"key": "(1,)", "source": "triton-cache"} | fields
    return KernelChoice(kernel=kernel, chosen=chosen, timings=timings, **values)  # type: ignore[arg-type]


def launch(number: int, *choices: KernelChoice, arm: str = "plain") -> Launch:
    return Launch(
        id=f"{arm}-{number}",
        arm=arm,
        attempt=number,
        state="stopped",
        base_url="http://127.0.0.1:1",
        served_name="x",
        started_s=0.0,
        diary=Diary(choices=choices),
    )


def of(*launches: Launch) -> list[tuple[Launch, str]]:
    return [(x, x.arm) for x in launches]


STATES = {"plain-1": "A", "plain-2": "B", "plain-3": "B"}


def test_a_choice_that_is_constant_inside_states_tells_them_apart() -> None:
    race = {"H: 2": 5.5, "H: 4": 5.7}
    found = kernel_splits(
        of(
            launch(1, choice("scan", "H: 2", race), choice("same", "B: 1")),
            launch(2, choice("scan", "H: 4", {"H: 2": 6.0, "H: 4": 5.6}), choice("same", "B: 1")),
            launch(3, choice("scan", "H: 4", {"H: 2": 6.0, "H: 4": 5.6}), choice("same", "B: 1")),
        ),
        STATES,
    )
    assert len(found) == 1
    split = found[0]
    assert (split.kernel, split.tells) == ("scan", "every state")
    assert [(c.state, c.chosen) for c in split.choices] == [("A", ("H: 2",)), ("B", ("H: 4",))]
    assert (split.race_us, split.timed_on) == ((5.5, 5.7), "plain-1")


@pytest.mark.parametrize(
    ("chosen", "tells"),
    [
        (("x", "y", "y"), "every state"),
        (("x", "y", "x"), "none"),
        (("x", "x", "y"), "none"),
    ],
)
def test_a_choice_that_varies_inside_a_state_cannot_be_the_reason(
    chosen: tuple[str, ...], tells: str
) -> None:
    found = kernel_splits(of(*(launch(i, choice("k", c)) for i, c in enumerate(chosen, 1))), STATES)
    assert [s.tells for s in found] == [tells]
    assert found[0].race_us is None


def test_two_of_three_states() -> None:
    states = {"plain-1": "A", "plain-2": "B", "plain-3": "C"}
    found = kernel_splits(of(*(launch(i, choice("k", c)) for i, c in enumerate("xyx", 1))), states)
    assert found[0].tells == "some states"


def test_telling_kernels_come_first_then_the_closest_race() -> None:
    def all_of(x: str, y: str, z: str) -> tuple[KernelChoice, ...]:
        return (
            choice("far", x, {"x": 1.0, "y": 2.0}),
            choice("near", x, {"x": 1.0, "y": 1.01}),
            choice("untimed", x),
            choice("noise", y, {"x": 1.0, "y": 1.001}),
        )

    found = kernel_splits(
        of(
            launch(1, *all_of("x", "x", "")),
            launch(2, *all_of("y", "x", "")),
            launch(3, *all_of("y", "y", "")),
        ),
        STATES,
    )
    assert [s.kernel for s in found] == ["near", "far", "untimed", "noise"]


def test_configurations_are_not_compared_and_launches_without_a_state_are_left_out() -> None:
    found = kernel_splits(
        of(
            launch(1, choice("k", "x")),
            launch(1, choice("k", "y"), arm="eagle3"),
            launch(9, choice("k", "z")),
        ),
        STATES | {"eagle3-1": "C"},
    )
    assert found == ()


def test_keys_are_apart_and_log_and_cache_of_one_kernel_together() -> None:
    found = kernel_splits(
        of(
            launch(1, choice("k", "x", source="triton-log"), choice("k", "x", key="(2,)")),
            launch(2, choice("k", "y"), choice("k", "x", key="(2,)")),
        ),
        STATES,
    )
    assert [(s.kernel, s.key) for s in found] == [("k", "(1,)")]
