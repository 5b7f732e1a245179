"""Which kernels were tuned differently over many launches, and which of them can be the reason of a state.

A kernel whose choice varies inside a state cannot be what separates that state from another. One whose choice
is constant inside each state and differs between them may be; the closer the race of the two winners, the
more a start-up's timing noise decides it. A list of kernels can explain a state, it does not define one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from auditor.model.launch import KernelChoice, Launch
from auditor.model.study import KernelSplit, StateChoice

Tells = Literal["every state", "some states", "none"]
_ORDER: dict[Tells, int] = {"every state": 0, "some states": 1, "none": 2}


class _Race(NamedTuple):
    gap: float
    """Relative distance of the two times."""
    times: tuple[float, float]
    launch: str


def kernel_splits(
    launches: Sequence[tuple[Launch, str]], states: Mapping[str, str]
) -> tuple[KernelSplit, ...]:
    """`launches` with their configurations; `states` by launch id, launches without one left out.

    Compared within a configuration, between the launches that named the kernel: a draft has kernels of its
    own, and a cache hit prints nothing.
    """
    found = []
    for configuration in dict.fromkeys(c for _, c in launches):
        own = [x for x, c in launches if c == configuration and x.id in states]
        chosen: dict[tuple[str, str, str], list[tuple[Launch, KernelChoice]]] = {}
        for launch in own:
            for choice in launch.diary.choices:
                family = "triton" if choice.source.startswith("triton") else choice.source
                chosen.setdefault((choice.kernel, choice.key, family), []).append((launch, choice))
        for (kernel, key, _), entries in chosen.items():
            if len({choice.chosen for _, choice in entries}) > 1:
                found.append(_split(configuration, kernel, key, entries, states))
    return tuple(sorted(found, key=lambda s: (_ORDER[s.tells], _gap(s.race_us), s.kernel, s.key)))


def _split(
    configuration: str,
    kernel: str,
    key: str,
    entries: Sequence[tuple[Launch, KernelChoice]],
    states: Mapping[str, str],
) -> KernelSplit:
    by_state: dict[str, Counter[str]] = {}
    for launch, choice in entries:
        by_state.setdefault(states[launch.id], Counter())[choice.chosen] += 1
    race = _closest(entries)
    return KernelSplit(
        configuration=configuration,
        kernel=kernel,
        key=key,
        source=entries[0][1].source,
        tells=_tells(by_state),
        choices=tuple(
            StateChoice(state=state, chosen=tuple(c for c, _ in counted.most_common()))
            for state, counted in sorted(by_state.items())
        ),
        race_us=race.times if race else None,
        timed_on=race.launch if race else None,
    )


def _tells(by_state: Mapping[str, Counter[str]]) -> Tells:
    if len(by_state) < 2 or any(len(counted) > 1 for counted in by_state.values()):
        return "none"
    winners = [next(iter(counted)) for counted in by_state.values()]
    return "every state" if len(set(winners)) == len(winners) else "some states"


def _closest(entries: Sequence[tuple[Launch, KernelChoice]]) -> _Race | None:
    """The closest two winners in one launch's own timings."""
    winners = {choice.chosen for _, choice in entries}
    races = []
    for launch, choice in entries:
        times = {t.config: t.microseconds for t in choice.timings if t.config in winners}
        for one, two in combinations(sorted(winners), 2):
            a, b = times.get(one), times.get(two)
            if a is not None and b is not None:
                fast, slow = sorted((a, b))
                races.append(_Race(_gap((fast, slow)), (fast, slow), launch.id))
    return min(races, default=None)


def _gap(race: tuple[float, float] | None) -> float:
    return float("inf") if race is None else (max(race) - min(race)) / max(min(race), 1e-9)
