"""The official Python client of MCP against the server at URL, for the integration tests.

    mcp_client.py URL TOKEN ERA
    mcp_client.py stdio ERA COMMAND [ARGUMENT]...

ERA is `sessions` (2025-11-25) or `stateless` (2026-07-28). The bridge has the backend `all`, which
is server-everything, `ask`, which is asking_mcp.py, and `plain`, which is ledger_mcp.py. Prints what came of it as one JSON object.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, PromptReference


async def answer(context, params):
    """Answers every question of a server for the user."""
    content = {"Which name?": {"value": "Ada"}, "Which colour?": {"value": "red"}}
    return ElicitResult(action="accept", content=content.get(params.message, {"name": "Ada"}))


async def use(session):
    listed = await session.list_tools()
    progress = []

    async def progressed(done, total, message):
        progress.append([done, total])

    steps = {"duration": 0.4, "steps": 4}
    echo = await session.call_tool("all_echo", {"message": "hi"})
    long = await session.call_tool(
        "all_trigger_long_running_operation", steps, progress_callback=progressed
    )
    structured = await session.call_tool("all_get_structured_content", {"location": "New York"})
    image = await session.call_tool("all_get_tiny_image", {})
    failed = await session.call_tool("plain_fail", {})
    invalid = await session.call_tool("all_get_sum", {"a": "x"})
    try:
        await session.call_tool("nope", {})
        unknown = None
    except MCPError as error:
        unknown = error.error.code
    asked = await session.call_tool("all_trigger_elicitation_request", {})
    greeted = await session.call_tool("ask_greet", {})
    resources = await session.list_resources()
    templates = await session.list_resource_templates()
    prompts = await session.list_prompts()
    text = await session.read_resource("demo://resource/dynamic/text/7")
    prompt = await session.get_prompt("all_args_prompt", {"city": "Rome"})
    completion = await session.complete(
        PromptReference(name="all_completable_prompt"), {"name": "department", "value": "E"}
    )
    try:
        await session.read_resource("demo://nope")
        missing = None
    except MCPError as error:
        missing = error.error.code
    return {
        "asked": [block.text for block in asked.content][:2],
        "greeted": greeted.content[0].text,
        "resources": len(resources.resources),
        "templates": [one.uri_template for one in templates.resource_templates],
        "prompts": [one.name for one in prompts.prompts],
        "text": text.contents[0].text[:11],
        "prompt": prompt.messages[0].content.text,
        "completion": completion.completion.values,
        "missing": missing,
        "tools": [tool.name for tool in listed.tools],
        "echo": echo.content[0].text,
        "long": long.content[0].text,
        "progress": progress,
        "structured": structured.structured_content,
        "image": [block.type for block in image.content],
        "failed": [failed.is_error, failed.content[0].text],
        "invalid": [invalid.is_error, invalid.content[0].text],
        "unknown": unknown,
    }


async def over_stdio(era, command, *arguments):
    server = StdioServerParameters(command=command, args=list(arguments))
    if era == "stateless":
        async with Client(stdio_client(server), elicitation_callback=answer) as session:
            return {"revision": session.protocol_version, **await use(session)}
    async with stdio_client(server) as streams:
        async with ClientSession(*streams, elicitation_callback=answer) as session:
            hello = await session.initialize()
            return {"revision": hello.protocol_version, **await use(session)}


async def over_http(url, token, era):
    headers = {"authorization": "Bearer " + token}
    client = httpx2.AsyncClient(headers=headers, timeout=60)
    if era == "stateless":
        connection = streamable_http_client(url, http_client=client)
        async with Client(connection, elicitation_callback=answer) as session:
            return {"revision": session.protocol_version, **await use(session)}
    async with streamable_http_client(url, http_client=client) as streams:
        async with ClientSession(*streams, elicitation_callback=answer) as session:
            hello = await session.initialize()
            return {"revision": hello.protocol_version, **await use(session)}


way = over_stdio(*sys.argv[2:]) if sys.argv[1] == "stdio" else over_http(*sys.argv[1:])
print(json.dumps(asyncio.run(way)))
