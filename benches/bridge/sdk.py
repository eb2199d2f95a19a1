"""The official SDK's async client, resolving and answering by itself, as its README shows.

Reads orders from stdin, a line of JSON each:

    {"base_url", "plan", "runs", "tool", "stdio": [command, arg...], "http": url, "agent": url}

makes so many runs at once, each with its own tools, and prints a line {"runs": [id...]}.
"""

import asyncio
import json
import sys

from mantyx import AsyncMantyxClient, define_local_a2a, define_local_mcp


def tool(order):
    if order["tool"] == "stdio":
        command, *args = order["stdio"]
        return define_local_mcp(name="stdio", command=command, args=args)
    if order["tool"] == "http":
        return define_local_mcp(name="http", url=order["http"])
    return define_local_a2a(name="agent", agent_card_url=order["agent"])


async def play(order):
    client = AsyncMantyxClient(
        api_key="benchmark", workspace_slug=order["plan"], base_url=order["base_url"]
    )
    async with client:
        runs = [
            client.run_agent(
                system_prompt="You are a benchmark.", prompt="Go.", tools=[tool(order)]
            )
            for _ in range(order["runs"])
        ]
        results = await asyncio.gather(*runs)
    return {"runs": [result.run_id for result in results]}


async def main():
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await play(json.loads(line))), flush=True)


asyncio.run(main())
