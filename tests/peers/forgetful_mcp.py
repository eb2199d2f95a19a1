"""An MCP server over HTTP that forgets its sessions, for the integration tests.

    forgetful_mcp.py --port PORT

It speaks Streamable HTTP (2025-11-25). The second call in a session finds that the session is
forgotten, and is not run. How the server says so, stands in the path: `/404`, `/410`, `/401`,
`/400`, `/own` (a 400 with the id of the request), `/200` (a JSON-RPC error) and `/stream` (the same
in an event). `GET /ledger` lists the calls that were run, `PATH TEXT` a line. Prints one line
`READY http://127.0.0.1:PORT` when it listens. Must not: need anything but the standard library.
"""

import argparse
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = {"name": "note", "description": "Notes a text.", "inputSchema": {"type": "object"}}

lock = threading.Lock()
# How many calls each session has had.
sessions = {}
ledger = []


def forgotten(path, id):
    """The status, media type and body by which `path` says that the session is unknown."""
    error = lambda id, code, text: json.dumps(
        {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}
    )
    unknown = error(id, -32001, "Session not found")
    return {
        "/404": (404, "text/plain", "Not Found"),
        "/410": (410, "text/plain", "Gone"),
        "/401": (401, "text/plain", "Unauthorized: Session not found"),
        "/400": (400, "application/json", error("server-error", -32600, "No valid session ID provided")),
        "/own": (400, "application/json", error(id, -32000, "Invalid session")),
        "/200": (200, "application/json", unknown),
        "/stream": (200, "text/event-stream", "data: %s\n\n" % unknown),
    }[path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/ledger":
            with lock:
                self.answer(200, "text/plain", "".join(line + "\n" for line in ledger))
        else:
            self.answer(405, "text/plain", "")

    def do_DELETE(self):
        self.answer(405, "text/plain", "")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, id = message["method"], message.get("id")
        if method == "initialize":
            session = uuid.uuid4().hex
            with lock:
                sessions[session] = 0
            info = {"name": "forgetful", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            return self.result(id, result, {"Mcp-Session-Id": session})
        session = self.headers.get("Mcp-Session-Id")
        if session is None:
            return self.answer(400, "application/json", "{}")
        with lock:
            if method == "tools/call" and sessions.get(session) == 1:
                del sessions[session]
            if session not in sessions:
                return self.answer(*forgotten(self.path, id))
            if method == "tools/call":
                sessions[session] += 1
                ledger.append("%s %s" % (self.path, message["params"]["arguments"]["text"]))
        if id is None:
            return self.answer(202, "text/plain", "")
        content = {"content": [{"type": "text", "text": "noted"}]}
        self.result(id, content if method == "tools/call" else {"tools": [TOOL]})

    def result(self, id, result, headers={}):
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result})
        self.answer(200, "application/json", body, headers)

    def answer(self, status, media_type, body, headers={}):
        self.send_response(status)
        for name, value in {"Content-Type": media_type, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
port = options.parse_args().port
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
print("READY http://127.0.0.1:%d" % port, flush=True)
server.serve_forever()
