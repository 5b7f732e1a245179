"""Where packaged data lies: inside the wheel, or the folders of the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def data(folder: Literal["templates", "corpora"]) -> Path:
    """Folder of packaged data. In an editable install the package itself has no `_data`."""
    package = Path(__file__).resolve().parent
    packaged = package / "_data" / folder
    return packaged if packaged.is_dir() else package.parent / folder
