"""An MCP server of 2025-11-25 over stdio, without an SDK, that asks the user whatever it is told to.

    eliciting_mcp.py

Its tool `ask` sends `elicitation/create` with the argument `params` as it is, and answers with the
text of the result that it gets. With `fail`, it then fails.
"""

import json
import sys

TOOL = {"name": "ask", "inputSchema": {"type": "object"}}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return line, json.loads(line)


def call(arguments):
    asked = f"q{call.count}"
    call.count += 1
    send({"id": asked, "method": "elicitation/create", "params": arguments["params"]})
    while True:
        line, message = read()
        if message.get("id") == asked and "method" not in message:
            # Past the envelope: what a parser would not keep of it.
            text = line.strip().split('"result":', 1)[-1][:-1]
            content = [{"type": "text", "text": text}]
            return {"content": content, "isError": bool(arguments.get("fail"))}
        answer(message)


call.count = 0


def answer(message):
    method, of = message.get("method"), message.get("id")
    if of is None:
        return
    if method == "initialize":
        info = {"name": "eliciting", "version": "1"}
        revision = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        send({"id": of, "result": {**revision, "serverInfo": info}})
    elif method == "tools/list":
        send({"id": of, "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        send({"id": of, "result": call(message["params"].get("arguments", {}))})
    elif method == "ping":
        send({"id": of, "result": {}})
    else:
        send({"id": of, "error": {"code": -32601, "message": "no such method"}})


while True:
    answer(read()[1])
