"""An A2A 1.0 agent on a2a-sdk 1.x, for the integration tests.

What it does is decided by the message:

    msg X     replies with the message X
    task X    completes a task whose artifact is X
    long N    works N * 0.1 s, then completes a task
    early N   like `long N`, but the reply comes at once and the task has to be asked for
    steps N   like `long N`, and says every 0.1 s that it works
    mute      says nothing, ever
    fail      fails the task
    input     asks "Which day?"; the next message X in that task completes it with "day: X"
    chunks    completes a task whose artifact comes in three pieces
    flood N   completes a task whose artifact comes in N pieces of 1 MiB
    file      completes a task with text, data and a file
    header X  replies with the header X of the request
    context   replies with the id of the conversation
    big N     replies with a message of N bytes
    throw     fails with an exception before there is a task
    break     fails with an exception in the middle of a task
    words     says its answer while it works, and completes the task without a word
    draft     asks about a text and a file that it has made
    remark    completes a task with a file and a closing remark
    half      fails a task after it has made something
    title     completes a task whose artifact has a title and a paragraph
    inline    completes a task with a file in a `data:` URL
    empty     completes a task without a word

Prints one line `READY http://127.0.0.1:PORT` when it listens, and then `MESSAGE VERB`, `TASK ID` and
`CANCELLED ID` as they happen; over gRPC also `CALL METHOD`.
"""

import argparse
import asyncio
import datetime
import ipaddress
import socket

import grpc
import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ClientCredentialsOAuthFlow,
    Message,
    OAuth2SecurityScheme,
    OAuthFlows,
    Part,
    Role,
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.applications import Starlette


def headers(state):
    if "grpc_context" in state:
        return dict(state["grpc_context"].invocation_metadata())
    return state.get("headers", {})


class Executor(AgentExecutor):
    async def execute(self, context, queue):
        if context.current_task:
            task = context.current_task
            updater = TaskUpdater(queue, task.id, task.context_id)
            await updater.add_artifact([Part(text=f"day: {context.get_user_input()}")])
            await updater.complete()
            return
        verb, _, rest = context.get_user_input().partition(" ")
        print(f"MESSAGE {verb}", flush=True)
        if verb == "mute":
            await asyncio.Event().wait()
        if verb == "header":
            rest = headers(context.call_context.state).get(rest, "none")
        if verb == "context":
            rest = context.context_id
        if verb == "big":
            rest = "x" * int(rest)
        if verb in ("msg", "header", "context", "big"):
            reply = Message(
                message_id="m1",
                context_id=context.context_id,
                role=Role.ROLE_AGENT,
                parts=[Part(text=rest)],
            )
            await queue.enqueue_event(reply)
            return
        if verb == "throw":
            raise RuntimeError("the executor fails")
        task = new_task_from_user_message(context.message)
        await queue.enqueue_event(task)
        print(f"TASK {task.id}", flush=True)
        updater = TaskUpdater(queue, task.id, task.context_id)
        say = lambda text: updater.new_agent_message([Part(text=text)])
        await updater.start_work()
        if verb in ("long", "early", "steps"):
            if verb == "steps":
                for _ in range(int(rest)):
                    await asyncio.sleep(0.1)
                    await updater.start_work()
            else:
                await asyncio.sleep(int(rest) * 0.1)
            await updater.add_artifact([Part(text=f"worked {rest}")])
            await updater.complete()
        elif verb == "break":
            raise RuntimeError("the executor fails")
        elif verb == "words":
            await updater.start_work(say("the answer is 42"))
            await updater.complete()
        elif verb == "draft":
            file = Part(raw=b"x", filename="a.csv", media_type="text/csv")
            await updater.add_artifact([Part(text="Dear all"), file])
            await updater.requires_input(say("Send it?"))
        elif verb == "remark":
            await updater.add_artifact([Part(raw=b"x", filename="a.csv", media_type="text/csv")])
            await updater.complete(say("Anything else?"))
        elif verb == "half":
            await updater.add_artifact([Part(text="letter 1 was sent, number 4711")])
            await updater.failed(say("no paper"))
        elif verb == "title":
            await updater.add_artifact([Part(text="Title"), Part(text="Paragraph one.")])
            await updater.complete()
        elif verb == "inline":
            url = "data:text/csv;base64,eA=="
            await updater.add_artifact([Part(url=url, filename="a.csv", media_type="text/csv")])
            await updater.complete()
        elif verb == "empty":
            await updater.complete()
        elif verb == "fail":
            await updater.failed(say("it went wrong"))
        elif verb == "input":
            await updater.requires_input(say("Which day?"))
        elif verb == "chunks":
            for place, piece in enumerate(["one ", "two ", "three"]):
                await updater.add_artifact(
                    [Part(text=piece)], artifact_id="a", append=place > 0, last_chunk=place == 2
                )
            await updater.complete()
        elif verb == "flood":
            for place in range(int(rest)):
                await updater.add_artifact(
                    [Part(text="x" * 2**20)], artifact_id="a", append=place > 0
                )
            await updater.complete()
        elif verb == "file":
            parts = [
                Part(text="see the report"),
                Part(data=ParseDict({"days": 12}, Value())),
                Part(raw=b"x" * 12345, filename="report.pdf", media_type="application/pdf"),
                Part(url="http://files.test/r.pdf", media_type="application/pdf"),
            ]
            await updater.add_artifact(parts)
            await updater.complete()
        else:
            await updater.add_artifact([Part(text=rest)])
            await updater.complete()

    async def cancel(self, context, queue):
        print(f"CANCELLED {context.task_id}", flush=True)
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


