"""Options: precedence, origins, ranges, and errors that name what was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.errors import InvalidPlan
from auditor.model.plan import GATES
from auditor.plan.config import Resolved, _flatten, presets, resolve
from auditor.plan.flags import click_options, help_text, resolve_options
from auditor.plan.options import BY_NAME, OPTIONS
from auditor.plan.values import parse
from tests.plan import support


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return support.target(tmp_path / "target")


def basic(target: Path, **flags: object) -> dict[str, object]:
    return {"target": str(target), "draft": ("ngram",)} | flags


def origin(resolved: Resolved, name: str) -> tuple[str, str]:
    (found,) = (o for o in resolved.origins if o.option == name)
    return found.value, found.source


def test_precedence_flag_environment_file_preset_default(tmp_path: Path, target: Path) -> None:
    """Each layer sets one option less than the one below it; the highest that sets an option wins."""
    file = tmp_path / "audit.toml"
    file.write_text(
        "[accuracy]\nmargin = 0.03\nalpha = 0.02\nfloor = 0.2\n[certification]\nattempts = 7\n", "utf-8"
    )
    env = {"AUDITOR_ACCURACY_MARGIN": "0.04", "AUDITOR_ACCURACY_ALPHA": "0.01", "HOME": "/nowhere"}
    resolved = resolve(basic(target, **{"accuracy.margin": "0.06"}), env, file, "section5")
    assert origin(resolved, "accuracy.margin") == ("0.06", "--margin")
    assert origin(resolved, "accuracy.alpha") == ("0.01", "AUDITOR_ACCURACY_ALPHA")
    assert origin(resolved, "accuracy.floor") == ("0.2", "audit.toml")
    assert origin(resolved, "certification.prompts") == ("164", "preset section5")
    assert origin(resolved, "accuracy.ceiling") == ("0.99", "default")
    assert origin(resolved, "certification.attempts") == ("7", "audit.toml")
    accuracy = resolved.plan.accuracy
    assert accuracy is not None
    assert (accuracy.margin, accuracy.alpha, accuracy.floor) == (0.06, 0.01, 0.2)


def test_every_option_has_an_origin_and_only_one(target: Path) -> None:
    resolved = resolve(basic(target), {})
    assert [o.option for o in resolved.origins] == [o.name for o in OPTIONS]
    assert origin(resolved, "name") == ("target-ngram", "derived")


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_each_option_can_be_set_in_each_way(tmp_path: Path, target: Path, source: str) -> None:
    samples = {
        "int": "3", "float": "0.5", "bool": "true", "text": "x", "path": "x", "words": "a", "ints": "4",
        "pairs": "a=1", "args": "--x 1", "specs": "suffix",
    }  # fmt: skip
    special = {
        "min_acceptance_length": "2", "fingerprint_prompts": "5", "certification.prompts": "32",
        "certification.alpha": "0.01", "certification.beta": "0.01", "certification.p0": "0.6",
        "certification.p1": "0.9", "accuracy.alpha": "0.01", "accuracy.floor": "0.1",
        "accuracy.ceiling": "0.9",
        "engine.start_timeout_s": "10", "engine.silent_timeout_s": "10", "engine.request_timeout_s": "10",
        "target": str(target), "name": "x", "agreement.limits": "humaneval=3", "corpora": "gsm8k=x.jsonl",
        "gates": "accuracy", "stages": "agreement", "forensics.controls": "width",
        "pin": "none", "target_kind": "toy",
        "engine.kind": "vllm",
        "attach.reference_url": "http://a:1", "attach.control_url": "http://a:2",
        "attach.candidate_url": "http://a:3",
    }  # fmt: skip
    attach = {
        f"attach.{n}_url": f"http://h:{i}" for i, n in enumerate(("reference", "control", "candidate"), 1)
    }
    for option in OPTIONS:
        value = special.get(option.name, samples[option.kind])
        flags = basic(target) | (attach if option.name.startswith("attach.") else {})
        flags.pop(option.name, None)
        env: dict[str, str] = {}
        file = None
        if source == "flag":
            flags[option.param] = (value,) if option.repeated else value
        elif source == "environment":
            env[option.env] = value
        else:
            file = tmp_path / "audit.toml"
            file.write_text(_toml(option.name, option.kind, value), "utf-8")
        resolved = resolve(flags, env, file)
        shown = origin(resolved, option.name)[1]
        assert shown == {"flag": option.flag, "environment": option.env, "file": "audit.toml"}[source]


def _toml(name: str, kind: str, value: str) -> str:
    section, _, key = name.rpartition(".")
    if kind == "pairs":
        left, _, right = value.partition("=")
        return f"[{name}]\n{left} = {json.dumps(right)}\n"
    text = {"specs": json.dumps([value]), "words": json.dumps([value]), "ints": f"[{value}]"}.get(kind)
    if text is None:
        text = value if kind in ("int", "float", "bool") else json.dumps(value)
    return (f"[{section}]\n" if section else "") + f"{key} = {text}\n"


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (
            "[accuracy]\nmargn = 0.05",
            r"Unknown key in audit.toml: accuracy.margn.*perhaps accuracy.margin is meant",
        ),
        ("margin = 0.05", r"Unknown key in audit.toml: margin.*perhaps accuracy.margin is meant"),
        ("[acuracy]\nmargin = 0.05", r"Unknown key in audit.toml: acuracy"),
        ("seed = 'x'", r"seed is 'x' \(audit.toml\); expected a whole number"),
        ("seed = 1.5", r"seed is 1.5"),
        ("seed = true", r"seed is True"),
        ("gates = []", r"no gates.*no checks is not a pass"),
        ("seed = ", r"Cannot read .*audit.toml"),
        ("preset = 'demoo'", r"Unknown preset: demoo.*perhaps demo is meant"),
        ("pin = 'maybe'", r"pin is 'maybe'.*one of none, snapshot, force"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, target: Path, toml: str, expected: str) -> None:
    file = tmp_path / "audit.toml"
    file.write_text(toml, "utf-8")
    with pytest.raises(InvalidPlan, match=expected):
        resolve(basic(target), {}, file)


def test_a_file_that_is_no_utf8_or_not_there(tmp_path: Path, target: Path) -> None:
    (tmp_path / "audit.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(InvalidPlan, match="Cannot read"):
        resolve(basic(target), {}, tmp_path / "audit.toml")
    with pytest.raises(InvalidPlan, match="There is no file"):
        resolve(basic(target), {}, tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            {"AUDITOR_ACCURACY_MARGN": "1"},
            r"AUDITOR_ACCURACY_MARGN.*perhaps AUDITOR_ACCURACY_MARGIN is meant",
        ),
        ({"AUDITOR_MARGIN": "0.1"}, r"AUDITOR_MARGIN.*perhaps AUDITOR_ACCURACY_MARGIN is meant"),
        ({"AUDITOR_QQQ": "1"}, r"Unknown variable: AUDITOR_QQQ"),
        ({"AUDITOR_SEED": "many"}, r"seed is 'many' \(AUDITOR_SEED\)"),
    ],
)
def test_unknown_variables_are_errors(target: Path, env: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidPlan, match=expected):
        resolve(basic(target), env)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"accuracy.margin": "0"}, r"accuracy.margin is 0.0 \(--margin\).*between 0 and 1"),
        ({"accuracy.margin": "1"}, r"between 0 and 1"),
        ({"accuracy.margin": "nan"}, r"a number"),
        ({"accuracy.alpha": "0.5"}, r"between 0 and 0.5"),
        ({"invariance.levels": "1,8"}, r"invariance.levels is 1 .*from 2"),
        ({"certification.p0": "0.96"}, r"certification.p0 is 0.96 and certification.p1 is 0.95"),
        ({"accuracy.floor": "0.995"}, r"accuracy.floor below accuracy.ceiling"),
        ({"agreement.limits": ("sums=3",)}, r"agreement.limits names sums"),
        ({"agreement.limits": ("0",)}, r"a whole number from 1"),
        ({"corpora": ("other=x",)}, r"names other, which no stage uses"),
        ({"name": "../escape"}, r"cannot be the name of the audit"),
        ({"name": "a/b"}, r"cannot be the name of the audit"),
        ({"name": "a..b"}, r"cannot be the name of the audit"),
        ({"gates": "accuracy", "stages": "agreement"}, r"gate accuracy needs the stage accuracy"),
        ({"stages": "invariance"}, r"invariance needs the stage agreement"),
        ({"gates": "quality"}, r"gates is 'quality'.*one of certification"),
        ({"engine.env": ("HF_TOKEN=hf_abc",)}, r"would record the value of HF_TOKEN.*export it"),
        ({"engine.args": "--api-key abc"}, r"would record the value of --api-key"),
        ({"engine.devices": "0;1"}, r"engine.devices names '0;1'"),
        ({"attach.reference_url": "http://a:1"}, r"lacks --candidate-url, --control-url"),
        ({"draft": ()}, r"No draft was given"),
        ({"target": None}, r"No target was given.*--reference-url"),
        ({"target": "does not exist"}, r"There is no folder does not exist"),
        ({"nonsense": "1"}, r"Unknown option: nonsense"),
    ],
)
def test_contradictions_are_refused_before_anything_starts(
    target: Path, flags: dict[str, object], expected: str
) -> None:
    with pytest.raises(InvalidPlan, match=expected):
        resolve(basic(target) | flags, {})


def test_a_password_in_a_url_is_refused_and_not_repeated(target: Path) -> None:
    urls = {f"attach.{n}_url": "http://me:hunter2@h:1" for n in ("reference", "control", "candidate")}
    with pytest.raises(InvalidPlan, match="api-key-env") as error:
        resolve(basic(target) | urls, {})
    assert "hunter2" not in str(error.value)


def test_gates_narrow_the_stages_and_stages_the_gates(target: Path) -> None:
    only = resolve(basic(target, gates="accuracy"), {})
    assert only.plan.accuracy is not None
    assert only.plan.agreement is None
    assert origin(only, "stages") == ("accuracy", "derived")
    part = resolve(basic(target, stages="agreement,forensics"), {})
    assert part.plan.gates == ("certification", "head-ran", "agreement")
    assert part.plan.invariance is None
    assert origin(part, "gates")[1] == "derived"


def test_arms_of_several_drafts_have_distinct_safe_names(tmp_path: Path, target: Path) -> None:
    head = support.head(tmp_path / "head")
    plan = resolve(basic(target, draft=(str(head), str(head), f"mine={head}", "ngram")), {}).plan
    assert [arm.name for arm in plan.arms] == ["reference", "control", "eagle3", "eagle3-2", "mine", "ngram"]
    with pytest.raises(InvalidPlan, match="cannot be the name of an arm"):
        resolve(basic(target, draft=("..=ngram",)), {})


def test_a_draft_may_not_take_the_reference_s_name(target: Path) -> None:
    plan = resolve(basic(target, draft=("reference=ngram",)), {}).plan
    assert [arm.name for arm in plan.candidates] == ["reference-2"]


def test_attach_mode(target: Path) -> None:
    flags = {
        "attach.reference_url": "http://127.0.0.1:1/",
        "attach.control_url": "http://127.0.0.1:2",
        "attach.candidate_url": ("head=http://127.0.0.1:3", "http://127.0.0.1:4"),
    }
    plan = resolve(flags, {}).plan
    assert plan.attached
    assert [(arm.name, arm.url) for arm in plan.arms] == [
        ("reference", "http://127.0.0.1:1"),
        ("control", "http://127.0.0.1:2"),
        ("head", "http://127.0.0.1:3"),
        ("candidate", "http://127.0.0.1:4"),
    ]
    assert all(arm.draft is not None for arm in plan.candidates)
    with pytest.raises(InvalidPlan, match="is no URL"):
        resolve(flags | {"attach.control_url": "127.0.0.1:2"}, {})
    with pytest.raises(InvalidPlan, match="3 drafts are named for 2"):
        resolve(flags | {"draft": ("mtp", "ngram", "suffix")}, {})


@pytest.mark.parametrize("preset", [name for name in presets() if name != "default"])
def test_presets_are_plans(target: Path, preset: str) -> None:
    plan = resolve({"target": str(target), "draft": ("ngram",)}, {}, None, preset).plan
    assert plan.name == preset
    assert plan.gates == GATES


def test_section5_is_the_study_s(target: Path) -> None:
    plan = resolve({"target": str(target)}, {}, None, "section5").plan
    assert plan.agreement is not None
    assert plan.invariance is not None
    assert plan.accuracy is not None
    assert [(use.name, use.limit, use.max_tokens) for use in plan.agreement.corpora] == [
        ("humaneval", 164, 4096), ("gsm8k", 164, 4096),
    ]  # fmt: skip
    assert plan.certification.prompts == 164
    assert (plan.invariance.levels, plan.invariance.prompts) == ((32,), 32)
    assert (plan.accuracy.margin, plan.accuracy.concurrency, plan.accuracy.corpus.limit) == (0.05, 32, None)
    assert [arm.name for arm in plan.candidates] == ["mtp"]


def test_click_s_options_are_those_of_the_table(target: Path) -> None:
    seen: list[dict[str, Any]] = []

    @click.command()
    @click_options()
    def command(**options: object) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    flat = " ".join(result.output.split())
    for option in OPTIONS:
        assert option.flag in flat
        assert f"default: {option.shown_default}" in help_text(option)
    args = [
        "--target",
        str(target),
        "--draft",
        "ngram",
        "--draft",
        "suffix",
        "--margin",
        "3%",
        "--one-at-a-time",
    ]
    assert CliRunner().invoke(command, args).exit_code == 0
    plan = resolve_options(seen[0]).plan
    assert [arm.name for arm in plan.candidates] == ["ngram", "suffix"]
    assert plan.engine.one_at_a_time
    assert plan.accuracy is not None
    assert plan.accuracy.margin == 0.03


def test_every_option_says_what_it_is() -> None:
    for option in OPTIONS:
        assert option.help[0].isupper(), option.name
        assert option.help.endswith("."), option.name
        if option.kind in ("int", "float"):
            assert option.unit, f"{option.name} says no unit"
    assert len({o.flag for o in OPTIONS}) == len({o.env for o in OPTIONS}) == len(OPTIONS)


def test_audit_toml_in_the_working_folder_is_found(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit.toml").write_text(f"target = {json.dumps(str(target))}\ndraft = ['ngram']\nseed = 9\n")
    monkeypatch.chdir(tmp_path)
    assert resolve_options({"preset": None, "config": None}).plan.seed == 9


@settings(max_examples=60)
@given(
    st.sampled_from(OPTIONS),
    st.one_of(st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.none()),
)
def test_any_value_is_taken_or_refused_in_a_sentence(option: Any, raw: object) -> None:
    said = option.name
    try:
        parse(option, raw, "test")
    except InvalidPlan as error:
        said = str(error)
    assert option.name in said


@settings(max_examples=60)
@given(st.recursive(
    st.integers() | st.text(max_size=5) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from([*BY_NAME, "accuracy", "engine", "margin", "agreement", "x"]), inner, max_size=3),
    max_leaves=6,
))  # fmt: skip
def test_any_toml_is_taken_or_refused(value: Any) -> None:
    said, document = "", value if isinstance(value, dict) else {"x": value}
    try:
        assert set(_flatten(document, "", "audit.toml")) <= {*BY_NAME, "preset"}
    except InvalidPlan as error:
        said = str(error)
    assert said.startswith("Unknown key in audit.toml") or not said


def test_devices_may_be_tensor_parallel_groups(target: Path) -> None:
    assert resolve(basic(target, engine_devices="0+1,2+3"), {}).plan.engine.devices == ("0+1", "2+3")
    with pytest.raises(InvalidPlan, match=r"names '0\+'.*0\+1,2\+3 for tensor-parallel groups"):
        resolve(basic(target, engine_devices="0+"), {})
