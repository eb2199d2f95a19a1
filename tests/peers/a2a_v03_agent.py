"""An A2A 0.3 agent on a2a-sdk 0.3 or 0.2, for the integration tests.

What it does is decided by the message:

    msg X     replies with the message X
    task X    completes a task whose artifact is X
    long N    works N * 0.1 s, then completes a task
    early N   like `long N`, but the reply comes at once and the task has to be asked for
    steps N   like `long N`, and says every 0.1 s that it works
    fail      fails the task
    input     asks "Which day?"; the next message X in that task completes it with "day: X"
    chunks    completes a task whose artifact comes in three pieces
    file      completes a task with text, data and a file
    throw     fails with an exception before there is a task
    break     fails with an exception in the middle of a task
    words     says its answer while it works, and completes the task without a word
    draft     asks about a text and a file that it has made
    remark    completes a task with a file and a closing remark
    half      fails a task after it has made something
    title     completes a task whose artifact has a title and a paragraph
    inline    completes a task with a file in a `data:` URL
    empty     completes a task without a word

Prints one line `READY http://127.0.0.1:PORT` when it listens.
"""

import argparse
import asyncio
import base64
import socket

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Part,
    TaskState,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task
from starlette.routing import Route

try:
    from a2a.server.apps.rest.rest_adapter import RESTAdapter
except ImportError:  # a2a-sdk 0.2 has JSON-RPC alone.
    RESTAdapter = None


def text(value):
    return Part(root=TextPart(text=value))


class Executor(AgentExecutor):
    async def execute(self, context, queue):
        if context.current_task:
            task = context.current_task
            updater = TaskUpdater(queue, task.id, task.context_id)
            await updater.add_artifact([text(f"day: {context.get_user_input()}")])
            await updater.complete()
            return
        verb, _, rest = context.get_user_input().partition(" ")
        if verb == "msg":
            await queue.enqueue_event(new_agent_text_message(rest, context.context_id))
            return
        if verb == "throw":
            raise RuntimeError("the executor fails")
        task = new_task(context.message)
        await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        say = lambda value: updater.new_agent_message([text(value)])
        await updater.start_work()
        if verb in ("long", "early", "steps"):
            if verb == "steps":
                for _ in range(int(rest)):
                    await asyncio.sleep(0.1)
                    await updater.start_work()
            else:
                await asyncio.sleep(int(rest) * 0.1)
            await updater.add_artifact([text(f"worked {rest}")])
            await updater.complete()
        elif verb == "break":
            raise RuntimeError("the executor fails")
        elif verb == "words":
            await updater.update_status(TaskState.working, say("the answer is 42"))
            await updater.complete()
        elif verb == "draft":
            file = FileWithBytes(bytes=base64.b64encode(b"x").decode(), name="a.csv", mime_type="text/csv")
            await updater.add_artifact([text("Dear all"), Part(root=FilePart(file=file))])
            await updater.update_status(TaskState.input_required, say("Send it?"), final=True)
        elif verb == "remark":
            file = FileWithBytes(bytes=base64.b64encode(b"x").decode(), name="a.csv", mime_type="text/csv")
            await updater.add_artifact([Part(root=FilePart(file=file))])
            await updater.complete(say("Anything else?"))
        elif verb == "half":
            await updater.add_artifact([text("letter 1 was sent, number 4711")])
            await updater.failed(say("no paper"))
        elif verb == "title":
            await updater.add_artifact([text("Title"), text("Paragraph one.")])
            await updater.complete()
        elif verb == "inline":
            file = FileWithUri(uri="data:text/csv;base64,eA==", name="a.csv", mime_type="text/csv")
            await updater.add_artifact([Part(root=FilePart(file=file))])
            await updater.complete()
        elif verb == "empty":
            await updater.complete()
        elif verb == "fail":
            await updater.failed(say("it went wrong"))
        elif verb == "input":
            await updater.update_status(
                TaskState.input_required, say("Which day?"), final=True
            )
        elif verb == "chunks":
            for place, piece in enumerate(["one ", "two ", "three"]):
                await updater.add_artifact(
                    [text(piece)], artifact_id="a", append=place > 0, last_chunk=place == 2
                )
            await updater.complete()
        elif verb == "file":
            content = base64.b64encode(b"x" * 12345).decode()
            pdf = "application/pdf"
            with_bytes = FileWithBytes(bytes=content, name="report.pdf", mime_type=pdf)
            with_uri = FileWithUri(uri="http://files.test/r.pdf", mime_type=pdf)
            parts = [
                text("see the report"),
                Part(root=DataPart(data={"days": 12})),
                Part(root=FilePart(file=with_bytes)),
                Part(root=FilePart(file=with_uri)),
            ]
            await updater.add_artifact(parts)
            await updater.complete()
        else:
            await updater.add_artifact([text(rest)])
            await updater.complete()

    async def cancel(self, context, queue):
        print(f"CANCELLED {context.task_id}", flush=True)
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


class Handler(DefaultRequestHandler):
    """Answers `early` at once, as agents do that ignore a client's wish to wait."""

    async def on_message_send(self, params, context=None):
        first = params.message.parts[0].root if params.message.parts else None
        if getattr(first, "text", "").startswith("early"):
            params.configuration.blocking = False
        return await super().on_message_send(params, context)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--bindings", default="jsonrpc,http+json", help="in the card's order")
    options.add_argument("--no-streaming", action="store_true")
    options = options.parse_args()

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"

    names = {"jsonrpc": ("JSONRPC", "/a2a/jsonrpc"), "http+json": ("HTTP+JSON", "/a2a/rest")}
    interfaces = [
        AgentInterface(transport=names[binding][0], url=base + names[binding][1])
        for binding in options.bindings.split(",")
    ]
    card = AgentCard(
        name="Test agent",
        description="Does what a test says.",
        version="1",
        url=interfaces[0].url,
        preferred_transport=interfaces[0].transport,
        additional_interfaces=interfaces[1:],
        capabilities=AgentCapabilities(streaming=not options.no_streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="test", name="Test", description="Tests.", tags=["test"])],
    )
    handler = Handler(Executor(), InMemoryTaskStore())
    app = A2AStarletteApplication(card, handler).build(rpc_url="/a2a/jsonrpc")
    rest = RESTAdapter(card, handler).routes() if RESTAdapter else {}
    for (path, method), endpoint in rest.items():
        app.router.routes.append(Route("/a2a/rest" + path, endpoint, methods=[method]))

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"READY {base}", flush=True)

    Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
