"""An MCP server on stdio that starts when the test lets it. It is called with a name and a directory, and
appends what happens to DIRECTORY/log: `begun NAME`, `ready NAME`, `term NAME`, `ended NAME`.

While DIRECTORY/hold or DIRECTORY/NAME.hold is there, it answers nothing. With DIRECTORY/NAME.fails, it
prints what that file contains to stderr and exits. With DIRECTORY/NAME.leaves, it ends once its tools
were listed, after a line on stdout that is no message. It takes a moment to end after SIGTERM, as an
installation does that must not be cut off.
"""

import json
import os
import signal
import sys
import threading
import time

name, directory = sys.argv[1], sys.argv[2]


def path(file):
    return os.path.join(directory, file)


def note(what):
    with open(path("log"), "a") as log:
        log.write(f"{what} {name}\n")


def terminated(_signal, _frame):
    note("term")
    time.sleep(0.5)
    note("ended")
    os._exit(0)


def answer(request):
    method = request.get("method")
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": name, "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}
    if method == "resources/list":
        return {"resources": [{"uri": "pid:own", "name": "pid"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "prompts/list":
        return {"prompts": [{"name": "ask"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "What?"}}]}
    if method == "resources/read":
        return {"contents": [{"uri": "pid:own", "text": str(os.getpid())}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": str(os.getpid())}]}
    return None


def serve():
    is_ready = False
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        while os.path.exists(path("hold")) or os.path.exists(path(f"{name}.hold")):
            time.sleep(0.02)
        result = answer(request)
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "no such method"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)
        if not is_ready and request.get("method") == "tools/list":
            is_ready = True
            note("ready")
            if os.path.exists(path(f"{name}.leaves")):
                print("noise on stdout", flush=True)
                break
    note("ended")
    os._exit(0)


signal.signal(signal.SIGTERM, terminated)
note("begun")
if os.path.exists(path(f"{name}.fails")):
    with open(path(f"{name}.fails")) as why:
        print(why.read(), file=sys.stderr)
    sys.exit(1)
print("installing 3 packages", file=sys.stderr, flush=True)
# A signal handler runs in the main thread, which must not wait in a read.
threading.Thread(target=serve).start()
while True:
    time.sleep(3600)
