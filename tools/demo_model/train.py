"""Train the demo's models: `python tools/demo_model/train.py --all` reruns everything, seeded."""

import argparse
import time
from pathlib import Path

import torch
from draft import MTP, Draft, Eagle3, initialise
from export import export_head, export_mtp, export_target, rounded, write_manifest
from model import Shape, Target
from problems import CORPUS, corpus_files
from safetensors.torch import load_file
from target import Recipe, train_target
from tokens import load_tokenizer, train_tokenizer
from train_drafts import RECIPE, draft_tokens, train_draft

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "auditor" / "demo"
WORK = ROOT / ".cache" / "demo_model"


def say(line: str) -> None:
    """A progress line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def load_target() -> Target:
    """The exported target: bf16 weights, computed in float32."""
    target = Target(Shape())
    target.load_state_dict(
        {k: v.float() for k, v in load_file(DEMO / "target" / "model.safetensors").items()}
    )
    return target


def load_draft(name: str) -> Draft:
    """The exported 'eagle3' head or 'mtp' layer: bf16 weights, computed in float32."""
    folder = DEMO / ("head" if name == "eagle3" else "mtp")
    tensors = load_file(folder / "model.safetensors")
    if name == "eagle3":
        offsets = tensors.pop("d2t")
        tensors.pop("t2d")
        draft: Draft = Eagle3(Shape(), offsets + torch.arange(len(offsets)))
    else:
        prefix = "model.mtp_layers.0."
        draft = MTP(Shape(), tensors["lm_head.weight"].float())
        tensors = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        tensors = {k: v for k, v in tensors.items() if not k.endswith(".bias")}
    draft.load_state_dict({k: v.float() for k, v in tensors.items()})
    return draft


def make_target() -> None:
    """Tokenizer and target."""
    tokenizer = train_tokenizer()
    target = train_target(tokenizer, Recipe(), say)
    export_target(rounded(target), tokenizer, DEMO / "target")


def make_head() -> None:
    """EAGLE-3 head on the exported target."""
    tokenizer = load_tokenizer(DEMO / "target")
    torch.manual_seed(RECIPE.seed)
    head = Eagle3(Shape(), draft_tokens(tokenizer))
    initialise(head)
    train_draft(head, load_target(), tokenizer, RECIPE, say)
    export_head(head, DEMO / "head")


def make_mtp() -> None:
    """MTP layer on the exported target."""
    tokenizer = load_tokenizer(DEMO / "target")
    target = load_target()
    torch.manual_seed(RECIPE.seed)
    mtp = MTP(Shape(), target.lm_head.weight.detach())
    initialise(mtp)
    train_draft(mtp, target, tokenizer, RECIPE, say)
    export_mtp(target, mtp, tokenizer, DEMO / "mtp")


def make_corpus() -> None:
    """The committed problems."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, content in corpus_files().items():
        (CORPUS / name).write_text(content, encoding="utf-8")


STAGES = {"corpus": make_corpus, "target": make_target, "head": make_head, "mtp": make_mtp}


def main() -> None:
    """Run the stages asked for, in their order, and write the manifest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every stage")
    parser.add_argument("--stage", action="append", choices=STAGES, default=[], help="one stage; repeatable")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="CPU threads of PyTorch (default 1: on a busy machine two are slower)",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    chosen = list(STAGES) if options.all else [name for name in STAGES if name in options.stage]
    if not chosen:
        parser.error("nothing to do: give --all or --stage")
    torch.set_num_threads(options.threads)
    torch.set_default_device(options.device)
    for name in chosen:
        started = time.monotonic()
        STAGES[name]()
        say(f"{name}: done in {time.monotonic() - started:.0f} s")
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {options.threads} threads"
    write_manifest(
        DEMO,
        CORPUS,
        ROOT,
        f"{machine}, PyTorch {torch.__version__}",
        time.strftime("%Y-%m-%d", time.gmtime()),
    )


if __name__ == "__main__":
    main()
