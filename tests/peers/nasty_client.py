"""The official Python client of MCP, which reads all lists and calls all tools of nasty_mcp.py.

    nasty_client.py ERA COMMAND [ARGUMENT]...

ERA is `sessions` or `stateless`, which only the second SDK speaks. Prints what came of it as JSON.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def plain(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def use(session):
    tools = plain(await session.list_tools())["tools"]
    results = {}
    for tool in tools:
        results[tool["name"]] = plain(await session.call_tool(tool["name"], {}))
    return {
        "tools": tools,
        "results": results,
        "resources": plain(await session.list_resources())["resources"],
        "templates": plain(await session.list_resource_templates())["resourceTemplates"],
        "prompts": plain(await session.list_prompts())["prompts"],
        "contents": plain(await session.read_resource(uri()))["contents"],
        "messages": plain(await session.get_prompt("it_ask", {"x": "y"}))["messages"],
    }


def uri():
    try:
        from pydantic import AnyUrl
        import mcp_types  # noqa: F401, only the second SDK has it
        return "nasty://a"
    except ImportError:
        return AnyUrl("nasty://a")


async def main(era, command, *arguments):
    server = StdioServerParameters(command=command, args=list(arguments))
    if era == "stateless":
        from mcp import Client

        async with Client(stdio_client(server)) as session:
            return await use(session)
    async with stdio_client(server) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            return await use(session)


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
