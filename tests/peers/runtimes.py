"""Stand-ins of other runtimes: hsafa's gateway in v3 and v7, and the service of Claude's
self-hosted environments.

    runtimes.py [PORT]

Prints `READY URL`. A test speaks to the paths below `/_/`: it asks for calls, breaks streams, has
requests refused, and reads what was posted. hsafa v3 sends a call to every listener and replays
none; v7 sends it to one listener of the skill; Claude's sessions keep their events, and each has an
item of work in its environment. An answer is taken once. Must not: know the bridge.
"""

import json
import queue
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "runtime_credential_canary_81c2"
LOCK = threading.RLock()
# How long the claim of an item of work holds, in seconds.
TTL = 3


class State:
    """All that was asked for, and all that was answered."""

    def __init__(self):
        self.streams = {}  # Of each wire: its listeners.
        self.calls = {}  # By id: what was asked for, and whether it has its answer.
        self.posts = []  # Of each POST of an answer: path, body, status.
        self.tools = {}  # What v7 has registered, by skill, the last first.
        # Of the next requests: a part of the path, and the status, or 0 to break the connection;
        # `taken` does so once the request has had its effect.
        self.refuse = []
        self.work = {}  # By id: an item, its session, its claim.
        self.sessions = {}  # By id: its events.
        self.requests = []
        self.refused = 0
        self.key = KEY


STATE = State()


def asked(call, run):
    """Notes a call. Of v3, each run has ids of its own."""
    STATE.calls.setdefault(call, {"runs": {}})["runs"].setdefault(run, {})