class Handler(DefaultRequestHandler):
    """Answers `early` at once, as agents do that ignore a client's wish to wait."""

    async def on_message_send(self, params, context):
        if params.message.parts and params.message.parts[0].text.startswith("early"):
            params.configuration.return_immediately = True
        return await super().on_message_send(params, context)


def credentials(roots):
    """A key and a certificate for 127.0.0.1; the one that issued it is written to the file `roots`."""
    now = datetime.datetime.now(datetime.timezone.utc)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("issuer", "agent")}

    def issue(name, extension):
        named = lambda name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("issuer"))
            .public_key(keys[name].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=False)
            .sign(keys["issuer"], hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    with open(roots, "wb") as file:
        file.write(issue("issuer", x509.BasicConstraints(ca=True, path_length=0)))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    key = keys["agent"].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificate = issue("agent", x509.SubjectAlternativeName([address]))
    return grpc.ssl_server_credentials([(key, certificate)])


async def serve_grpc(handler, wants_token, roots):
    """Starts a gRPC server on a port of its own, and returns both.

    One that wants tokens takes any but the first that it sees, which is held to have expired.
    """
    class Door(grpc.aio.ServerInterceptor):
        expired = None

        async def intercept_service(self, proceed, details):
            print(f"CALL {details.method.rsplit('/')[-1]}", flush=True)
            token = dict(details.invocation_metadata).get("authorization")
            self.expired = self.expired or token
            if wants_token and (token is None or token == self.expired):
                return grpc.unary_unary_rpc_method_handler(self.refuse)
            return await proceed(details)

        async def refuse(self, request, context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token has expired")

    server = grpc.aio.server(interceptors=[Door()])
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    if roots:
        port = server.add_secure_port("127.0.0.1:0", credentials(roots))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def main():
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--card", choices=["1.0", "0.3", "both"], default="1.0")
    options.add_argument("--bindings", default="jsonrpc,http+json", help="in the card's order; grpc is one, too")
    options.add_argument("--no-streaming", action="store_true")
    options.add_argument("--public", help="the address that the card names, if another stands before")
    options.add_argument("--token-url", help="where the card says that clients get their tokens")
    options.add_argument("--grpc-token", action="store_true", help="gRPC wants a token")
    options.add_argument("--grpc-tls", help="gRPC is on TLS; its root certificate goes to this file")
    options = options.parse_args()

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    own = f"http://127.0.0.1:{listener.getsockname()[1]}"
    base = options.public or own

    names = {
        "jsonrpc": ("JSONRPC", base + "/a2a/jsonrpc"),
        "http+json": ("HTTP+JSON", base + "/a2a/rest"),
        # As the clients of this SDK want it, without a scheme. The port follows.
        "grpc": ("GRPC", "https://127.0.0.1" if options.grpc_tls else "127.0.0.1"),
    }
    # With 0.3 on it, the card has 0.3's own fields, too, and the server takes both wires.
    versions = ["0.3", "1.0"] if options.card == "both" else [options.card]
    card = AgentCard(
        name="Test agent",
        description="Does what a test says.",
        version="1",
        supported_interfaces=[
            AgentInterface(
                protocol_binding=names[binding][0],
                url=names[binding][1],
                protocol_version=version,
            )
            for binding in options.bindings.split(",")
            for version in versions
        ],
        capabilities=AgentCapabilities(streaming=not options.no_streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="test", name="Test", description="Tests.", tags=["test"])],
    )
    if options.token_url:
        flow = ClientCredentialsOAuthFlow(token_url=options.token_url)
        scheme = OAuth2SecurityScheme(flows=OAuthFlows(client_credentials=flow))
        card.security_schemes["oauth"].oauth2_security_scheme.CopyFrom(scheme)
    compat = "0.3" in versions
    handler = Handler(Executor(), InMemoryTaskStore(), card)
    if "grpc" in options.bindings:
        # It lives as long as there is a name for it.
        _server, port = await serve_grpc(handler, options.grpc_token, options.grpc_tls)
        for interface in card.supported_interfaces:
            if interface.protocol_binding == "GRPC":
                interface.url += f":{port}"
    app = Starlette(
        routes=create_agent_card_routes(card)
        + create_jsonrpc_routes(handler, "/a2a/jsonrpc", enable_v0_3_compat=compat)
        + create_rest_routes(handler, enable_v0_3_compat=compat, path_prefix="/a2a/rest")
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"READY {own}", flush=True)

    await Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
