"""The live display, with a scripted clock and no terminal."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from auditor.report.progress import Progress


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def test_plain_lines_without_a_terminal() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(stream, now=clock, heartbeat_s=None) as progress:
        step = progress.start("batch1/reference-1/gsm8k", 40)
        clock.at = 30.0
        step.update(10, in_flight=1, tokens=600)
        progress.beat()
        progress.note("control-1 did not start")
        clock.at = 120.0
        step.update(40)
        step.finish()
        progress.beat()
    assert stream.getvalue().splitlines() == [
        "batch1/reference-1/gsm8k: started, 40 requests",
        "batch1/reference-1/gsm8k: 10/40, 1 in flight, 20 tokens/s, about 1 min 30 s left",
        "control-1 did not start",
        "batch1/reference-1/gsm8k: 40/40 in 2 min 00 s",
    ]


def test_steps_may_overlap_and_a_start_has_no_total() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(stream, now=clock, heartbeat_s=None) as progress:
        first, second = progress.start("reference-1 starts"), progress.start("control-1 starts")
        clock.at = 12.0
        progress.beat()
        first.finish("ready")
        first.finish("twice")
        second.finish("failed")
    assert stream.getvalue().splitlines()[2:] == [
        "reference-1 starts: 12 s",
        "control-1 starts: 12 s",
        "reference-1 starts: ready, in 12 s",
        "control-1 starts: failed, in 12 s",
    ]


def test_the_heartbeat_beats_by_itself() -> None:
    """Waits for the event itself; the timeout only bounds a broken heartbeat."""
    import threading

    beaten = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if "3/9" in text:
                beaten.set()
            return super().write(text)

    with Progress(Stream(), heartbeat_s=0.01) as progress:
        progress.start("load", 9).update(3)
        assert beaten.wait(20)


def test_control_characters_of_others_are_shown() -> None:
    stream = io.StringIO()
    with Progress(stream, heartbeat_s=None) as progress:
        progress.note("\x1b[2Jerror\r")
        progress.start("\x1b]0;title\x07", 1).finish("\x1b[31mbad")
    assert "\x1b" not in stream.getvalue()
    assert "\x07" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_bars_on_a_terminal() -> None:
    stream = Tty()
    with Progress(stream, now=Clock()) as progress:
        assert progress.mode == "bars"
        step = progress.start("accuracy [bold]/eagle3-1", 4)
        step.update(2, in_flight=2, tokens=100)
        progress.note("a note with [red]brackets")
        step.update(4)
        step.finish("done")
    shown = stream.getvalue()
    assert "a note with [red]brackets" in shown
    assert "accuracy [bold]/eagle3-1: done, 4/4 in 0.00 s" in shown


@pytest.mark.parametrize("mode", ["plain", "none"])
def test_none_is_silent_but_for_notes(mode: str) -> None:
    stream = io.StringIO()
    with Progress(stream, mode=mode, heartbeat_s=None) as progress:  # type: ignore[arg-type]
        progress.start("x", 1).finish()
        progress.note("kept")
    assert ("x:" in stream.getvalue()) == (mode == "plain")
    assert "kept" in stream.getvalue()


def test_rich_is_not_imported_without_a_terminal() -> None:
    code = (
        "import io, sys\nfrom auditor.report.terminal import Progress\n"
        "with Progress(io.StringIO(), heartbeat_s=None) as p: p.start('x', 1).finish()\n"
        "sys.exit(any(m == 'rich' or m.startswith('rich.') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
