"""A stdio MCP server whose tools have effects, all of which are written down, for the crash tests.

    effects_mcp.py LEDGER [--copy FILE]

One tool for each thing that a server may say of a tool's effects: `read`, `idempotent`, `additive`,
`destructive`, and `unsaid`. LEDGER gets a line before an effect, `{"step":"begun","use","tool"}`,
and one after it, `{"step":"done","use","tool","text"}`, each on the disk before anything else
happens; `use` is the tool use that the call's `_meta` names, and `text` is what is answered, which
no two executions share. With --copy, FILE is copied to LEDGER.USE before the first line is written:
how the disk looks when a call arrives.

Arguments: {"ms": N} takes so long; {"hang": "always"} never ends; {"hang": "first"} does not end
the first time that this tool use is made; {"intent": TEXT} is added to both lines; {"pad": TEXT} is
ignored.

Must not: need anything but the standard library, or let one call wait for another.
"""

import argparse
import json
import os
import shutil
import sys
import threading
import time

TOOL_USE_ID = "mantyx-bridge/toolUseId"
KINDS = {
    "read": {"readOnlyHint": True},
    "idempotent": {"readOnlyHint": False, "idempotentHint": True},
    "additive": {"readOnlyHint": False, "destructiveHint": False},
    "destructive": {"readOnlyHint": False, "destructiveHint": True},
    "unsaid": None,
}

options = argparse.ArgumentParser()
options.add_argument("ledger")
options.add_argument("--copy")
options = options.parse_args()

# Appended in one write each, so that two processes may share the file and a kill tears no line.
ledger = os.open(options.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
answering = threading.Lock()
writing = threading.Lock()
executions = 0


def note(**entry):
    with writing:
        os.write(ledger, (json.dumps(entry) + "\n").encode())
        os.fsync(ledger)


def times_begun(use):
    with open(options.ledger) as lines:
        entries = (json.loads(line) for line in lines)
        return sum(entry["step"] == "begun" and entry["use"] == use for entry in entries)


def send(**message):
    with answering:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(id, number, params):
    tool, arguments = params["name"], params.get("arguments", {})
    use = params.get("_meta", {}).get(TOOL_USE_ID)
    if options.copy:
        shutil.copyfile(options.copy, f"{options.ledger}.{use}")
    intent = arguments.get("intent")
    note(step="begun", use=use, tool=tool, intent=intent)
    hang = arguments.get("hang")
    if hang == "always" or hang == "first" and times_begun(use) == 1:
        return
    time.sleep(arguments.get("ms", 0) / 1000)
    text = f"{tool} {use} by {os.getpid()}.{number}"
    note(step="done", use=use, tool=tool, intent=intent, text=text)
    send(id=id, result={"content": [{"type": "text", "text": text}]})


def tools():
    schema = {"type": "object"}
    for name, annotations in KINDS.items():
        tool = {"name": name, "description": f"Has an effect: {name}.", "inputSchema": schema}
        yield tool if annotations is None else {**tool, "annotations": annotations}


for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if id is None or method is None:
        continue
    if method == "initialize":
        info = {"name": "effects", "version": "1"}
        capabilities = {"tools": {}}
        send(
            id=id,
            result={
                "protocolVersion": "2025-06-18",
                "capabilities": capabilities,
                "serverInfo": info,
            },
        )
    elif method == "ping":
        send(id=id, result={})
    elif method == "tools/list":
        send(id=id, result={"tools": list(tools())})
    elif method == "tools/call":
        executions += 1
        threading.Thread(target=call, args=(id, executions, params), daemon=True).start()
    else:
        send(id=id, error={"code": -32601, "message": "no such method"})
