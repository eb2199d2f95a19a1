#!/usr/bin/env python3
"""A stdio MCP server whose catalog is a file, and changes with it.

Usage: changing_mcp.py CATALOG [--tells]

CATALOG holds the result of tools/list, as JSON; it is sent as it stands. With --tells, the server
says that its tools have changed when the file has. A call is answered with the name of the tool, and
written to CATALOG.calls. It needs nothing but the standard library.
"""

import json
import os
import sys
import threading
import time

INFO = '{"name":"changing","version":"1"}'
writing = threading.Lock()


def send(text):
    with writing:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def respond(id, result):
    send('{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(id), result))


def refuse(id, method):
    error = {"code": -32601, "message": "Method not found: %s" % method}
    send(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))


def catalog(path):
    with open(path, encoding="utf-8") as file:
        # A message is a line.
        return file.read().replace("\n", " ")


def tell(path):
    seen = os.stat(path).st_mtime_ns
    while True:
        time.sleep(0.05)
        now = os.stat(path).st_mtime_ns
        if now != seen:
            seen = now
            send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')


def call(path, id, name):
    with open(path + ".calls", "a", encoding="utf-8") as file:
        file.write(name + "\n")
    content = [{"type": "text", "text": "did " + name}]
    respond(id, json.dumps({"content": content}))


def main():
    path = sys.argv[1]
    if "--tells" in sys.argv:
        threading.Thread(target=tell, args=(path,), daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if id is None or method is None:
            continue
        if method == "initialize":
            capabilities = '{"tools":{"listChanged":true}}'
            version = '"protocolVersion":"2025-11-25"'
            respond(id, '{%s,"capabilities":%s,"serverInfo":%s}' % (version, capabilities, INFO))
        elif method == "ping":
            respond(id, "{}")
        elif method == "tools/list":
            respond(id, catalog(path))
        elif method == "tools/call":
            call(path, id, message["params"]["name"])
        else:
            refuse(id, method)


if __name__ == "__main__":
    main()
