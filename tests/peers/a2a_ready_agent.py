"""An A2A agent on a2a-sdk 0.2, 0.3 or 1.x that is called well or wrongly, for the tests of what
`status` and `doctor` say of it. It takes each message as the text of its answer.

Prints one line `READY http://127.0.0.1:PORT` when it listens, and then `METHOD PATH` for each
request that does not ask for the public card.
"""

import argparse
import asyncio
import importlib.metadata
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route

GENERATION = importlib.metadata.version("a2a-sdk").rsplit(".", 1)[0]
SKILL = {"id": "t", "name": "T", "description": "t", "tags": ["t"]}
MODES = {"default_input_modes": ["text/plain"], "default_output_modes": ["text/plain"]}


def app_of_0(base, options):
    """The application on a2a-sdk 0.2 or 0.3."""
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.apps import A2AStarletteApplication
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentSkill
    from a2a.utils import new_agent_text_message

    class Executor(AgentExecutor):
        async def execute(self, context, queue):
            await queue.enqueue_event(new_agent_text_message(context.get_user_input()))

        async def cancel(self, context, queue):
            pass

    more = {} if GENERATION == "0.2" else {"preferred_transport": options.binding}
    path = "/a2a/rest" if options.binding == "HTTP+JSON" else "/a2a/rpc"
    extensions = [AgentExtension(uri=uri, required=True) for uri in options.extension]
    card = AgentCard(
        name="Agent", description="Answers.", version="1", url=base + (options.path or path),
        capabilities=AgentCapabilities(streaming=False, extensions=extensions),
        skills=[AgentSkill(**SKILL)], supports_authenticated_extended_card=options.extended, **MODES, **more,
    )
    extended = card.model_copy(update={"name": "Extended agent"}) if options.extended else None
    handler = DefaultRequestHandler(Executor(), InMemoryTaskStore())
    app = A2AStarletteApplication(card, handler, extended_agent_card=extended).build(rpc_url="/a2a/rpc")
    if options.binding == "HTTP+JSON":
        from a2a.server.apps.rest.rest_adapter import RESTAdapter

        adapter = RESTAdapter(card, handler, extended_agent_card=extended)
        for (path, method), endpoint in adapter.routes().items():
            app.router.routes.append(Route("/a2a/rest" + path, endpoint, methods=[method]))
    return app


def app_of_1(base, options):
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types.a2a_pb2 import (
        AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Message, Part, Role,
    )

    class Executor(AgentExecutor):
        async def execute(self, context, queue):
            parts = [Part(text=context.get_user_input())]
            reply = Message(message_id="m", context_id=context.context_id, role=Role.ROLE_AGENT, parts=parts)
            await queue.enqueue_event(reply)

        async def cancel(self, context, queue):
            pass

    path = "/a2a/rest" if options.binding == "HTTP+JSON" else "/a2a/rpc"
    interface = AgentInterface(
        url=base + (options.path or path), protocol_binding=options.binding, protocol_version=options.version
    )
    extensions = [AgentExtension(uri=uri, required=True) for uri in options.extension]
    card = AgentCard(
        name="Agent", description="Answers.", version="1", supported_interfaces=[interface],
        capabilities=AgentCapabilities(extensions=extensions, extended_agent_card=options.extended),
        skills=[AgentSkill(**SKILL)], **MODES,
    )
    extended = AgentCard()
    extended.CopyFrom(card)
    extended.name = "Extended agent"
    handler = DefaultRequestHandler(
        Executor(), InMemoryTaskStore(), card, extended_agent_card=extended if options.extended else None
    )
    return Starlette(
        routes=create_agent_card_routes(card)
        + create_jsonrpc_routes(handler, "/a2a/rpc")
        + create_rest_routes(handler, path_prefix="/a2a/rest")
    )


class Door:
    """What stands before the agent."""

    def __init__(self, app, options):
        self.app, self.options = app, options

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"].startswith("/.well-known/"):
            return await self.app(scope, receive, send)
        print(scope["method"], scope["path"], flush=True)
        app = self.app
        shown = dict(scope["headers"]).get(b"authorization", b"").decode()
        if self.options.page:
            app = HTMLResponse("<html><body>Log in</body></html>")
        elif self.options.token and shown != f"Bearer {self.options.token}":
            app = PlainTextResponse("no", status_code=401)
        await app(scope, receive, send)


async def main():
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--binding", choices=["JSONRPC", "HTTP+JSON"], default="JSONRPC")
    options.add_argument("--version", default="1.0", help="the version that the card of 1.x says")
    options.add_argument("--path", help="the path that the card names, if it is a wrong one")
    options.add_argument("--token", help="the token that all but the card wants")
    options.add_argument("--page", action="store_true", help="all but the card is a web page")
    options.add_argument("--extension", action="append", default=[], help="an extension that the card requires")
    options.add_argument("--extended", action="store_true", help="there is an extended card")
    options = options.parse_args()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = app_of_1(base, options) if GENERATION.startswith("1.") else app_of_0(base, options)

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"READY {base}", flush=True)

    await Server(uvicorn.Config(Door(app, options), log_level="critical")).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
