"""Manifests of what was audited."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from auditor.errors import InvalidPlan
from auditor.record.digests import combined, identify


def model(folder: Path) -> Path:
    (folder / "shards").mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "shards" / "a.safetensors").write_bytes(b"weights" * 100_000)
    return folder


def test_every_file_has_its_digest(tmp_path: Path) -> None:
    found = identify("target", model(tmp_path / "model"))
    assert found.source == "model"
    assert [(f.path, f.size, f.sha256) for f in found.files] == [
        ("config.json", 2, hashlib.sha256(b"{}").hexdigest()),
        ("shards/a.safetensors", 700_000, hashlib.sha256(b"weights" * 100_000).hexdigest()),
    ]
    lines = "".join(f"{f.sha256}  {f.path}\n" for f in found.files)
    assert found.digest == hashlib.sha256(lines.encode()).hexdigest()


def test_the_digest_is_of_the_contents_not_of_the_place_or_the_time(tmp_path: Path) -> None:
    one, two = model(tmp_path / "one"), model(tmp_path / "two")
    os.utime(two / "config.json", (0, 0))
    assert identify("target", one).digest == identify("target", two).digest
    (two / "config.json").write_bytes(b"[]")
    assert identify("target", one).digest != identify("target", two).digest


def test_hidden_files_caches_and_unfinished_downloads_are_left_out(tmp_path: Path) -> None:
    folder = model(tmp_path / "model")
    before = identify("target", folder)
    for name in (".cache/x", ".gitattributes", "__pycache__/m.pyc", "w.lock", "w.incomplete"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"noise")
    assert identify("target", folder) == before


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    folder = model(tmp_path / "model")
    blob = tmp_path / "blob"
    blob.write_bytes(b"{}")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(blob)
    assert identify("target", folder).digest == identify("target", model(tmp_path / "plain")).digest


def test_one_file_is_an_identity_too(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b"{}")
    found = identify("corpus:c", tmp_path / "c.jsonl", source="packaged", revision="1", licence="MIT")
    assert (found.source, found.revision, found.licence, len(found.files)) == ("packaged", "1", "MIT", 1)


def test_paths_with_two_spaces_or_newlines_do_not_collide(tmp_path: Path) -> None:
    digests = set()
    for number, name in enumerate(("a  b", "a\nb", "a b")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_bytes(b"")
        digests.add(combined(identify("target", folder).files))
    assert len(digests) == 3


@pytest.mark.parametrize("case", ["missing", "empty", "broken link"])
def test_what_cannot_be_read_is_said(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "model"
    if case != "missing":
        folder.mkdir()
    if case == "broken link":
        (folder / "config.json").symlink_to(tmp_path / "gone")
    with pytest.raises(InvalidPlan, match=r"Cannot read|holds no file"):
        identify("target", folder)
