"""Corpora: manifests in corpora/*.toml, rows from the package, a local file or the hub.

A manifest pins what the corpus is: source, revision, count and digests. A file with another count or digest
is refused, because figures on it would carry the corpus's name without being comparable.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from auditor.errors import InvalidPlan
from auditor.model.base import Model
from auditor.model.judgement import Finding
from auditor.model.plan import CorpusUse
from auditor.model.record import Identity
from auditor.plan.rows import Row, read_hub, read_local
from auditor.resources import data


class Source(Model, frozen=True, kw_only=True):
    """One file of a corpus."""

    file: str
    """Name of the known file: packaged under corpora/, or the upstream name."""
    rows: int
    sha256: str | None = None
    """Of the known file; None for files that are known by content only."""
    content_sha256: str | None = None
    """Over the template's fields of all rows in order, so that parquet copies can be checked too."""
    packaged: bool = False
    hub_split: str | None = None


class Hub(Model, frozen=True, kw_only=True):
    id: str
    revision: str
    config: str | None = None
    rename: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields of the hub's rows that have other names here: theirs to ours."""


class Manifest(Model, frozen=True, kw_only=True):
    """corpora/<name>.toml"""

    name: str
    title: str
    source: str
    revision: str
    licence: str
    mode: Literal["completion", "chat"] = "completion"
    template: str
    """str.format over the row's fields."""
    shot: str | None = None
    """Template of one worked example, ending in what separates it from the next."""
    few_shot: str = ""
    """The rule for worked examples, in words."""
    grading: Literal["none", "gsm8k"] = "none"
    gold: str | None = None
    """Field with the reference answer."""
    id: str | None = None
    """Field with the item's id; None for the row number."""
    id_prefix: str = ""
    """Cut from the front of ids."""
    data: Source
    shots: Source | None = None
    hub: Hub | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One problem. `id` is unique within the corpus."""

    id: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A corpus as an audit uses it: items in the seeded order, after the limit."""

    manifest: Manifest
    items: tuple[Item, ...]
    total: int
    """Problems in the whole corpus."""
    shots: tuple[Row, ...]
    identity: Identity
    findings: tuple[Finding, ...]


def known() -> dict[str, Path]:
    """Manifests that come with the auditor, by corpus name."""
    return {path.stem: path for path in sorted(data("corpora").glob("*.toml"))}


def manifest(name: str) -> Manifest | None:
    """The packaged manifest of a corpus; None for names that have none."""
    path = known().get(name)
    return msgspec.toml.decode(path.read_bytes(), type=Manifest) if path else None


def load(use: CorpusUse, seed: int, shots: int = 0) -> Corpus:
    """Read a corpus and its first `shots` worked examples.

    Raises InvalidPlan for a file that is missing, unreadable, not UTF-8, empty, has duplicate ids, lacks
    fields, or differs from the manifest in count or digest.
    """
    found = manifest(use.name)
    path = Path(use.path).expanduser() if use.path else None
    if found is None:
        if path is None:
            raise _unknown(use.name)
        found = _undeclared(use.name, path)
    rows, identity, findings = _read(found, found.data, path, f"corpus:{use.name}")
    items = _items(found, rows)
    worked: tuple[Row, ...] = ()
    if shots:
        worked, extra = _read_shots(found, path, shots)
        identity = msgspec.structs.replace(identity, files=(*identity.files, *extra.files))
    ordered = sorted(items, key=lambda item: _order_key(seed, use.name, item.id))
    return Corpus(
        manifest=found,
        items=tuple(ordered[: use.limit]),
        total=len(items),
        shots=worked,
        identity=identity,
        findings=findings,
    )


def text_of(manifest: Manifest, row: Row, shots: Sequence[Row] = ()) -> str:
    """The prompt's text: worked examples, then the problem."""
    examples = "".join((manifest.shot or "").format(**shot) for shot in shots)
    return examples + manifest.template.format(**row)


