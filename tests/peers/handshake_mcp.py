#!/usr/bin/env python3
"""A stdio MCP server that is particular about how it is greeted.

Options:
  --modern           answer server/discover (2026-07-28)
  --accept R         the newest revision that `initialize` may propose; others are refused
  --refusal JSON     the error of that refusal
  --exit-at METHOD   end at this method
  --words TEXT       what it writes to stderr before it ends there
  --deaf-at METHOD   answer nothing from this method on
  --discover-last    answer server/discover only after `initialize` has come
  --late SECONDS     answer server/discover so long after `initialize`

With LEDGER in the environment, each process appends a line to that file when it begins, for each
message, and when it ends. It needs nothing but the standard library.
"""

import argparse
import atexit
import json
import os
import signal
import sys
import threading

INFO = {"name": "particular", "version": "1"}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}

options = None
writing = threading.Lock()


def note(what):
    if "LEDGER" in os.environ:
        with open(os.environ["LEDGER"], "a", encoding="utf-8") as ledger:
            ledger.write("%d %s\n" % (os.getpid(), what))


def send(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def discover(id):
    result = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
    }
    send({"id": id, "result": result})


def initialize(id, params):
    revision = params["protocolVersion"]
    if revision > options.accept:
        send({"id": id, "error": json.loads(options.refusal)})
        return
    capabilities = {"tools": {}}
    result = {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": INFO}
    send({"id": id, "result": result})


def call(message):
    """Answers with the text of the call, so that a test sees in which form it came."""
    content = [{"type": "text", "text": json.dumps(message)}]
    send({"id": message["id"], "result": {"resultType": "complete", "content": content}})


def serve():
    postponed = None
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        note(method)
        if method == options.exit_at:
            sys.stderr.write(options.words + "\n")
            sys.exit(3)
        if method == options.deaf_at:
            for rest in sys.stdin:
                note(json.loads(rest).get("method"))
            return
        if id is None:
            continue
        if method == "server/discover" and options.modern:
            if options.discover_last:
                postponed = id
            else:
                discover(id)
        elif method == "initialize":
            initialize(id, message["params"])
            if postponed is not None:
                threading.Timer(options.late, discover, [postponed]).start()
        elif method == "tools/list":
            more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            send({"id": id, "result": {"tools": [TOOL], **more}})
        elif method == "tools/call":
            call(message)
        else:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--accept", default="2025-11-25")
    parser.add_argument("--refusal", default='{"code":-32603,"message":"no"}')
    parser.add_argument("--exit-at")
    parser.add_argument("--words", default="")
    parser.add_argument("--deaf-at")
    parser.add_argument("--discover-last", action="store_true")
    parser.add_argument("--late", type=float, default=0)
    options = parser.parse_args()
    # So that its end is noted whatever ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    note("begins")
    atexit.register(note, "ends")
    serve()


if __name__ == "__main__":
    main()
