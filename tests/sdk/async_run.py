"""One run with the SDK's async client: a tool of its own beside the tools of the bridge.

    async_run.py BASE_URL TOKEN PROMPT

Nothing but the base URL and the key is particular to the bridge. Prints one JSON object.
"""

import asyncio
import json
import sys

from mantyx import AsyncMantyxClient, define_local_tool

calls = []


def add_numbers(args):
    calls.append(args)
    return str(args["a"] + args["b"])


async def main(base_url, token, prompt):
    own = define_local_tool(
        name="add_numbers",
        description="Adds two numbers.",
        parameters={
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
        execute=add_numbers,
    )
    client = AsyncMantyxClient(api_key=token, workspace_slug="acme", base_url=base_url)
    async with client:
        result = await client.run_agent(system_prompt="You are a test.", prompt=prompt, tools=[own])
    events = [{"seq": ev.seq, "type": ev.type, "data": ev.data} for ev in result.events]
    print(json.dumps({"text": result.text, "events": events, "ownCalls": calls}))


asyncio.run(main(*sys.argv[1:]))
