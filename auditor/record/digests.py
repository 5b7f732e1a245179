"""SHA-256 manifests of files and folders: what was audited, byte for byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from auditor.errors import InvalidPlan
from auditor.model.baseline import IdentityDigest
from auditor.model.record import FileDigest, Identity

_SKIPPED_FOLDERS = frozenset({"__pycache__"})
_SKIPPED_SUFFIXES = (".pyc", ".lock", ".part", ".incomplete")


def digest_file(path: Path, name: str) -> FileDigest:
    """SHA-256 of one file, recorded as `name`. Raises OSError."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return FileDigest(path=name, size=os.fstat(file.fileno()).st_size, sha256=sha256)


def combined(files: Iterable[FileDigest]) -> str:
    """sha256 over the lines `<sha256>  <path>` of all files, sorted by path."""
    lines = sorted(f"{file.path}\0{file.sha256}" for file in files)
    text = "".join(f"{sha}  {path}\n" for path, sha in (line.split("\0") for line in lines))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def identity_digests(identities: Iterable[Identity]) -> tuple[IdentityDigest, ...]:
    """Identities without their lists of files."""
    return tuple(
        IdentityDigest(name=i.name, source=i.source, revision=i.revision, digest=i.digest) for i in identities
    )


def identify(
    name: str,
    path: Path,
    *,
    source: str | None = None,
    revision: str | None = None,
    licence: str | None = None,
) -> Identity:
    """Manifest of a file, or of a folder without hidden files, caches and unfinished downloads.

    `source` defaults to the base name, so that no path of this machine enters the record. Links to files
    are followed (model caches are made of them), links to folders are not. Files are hashed by several
    threads. Raises InvalidPlan when something cannot be read or nothing is there.
    """
    try:
        members = _members(path)
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            files = tuple(pool.map(lambda item: digest_file(item[1], item[0]), members))
    except OSError as err:
        raise InvalidPlan(
            f"Cannot read {err.filename or path}: {err.strerror}",
            expected=f"readable files of {name}",
            todo="check the path and its permissions",
        ) from err
    if not files:
        raise InvalidPlan(f"{path} holds no file", expected=f"the files of {name}", todo="check the path")
    return Identity(
        name=name,
        source=source or path.resolve().name,
        revision=revision,
        files=files,
        digest=combined(files),
        licence=licence,
    )


def _members(path: Path) -> list[tuple[str, Path]]:
    """(name relative to `path`, file), sorted by name."""
    if not path.is_dir():
        return [(path.name, path)]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS]
        for name in names:
            if name.startswith(".") or name.endswith(_SKIPPED_SUFFIXES):
                continue
            file = Path(folder, name)
            found.append((file.relative_to(path).as_posix(), file))
    return sorted(found)
