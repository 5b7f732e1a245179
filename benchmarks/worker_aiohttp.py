"""The floor: a bare aiohttp loop. `worker_aiohttp.py URL MODEL PROMPTS IN_FLIGHT`; needs aiohttp only."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp


async def main(url: str, model: str, prompts_file: str, in_flight: int) -> None:
    with Path(prompts_file).open() as lines:
        todo = [json.loads(line) for line in lines][::-1]
    answers = []

    async def worker(session: aiohttp.ClientSession) -> None:
        while todo:
            row = todo.pop()
            body = {
                "model": model,
                "prompt": row["ids"],
                "max_tokens": row["max_tokens"],
                "temperature": 0,
                "return_token_ids": True,
            }
            async with session.post(f"{url}/v1/completions", json=body) as response:
                response.raise_for_status()
                answers.append((await response.json())["choices"][0]["token_ids"])

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await asyncio.gather(*(worker(session) for _ in range(in_flight)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
