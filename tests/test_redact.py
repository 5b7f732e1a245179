"""No secret leaves by the record."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.redact import (
    HIDDEN,
    Places,
    is_secret,
    redact_argv,
    redact_value,
    scrub_text,
    secrets_of,
    steering,
)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "apikey", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "--api-key", "--hf-token",
     "OPENAI_API_KEY", "GITHUB_TOKEN", "my_credentials", "MY_SECRET_THING", "HUGGING_FACE_HUB_TOKEN"],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert is_secret(name)
    assert redact_value(name, "swordfish") == HIDDEN
    assert redact_value(name, "") == ""


@pytest.mark.parametrize(
    "name",
    ["--max-tokens", "max_num_batched_tokens", "--tokenizer", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM",
     "num_speculative_tokens", "--max-num-batched-tokens", "VLLM_CACHE_ROOT", "MONKEY", "KEYBOARD", "--seed"],
)  # fmt: skip
def test_names_that_only_look_like_it(name: str) -> None:
    assert not is_secret(name)
    assert redact_value(name, "value") == "value"


def test_argv() -> None:
    argv = ("py", "--api-key", "one", "two", "--port", "1", "--hf-token=abc", "--max-tokens", "9", "-x")
    assert redact_argv(argv) == (
        "py", "--api-key", HIDDEN, HIDDEN, "--port", "1", f"--hf-token={HIDDEN}", "--max-tokens", "9", "-x",
    )  # fmt: skip


def test_text() -> None:
    text = "key swordfish in http://me:pw@host/ with hf_abcdefghijklmnopqr and Bearer abcdefgh12345678"
    clean = scrub_text(text, ("swordfish",))
    for secret in ("swordfish", "me:pw", "hf_abc", "abcdefgh12345678"):
        assert secret not in clean
    assert clean.count(HIDDEN) == 4


@given(
    st.text(alphabet="abcdef0123456789", min_size=8, max_size=40), st.text(max_size=60), st.text(max_size=60)
)
def test_a_secret_of_the_environment_never_survives(secret: str, before: str, after: str) -> None:
    secrets = secrets_of(("x", "--api-key", secret), {"HF_TOKEN": secret, "HOME": "/h"})
    assert secrets == (secret,)
    assert secret not in scrub_text(f"{before}{secret}{after}", secrets).replace(HIDDEN, "\0")


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "work" / "reports" / "run"
    run.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    places = Places(run)
    assert places.shorten(f"{run}/launches/a") == "<run>/launches/a"
    assert places.shorten(f"{tmp_path}/work/models/m") == "./models/m"
    assert places.shorten(f"{tmp_path}/x") == "~/x"
    assert places.shorten(f"{tmp_path}-other/x") == f"{tmp_path}-other/x"


def test_steering() -> None:
    env = {"VLLM_X": "1", "PATH": "/bin", "HF_TOKEN": "t", "CUDA_VISIBLE_DEVICES": "0"}
    assert list(steering(env)) == ["CUDA_VISIBLE_DEVICES", "HF_TOKEN", "VLLM_X"]
