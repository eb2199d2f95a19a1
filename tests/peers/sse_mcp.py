"""An MCP server over the older HTTP+SSE, for the integration tests.

    sse_mcp.py --port PORT [--initialized STATUS]

`GET /sse` opens the stream, on which all answers come. `notifications/initialized` is answered with
STATUS. Prints one line `READY http://127.0.0.1:PORT` when it listens. Must not: need anything but the
standard library.
"""

import argparse
import json
import queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}

# What is to be sent on each stream.
streams = {}


def result_of(method):
    if method == "initialize":
        info = {"name": "sse", "version": "1"}
        return {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {"content": [{"type": "text", "text": "added"}]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        session = str(len(streams))
        streams[session] = queue.Queue()
        self.event("endpoint", "/messages?session=" + session)
        while True:
            self.event("message", streams[session].get())

    def event(self, name, data):
        self.wfile.write(f"event: {name}\ndata: {data}\n\n".encode())
        self.wfile.flush()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, _, session = self.path.partition("?session=")
        if path != "/messages":
            return self.answer(405)
        if message.get("method") == "notifications/initialized":
            return self.answer(options.initialized)
        if "id" in message:
            result = result_of(message["method"])
            streams[session].put(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        self.answer(202)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--initialized", type=int, default=202)
options = parser.parse_args()
server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
server.daemon_threads = True
print("READY http://127.0.0.1:%d" % options.port, flush=True)
server.serve_forever()