def gold_of(manifest: Manifest, row: Row) -> str | None:
    """The reference answer: what follows the last `####`, thousands separators removed."""
    if manifest.gold is None:
        return None
    return str(row[manifest.gold]).rsplit("####", 1)[-1].strip().replace(",", "")


def fields(*templates: str | None) -> tuple[str, ...]:
    """Top-level fields that templates use, in order of first use."""
    used: dict[str, None] = {}
    for template in templates:
        for _, field, _, _ in string.Formatter().parse(template or ""):
            if field:
                used.setdefault(field.split("[")[0].split(".")[0])
    return tuple(used)


def content_digest(manifest: Manifest, rows: Sequence[Row]) -> str:
    """sha256 over the used fields of all rows, in order, each row as one JSON array and a newline."""
    names = fields(manifest.template, manifest.shot)
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.get(name) for name in names], ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def _read(
    manifest: Manifest, source: Source, path: Path | None, name: str
) -> tuple[list[Row], Identity, tuple[Finding, ...]]:
    from auditor.record.digests import identify

    if path is not None and path.is_dir():
        path = path / source.file
    if path is None and source.packaged:
        path = data("corpora") / source.file
    if path is None:
        return _read_from_hub(manifest, source, name)
    rows = read_local(path, manifest.name, direct=source.packaged)
    where = "packaged" if source.packaged else path.name
    identity = identify(name, path, source=where, revision=manifest.revision, licence=manifest.licence)
    _check(manifest, source, rows, path.name)
    pinned = source.sha256 or source.content_sha256
    same = identity.files[0].sha256 == source.sha256 or (
        source.content_sha256 is not None and content_digest(manifest, rows) == source.content_sha256
    )
    if pinned and not same:
        raise InvalidPlan(
            f"{path.name} has sha256 {identity.files[0].sha256[:16]}… and does not hold {manifest.name}",
            expected=f"{pinned[:16]}… ({manifest.source} @{manifest.revision})",
            todo="get the pinned file, or give yours another corpus name: --corpus NAME=PATH",
        )
    return rows, identity, ()


def _read_from_hub(
    manifest: Manifest, source: Source, name: str
) -> tuple[list[Row], Identity, tuple[Finding, ...]]:
    if manifest.hub is None or source.hub_split is None:
        raise InvalidPlan(
            f"{manifest.name} is not on the hub and no file was given",
            expected=source.file,
            todo=f"pass --corpus {manifest.name}=PATH",
        )
    hub = manifest.hub
    raw = read_hub(manifest.name, hub.id, hub.config, source.hub_split, hub.revision)
    rows: list[Row] = [{hub.rename.get(key, key): value for key, value in row.items()} for row in raw]
    if source is manifest.shots:
        rows = rows[: source.rows]
    _check(manifest, source, rows, hub.id)
    digest = content_digest(manifest, rows)
    identity = Identity(
        name=name, source=hub.id, revision=hub.revision, digest=digest, licence=manifest.licence
    )
    if digest == source.content_sha256:
        return rows, identity, ()
    finding = Finding(
        code="CORPUS-HUB-DIFFERS",
        severity="warning",
        seen=f"{hub.id}@{hub.revision[:12]} has content digest {digest[:16]}…",
        expected=f"{(source.content_sha256 or 'unknown')[:16]}…, that of {source.file}",
        remedy=f"pass the pinned file: --corpus {manifest.name}=PATH",
        subject=manifest.name,
    )
    return rows, identity, (finding,)


