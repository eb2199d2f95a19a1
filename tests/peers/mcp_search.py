"""The official Python client of MCP, which finds tools and calls them, for the integration tests.

    mcp_search.py URL TOKEN

The bridge has the backends `all`, which is server-everything, and `plain`, which is ledger_mcp.py;
both are searched. Prints what came of it as one JSON object.
"""

import asyncio
import json
import sys

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def use(session):
    async def call(name, arguments):
        return await session.call_tool("bridge_call_tool", {"name": name, "arguments": arguments})

    tools = (await session.list_tools()).tools
    found = await session.call_tool("bridge_find_tools", {"query": "structured weather content"})
    place = {"location": "New York"}
    structured = await call("all_get_structured_content", place)
    direct = await session.call_tool("all_get_structured_content", place)
    image = await call("all_get_tiny_image", {})
    failed, invalid = await call("plain_fail", {}), await call("all_get_sum", {"a": "x"})
    unknown = await call("nope", {})
    return {
        "tools": [tool.name for tool in tools],
        "found": [tool["name"] for tool in json.loads(found.content[0].text)["tools"]],
        "structured": structured.structured_content,
        "direct": direct.structured_content,
        "image": [block.type for block in image.content],
        "failed": [failed.is_error, failed.content[0].text],
        "invalid": [invalid.is_error, invalid.content[0].text],
        "unknown": [unknown.is_error, unknown.content[0].text],
    }


async def main():
    url, token = sys.argv[1:]
    headers = {"Authorization": "Bearer " + token}
    async with httpx2.AsyncClient(headers=headers) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with ClientSession(*streams[:2]) as session:
                await session.initialize()
                print(json.dumps(await use(session)))


asyncio.run(main())
