"""The MCP server of the Python SDK that MCP's own conformance suite asks for, for the integration
tests.

    conformance_mcp.py --port PORT [--sessions] [--asks-in-sessions]

It has the tools, resources, prompts and completions that the suite's server scenarios name, and
speaks all revisions; with --sessions, none without sessions; with --asks-in-sessions, it asks the
user nothing in 2026-07-28. Prints one line `READY URL` when it
listens; URL + /mcp is its endpoint.
"""

import argparse
import json

import conformance_tools
import mcp_types as types
import uvicorn
from conformance_tools import PNG, STATELESS, Asking, bus, prompts, tools
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError


def read(uri):
    """The content of a resource, or nothing."""
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    if uri in ["test://static-text", "test://watched-resource"]:
        text = "This is the content of the static text resource."
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.split("/")[3]
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return types.TextResourceContents(
            uri=uri, mime_type="application/json", text=json.dumps(data)
        )
    return None


class Handlers:
    """What the SDK calls."""

    async def on_list_tools(ctx, params):
        return types.ListToolsResult(tools=[one for one, _, listed in tools.values() if listed])

    async def on_call_tool(ctx, params):
        if params.name not in tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        try:
            return await tools[params.name][1](ctx, params)
        except Asking as asking:
            return asking.result

    async def on_list_prompts(ctx, params):
        listed = [one for one, _, listed in prompts.values() if listed]
        return types.ListPromptsResult(prompts=listed)

    async def on_get_prompt(ctx, params):
        if params.name not in prompts:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        try:
            return await prompts[params.name][1](ctx, params)
        except Asking as asking:
            return asking.result

    async def on_list_resources(ctx, params):
        named = ["static-text", "static-binary", "watched-resource"]
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=f"test://{name}", name=name, description=f"The {name}")
                for name in named
            ]
        )

    async def on_list_resource_templates(ctx, params):
        template = types.ResourceTemplate(
            uri_template="test://template/{id}/data",
            name="template",
            description="Data of an id",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def on_read_resource(ctx, params):
        content = read(str(params.uri))
        if content is None:
            missing = {"uri": str(params.uri)}
            raise MCPError(types.INVALID_PARAMS, "Resource not found", missing)
        return types.ReadResourceResult(contents=[content])

    async def on_subscribe_resource(ctx, params):
        return types.EmptyResult()

    on_unsubscribe_resource = on_set_logging_level = on_subscribe_resource

    async def on_completion(ctx, params):
        words = ["paris", "park", "party"]
        values = [word for word in words if word.startswith(params.argument.value)]
        completion = types.Completion(values=values, total=len(values), has_more=False)
        return types.CompleteResult(completion=completion)


class Events(EventStore):
    """The events of all streams, for clients that come back for the rest of one."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events) - 1)

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        stream = self.events[last][0]
        for number, (other, message) in enumerate(self.events):
            if number > last and other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def without_stateless(app):
    """Refuses what a client of 2026-07-28 sends, as a server from before it does."""

    async def older(scope, receive, send):
        headers = dict(scope.get("headers", []))
        if headers.get(b"mcp-protocol-version") == STATELESS.encode():
            message = "Unsupported protocol version"
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}
            kind = (b"content-type", b"application/json")
            await send({"type": "http.response.start", "status": 400, "headers": [kind]})
            await send({"type": "http.response.body", "body": json.dumps(error).encode()})
        else:
            await app(scope, receive, send)

    return older


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sessions", action="store_true")
    parser.add_argument("--asks-in-sessions", action="store_true")
    options = parser.parse_args()
    conformance_tools.asks_in_sessions = options.asks_in_sessions
    handlers = {name: one for name, one in vars(Handlers).items() if name.startswith("on_")}
    listen = ListenHandler(bus)
    server = Server("conformance", version="1", on_subscriptions_listen=listen, **handlers)
    app = server.streamable_http_app(event_store=Events(), retry_interval=500)
    if options.sessions:
        app = without_stateless(app)

    class Listener(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            port = self.servers[0].sockets[0].getsockname()[1]
            print(f"READY http://127.0.0.1:{port}", flush=True)

    Listener(uvicorn.Config(app, host="127.0.0.1", port=options.port, log_level="warning")).run()


if __name__ == "__main__":
    main()
