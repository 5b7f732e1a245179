"""Servers that somebody else runs: what can be asked is asked, what cannot be verified is listed."""

from __future__ import annotations

import os
from collections.abc import Callable

import httpx

from auditor.clock import Clock
from auditor.engine.base import Server
from auditor.engine.readiness import http_client
from auditor.engine.registry import engine_for
from auditor.errors import EngineError, InvalidPlan
from auditor.model.launch import Launch
from auditor.model.plan import Arm, AuditPlan
from auditor.redact import scrub_text

_UNSEEN = (
    "the server's command line and environment",
    "that the server is the only one behind its address (its name carries no nonce)",
    "the launch diary: autotuner choices, backends, caches",
    "the files of the target and of the draft",
)


class AttachedServer(Server):
    """Never stopped, and only observed through its own answers. Its address may hold a password, which is
    used but not recorded."""

    def __init__(self, launch: Launch, url: str, api_key: str | None) -> None:
        super().__init__(launch, api_key)
        self._url = url

    @property
    def base_url(self) -> str:
        return self._url


async def attach(plan: AuditPlan, arm: Arm, clock: Clock, on_change: Callable[[Launch], None]) -> Server:
    """Looks at the server of `arm.url`. Raises EngineError when it does not answer, InvalidPlan when the
    variable that should hold its key is not set."""
    url = server_root(arm.url or "")
    key = api_key(plan)
    served, others = await _served_name(url, key)
    settings, unverified, version = await engine_for(plan).resolved(url, key, (), {})
    if others:
        unverified = (
            *unverified,
            f"which of its {others + 1} model names is the target: the first was taken",
        )
    launch = Launch(
        id=f"{arm.name}-1",
        arm=arm.name,
        attempt=1,
        state="attached",
        base_url=scrub_text(url),
        served_name=served,
        started_s=clock.now(),
        engine_version=version,
        resolved=settings,
        unverified=(*_UNSEEN, *unverified),
    )
    on_change(launch)
    return AttachedServer(launch, url, key)


def server_root(url: str) -> str:
    """The address without a trailing `/v1`, which users copy along. Raises InvalidPlan for other schemes."""
    root = url.rstrip("/").removesuffix("/v1").rstrip("/")
    if not root.startswith(("http://", "https://")):
        raise InvalidPlan(
            f"the server address {url} has no http:// or https://",
            expected="an address like http://127.0.0.1:8000",
            todo="correct the address",
        )
    return root


def api_key(plan: AuditPlan) -> str | None:
    """The key for attached servers, from the variable that the plan names. Raises InvalidPlan."""
    name = plan.engine.api_key_env
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise InvalidPlan(
            f"the environment variable {name} is not set",
            expected="the key of the attached servers in it",
            todo=f"export {name}, or leave --api-key-env out",
        )
    return value


async def _served_name(url: str, key: str | None) -> tuple[str, int]:
    """(first model name, how many more there are)."""
    shown = scrub_text(url)
    try:
        async with http_client(timeout_s=30.0, api_key=key) as http:
            reply = await http.get(f"{url}/v1/models")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(
            f"no server answers at {shown} ({type(error).__name__})",
            expected="an OpenAI-compatible server",
            todo="start it, or correct the address",
        ) from error
    if reply.status_code in (401, 403):
        raise EngineError(
            f"the server at {shown} refuses access ({reply.status_code})",
            expected="a key that it accepts",
            todo="put the key into a variable and name it with --api-key-env",
        )
    try:
        names = [str(card["id"]) for card in reply.json()["data"]]
        return names[0], len(names) - 1
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise EngineError(
            f"{shown}/v1/models answered {reply.status_code} without a list of models",
            expected="an OpenAI-compatible server",
            todo="check the address",
        ) from error
