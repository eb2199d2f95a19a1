"""An MCP server of 2025-11-25 over stdio, without an SDK, that says whatever it is told to.

    saying_mcp.py TEXT

Its tool `say` answers with the argument `result` as it is, or with `error`. With `progress`, it says
that before, and with `params`, it asks the user before; `line` goes to stdout and `stderr` to stderr.
With `exits`, the server ends. TEXT is in its resource `say://it` and in its prompt `say`.
"""

import json
import sys

TEXT = sys.argv[1]
TOOL = {"name": "say", "inputSchema": {"type": "object"}}
CAPABILITIES = {"tools": {}, "resources": {}, "prompts": {}}
RESOURCE = {"uri": "say://it", "name": "it", "text": TEXT}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def say(params):
    arguments = params["arguments"]
    if "progress" in arguments:
        token = params["_meta"]["progressToken"]
        told = {"progressToken": token, "progress": 1, "message": arguments["progress"]}
        told["_meta"] = {arguments["progress"]: arguments["progress"]}
        send({"method": "notifications/progress", "params": told})
    if "params" in arguments:
        send({"id": "q", "method": "elicitation/create", "params": arguments["params"]})
        while json.loads(sys.stdin.readline()).get("id") != "q":
            pass
    if "stderr" in arguments:
        print(arguments["stderr"], file=sys.stderr, flush=True)
    if "line" in arguments:
        print(arguments["line"], flush=True)
    if "exits" in arguments:
        sys.exit(3)
    return arguments.get("result")


def result(method, params):
    if method == "initialize":
        info = {"name": "saying", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return say(params)
    if method == "resources/list":
        return {"resources": [{"uri": "say://it", "name": "it"}]}
    if method == "resources/read":
        return {"contents": [RESOURCE]}
    if method == "prompts/list":
        return {"prompts": [{"name": "say"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": TEXT}}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "method" in message and "id" in message:
        params = message.get("params", {})
        error = params.get("arguments", {}).get("error")
        # As many real servers, it has resources and refuses the list of their templates.
        done = None if error else result(message["method"], params)
        refusal = {"code": -32601, "message": "Method not found"}
        answer = {"result": done} if done else {"error": error or refusal}
        send({"id": message["id"], **answer})
