"""Text that a model, an engine or a user emitted, made safe to look at.

Nothing is dropped and nothing acts: C0 and C1 controls, ANSI escapes, bidirectional overrides, zero-width
and other format characters, odd spaces, lone surrogates, private and unassigned code points all appear as
their escape. In HTML every escape is a badge, spaces stay real spaces (a copy is the original text) with a
dot drawn under them, and line ends show an arrow.
"""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup, escape

_ACTING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def acts(character: str) -> bool:
    """True for a character that is not shown as a glyph of its own."""
    if " " <= character <= "~":
        return False
    category = unicodedata.category(character)
    # Variation selectors are marks, yet draw nothing; every Zs but the ordinary space looks like one.
    return category in _ACTING or category == "Zs" or "\ufe00" <= character <= "\ufe0f"


def name_of(character: str) -> str:
    """Escape of one character: `\\n`, `\\x1b`, `U+202E`."""
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if short:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"U+{code:04X}"


def plain(text: str, keep: str = "") -> str:
    """One-line safe text for terminals, markdown, XML and labels; characters in `keep` stay as they are."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"⟨{name_of(c)}⟩" if acts(c) and c not in keep else c for c in text)


_SPACES = re.compile(r"( +)")


def block(text: str) -> Markup:
    """Text for a `white-space: break-spaces` block: see the module's first lines."""
    out: list[str] = []
    run: list[str] = []

    def flush() -> None:
        for i, piece in enumerate(_SPACES.split("".join(run))):
            if piece:
                out.append(f"<i>{piece}</i>" if i % 2 else str(escape(piece)))
        run.clear()

    for character in text:
        if not acts(character):
            run.append(character)
            continue
        flush()
        if character == "\n":
            out.append('<i class="n">↵</i>\n')
        elif character == "\t":
            out.append('<i class="n">⇥</i>\t')
        else:
            out.append(f"<b>{name_of(character)}</b>")
    flush()
    return Markup("".join(out))