def _read_shots(manifest: Manifest, path: Path | None, shots: int) -> tuple[tuple[Row, ...], Identity]:
    if manifest.shots is None or manifest.shot is None:
        raise InvalidPlan(
            f"{manifest.name} has no worked examples",
            expected="a corpus with a train split",
            todo="set accuracy.shots to 0",
        )
    beside = path.parent if path is not None and not path.is_dir() else path
    rows, identity, _ = _read(manifest, manifest.shots, beside, f"corpus:{manifest.name}:shots")
    if shots > len(rows):
        raise InvalidPlan(
            f"{manifest.name} has {len(rows)} worked examples",
            expected=f"at least {shots}",
            todo=f"set accuracy.shots to {len(rows)} or less",
        )
    return tuple(rows[:shots]), identity


def _check(manifest: Manifest, source: Source, rows: Sequence[Row], where: str) -> None:
    if not rows:
        raise InvalidPlan(
            f"{where} holds no problem", expected=f"the corpus {manifest.name}", todo="check the file"
        )
    needed = fields(manifest.template, manifest.shot)
    needed += tuple(name for name in (manifest.gold, manifest.id) if name)
    for number, row in enumerate(rows, 1):
        if missing := [name for name in needed if row.get(name) is None]:
            raise InvalidPlan(
                f"Row {number} of {where} lacks {', '.join(dict.fromkeys(missing))}",
                expected=f"the fields {', '.join(dict.fromkeys(needed))}",
                todo="check the file",
            )
    if source.rows >= 0 and len(rows) != source.rows:
        raise InvalidPlan(
            f"{where} has {len(rows)} rows",
            expected=f"{source.rows}, the whole of {manifest.name}",
            todo="get the whole file and use a limit for fewer problems, "
            "or give yours another corpus name: --corpus NAME=PATH",
        )


def _items(manifest: Manifest, rows: Sequence[Row]) -> list[Item]:
    items: dict[str, Item] = {}
    for number, row in enumerate(rows):
        label = str(number) if manifest.id is None else str(row[manifest.id])
        label = label.removeprefix(manifest.id_prefix)
        if label in items:
            raise InvalidPlan(
                f"The id {label!r} occurs twice in {manifest.name} (row {number + 1})",
                expected="unique ids",
                todo="remove the duplicate",
            )
        items[label] = Item(id=label, row=row)
    return list(items.values())


def _order_key(seed: int, name: str, label: str) -> bytes:
    """A seeded order that does not depend on the library's shuffling, nor on how many items there are."""
    return hashlib.sha256(f"{seed}\0{name}\0{label}".encode()).digest()


def _undeclared(name: str, path: Path) -> Manifest:
    """The manifest of a user's own file, read off its first row."""
    rows = read_local(path, name, direct=False)
    if not rows:
        raise InvalidPlan(
            f"{path.name} has no rows",
            expected="at least one prompt",
            todo=f"give --corpus {name} another file",
        )
    first: Mapping[str, Any] = rows[0]
    shapes: dict[str, dict[str, Any]] = {
        "question": {"template": "Question: {question}\nAnswer:"},
        "prompt": {"template": "{prompt}"},
        "turns": {"template": "{turns[0]}", "mode": "chat"},
    }
    shape = next((shapes[field] for field in shapes if field in first), None)
    if shape is None:
        raise InvalidPlan(
            f"{path.name} has the fields {', '.join(first) or 'none'}",
            expected="one of `question` (with `answer` where it is graded), `prompt` or `turns`",
            todo="rename the field that holds the prompt",
        )
    graded = "question" in first and "answer" in first
    return Manifest(
        name=name,
        title=name,
        source=path.name,
        revision="as given",
        licence="unknown",
        grading="gsm8k" if graded else "none",
        gold="answer" if graded else None,
        id="id" if "id" in first else None,
        data=Source(file=path.name, rows=-1),
        **shape,
    )


def _unknown(name: str) -> InvalidPlan:
    import difflib

    names = sorted(set(known()) - {"certification"})
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}? Otherwise " if near else ""
    return InvalidPlan(
        f"There is no corpus called {name}",
        expected=f"one of {', '.join(names)}",
        todo=f"{hint}pass your own file: --corpus {name}=PATH",
    )
