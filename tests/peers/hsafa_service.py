"""A service on hsafa's official SDK, with the tools of ledger_mcp.py under the skill `team`.

    hsafa_service.py URL KEY

The SDK decides what stands on the wire. Must not: know the bridge.
"""

import asyncio
import json
import sys

from hsafa_sdk import HsafaSDK, SdkOptions

ANY = {"type": "object"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "plain_note", "description": "Notes a text.", "inputSchema": TEXT},
    {"name": "plain_args", "description": "Repeats its arguments.", "inputSchema": ANY},
    {"name": "plain_fail", "description": "Fails.", "inputSchema": ANY},
    # In the SDK's own words.
    {"name": "plain_slow", "description": "Answers late.", "input": {"text": "string"}},
]


async def note(args, _context):
    return "noted: " + args["text"]


async def repeat(args, _context):
    return json.dumps(args)


async def fail(_args, _context):
    raise RuntimeError("it failed on purpose")


async def main(url, key):
    sdk = HsafaSDK(SdkOptions(core_url=url, api_key=key, skill="team"))
    for name, handler in ("plain_note", note), ("plain_args", repeat), ("plain_fail", fail):
        sdk.on_tool_call(name, handler)
    await sdk.register_tools(TOOLS)
    await sdk.connect()


asyncio.run(main(*sys.argv[1:]))
