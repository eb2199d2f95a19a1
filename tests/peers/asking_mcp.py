"""An MCP server of the Python SDK over stdio that asks the user back, as 2026-07-28 has it: by the
result of a call, and by the same call once more.

    asking_mcp.py [LEDGER]

Its tool `greet` asks for a name, and then for a colour. Its effect is a line in the file LEDGER. With
the argument `roots`, it asks for a name and for the roots of the client at once. With `name`, it asks
for exactly that name, once more with the same question as long as it gets another.
"""

import asyncio
import json
import sys

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


async def list_tools(context, params):
    tool = types.Tool(name="greet", input_schema={"type": "object"})
    return types.ListToolsResult(tools=[tool])


async def call_tool(context, params):
    known = json.loads(params.request_state or "{}")
    for key, response in (params.input_responses or {}).items():
        if response.action != "accept":
            return said(f"{response.action}: {key}")
        value = response.content["value"]
        if key != "name" or (params.arguments or {}).get("name", value) == value:
            known[key] = value
    for key in ["name", "colour"]:
        if key not in known:
            question = types.ElicitRequestFormParams(
                message=f"Which {key}?", requested_schema=SCHEMA
            )
            requests = {key: types.ElicitRequest(params=question)}
            if (params.arguments or {}).get("roots"):
                requests["roots"] = types.ListRootsRequest()
            return types.InputRequiredResult(
                input_requests=requests,
                request_state=json.dumps(known),
            )
    for ledger in sys.argv[1:]:
        with open(ledger, "a") as file:
            file.write(json.dumps(known) + "\n")
    return said(f"{known['name']} likes {known['colour']}")


def said(text):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main():
    server = Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
