"""`audit stats …`: keys, figures, exit codes and width, through the command group itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from auditor.cli.stats import stats


def run(*arguments: str) -> Result:
    return CliRunner().invoke(stats, [*arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    loaded = json.loads(result.stdout)
    assert isinstance(loaded, dict)
    return loaded


def tost(both: int, candidate_only: int, reference_only: int, neither: int, *more: str) -> tuple[str, ...]:
    return (
        "tost",
        f"--both={both}",
        f"--candidate-only={candidate_only}",
        f"--reference-only={reference_only}",
        f"--neither={neither}",
        *more,
    )


def test_tost_keys_are_the_documented_ones() -> None:
    found = document(*tost(876, 30, 36, 377))
    assert set(found) == {
        "n",
        "missing",
        "margin",
        "alpha",
        "estimate",
        "estimate_range",
        "reference_accuracy",
        "score",
        "exact",
        "mcnemar",
        "unpaired_wald",
        "farrington_manning",
        "newcombe10",
        "paired_wald",
        "smallest_margin",
        "floor_margin",
        "minimum_n",
        "verdict",
        "reason",
    }
    assert set(found["score"]) == {"z_lower", "p_lower", "z_upper", "p_upper", "p", "ci90", "ci95"}
    assert set(found["exact"]) == {"p_lower", "p_upper", "p"}
    assert set(found["mcnemar"]) == {"exact", "mid_p"}
    assert set(found["unpaired_wald"]) == {"se", "z_lower", "z_upper", "p"}
    assert set(found["farrington_manning"]) == {"p"}
    assert set(found["newcombe10"]) == set(found["paired_wald"]) == {"ci90", "ci95"}


@pytest.mark.parametrize("command", ["tost", "agreement", "sprt", "power"])
def test_help_names_every_key(command: str) -> None:
    arguments = {
        "tost": tost(876, 30, 36, 377),
        "agreement": ("agreement", "3", "4"),
        "sprt": ("sprt",),
        "power": ("power", "--n=100", "--discordance=0.05"),
    }[command]
    text = run(command, "--help").output
    for key in document(*arguments):
        assert key in text, f"{command} --help does not name {key}"


def test_zero_against_fifty_two_is_equivalent_but_different() -> None:
    found = document(*tost(860, 0, 52, 407))
    assert found["verdict"] == "equivalent but different"
    assert found["score"]["p"] == pytest.approx(0.0390, abs=5e-5)
    assert found["mcnemar"]["exact"] == pytest.approx(4.4e-16, rel=0.02)
    table = run(*tost(860, 0, 52, 407)).output
    assert "EQUIVALENT BUT DIFFERENT" in table
    assert "0.0390" in table
    assert "4.4e-16" in table


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((40, 0, 0, 12), "inconclusive"),
        ((45, 0, 0, 14), "equivalent"),
        ((0, 0, 0, 1319), "void"),
        ((820, 40, 92, 367), "not equivalent"),
    ],
)
def test_verdicts(counts: tuple[int, int, int, int], verdict: str) -> None:
    assert document(*tost(*counts))["verdict"] == verdict


def test_the_nine_cell_table_of_missing_answers() -> None:
    found = document(
        *tost(
            870,
            30,
            36,
            373,
            "--missing-candidate",
            "3",
            "2",
            "--missing-reference",
            "2",
            "2",
            "--missing-both=1",
        )
    )
    assert (found["n"], found["missing"]) == (1319, 10)
    assert found["score"]["p_lower"] == pytest.approx(4.0390676965213264e-08, rel=1e-6)
    assert found["score"]["p_upper"] == pytest.approx(3.8885486762571396e-11, rel=1e-6)
    assert found["score"]["ci90"] == pytest.approx([-0.019980168096305404, 0.009914398581257273], abs=1e-9)


def test_undefined_is_null_not_nan() -> None:
    found = document(*tost(164, 0, 0, 0, "--band", "0", "1"))
    assert found["unpaired_wald"] == {"se": 0.0, "z_lower": None, "z_upper": None, "p": None}
    assert found["verdict"] == "equivalent"
    assert "undefined" in run(*tost(164, 0, 0, 0)).output


def test_margin_and_alpha_reach_the_test() -> None:
    assert document(*tost(876, 30, 36, 377, "--margin=0.01"))["verdict"] == "inconclusive"
    assert document(*tost(876, 30, 36, 377, "--margin=0.014", "--alpha=0.2"))["alpha"] == 0.2


def test_agreement() -> None:
    found = document("agreement", "153", "164")
    assert set(found) == {
        "successes",
        "trials",
        "proportion",
        "clopper_pearson",
        "wilson",
        "jeffreys",
        "confidence_sequence",
        "one_sided_95",
    }
    assert found["clopper_pearson"] == pytest.approx([0.8831581289622569, 0.9660443244950316])
    assert found["one_sided_95"]["lower"] == pytest.approx(0.8914201863520975)


@pytest.mark.parametrize(
    ("k", "n", "never"),
    [("100000", "100001", "1.0000"), ("1", "1000000", "0.0000"), ("163", "164", "1.0000")],
)
def test_no_bound_is_rounded_into_a_claim(k: str, n: str, never: str) -> None:
    assert never not in run("agreement", k, n).output


def test_sprt() -> None:
    found = document("sprt", "--outcomes", "1" * 20, "--at", "0.8")
    assert (found["decision"], found["n"], found["agreements"]) == ("SAME STATE", 11, 11)
    assert found["boundaries"]["upper"] == pytest.approx(6.906755, abs=5e-7)
    rows = found["operating_characteristics"]
    assert [row["p"] for row in rows] == [0.5, 0.8, 0.95]
    for row in rows:
        assert row["same"] + row["other"] + row["undecided"] == pytest.approx(1.0)
    assert rows[0]["same"] < 0.001
    assert rows[2]["other"] < 0.001


def test_sprt_without_outcomes_decides_nothing() -> None:
    found = document("sprt", "--truncate", "30")
    assert [found[key] for key in ("decision", "n", "agreements", "score")] == [None] * 4
    assert "decision" not in run("sprt").output
    assert document("sprt", "--outcomes", "")["decision"] == "CONTINUE"


def test_power() -> None:
    found = document("power", "--n", "1319", "--margin", "0.02", "--discordance", "0.05")
    assert found["power"] == pytest.approx(0.8773462198421289, abs=1e-6)
    assert found["power_both_tests"] <= found["power"]
    assert found["n80"] < 1319 < found["n90"]
    assert (
        "none up to"
        in run("power", "--n=200", "--margin=0.02", "--discordance=0.1", "--difference=0.02").output
    )


@pytest.mark.parametrize(
    "arguments",
    [
        tost(876, -1, 36, 377),
        tost(0, 0, 0, 0),
        tost(1, 1, 1, 1, "--margin=0"),
        tost(1, 1, 1, 1, "--alpha=0.5"),
        tost(1, 1, 1, 1, "--missing-both=-1"),
        tost(1, 1, 1, 1, "--band", "0.9", "0.1"),
        ("tost", "--both=1"),
        ("agreement", "5", "4"),
        ("agreement", "0", "0"),
        ("agreement", "half", "1"),
        ("sprt", "--outcomes", "110x"),
        ("sprt", "--p0", "0.95", "--p1", "0.5"),
        ("sprt", "--at", "1.5"),
        ("power", "--n=100", "--discordance=2"),
        ("power", "--n=0", "--discordance=0.1"),
        ("unknown",),
    ],
)
def test_impossible_input_exits_with_2_and_one_sentence(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("Error: ") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        tost(876, 30, 36, 377),
        tost(100_000, 30_000, 36_000, 37_700, "--band", "0.8", "0.9"),
        tost(40, 0, 0, 12),
        tost(190, 4, 9, 47, "--margin=0.02"),
        tost(800, 30, 36, 353, "--missing-both=100"),
        ("agreement", "123456", "1234567"),
        ("sprt", "--outcomes", "1110" * 16),
        ("power", "--n=1319", "--discordance=0.05"),
        ("--help",),
        ("tost", "--help"),
        ("sprt", "--help"),
    ],
)
def test_text_fits_eighty_columns(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80, result.output


def test_importing_the_commands_loads_no_numerics() -> None:
    probe = "import sys, auditor.cli.stats; print(sorted({'numpy', 'scipy', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
