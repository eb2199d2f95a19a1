"""An MCP server of the Python SDK that makes tasks of calls, for the integration tests.

    mcp_tasks.py --port PORT

It speaks Streamable HTTP at /mcp. The SDK does not bring the tasks extension (2026-07-28, SEP-2663),
only the way to add one, so it is here: a call of `research` becomes a task where the client has
declared the extension. Tasks belong to no connection. Prints one line `READY
http://127.0.0.1:PORT` when it listens.
"""

import argparse
import asyncio
import datetime
import json
import uuid

import uvicorn
from mcp.server import MCPServer
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import RequestParams
from pydantic import Field

TASKS = "io.modelcontextprotocol/tasks"
MODERN = frozenset({"2026-07-28"})
# Whoever asks more often is seen in `asked`.
POLL_INTERVAL_MS = 200


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class Task:
    def __init__(self, work):
        self.id = str(uuid.uuid4())
        self.created = now()
        self.asked = 0
        self.work = asyncio.ensure_future(work)

    def status(self):
        if not self.work.done():
            return "working"
        if self.work.cancelled():
            return "cancelled"
        return "failed" if self.work.exception() else "completed"

    def shown(self, kind):
        status = self.status()
        shown = {
            "resultType": kind,
            "taskId": self.id,
            "status": status,
            "createdAt": self.created,
            "lastUpdatedAt": now(),
            "ttlMs": None,
            "pollIntervalMs": POLL_INTERVAL_MS,
        }
        if status == "completed":
            result = self.work.result()
            shown["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        elif status == "failed":
            shown["error"] = {"code": -32603, "message": str(self.work.exception())}
        return shown


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


class Tasks(Extension):
    identifier = TASKS

    def __init__(self):
        self.tasks = {}

    def methods(self):
        return [
            MethodBinding("tasks/get", TaskParams, self.get, MODERN),
            MethodBinding("tasks/cancel", TaskParams, self.cancel, MODERN),
        ]

    async def intercept_tool_call(self, params, ctx, call_next):
        declared = ctx.session.client_capabilities
        declared = declared and declared.extensions or {}
        if params.name != "research" or TASKS not in declared:
            return await call_next(ctx)
        task = Task(call_next(ctx))
        self.tasks[task.id] = task
        return task.shown("task")

    async def get(self, ctx, params):
        task = self.find(params)
        task.asked += 1
        return task.shown("complete")

    async def cancel(self, ctx, params):
        self.find(params).work.cancel()
        return {}

    def find(self, params):
        task = self.tasks.get(params.task_id)
        if task is None:
            raise MCPError(-32602, "Failed to retrieve task: Task not found")
        return task


tasks = Tasks()
server = MCPServer("tasks", extensions=[tasks])
started = 0


@server.tool()
async def research(seconds: float) -> str:
    """Takes its time, and tells how many have been started."""
    global started
    started += 1
    number = started
    await asyncio.sleep(seconds)
    return f"report {number}"


@server.tool()
async def overview() -> str:
    """All tasks, as JSON."""
    return json.dumps([{"status": t.status(), "asked": t.asked} for t in tasks.tasks.values()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            port = self.servers[0].sockets[0].getsockname()[1]
            print(f"READY http://127.0.0.1:{port}", flush=True)

    app = server.streamable_http_app()
    Server(uvicorn.Config(app, host="127.0.0.1", port=options.port, log_level="warning")).run()


if __name__ == "__main__":
    main()
