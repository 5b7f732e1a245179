"""Command lines read as argparse engines do: `--a-b`, `--a_b`, `--a=b`, `--a.c d`, `-tp 2`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-cc": "--compilation-config",
}


def name_of(word: str) -> str | None:
    """The long option that a word is, with dashes, without `=value` and `.sub.key`; None for other words."""
    if not word.startswith("--") or word == "--":
        return _SHORT.get(word.partition("=")[0].partition(".")[0])
    return word.partition("=")[0].partition(".")[0].replace("_", "-")


def flags_in(args: Sequence[str]) -> Iterator[str]:
    """Long options in order, normalised."""
    return (name for word in args if (name := name_of(word)) is not None)


def has_flag(args: Sequence[str], *names: str) -> bool:
    return any(flag in names for flag in flags_in(args))


def value_of(args: Sequence[str], name: str) -> str | None:
    """The last value given to `--name value` or `--name=value`; None when absent or without a value."""
    found: str | None = None
    for i, word in enumerate(args):
        if name_of(word) == name and "." not in word.partition("=")[0]:
            if "=" in word:
                found = word.partition("=")[2]
            elif i + 1 < len(args) and name_of(args[i + 1]) is None:
                found = args[i + 1]
    return found


def without(args: Sequence[str], name: str) -> tuple[str, ...]:
    """`args` without `--name value` and `--name=value`."""
    kept: list[str] = []
    skip = False
    for word in args:
        if skip and name_of(word) is None:
            skip = False
            continue
        skip = False
        if name_of(word) == name and "." not in word.partition("=")[0]:
            skip = "=" not in word
            continue
        kept.append(word)
    return tuple(kept)
