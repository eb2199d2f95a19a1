"""An A2A agent on google-adk, for the integration tests. It says `you said: X`, or fails if X is
`throw`; `long N` takes N * 0.1 s before.

Prints one line `READY http://127.0.0.1:PORT` when it listens.
"""

import asyncio
import socket
import warnings

import uvicorn

warnings.simplefilter("ignore")

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types


class Echo(BaseAgent):
    async def _run_async_impl(self, context):
        text = "".join(part.text or "" for part in context.user_content.parts)
        verb, _, rest = text.partition(" ")
        if verb == "throw":
            raise RuntimeError("the agent fails")
        if verb == "long":
            await asyncio.sleep(int(rest) * 0.1)
        content = types.Content(role="model", parts=[types.Part(text=f"you said: {text}")])
        yield Event(author=self.name, invocation_id=context.invocation_id, content=content)


def main():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    app = to_a2a(Echo(name="echo", description="Echoes."), host="127.0.0.1", port=port)

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"READY {base}", flush=True)

    Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
