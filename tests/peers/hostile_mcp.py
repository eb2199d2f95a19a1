#!/usr/bin/env python3
"""A stdio MCP server that does what no server should, one tool for each misdeed.

Options:
  --modern           speak 2026-07-28 (server/discover) instead of initialize
  --revision R       answer initialize with this revision (default 2025-11-25)
  --ignore-unknown   never answer a method that it does not know
  --exit-on-unknown  end at a method that it does not know
  --pages N          list the tools on N pages, one filler tool on each page but the last
  --circle           give the same cursor again and again
  --noise            write garbage to stdout before the handshake and a flood to stderr
  --later MISDEED    work until the tools are listed, and then answer in frames (`frames`) or with the id 0
                     (`zero`)
  --die MESSAGE      write MESSAGE to stderr and end with status 7 at once
  --detach FILE      start the processes of the tool `detach` at once, and write their ids to FILE
  --ignore-stdin-end live on after stdin has ended, and ignore SIGTERM

With LEDGER in the environment, every tools/call and every notification is appended to that file,
one line each, as it came. It needs nothing but the standard library.
"""

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

SERVER_INFO = (
    '{"version":"0.1","name":"hostile","x-build":123456789012345678901234567890,'
    '"x-limit":1e400,"x-path":"\\u00e9\\/"}'
)

# Unknown fields, numbers that no type holds, duplicate keys, an annotation of the wrong type, an
# order of keys that no encoder makes, spaces.
STRANGE_TOOL = (
    '{"zeta":1,"name":"strange", "description":"Strange \\u00e9\\/ results",'
    '"inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":1e400,'
    '"minimum":-123456789012345678901234567890,"default":1.10}},"properties":{}},'
    '"annotations":{"readOnlyHint":"yes","x-own":2E5},"execution":{"taskSupport":"optional"},'
    '"securitySchemes":[{"type":"oauth2"}],"_meta":{"b":1,"a":2}}'
)

TOOLS = [
    ("echo", "Returns the request as it came in."),
    ("structured", "Returns structuredContent only."),
    ("fail", "Returns an error of the tool."),
    ("refuse", "Answers with a JSON-RPC error."),
    ("refuse_without_id", "Answers with a JSON-RPC error that has no id."),
    ("string_id", "Answers with the id as a string."),
    ("want_input", "Answers that it wants input (MRTR)."),
    ("huge", "Answers with a line of `bytes` bytes."),
    ("garbage", "Writes lines that are no messages before it answers."),
    ("crash", "Ends the process before it answers."),
    ("hang", "Never answers."),
    ("progress", "Says for ever that it is getting on."),
    ("late", "Says that it has begun, and answers when the next call has come, before that."),
    ("deaf", "Stops reading stdin for `seconds` seconds, then answers."),
    ("fork", "Starts a grandchild that ignores SIGTERM and returns its process id."),
    ("detach", "Starts processes in sessions of their own, for `seconds`, and returns their ids."),
    ("ask", "Asks the client for everything a server may ask and returns the replies."),
    ("change", "Adds a tool and says so three times."),
    ("insult", "Says on stderr, in a log message and in an error what a terminal would obey."),
    ("pry", "Tries to open the paths in `read` and `write`, and to signal the process `signal`."),
    ("environment", "Returns its environment, descriptors and process group."),
]

# To a terminal: clear the screen, set the clipboard, go back in the line, a new line that looks like
# one of the log's, the same with C1 characters, text in reverse, nothing to be seen, and a bell.
INSULT = (
    "\x1b[2J\x1b]52;c;ZXZpbA==\x07\r2026-01-01T00:00:00Z ERROR all is lost\n"
    '{"level":"ERROR","message":"forged"}\n\x9b31m \u202eesrever\u202c \u200b\x7f\x08'
)

options = None
ledger = None
added = []
writing = threading.Lock()
late = []
subscription = None
misdeed = None


def send(text):
    with writing:
        framed = "Content-Length: %d\r\n\r\n%s" % (len(text), text)
        sys.stdout.write(framed if misdeed == "frames" else text + "\n")
        sys.stdout.flush()


def note(line):
    if ledger:
        with open(ledger, "a", encoding="utf-8") as file:
            file.write(line.rstrip("\n") + "\n")
            file.flush()
            os.fsync(file.fileno())


def respond(id, result):
    """`result` is JSON text, sent as it is."""
    id = 0 if misdeed == "zero" else id
    send('{"result":%s,"jsonrpc":"2.0","id":%s}' % (result, json.dumps(id)))


def refuse(id, code, message):
    error = {"code": code, "message": message}
    send(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))


def text(content, **more):
    result = {"content": [{"type": "text", "text": content}], **more}
    if options.modern:
        result["resultType"] = "complete"
    return json.dumps(result)


def tool(name, description):
    schema = {"type": "object"}
    return json.dumps({"name": name, "description": description, "inputSchema": schema})


