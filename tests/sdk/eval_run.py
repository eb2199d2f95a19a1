"""One eval with the SDK's async client: a tool of its own beside the tools of the bridge.

    eval_run.py BASE_URL TOKEN

Prints one JSON object.
"""

import asyncio
import json
import sys

from mantyx import AsyncMantyxClient, define_local_tool

calls = []
events = []


def add_numbers(args):
    calls.append(args)
    return str(args["a"] + args["b"])


async def main(base_url, token):
    own = define_local_tool(
        name="add_numbers",
        description="Adds two numbers.",
        parameters={"type": "object", "properties": {"a": {"type": "number"}}},
        execute=add_numbers,
    )
    client = AsyncMantyxClient(api_key=token, workspace_slug="acme", base_url=base_url)
    async with client:
        detail = await client.run_eval(
            dataset={"cases": [{"input": {"prompt": "hi"}}]},
            agent={"systemPrompt": "You are a test."},
            tools=[own],
            on_event=lambda event: events.append(event.type),
            poll_interval_s=0.1,
        )
    print(json.dumps({"status": detail.status, "events": events, "ownCalls": calls}))


asyncio.run(main(*sys.argv[1:]))
