"""The shipped models are those of the manifest and have the properties that the demo is there to exercise."""

import hashlib
import json

import pytest
from tokenizers import Tokenizer

from tests.demo.conftest import CORPUS, DEMO, ROOT, Checkpoint, config, manifest

LIMIT_BYTES = 16_000_000


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "target" / "tokenizer.json"))


@pytest.fixture(scope="module")
def answer_tokens(tokenizer: Tokenizer) -> set[int]:
    answers = [json.loads(line)["answer"] for line in (CORPUS / "test.jsonl").read_text().splitlines()]
    encoded = tokenizer.encode_batch([f" {answer}" for answer in answers], add_special_tokens=False)
    return {token for encoding in encoded for token in encoding.ids}


@pytest.mark.parametrize("entry", manifest(), ids=lambda entry: str(entry["path"]))
def test_file_is_the_one_in_the_manifest(entry: dict[str, object]) -> None:
    content = (ROOT / str(entry["path"])).read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["bytes"], entry["sha256"])


def test_nothing_is_left_out_and_all_is_small() -> None:
    found = {
        path for name in ("target", "head", "mtp") for path in (DEMO / name).rglob("*") if path.is_file()
    }
    listed = {ROOT / entry["path"] for entry in manifest()}
    assert found | set(CORPUS.glob("*.jsonl")) == listed
    assert sum(entry["bytes"] for entry in manifest()) <= LIMIT_BYTES


@pytest.mark.parametrize(
    ("name", "architecture", "model_type"),
    [
        ("target", "LlamaForCausalLM", "llama"),
        ("head", "LlamaForCausalLMEagle3", "llama"),
        ("mtp", "MiMoForCausalLM", "qwen2"),
    ],
)
def test_config(name: str, architecture: str, model_type: str) -> None:
    values = config(name)
    assert values["architectures"] == [architecture]
    assert values["model_type"] == model_type
    assert values["rope_parameters"]["rope_theta"] == values["rope_theta"] != 10_000
    assert values["rope_theta"] == config("target")["rope_theta"]
    assert values["max_position_embeddings"] >= 1024


@pytest.mark.parametrize("name", ["target", "head", "mtp"])
def test_weights_are_bf16(name: str) -> None:
    header = Checkpoint(DEMO / name / "model.safetensors").header
    assert {entry["dtype"] for tensor, entry in header.items() if tensor not in {"d2t", "t2d"}} == {"BF16"}


def test_the_draft_vocabulary_is_smaller_than_the_tokens_that_occur(answer_tokens: set[int]) -> None:
    values, head = config("head"), Checkpoint(DEMO / "head" / "model.safetensors")
    size = values["draft_vocab_size"]
    assert head.header["lm_head.weight"]["shape"] == [size, values["hidden_size"]]
    reachable = {draft + offset for draft, offset in enumerate(head.integers("d2t"))}
    assert len(reachable) == size < len(answer_tokens)
    assert {token for token, flag in enumerate(head.raw("t2d")) if flag} == reachable
    assert answer_tokens - reachable


def test_the_head_reads_streams_that_the_target_has() -> None:
    layers = config("head")["eagle_aux_hidden_state_layer_ids"]
    assert layers == sorted(set(layers))
    assert 0 <= layers[0] <= layers[-1] <= config("target")["num_hidden_layers"]
    hidden = config("target")["hidden_size"]
    header = Checkpoint(DEMO / "head" / "model.safetensors").header
    assert header["fc.weight"]["shape"] == [hidden, len(layers) * hidden]
    assert header["midlayer.self_attn.q_proj.weight"]["shape"][1] == 2 * hidden


def test_the_mtp_target_is_the_target_with_one_more_layer() -> None:
    target, mtp = (Checkpoint(DEMO / name / "model.safetensors") for name in ("target", "mtp"))
    for name in target.header:
        assert mtp.raw(name) == target.raw(name), name
    added = set(mtp.header) - set(target.header)
    biases = {name for name in added if name.endswith(".bias")}
    assert biases
    assert not any(any(mtp.raw(name)) for name in biases)
    assert {name for name in added - biases if not name.startswith("model.mtp_layers.0.")} == set()
    assert config("mtp")["num_nextn_predict_layers"] == 1


def test_the_tokenizer_adds_bos_once_and_keeps_digits_apart(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode("Question: 1234 caf\u00e9s?\nAnswer:")
    assert encoding.ids[0] == config("target")["bos_token_id"]
    assert encoding.ids.count(config("target")["bos_token_id"]) == 1
    assert [token for token in encoding.tokens if token.isdigit()] == ["1", "2", "3", "4"]
    assert tokenizer.decode(encoding.ids) == "Question: 1234 caf\u00e9s?\nAnswer:"
    assert (DEMO / "mtp" / "tokenizer.json").read_bytes() == (DEMO / "target" / "tokenizer.json").read_bytes()