def list_tools(id, params):
    cursor = params.get("cursor")
    page = int(cursor.split("-")[1]) if cursor else 0
    more = ""
    if page + 1 < options.pages:
        tools = [tool("filler_%d" % page, "Fills a page.")]
        more = ',"nextCursor":"page-%d"' % (0 if options.circle else page + 1)
    else:
        tools = [STRANGE_TOOL] + [tool(*one) for one in TOOLS]
        tools += [tool(name, "Was added.") for name in added]
        if options.circle:
            more = ',"nextCursor":"page-0"'
    kind = '"resultType":"complete","ttlMs":86400000,"cacheScope":"private",'
    kind = kind if options.modern else ""
    respond(id, '{%s"x-page":1e400,"tools":[%s]%s}' % (kind, ",".join(tools), more))
    global misdeed
    misdeed = options.later


def ask():
    """Sends requests to the client and collects what it answers, reading nothing else."""
    requests = {
        "ping": {},
        "roots/list": {},
        "sampling/createMessage": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
            "maxTokens": 5,
        },
        "elicitation/create": {
            "message": "name?",
            "requestedSchema": {"type": "object", "properties": {}},
        },
        "x/unknown": {"n": 1},
    }
    replies = {}
    for number, (method, params) in enumerate(requests.items()):
        id = "ask-%d" % number
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        send(json.dumps(message))
        for line in sys.stdin:
            reply = json.loads(line)
            if reply.get("id") == id:
                error = reply.get("error")
                replies[method] = error["code"] if error else "ok"
                break
    return json.dumps(replies)


def fork():
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)
    return str(child)


def detach(seconds=600):
    """The ids of processes that have left the group, as browsers and language servers do."""
    wait = [sys.executable, "-c", "import time; time.sleep(%f)" % seconds]
    again = (
        "import subprocess, sys, time\n"
        "inner = subprocess.Popen(%r, start_new_session=True)\n"
        "print(inner.pid, flush=True)\n"
        "time.sleep(%f)" % (wait, seconds)
    )
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # One of the server's children.
    child = subprocess.Popen(wait, start_new_session=True, stdout=subprocess.DEVNULL, **pipes)
    # One whose parent is gone.
    quiet = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True"
    twice = "import subprocess; print(subprocess.Popen(%r, %s).pid)" % (wait, quiet)
    orphan = subprocess.run([sys.executable, "-c", twice], capture_output=True, check=False)
    # One that has detached another one.
    outer = subprocess.Popen(
        [sys.executable, "-c", again], start_new_session=True, stdout=subprocess.PIPE, **pipes
    )
    inner = outer.stdout.readline()
    return [child.pid, int(orphan.stdout), outer.pid, int(inner)]


def attempt(act, *args):
    """Whether `act` went well, or the name of its error."""
    try:
        act(*args)
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def look(path):
    if os.path.isdir(path):
        os.listdir(path)
        return
    with open(path, "rb") as file:
        file.read(1)


def scribble(path):
    with open(path, "ab"):
        pass


def pry(arguments):
    seen = {path: attempt(look, path) for path in arguments.get("read", [])}
    seen.update({"w:" + path: attempt(scribble, path) for path in arguments.get("write", [])})
    if "signal" in arguments:
        seen["signal"] = attempt(os.kill, arguments["signal"], 0)
    return json.dumps(seen)


def tell_change(times):
    for _ in range(times):
        if subscription is None:
            send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
        else:
            meta = {"io.modelcontextprotocol/subscriptionId": subscription}
            method = "notifications/tools/list_changed"
            send(json.dumps({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}}))


