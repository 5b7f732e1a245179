"""One block of work on one launch, with counters read immediately before and after it."""

from __future__ import annotations

from typing import Literal

from auditor.model.base import Model

Stage = Literal["certify", "batch1", "load", "replay", "accuracy", "calibrate", "self-draft"]


class Counters(Model, frozen=True, kw_only=True):
    """Totals of one server summed over its engines. None: the family is absent, which is not zero."""

    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_per_position: tuple[int, ...] | None = None
    preemptions: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_cache_hits: int | None = None
    acceptance_rate_gauge: float | None = None
    """Older engines expose a lifetime gauge instead of counters."""


class ConcurrencySample(Model, frozen=True, kw_only=True):
    at_s: float
    running: int
    waiting: int
    in_flight: int
    """Requests the client itself had outstanding."""
    tokens: int | None = None
    """Prompt and generated tokens that the engine had counted; None where it does not tell."""


class ConcurrencySummary(Model, frozen=True, kw_only=True):
    """What the engine reported while the client held the asked number in flight (steady phase)."""

    samples: int
    rate_hz: float | None
    """Samples a second over the steady phase; None below two samples."""
    mean_running: float | None
    peak_running: int | None
    max_waiting: int | None
    held_fraction: float | None
    """Share of steady samples that hold the level: running plus the requests sent within the last
    `admission_s` seconds (less those that wait) reach `asked`, or none waits and three quarters run, where
    the whole level was seen running at least once; None without samples."""
    full_fraction: float | None = None
    """Share of steady samples with running >= asked, requests on their way not counted."""
    admission_s: float | None = None
    """A request counts as on its way for so long after it was sent (measure/watch.py); None without
    answers."""
    achieved: int | None
    """Median running over the steady phase: the label of the level when it was not held."""


class Phase(Model, frozen=True, kw_only=True):
    """Written when the phase starts (state `running`) and again when it ends."""

    id: str
    """`<stage>/<launch>/<corpus or level or pass>`, for example `load/eagle3-1/n32/run2`."""
    stage: Stage
    launch: str
    arm: str
    corpus: str | None = None
    concurrency: int = 1
    """Asked requests in flight."""
    pass_no: int = 1
    """1 or 2 where the same work is done twice."""
    planned: int
    """Requests planned, repeats included."""
    state: Literal["running", "done", "void", "error"]
    reason: str | None = None
    """Why it is void or an error."""
    started_s: float
    ended_s: float | None = None
    generating_s: float | None = None
    """Wall time with at least one request in flight."""
    before: Counters | None = None
    after: Counters | None = None
    concurrency_summary: ConcurrencySummary | None = None
    """Only for stages that load the server."""
