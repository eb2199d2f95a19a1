"""An A2A agent on agno, for the integration tests: an agent whose card names its address for streams
alone, and a workflow whose card does so and says that it does not stream.

The model of the agent says `you said: X` in pieces, or fails if X is `throw`.

Prints one line `READY http://127.0.0.1:PORT` when it listens; the agent is below /a2a/agents/test.
"""

import socket

import uvicorn
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS


class Echo(Model):
    def pieces(self, messages):
        text = messages[-1].get_content_string()
        if text == "throw":
            raise RuntimeError("the model fails")
        return [f"you said: {text}"[place : place + 4] for place in range(0, 10 + len(text), 4)]

    async def ainvoke_stream(self, messages, *args, **kwargs):
        for piece in self.pieces(messages):
            yield ModelResponse(role="assistant", content=piece)

    def invoke_stream(self, messages, *args, **kwargs):
        for piece in self.pieces(messages):
            yield ModelResponse(role="assistant", content=piece)

    async def ainvoke(self, messages, *args, **kwargs):
        return ModelResponse(role="assistant", content="".join(self.pieces(messages)))

    def invoke(self, messages, *args, **kwargs):
        return ModelResponse(role="assistant", content="".join(self.pieces(messages)))

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


def main():
    agent = Agent(id="test", name="Test agent", model=Echo(id="echo"), telemetry=False)
    app = AgentOS(agents=[agent], a2a_interface=True, telemetry=False).get_app()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"READY {base}", flush=True)

    Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