def progress(params):
    about = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
    send(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": about}))


def progress_for_ever(params):
    while True:
        progress(params)
        time.sleep(0.05)


def call(id, params, line):
    note(line)
    while late:
        respond(*late.pop())
    name = params["name"]
    arguments = params.get("arguments") or {}
    if name == "echo":
        respond(id, text(line.rstrip("\n")))
    elif name == "strange":
        respond(
            id,
            '{"zeta":[1e400],"content":[{"type":"hologram","voxels":[1e400]},'
            '{"type":"text","text":"kept","annotations":{"priority":1e400}},'
            '{"type":"image","data":"AAAA","mimeType":"image/png"}],'
            '"isError":false,"_meta":{"n":123456789012345678901234567890}}',
        )
    elif name == "structured":
        respond(
            id,
            '{"content":[],"structuredContent":{"z":1.10,"a":123456789012345678901234567890,'
            '"big":1e400,"a":2}}',
        )
    elif name == "fail":
        respond(id, text("the disk is full", isError=True))
    elif name == "refuse":
        refuse(id, -32050, "not on a Sunday")
    elif name == "refuse_without_id":
        refuse(None, -32600, "cannot read that")
    elif name == "string_id":
        respond(str(id), text("same to you"))
    elif name == "want_input":
        respond(id, '{"resultType":"input_required","inputRequests":{},"requestState":"s"}')
    elif name == "huge":
        respond(id, text("x" * int(arguments.get("bytes", 9 * 1024 * 1024))))
    elif name == "garbage":
        send("plain text on stdout")
        send("\x1b[31mred\x1b[0m \u202eesrever")
        send("{broken json")
        send("[]")
        send('"a string"')
        send('{"jsonrpc":"2.0","id":424242,"result":{}}')
        send('{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1e400}}')
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\xff\xfe not utf-8\n")
        sys.stdout.buffer.flush()
        respond(id, text("after the garbage"))
    elif name == "crash":
        sys.stderr.write("about to crash\nRuntimeError: the reactor is gone\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "insult":
        sys.stderr.buffer.write(("insult on stderr " + INSULT + "\n").encode())
        sys.stderr.buffer.flush()
        message = {"level": "error", "logger": INSULT, "data": "insult in a log " + INSULT}
        send(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": message}))
        refuse(id, -32050, "insult in an error " + INSULT)
    elif name == "hang":
        pass
    elif name == "progress":
        threading.Thread(target=progress_for_ever, args=(params,), daemon=True).start()
    elif name == "late":
        progress(params)
        late.append((id, text("late " + json.dumps(arguments))))
    elif name == "deaf":
        time.sleep(float(arguments.get("seconds", 1)))
        respond(id, text("what?"))
    elif name == "fork":
        respond(id, text(fork()))
    elif name == "detach":
        respond(id, text(json.dumps(detach(**arguments))))
    elif name == "ask":
        respond(id, text(ask()))
    elif name == "change":
        added.append("added_%d" % len(added))
        tell_change(3)
        respond(id, text("changed"))
    elif name == "pry":
        respond(id, text(pry(arguments)))
    elif name == "environment":
        seen = {
            "env": dict(os.environ),
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
            "pid": os.getpid(),
            "group": os.getpgrp(),
            "parent": os.getppid(),
            "cwd": os.getcwd(),
        }
        respond(id, text(json.dumps(seen)))
    elif name.startswith(("filler_", "added_")):
        respond(id, text(name))
    else:
        refuse(id, -32602, "Unknown tool: %s" % name)


def discover(id):
    respond(
        id,
        '{"resultType":"complete","supportedVersions":["2026-07-28"],'
        '"capabilities":{"tools":{"listChanged":true},"x-own":1e400},"ttlMs":0,'
        '"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":%s}}' % SERVER_INFO,
    )


def initialize(id):
    respond(
        id,
        '{"protocolVersion":"%s","capabilities":{"tools":{"listChanged":true},'
        '"x-own":{"n":1e400}},"serverInfo":%s,"instructions":"Beware."}'
        % (options.revision, SERVER_INFO),
    )


def listen(id):
    global subscription
    subscription = id
    meta = {"io.modelcontextprotocol/subscriptionId": id}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    method = "notifications/subscriptions/acknowledged"
    send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        params = message.get("params") or {}
        if method is None:
            continue
        if id is None:
            note(line)
        elif method == "initialize" and not options.modern:
            initialize(id)
        elif method == "server/discover" and options.modern:
            discover(id)
        elif method == "subscriptions/listen" and options.modern:
            listen(id)
        elif method == "ping":
            respond(id, "{}")
        elif method == "tools/list":
            list_tools(id, params)
        elif method == "tools/call":
            call(id, params, line)
        elif options.exit_on_unknown:
            sys.exit(1)
        elif not options.ignore_unknown:
            refuse(id, -32601, "Method not found: %s" % method)


def main():
    global options, ledger
    parser = argparse.ArgumentParser()
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--revision", default="2025-11-25")
    parser.add_argument("--ignore-unknown", action="store_true")
    parser.add_argument("--exit-on-unknown", action="store_true")
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--circle", action="store_true")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--later", choices=["frames", "zero"])
    parser.add_argument("--die")
    parser.add_argument("--ignore-stdin-end", action="store_true")
    parser.add_argument("--detach")
    options = parser.parse_args()
    ledger = os.environ.get("LEDGER")
    sys.stdout.reconfigure(encoding="utf-8")
    if options.detach:
        with open(options.detach, "w", encoding="utf-8") as file:
            json.dump(detach(), file)
    if options.die:
        sys.stderr.write(options.die + "\n")
        sys.exit(7)
    if options.noise:
        send("hostile 0.1 is starting...")
        for number in range(20000):
            sys.stderr.write("noise \x1b[2J line %d %s\n" % (number, "-" * 60))
        sys.stderr.write("x" * 100000 + "\n")
    if options.ignore_stdin_end:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve()
    if options.ignore_stdin_end:
        time.sleep(600)


if __name__ == "__main__":
    main()
