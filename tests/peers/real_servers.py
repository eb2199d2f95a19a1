"""Lists and calls real servers as the official client of MCP does: through the bridge, and directly.

    real_servers.py URL TOKEN FILE

FILE has `servers`, a map from the name of a backend to its `command`, `args` and `env`, and `calls`, a
map from some of these names to the `tool` and `args` of a harmless call. Prints, by name, the tools and
the result as the bridge at URL has them and as the server itself has them.
"""

import json
import re
import sys

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import ElicitResult

# Two at a time, as the bridge starts them on a machine with two cores.
PLACES = anyio.Semaphore(2)
# One server that is silent must not hold up the test.
PATIENCE = 150


def plain(value):
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def list_tools(session):
    tools, cursor = [], None
    while True:
        page = await session.list_tools(cursor)
        tools += [plain(tool) for tool in page.tools]
        cursor = page.nextCursor
        if not cursor:
            return tools


async def call(session, prefix, wanted):
    """The parts of a result that do not depend on the revision that the server speaks."""
    if wanted is None:
        return None
    result = plain(await session.call_tool(prefix + wanted["tool"], wanted["args"]))
    return {key: result.get(key) for key in ("content", "structuredContent", "isError")}


async def decline(context, params):
    """A client that can ask its user, as the bridge: some servers offer more tools to it."""
    return ElicitResult(action="decline")


def unprefixed(bridged, direct, backend):
    """The bridge's tools under the server's names, where the bridge's name is made of that one: a
    backend's name stands once before it, other characters are `_`, and a hash tells two apart."""
    tools = []
    for tool, own in zip(bridged, direct):
        plain_name = re.sub(r"\W", "_", own["name"].removeprefix(backend + "_"))
        fits = re.fullmatch(re.escape(plain_name) + "(_[0-9a-f]{8})?", tool["name"])
        tools.append({**tool, "name": own["name"]} if fits else tool)
    return tools + bridged[len(direct):]


async def ask_server(name, server, wanted, seen):
    async with PLACES:
        try:
            with anyio.fail_after(PATIENCE):
                async with stdio_client(StdioServerParameters(**server)) as streams:
                    async with ClientSession(*streams, elicitation_callback=decline) as session:
                        await session.initialize()
                        tools = await list_tools(session)
                        seen[name] = {"tools": tools, "result": await call(session, "", wanted)}
        except Exception as error:
            # What was seen before an unclean end counts.
            seen.setdefault(name, {"error": repr(error)})


async def ask_bridge(url, token, names, calls):
    headers = {"authorization": "Bearer " + token}
    seen = {}
    async with streamablehttp_client(url, headers) as (incoming, outgoing, _):
        async with ClientSession(incoming, outgoing) as session:
            await session.initialize()
            listed = await list_tools(session)
            for name in names:
                prefix = name + "_"
                tools = [tool for tool in listed if tool["name"].startswith(prefix)]
                tools = [{**tool, "name": tool["name"].removeprefix(prefix)} for tool in tools]
                result = await call(session, prefix, calls.get(name))
                seen[name] = {"tools": tools, "result": result}
    return seen


async def main(url, token, path):
    with open(path) as file:
        given = json.load(file)
    servers, calls, direct = given["servers"], given["calls"], {}
    bridged = await ask_bridge(url, token, list(servers), calls)
    async with anyio.create_task_group() as group:
        for name, server in servers.items():
            group.start_soon(ask_server, name, server, calls.get(name), direct)
    for name in servers:
        named = unprefixed(bridged[name]["tools"], direct[name].get("tools", []), name)
        bridged[name]["tools"] = named
    print(json.dumps({name: [bridged[name], direct[name]] for name in servers}))


anyio.run(main, *sys.argv[1:])
