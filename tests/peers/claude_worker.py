"""The worker of Anthropic's own package for a self-hosted environment, with tools that do as those
of ledger_mcp.py.

    claude_worker.py URL KEY ENVIRONMENT LEDGER

LEDGER gets a JSON line per call as it arrives, `{"tool","arguments"}`. Must not: know the bridge.
"""

import asyncio
import json
import os
import sys

from anthropic import AsyncAnthropic
from anthropic.lib.tools import ToolError, beta_async_tool

url, key, environment, ledger = sys.argv[1:]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]}


def wrote(tool, **arguments):
    with open(ledger, "a") as lines:
        lines.write(json.dumps({"tool": tool, "arguments": arguments}) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


@beta_async_tool(name="plain_note", description="Notes a text.", input_schema=TEXT)
async def note(text: str) -> str:
    wrote("note", text=text)
    return "noted: " + text


@beta_async_tool(name="plain_big", description="Many bytes.", input_schema=NUMBER)
async def big(bytes: int) -> str:
    wrote("big", bytes=bytes)
    return "é" * (bytes // 2)


@beta_async_tool(name="plain_fail", description="Fails.", input_schema={"type": "object"})
async def fail() -> str:
    wrote("fail")
    raise ToolError("it failed on purpose")


@beta_async_tool(name="plain_slow", description="Waits for a file.", input_schema=TEXT)
async def slow(text: str) -> str:
    wrote("slow", text=text)
    while not os.path.exists(text):
        await asyncio.sleep(0.02)
    return "slept"


client = AsyncAnthropic(base_url=url, api_key="not-for-environments")
worker = client.beta.environments.work.worker(
    environment_id=environment, environment_key=key, tools=[note, big, fail, slow]
)
asyncio.run(worker.run())
