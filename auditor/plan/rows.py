"""Rows of a corpus, as dictionaries, from a file or from the Hugging Face hub (through `datasets`)."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from auditor.errors import InvalidPlan

Row = Mapping[str, Any]
_FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".json.gz": "json", ".parquet": "parquet"}
_PROBE_TIMEOUT_S = 3.0


def read_local(path: Path, name: str, *, direct: bool) -> list[Row]:
    """All rows of a jsonl, jsonl.gz or parquet file.

    `direct` reads JSON lines without the `datasets` library, whose import takes seconds: for files that come
    with the auditor. Raises InvalidPlan.
    """
    kind = next((kind for suffix, kind in _FORMATS.items() if path.name.endswith(suffix)), None)
    if kind is None:
        raise InvalidPlan(
            f"{path.name} has an unknown ending",
            expected=", ".join(_FORMATS),
            todo="convert the corpus to one JSON object a line",
        )
    if not path.is_file():
        raise InvalidPlan(
            f"There is no file {path}",
            expected=f"the corpus {name}",
            todo=f"pass --corpus {name}=PATH with the file, or a folder that holds {path.name}",
        )
    if kind == "json":
        lines = _text_lines(path)
        if direct or not lines:
            return [_object(line, number, path) for number, line in enumerate(lines, 1)]
    return _load(kind, path)


def read_hub(name: str, hub_id: str, config: str | None, split: str, revision: str) -> list[Row]:
    """All rows of a split at a pinned revision. Raises InvalidPlan when the hub cannot be reached."""
    offline = not hub_answers()
    datasets = _datasets()
    try:
        with _offline(offline):
            loaded = datasets.load_dataset(hub_id, config, split=split, revision=revision)
            return list(loaded.to_list())
    except Exception as err:
        # The library raises dozens of types here, from its own and from three others.
        reason = "the Hugging Face hub cannot be reached" if offline else _first_line(err)
        raise InvalidPlan(
            f"Cannot load {name} from {hub_id}: {reason}",
            expected="the hub, its cache, or a local file",
            todo=f"pass --corpus {name}=PATH (jsonl, jsonl.gz or parquet)",
        ) from err


@contextlib.contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """The cache alone, and failure at once instead of after 23 s of retries. The libraries read the variable
    HF_HUB_OFFLINE at import, which may be long ago: their constants are set instead."""
    import datasets
    import huggingface_hub.constants as hub

    before = hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if wanted:
        hub.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _load(kind: str, path: Path) -> list[Row]:
    datasets = _datasets()
    with tempfile.TemporaryDirectory(prefix="audit-corpus-") as cache:
        try:
            loaded = datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=cache)
            return list(loaded.to_list())
        except Exception as err:
            raise InvalidPlan(
                f"Cannot read {path.name}: {_first_line(err)}",
                expected="one JSON object a line, or parquet",
                todo="check the file",
            ) from err


def _datasets() -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets


def _text_lines(path: Path) -> list[str]:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    except (OSError, EOFError) as err:
        raise InvalidPlan(f"Cannot read {path}: {err}", expected="a readable file", todo="check it") from err
    lines = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as err:
            raise InvalidPlan(
                f"Line {number} of {path.name} is not UTF-8 (byte {line[err.start]:#04x})",
                expected="a UTF-8 file",
                todo="convert it, for example with iconv",
            ) from err
        if text.strip():
            lines.append(text)
    return lines


def _object(line: str, number: int, path: Path) -> Row:
    try:
        value = json.loads(line)
    except ValueError as err:
        raise InvalidPlan(
            f"Line {number} of {path.name} is not JSON: {err}", expected="a JSON object"
        ) from err
    if not isinstance(value, dict):
        raise InvalidPlan(f"Line {number} of {path.name} is no JSON object", expected="a JSON object a line")
    return value


def hub_answers() -> bool:
    """Whether the hub can be connected to within seconds; True where a proxy hides that."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        socket.create_connection((endpoint.hostname or "", port), timeout=_PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _first_line(err: Exception) -> str:
    cause = err.__cause__ or err
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:200]
