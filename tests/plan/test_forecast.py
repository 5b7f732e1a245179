"""The forecast: what an n can and cannot show, tokens, time; and `audit plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditor.cli.main import main
from auditor.plan.config import resolve
from auditor.plan.forecast import corpus_sizes, forecast
from tests.plan import support


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return support.target(tmp_path / "target")


def test_the_protocol_s_own_plan(target: Path) -> None:
    plan = resolve({"target": str(target), "draft": ("ngram",)}, {}).plan
    found = forecast(plan, corpus_sizes(plan))
    assert found.launches == 3
    assert {c.corpus: c.n for c in found.agreement} == {"humaneval": 164, "gsm8k": 1319, "mt-bench": 80}
    assert found.agreement[0].at_most == 3 / 164
    # Clopper-Pearson for n of n is the closed form (α/2)^(1/n).
    assert found.agreement[0].best_lower_bound == pytest.approx(0.025 ** (1 / 164))
    assert found.accuracy is not None
    assert (found.accuracy.n, found.accuracy.minimum_n) == (1319, 59)
    powers = [at.power for at in found.accuracy.power]
    assert powers == sorted(powers, reverse=True)
    assert powers[0] > 0.99
    # +0.641854 an agreement: eleven pass 6.906755.
    assert found.certification.fewest == 11
    assert found.certification.same_at_p0 < 0.0011
    assert found.remarks == ()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"accuracy.limit": "58"}, "58 problems are below 59"),
        ({"accuracy.limit": "60"}, "equal arms would be found equivalent with probability 0."),
        ({"agreement.limits": ("10",), "agreement.min_agreement": "0.9"}, "this can only fail"),
        ({"certification.prompts": "10"}, "cannot certify a launch even if all agree"),
    ],
)
def test_what_a_plan_cannot_show_is_said(target: Path, flags: dict[str, object], expected: str) -> None:
    plan = support.plan(target, **flags)
    assert any(expected in remark for remark in forecast(plan, corpus_sizes(plan)).remarks)


def test_tokens_and_time(target: Path) -> None:
    plan = support.plan(
        target,
        **{
            "agreement.limits": ("10",), "agreement.max_tokens": "100", "invariance.levels": "2,8",
            "invariance.prompts": "8", "accuracy.limit": "100", "accuracy.max_tokens": "50",
            "certification.prompts": "20", "certification.max_tokens": "10",
        },
    )  # fmt: skip
    found = forecast(plan, corpus_sizes(plan))
    assert {w.stage: (w.requests, w.tokens_at_most) for w in found.work} == {
        "certify": (120, 1200),
        "batch 1, sums": (30, 3000),
        "load, 2 in flight": (32, 3200),
        "load, 8 in flight": (96, 9600),
        "replay": (16, 1600),
        "accuracy, sums": (300, 15000),
    }
    # (1200 + 3000 + 1600) / 10 + (3200 + 9600 + 15000) / 100 + 3 × 20
    assert found.seconds_at_most(10.0, 100.0, 20.0) == 580 + 278 + 60


def test_sizes_of_a_user_s_own_corpus_are_counted(target: Path, tmp_path: Path) -> None:
    path = support.write_rows(tmp_path / "mine.jsonl", [{"prompt": str(n)} for n in range(17)])
    flags = {"agreement.corpora": "mine", "corpora": (f"mine={path}",), "stages": "agreement"}
    assert corpus_sizes(support.plan(target, **flags)) == {"mine": 17}
    assert corpus_sizes(support.plan(target, **flags, **{"agreement.limits": ("5",)})) == {"mine": 5}


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_info:
        main(args)
    code = exit_info.value.code
    assert isinstance(code, int)
    return code


def test_audit_plan_prints_values_origins_and_forecast(
    target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDITOR_SEED", "5")
    Path("audit.toml").write_text("[accuracy]\nmargin = 0.03\n")
    assert audit("plan", "--target", str(target), "--draft", "ngram", "--preset", "smollm2") == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["seed"][-2:] == ["5", "AUDITOR_SEED"]
    assert lines["accuracy.margin"][-2:] == ["0.03", "audit.toml"]
    assert lines["accuracy.corpus"][-3:] == ["sums", "preset", "smollm2"]
    assert lines["accuracy.alpha"][-2:] == ["0.05", "default"]
    assert lines["draft"][-2:] == ["ngram", "--draft"]
    assert "accuracy: n = 320, margin 0.03, least n 99" in out
    assert "What this costs at most" in out


def test_audit_plan_as_json(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("plan", "--json", "--target", str(target), "--draft", "ngram", "--preset", "demo") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["name"] == "demo"
    assert document["forecast"]["accuracy"]["n"] == 1319
    assert document["seconds_at_most"] > 0
    assert {"option": "pin", "value": "snapshot", "source": "default"} in document["origins"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--draft", "ngram"], "No target was given"),
        (["--speed", "3"], "two numbers"),
        (["--speed", "0,1"], "above 0"),
        (["--margin", "2"], "accuracy.margin is 2.0"),
        (["--nonsense"], "No such option"),
    ],
)
def test_audit_plan_refuses_with_exit_2(
    target: Path, capsys: pytest.CaptureFixture[str], args: list[str], expected: str
) -> None:
    base = [] if args[0] == "--draft" else ["--target", str(target), "--draft", "ngram"]
    assert audit("plan", *base, *args) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert "Traceback" not in err
