"""What a model can emit is shown, never acted on, and nothing is lost."""

from __future__ import annotations

import html
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.report.visible import block, plain

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()))
TAG = re.compile(r"<[^>]*>")


@given(ANYTHING)
def test_plain_text_neither_acts_nor_breaks_lines(text: str) -> None:
    shown = plain(text)
    shown.encode("utf-8")  # a lone surrogate would raise
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


@given(ANYTHING)
def test_a_block_has_only_our_tags(text: str) -> None:
    shown = str(block(text))
    shown.encode("utf-8")  # a lone surrogate would raise
    assert set(TAG.findall(shown)) <= {"<i>", "</i>", '<i class="n">', "<b>", "</b>"}
    bare = html.unescape(TAG.sub("", shown))
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in bare if c not in "\n\t")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)) | st.text(alphabet=" \n<&x"))
def test_a_copy_of_a_block_is_the_text(text: str) -> None:
    """The arrows are not selectable; everything else copies as it was."""
    selectable = re.sub(r'<i class="n">[^<]*</i>', "", str(block(text)))
    assert html.unescape(TAG.sub("", selectable)) == text


@given(ANYTHING, ANYTHING)
def test_different_texts_look_different(a: str, b: str) -> None:
    if a != b and not {"⟨", "⟩", "↵", "⇥"} & set(a + b):
        assert plain(a) != plain(b)
        assert block(a) != block(b)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "⟨\\x1b⟩[31m"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("a\u00a0b", "a⟨\\xa0⟩b"),
        ("\ud800", "⟨U+D800⟩"),
        ("x\ufe0f", "x⟨U+FE0F⟩"),
        ("naïve 中文 −", "naïve 中文 −"),
    ],
)
def test_forms(text: str, shown: str) -> None:
    assert plain(text) == shown
