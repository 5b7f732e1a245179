"""Names, shapes and types of a model folder's tensors, from the safetensors headers alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_LARGEST_HEADER = 100_000_000


class BadHeader(ValueError):
    """The file is no safetensors file, or is cut off."""


@dataclass(frozen=True, slots=True)
class Tensor:
    dtype: str
    """As safetensors writes it: BF16, F32, I64, BOOL, …"""
    shape: tuple[int, ...]


def read_headers(folder: Path) -> dict[str, Tensor]:
    """All tensors of all *.safetensors files in `folder`. Raises BadHeader naming the file."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                found.update(_header(file, path.stat().st_size))
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise BadHeader(f"{path.name}: {err}") from err
    return found


def read_integers(folder: Path, name: str) -> tuple[int, ...] | None:
    """Values of a one-dimensional int64 or int32 tensor; None when the folder has none of that name."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            entry = json.loads(file.read(length)).get(name)
            if entry is None:
                continue
            code = {"I64": "q", "I32": "i"}.get(entry["dtype"])
            if code is None or len(entry["shape"]) != 1:
                return None
            start, end = entry["data_offsets"]
            file.seek(8 + length + start)
            raw = file.read(end - start)
            return struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)
    return None


def _header(file: BinaryIO, size: int) -> dict[str, Tensor]:
    raw = file.read(8)
    if len(raw) < 8:
        raise BadHeader("no header")
    (length,) = struct.unpack("<Q", raw)
    if length > min(size - 8, _LARGEST_HEADER):
        raise BadHeader(f"a header of {length} bytes in a file of {size}")
    entries: Mapping[str, dict[str, object]] = json.loads(file.read(length))
    if not isinstance(entries, dict):
        raise BadHeader("the header is no JSON object")
    found, end = {}, 0
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not isinstance(shape, list) or not isinstance(offsets, list):
            raise BadHeader(f"tensor {name} has no shape")
        found[name] = Tensor(str(entry["dtype"]), tuple(int(n) for n in shape))
        end = max(end, int(offsets[1]))
    if 8 + length + end > size:
        raise BadHeader(f"{size} bytes where the header promises {8 + length + end}")
    return found
