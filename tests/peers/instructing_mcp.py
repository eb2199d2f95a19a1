#!/usr/bin/env python3
"""A stdio MCP server whose instructions are a file, which it reads in each handshake.

Usage: instructing_mcp.py FILE [--modern]

FILE holds the value of `instructions` as JSON; if there is no such file, there are none. With
--modern, the server speaks 2026-07-28, otherwise 2025-11-25. It has the tools `read` and `write`,
and the resource `say://it`. It needs nothing but the standard library.
"""

import json
import os
import sys

INFO = {"name": "instructing", "version": "1"}
CAPABILITIES = {"tools": {}, "resources": {}}
MODERN = "--modern" in sys.argv
TOOLS = [
    {"name": "read", "description": "Reads a file.", "inputSchema": {"type": "object"}},
    {"name": "write", "description": "Writes a file.", "inputSchema": {"type": "object"}},
]


def handshake():
    result = {"capabilities": CAPABILITIES}
    if os.path.exists(sys.argv[1]):
        with open(sys.argv[1], encoding="utf-8") as file:
            result["instructions"] = json.load(file)
    return result


def result(method, params):
    if method == "initialize" and not MODERN:
        return {**handshake(), "protocolVersion": "2025-11-25", "serverInfo": INFO}
    if method == "server/discover" and MODERN:
        meta = {"io.modelcontextprotocol/serverInfo": INFO}
        more = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "_meta": meta}
        return {**handshake(), **more, "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "did " + params["name"]}]}
    if method == "resources/list":
        return {"resources": [{"uri": "say://it", "name": "it"}]}
    if method == "ping":
        return {}
    return None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if id is None or method is None:
            continue
        answer = {"jsonrpc": "2.0", "id": id}
        found = result(method, message.get("params") or {})
        if found is None:
            answer["error"] = {"code": -32601, "message": "Method not found: %s" % method}
        else:
            answer["result"] = found
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
