"""Lines of a raw file that stay on disk: their offsets in memory, each decoded when it is read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import msgspec

from auditor.errors import RecordError
from auditor.model.completion import Prompt
from auditor.record.lines import read_lines
from auditor.record.state import UNREADABLE, decode_line

T = TypeVar("T")
_BUFFER = 1 << 16


class LazyLines(Sequence[T], Generic[T]):
    """Lines of one file at known offsets, decoded each time they are read. Eight bytes of memory a line."""

    def __init__(self, path: Path, offsets: array[int], kind: Any) -> None:
        self._path = path
        self._offsets = offsets
        self._kind = kind
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> LazyLines[T]: ...
    def __getitem__(self, index: int | slice) -> T | LazyLines[T]:
        if isinstance(index, slice):
            return LazyLines(self._path, self._offsets[index], self._kind)
        return next(self._read([self._offsets[index]]))

    def __iter__(self) -> Iterator[T]:
        return self._read(self._offsets)

    def _read(self, offsets: Sequence[int]) -> Iterator[T]:
        try:
            with self._path.open("rb", buffering=_BUFFER) as file:
                for offset in offsets:
                    file.seek(offset)
                    yield self._decode(file.readline().rstrip(b"\n"), offset)
        except OSError as err:
            raise RecordError(
                f"Cannot read {self._path.name}: {err.strerror or err}",
                expected="a file of a run folder",
                todo="restore it from a copy",
            ) from err

    def _decode(self, line: bytes, offset: int) -> T:
        try:
            return self._decoder.decode(line)
        except UNREADABLE as err:
            raise RecordError(
                f"The line at byte {offset} of {self._path.name} is damaged: {err}",
                expected="a line as the auditor wrote it",
                todo="restore the file from a copy",
            ) from err


class _Head(msgspec.Struct, frozen=True):
    """What the index needs of a prompt; the rest of the line is skipped unread."""

    corpus: str


class FrozenPrompts:
    """The prompts of a run folder by corpus, in the order of the file."""

    def __init__(self, path: Path, *, check: bool = False) -> None:
        """Index `path` in one pass. `check`: decode every line whole, so that none is found damaged later.
        Raises RecordError naming the line."""
        self._path = path
        self._all: array[int] = array("Q")
        self._by_corpus: dict[str, array[int]] = {}
        decoder: msgspec.json.Decoder[_Head | Prompt] = msgspec.json.Decoder(Prompt if check else _Head)
        for number, (offset, line) in enumerate(read_lines(path), 1):
            head = decode_line(line, decoder, path.name, number)
            self._all.append(offset)
            self._by_corpus.setdefault(head.corpus, array("Q")).append(offset)

    def all(self) -> LazyLines[Prompt]:
        return LazyLines(self._path, self._all, Prompt)

    def of(self, *corpora: str) -> LazyLines[Prompt]:
        """The prompts of these corpora, one of each in turn; empty where there are none."""
        lanes = [self._by_corpus[name] for name in corpora if name in self._by_corpus]
        longest = max(map(len, lanes), default=0)
        in_turn = (lane[i] for i in range(longest) for lane in lanes if i < len(lane))
        return LazyLines(self._path, array("Q", in_turn), Prompt)
