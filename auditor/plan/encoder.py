"""Text to token ids: by the target's own tokenizer files, or by the server in attach mode.

Prompts are frozen as ids once, before the first request, so that neither a template that prints the date nor
a server that adds special tokens can make two arms read different prompts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from auditor.errors import EngineError, InvalidPlan
from auditor.model.judgement import Finding
from auditor.model.record import Identity

if TYPE_CHECKING:
    import httpx
    from tokenizers import Tokenizer

    from auditor.plan.template import ChatTemplate

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


_BATCH = 256
"""Texts encoded at once: the library uses all cores within a batch."""


class Encoder(Protocol):
    """What building prompts needs of a tokenizer."""

    @property
    def has_chat(self) -> bool:
        """Whether `encode(…, chat=True)` can be asked for."""
        ...

    @property
    def bos_id(self) -> int | None: ...
    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text; empty when unknown."""
        ...

    @property
    def vocab_size(self) -> int | None:
        """Ids below this are tokens; None when unknown."""
        ...

    def encode(self, text: str, chat: bool) -> tuple[int, ...]:
        """`text` as a completion prompt with the special tokens that the engine adds to one, or as the only
        user message of a chat. Raises InvalidPlan or EngineError."""
        ...

    def encode_many(self, texts: Sequence[str], chat: bool) -> list[tuple[int, ...]]:
        """`encode` of each text."""
        ...

    def findings(self) -> tuple[Finding, ...]:
        """Remarks on the tokenizer and its template after encoding."""
        ...

    def identity(self) -> Identity: ...


class LocalEncoder:
    """The tokenizer in a target's folder: tokenizer.json and its chat template."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = _load_tokenizer(folder)
        self._config = _read_object(folder / "tokenizer_config.json")
        self._named = _special_tokens(self._config, _read_object(folder / "special_tokens_map.json"))
        self._template = self._load_template()
        self._special = frozenset(
            i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        )
        self._add_bos = self._config.get("add_bos_token") is True

    @property
    def has_chat(self) -> bool:
        return self._template is not None

    @property
    def bos_id(self) -> int | None:
        bos = self._named.get("bos_token")
        return self._tokenizer.token_to_id(bos) if bos else None

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special

    @property
    def vocab_size(self) -> int | None:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, chat: bool) -> tuple[int, ...]:
        return self.encode_many([text], chat)[0]

    def encode_many(self, texts: Sequence[str], chat: bool) -> list[tuple[int, ...]]:
        if chat:
            # The template writes its own special tokens; adding more is how a prompt gets two BOS.
            template = self._chat_template()
            return self._ids([template.render(text) for text in texts], special=False)
        bos = self.bos_id
        found = self._ids(texts, special=True)
        if not self._add_bos or bos is None:
            return found
        return [ids if ids[:1] == (bos,) else (bos, *ids) for ids in found]

    def findings(self) -> tuple[Finding, ...]:
        if self._template is None or not self._template.asked_for_date:
            return ()
        return (
            Finding(
                code="TEMPLATE-DATE",
                severity="warning",
                seen=f"the chat template prints today's date; it was rendered with {self._template.date}",
                expected="a prompt that is the same on every day",
                remedy="none needed here: the ids are frozen. Other tools will send other prompts",
                subject="tokenizer",
            ),
        )

    def identity(self) -> Identity:
        from auditor.record.digests import combined, digest_file

        found = [name for name in TOKENIZER_FILES if (self._folder / name).is_file()]
        files = tuple(digest_file(self._folder / name, name) for name in found)
        return Identity(
            name="tokenizer", source=self._folder.resolve().name, files=files, digest=combined(files)
        )

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            raise InvalidPlan(
                f"{self._folder.name} has no chat template",
                expected="chat_template.jinja or chat_template in tokenizer_config.json",
                todo="use a corpus of completion prompts",
            )
        return self._template

    def _ids(self, texts: Sequence[str], special: bool) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for start in range(0, len(texts), _BATCH):
            batch = self._tokenizer.encode_batch_fast(
                list(texts[start : start + _BATCH]), add_special_tokens=special
            )
            found.extend(tuple(encoding.ids) for encoding in batch)
        return found

    def _load_template(self) -> ChatTemplate | None:
        from auditor.plan.template import ChatTemplate

        file = self._folder / "chat_template.jinja"
        source: Any = file.read_text("utf-8") if file.is_file() else self._config.get("chat_template")
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        return ChatTemplate(source, self._named, self._folder.name) if isinstance(source, str) else None


class RemoteEncoder:
    """The tokenizer of a running server, through POST /tokenize. Used in attach mode; it blocks."""

    def __init__(
        self, base_url: str, model: str, api_key: str | None = None, timeout_s: float = 30.0
    ) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._model = model
        self._url = base_url.rstrip("/") + "/tokenize"
        self._client: httpx.Client = httpx.Client(headers=headers, timeout=timeout_s, trust_env=False)
        self._chat: bool | None = None

    @property
    def has_chat(self) -> bool:
        if self._chat is None:
            self._chat = self._post(self._body("hello", chat=True)).status_code == 200
        return self._chat

    @property
    def bos_id(self) -> int | None:
        return None

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset()

    @property
    def vocab_size(self) -> int | None:
        return None

    def encode_many(self, texts: Sequence[str], chat: bool) -> list[tuple[int, ...]]:
        return [self.encode(text, chat) for text in texts]

    def encode(self, text: str, chat: bool) -> tuple[int, ...]:
        reply = self._post(self._body(text, chat))
        try:
            if reply.status_code == 200:
                return tuple(int(token) for token in reply.json()["tokens"])
        except (ValueError, KeyError, TypeError):
            pass
        raise EngineError(
            f"{self._url} answered {reply.status_code} {reply.text[:80]!r}",
            expected="a list of token ids",
            todo="attach to servers that offer POST /tokenize, as vLLM does",
        )

    def findings(self) -> tuple[Finding, ...]:
        return ()

    def identity(self) -> Identity:
        return Identity(name="tokenizer", source="POST /tokenize of the reference server", digest=None)

    def close(self) -> None:
        self._client.close()

    def _body(self, text: str, chat: bool) -> dict[str, object]:
        if not chat:
            return {"model": self._model, "prompt": text, "add_special_tokens": True}
        message = {"role": "user", "content": text}
        return {"model": self._model, "messages": [message], "add_generation_prompt": True}

    def _post(self, body: dict[str, object]) -> httpx.Response:
        import httpx

        try:
            return self._client.post(self._url, json=body)
        except httpx.HTTPError as err:
            raise EngineError(
                f"Cannot tokenize at {self._url}: {err or type(err).__name__}",
                expected="a running server",
                todo="check the URL",
            ) from err


def _load_tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InvalidPlan(
            f"{folder} has no tokenizer.json",
            expected="the target's fast tokenizer beside its weights",
            todo="save it there with AutoTokenizer.from_pretrained(…).save_pretrained(…)",
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as err:
        # The library raises bare Exception for anything it cannot parse.
        raise InvalidPlan(
            f"Cannot read {path}: {err}", expected="a tokenizer of the tokenizers library"
        ) from err
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as err:
        raise InvalidPlan(f"Cannot read {path}: {err}", expected="a JSON object") from err
    return value if isinstance(value, dict) else {}


def _special_tokens(*sources: dict[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, … as text. Earlier sources win."""
    named: dict[str, str] = {}
    for source in sources:
        for key, value in source.items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                named.setdefault(key, text)
    return named