class Listener(queue.Queue):
    """The texts for a connection that reads a stream."""

    def __init__(self, connection):
        super().__init__()
        self.connection = connection

    def lives(self):
        """Whether its reader is still there, as far as its kernel has said."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def listeners_of(wire):
    return [one for one in STATE.streams.get(wire, []) if one.lives()]


def send(wire, text, last=False):
    """Sends a text on the streams of a wire; returns how many there are."""
    listeners = listeners_of(wire)
    for listener in listeners[-1:] if last else listeners:
        listener.put(text)
    return len(listeners)


def event(body):
    return f"data: {json.dumps(body)}\n\n"


def add_event(session, body):
    STATE.sessions[session].append(body)
    send(session, f"event: {body['type']}\n{event(body)}")


def lapse():
    """Gives back the items whose claims have run out."""
    for item in STATE.work.values():
        if item["state"] in ("starting", "active") and time.monotonic() > item["until"]:
            item.update(state="queued", beat="")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    is_mute = False

    def reply(self, status, body=None):
        if self.is_mute:
            self.close_connection = True
            return self.connection.close()
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def handle_one(self):
        parts = urlsplit(self.path)
        self.query = {key: one[0] for key, one in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        path = [unquote(one) for one in parts.path.strip("/").split("/")]
        if path[0] == "_":
            return self.control(path[1])
        self.is_mute = False
        with LOCK:
            STATE.requests.append(f"{self.command} {parts.path}")
            for refusal in STATE.refuse:
                if refusal["path"] in self.path and self.command == refusal.get("method", self.command):
                    STATE.refused += 1
                    if not refusal.get("always"):
                        STATE.refuse.remove(refusal)
                    if refusal.get("taken"):
                        self.is_mute = True
                        break
                    if not refusal["status"]:
                        self.close_connection = True
                        return self.connection.close()
                    return self.reply(refusal["status"], {"error": "refused"})
        shown = {
            "x-secret-key": self.headers.get("x-secret-key"),
            "x-api-key": self.headers.get("x-api-key"),
            "authorization": (self.headers.get("authorization") or "").removeprefix("Bearer "),
        }
        self.key = next(filter(None, shown.values()), None)
        if path[0] == "v1":
            right = shown["authorization"] in (STATE.key, f"session-{KEY}")
            versions = {"anthropic-beta": "managed-agents-2026-04-01", "anthropic-version": "2026-10-21"}
            if right and any(self.headers.get(name) != version for name, version in versions.items()):
                return self.reply(404, {"error": "another version"})
        else:
            right = shown["x-api-key" if "v7" in path else "x-secret-key"] == STATE.key
        if not right:
            return self.reply(401, {"error": "Unauthorized"})
        where = f"{self.command} {'/'.join(path)}"
        for pattern, answer in ROUTES:
            found = re.fullmatch(pattern, where)
            if found:
                return answer(self, *found.groups())
        self.reply(404, {"error": f"no route {where}"})

    do_GET = do_POST = do_PUT = handle_one

    def stream(self, wire):
        listener = Listener(self.connection)
        with LOCK:
            STATE.streams.setdefault(wire, []).append(listener)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.wfile.write(b": connected\n\n")
            while True:
                try:
                    text = listener.get(timeout=1)
                except queue.Empty:
                    text = ": ping\n\n"
                if text is None:
                    return
                self.wfile.write(text.encode())
                self.wfile.flush()
        except OSError:
            pass
        finally:
            with LOCK:
                STATE.streams[wire].remove(listener)

    def take(self, call, body, status, known):
        """Notes an answer, and whether it was taken."""
        with LOCK:
            if status == 200:
                known["answer"] = body
            STATE.posts.append({
                "path": self.path, "call": call, "body": body, "status": status,
                "media": self.headers.get("content-type"), "key": self.key,
            })
        self.reply(status, {"ok": status == 200})

    # hsafa

    def v3_stream(self):
        self.stream("v3")

    def v3_result(self, run):
        body = json.loads(self.body)
        call = body.get("callId")
        with LOCK:
            known = STATE.calls.get(call)
            status = 400 if not call else 404 if not known else 200 if run in known["runs"] else 403
            if status == 200:
                known = known["runs"][run]
                status = 409 if "answer" in known else 200
        self.take(call, body, status, known)

    def v7_tools(self, skill):
        tools = json.loads(self.body)["tools"]
        if not all(one.get("name") and one.get("description") and one.get("inputSchema") for one in tools):
            return self.reply(400, {"error": "a tool lacks a part"})
        with LOCK:
            STATE.tools.setdefault(skill, []).insert(0, tools)
        self.reply(200, {"skill": skill, "tools": tools, "count": len(tools)})

    def v7_stream(self, skill):
        self.stream(f"v7/{skill}")

    def v7_result(self, call):
        body = json.loads(self.body)
        known = STATE.calls.get(call)
        status = 400 if "result" not in body else 200 if known and "answer" not in known else 404
        self.take(call, body, status, known)

    # Claude

    def poll(self, environment):
        deadline = time.monotonic() + int(self.query.get("block_ms", 0)) / 1000
        while True:
            with LOCK:
                lapse()
                for item in STATE.work.values():
                    if item["state"] == "queued" and item["environment"] == environment:
                        item.update(state="starting", until=time.monotonic() + 5)
                        return self.reply(200, self.shown(item))
            if time.monotonic() >= deadline:
                return self.reply(200, None)
            time.sleep(0.02)

    def list(self, _environment):
        self.reply(200, {"data": [self.shown(one) for one in STATE.work.values()], "next_page": None})

    @staticmethod
    def shown(item):
        now = "2026-11-22T00:00:00Z"
        return {
            "id": item["id"], "type": "work", "state": item["state"], "created_at": now,
            "environment_id": item["environment"], "metadata": {}, "secret": item["secret"],
            "data": {"type": item["kind"], "id": item["session"]},
        }

    def ack(self, _environment, work):
        self.reply(200, self.shown(STATE.work[work]))

    def heartbeat(self, _environment, work):
        with LOCK:
            lapse()
            item = STATE.work[work]
            expected = self.query["expected_last_heartbeat"]
            if item["state"] not in ("stopping", "stopped"):
                if expected != (item["beat"] or "NO_HEARTBEAT") or item["state"] == "queued":
                    return self.reply(412, {"error": {"message": "precondition failed"}})
                item["beats"] += 1
                beat = f"2026-11-22T00:00:00.{item['beats']:06}Z"
                item.update(beat=beat, state="active", until=time.monotonic() + TTL)
            self.reply(200, {
                "type": "work_heartbeat", "last_heartbeat": item["beat"], "ttl_seconds": TTL,
                "lease_extended": item["state"] == "active", "state": item["state"],
            })

    def stop(self, _environment, work):
        with LOCK:
            item = STATE.work[work]
            if item["state"] == "stopped":
                return self.reply(409, {"error": "stopped already"})
            item["state"] = "stopped"
        self.reply(200, self.shown(item))

    def session(self, session):
        now = "2026-11-22T00:00:00Z"
        ended = any(one["type"] == "session.status_terminated" for one in STATE.sessions[session])
        is_over = ended or session.endswith("archived")
        agent = {
            "id": "agent_1", "type": "agent", "name": "a", "version": 1, "model": {"id": "m"},
            "execution_identity": {"type": "service_account"}, "mcp_servers": [], "skills": [],
            "tools": [],
        }
        self.reply(200, {
            "id": session, "type": "session", "status": "terminated" if is_over else "running",
            "environment_id": STATE.work[f"work_{session}"]["environment"], "agent": agent,
            "resources": [], "metadata": {}, "outcome_evaluations": [], "vault_ids": [],
            "stats": {}, "usage": {}, "created_at": now, "updated_at": now,
        })

    def session_stream(self, session):
        self.stream(session)

    def session_events(self, session):
        """Two events a page."""
        events = STATE.sessions[session]
        first = int(self.query.get("page", 0))
        more = first + 2 < len(events)
        self.reply(200, {
            "data": events[first : first + 2], "next_page": str(first + 2) if more else None,
        })

    def session_post(self, session):
        for one in json.loads(self.body)["events"]:
            call = one["custom_tool_use_id"]
            with LOCK:
                known = STATE.calls.get(call)
                status = 200 if known and "answer" not in known else 400
                if status == 200:
                    add_event(session, {**one, "id": f"event_{call}", "processed_at": None})
            self.take(call, one, status, known)

    # The test

    def control(self, what):
        body = json.loads(self.body or b"{}")
        with LOCK:
            if what == "state":
                lapse()
                return self.reply(200, {
                    "listeners": {wire: len(listeners_of(wire)) for wire in STATE.streams},
                    "posts": STATE.posts, "refused": STATE.refused, "tools": STATE.tools, "requests": STATE.requests,
                    "work": {one["id"]: one["state"] for one in STATE.work.values()},
                })
            if what == "raw":
                if "call" in body:
                    asked(body["call"], "run_1")
                return self.reply(200, send(body["wire"], body["text"]))
            if what == "refuse":
                return self.reply(200, STATE.refuse.append(body) or {})
            if what == "key":
                STATE.key = body["key"]
                return self.reply(200, {})
            if what == "forgive":
                return self.reply(200, STATE.refuse.clear() or {})
            if what == "close":
                return self.reply(200, send(body["wire"], None))
            if what == "lapse":
                for item in STATE.work.values():
                    item["until"] = 0
                return self.reply(200, {})
            if what == "session":
                session = body["id"]
                STATE.sessions[session] = [
                    {"type": "user.message", "id": "e0", "content": []}, *body.get("events", []),
                ]
                for one in body.get("events", []):
                    asked(one["id"], None)
                STATE.work[f"work_{session}"] = {
                    "id": f"work_{session}", "session": session, "state": "queued", "beat": "",
                    "beats": 0, "secret": body.get("secret"), "kind": body.get("kind", "session"),
                    "until": 0, "environment": body.get("environment", "env_1"),
                }
                return self.reply(200, {})
            if what == "event":
                return self.reply(200, add_event(body["session"], body["event"]) or {})
            # A call.
            wire, call, tool, args = (body[key] for key in ("wire", "id", "tool", "args"))
            asked(call, body.get("run", "run_1"))
            if wire == "v3":
                heard = send("v3", event({
                    "type": "tool.call", "toolCallId": call, "toolName": tool, "args": args,
                    "runId": body.get("run", "run_1"), "agentEntityId": "a", "ts": 1,
                }))
            elif wire.startswith("v7/"):
                heard = send(wire, event({
                    "type": "action", "actionId": call, "toolName": tool, "args": args,
                    "haseef": {"id": "h", "name": "h", "profile": {}},
                }), last=True)
            else:
                add_event(wire, {
                    "type": "agent.custom_tool_use", "id": call, "name": tool, "input": args,
                    "processed_at": "2026-11-22T00:00:00Z",
                })
                heard = len(listeners_of(wire))
            self.reply(200, heard)


ENVIRONMENT = "v1/environments/([^/]+)/work"
ROUTES = [
    ("GET api/tools/stream", Handler.v3_stream),
    ("POST api/runs/([^/]+)/tool-results", Handler.v3_result),
    ("PUT api/v7/skills/([^/]+)/tools", Handler.v7_tools),
    ("GET api/v7/skills/([^/]+)/actions/stream", Handler.v7_stream),
    ("POST api/v7/actions/([^/]+)/result", Handler.v7_result),
    (f"GET {ENVIRONMENT}", Handler.list),
    (f"GET {ENVIRONMENT}/poll", Handler.poll),
    (f"POST {ENVIRONMENT}/([^/]+)/ack", Handler.ack),
    (f"POST {ENVIRONMENT}/([^/]+)/heartbeat", Handler.heartbeat),
    (f"POST {ENVIRONMENT}/([^/]+)/stop", Handler.stop),
    ("GET v1/sessions/([^/]+)", Handler.session),
    ("GET v1/sessions/([^/]+)/events/stream", Handler.session_stream),
    ("GET v1/sessions/([^/]+)/events", Handler.session_events),
    ("POST v1/sessions/([^/]+)/events", Handler.session_post),
]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    server = Server(("127.0.0.1", int((sys.argv + ["0"])[1])), Handler)
    print(f"READY http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
