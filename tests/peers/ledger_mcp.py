"""A stdio MCP server that writes every call into a ledger, for the integration tests.

    ledger_mcp.py LEDGER [--tools N] [--crash-on-start] [--deaf] [--two-pages] [--dies-in TOOL]...

LEDGER gets one JSON line per `tools/call` as it arrives, `{"tool","arguments","meta"}`, so that a
test can count executions whatever became of the answers. The arguments stand there as they were
written on the wire. Must not: need anything but the standard library.
"""

import argparse
import json
import os
import re
import sys
import threading
import time

STRING = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]}
ANY = {"type": "object"}

# Keys that no library models, big numbers and an odd order: they must reach MANTYX as they are.
TOOLS = """[
{"x-vendor": {"b": 1.0, "a": 123456789012345678901234567890}, "name": "note",
 "description": "Notes a text.", "inputSchema": %s, "_meta": {"z": 1, "a": 2}},
{"name": "args", "description": "Repeats its arguments.", "inputSchema": %s},
{"name": "fail", "description": "Fails.", "inputSchema": %s,
 "annotations": {"readOnlyHint": false, "destructiveHint": true}},
{"name": "hang", "description": "Never answers.", "inputSchema": %s},
{"name": "slow", "description": "Answers after text seconds, or when the file text is there.", "inputSchema": %s},
{"name": "reread", "description": "Answers the second time only.", "inputSchema": %s,
 "annotations": {"readOnlyHint": true}},
{"name": "big", "description": "Answers with many bytes.", "inputSchema": %s},
{"name": "pid", "description": "The id of this process.", "inputSchema": %s,
 "annotations": {"idempotentHint": true}}%s
]"""

options = argparse.ArgumentParser()
options.add_argument("ledger")
options.add_argument("--tools", type=int, default=0, help="this many more tools, `extra_N`")
options.add_argument("--long-name", help="one more tool of this name")
options.add_argument("--crash-on-start", action="store_true")
options.add_argument("--deaf", action="store_true", help="never answer anything")
options.add_argument("--dies-in", action="append", default=[], help="end in its first call")
options.add_argument("--two-pages", action="store_true", help="list the tools on two pages")
options = options.parse_args()

lock = threading.Lock()


def send(text):
    with lock:
        sys.stdout.write(text.replace("\n", " ") + "\n")
        sys.stdout.flush()


def result(id, value):
    send('{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(id), value))


def text(id, value, error=False):
    result(id, json.dumps({"content": [{"type": "text", "text": value}], "isError": error}))


def tools():
    extra = ["extra_%d" % n for n in range(options.tools)]
    extra += [options.long_name] if options.long_name else []
    entries = [json.dumps({"name": name, "inputSchema": ANY}) for name in extra]
    schemas = [json.dumps(s) for s in (STRING, ANY, ANY, ANY, STRING, ANY, NUMBER, ANY)]
    return TOOLS % (*schemas, "".join("," + entry for entry in entries))


def times(name):
    with open(options.ledger) as ledger:
        return sum(json.loads(line)["tool"] == name for line in ledger)


def slow(id, until):
    try:
        time.sleep(float(until))
    except ValueError:
        while not os.path.exists(until):
            time.sleep(0.02)
    text(id, "slept")


def call(id, params, line):
    name, arguments = params["name"], params.get("arguments", {})
    with open(options.ledger, "a") as ledger:
        entry = {"tool": name, "arguments": arguments, "meta": params.get("_meta"), "raw": line}
        ledger.write(json.dumps(entry) + "\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    if name in options.dies_in and times(name) == 1:
        os._exit(1)
    if name == "note":
        text(id, "noted: " + arguments["text"])
    elif name == "args":
        raw = re.search(r'"arguments":\s*(\{.*?\})\s*[,}]', line)
        text(id, raw.group(1) if raw else "{}")
    elif name == "fail":
        text(id, "it failed on purpose", error=True)
    elif name == "slow":
        threading.Thread(target=slow, args=(id, arguments["text"]), daemon=True).start()
    elif name == "big":
        text(id, "é" * (arguments["bytes"] // 2))
    elif name == "pid":
        text(id, str(os.getpid()))
    elif name == "reread":
        if times(name) > 1:
            text(id, "read again")
    elif name != "hang":
        text(id, name)


def initialize(id, params):
    result(
        id,
        json.dumps(
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"version": "1", "name": "ledger", "x-vendor": True},
            }
        ),
    )


def listing(id, params):
    if not options.two_pages:
        return result(id, '{"tools":%s}' % tools())
    entries = json.loads(tools())
    first, second = json.dumps(entries[:3]), json.dumps(entries[3:])
    if params.get("cursor") == "second":
        return result(id, '{"tools":%s}' % second)
    result(id, '{"tools":%s,"nextCursor":"second"}' % first)


if options.crash_on_start:
    sys.exit("crashing as told")
for line in sys.stdin:
    if options.deaf:
        continue
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if id is None or method is None:
        continue
    if method == "initialize":
        initialize(id, params)
    elif method == "ping":
        result(id, "{}")
    elif method == "tools/list":
        listing(id, params)
    elif method == "tools/call":
        call(id, params, line)
    else:
        error = '{"code":-32601,"message":"no such method"}'
        send('{"jsonrpc":"2.0","id":%s,"error":%s}' % (json.dumps(id), error))
