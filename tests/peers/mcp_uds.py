"""An MCP server of the Python SDK on a unix socket, for the integration tests.

    mcp_uds.py SOCKET [--sse]

It speaks Streamable HTTP at /mcp, or with --sse the older HTTP+SSE at /sse. Its SDK looks at the
Host of every request and takes that of a loopback address with a port. Prints one line
`READY unix:SOCKET` when it listens.
"""

import argparse
import asyncio

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("uds")


@server.tool()
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def work(seconds: float, ctx: Context) -> str:
    """Works for a while, and says ten times a second that it does."""
    for tenth in range(int(seconds * 10)):
        await ctx.report_progress(tenth)
        await asyncio.sleep(0.1)
    return "worked"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--sse", action="store_true")
    options = parser.parse_args()
    app = server.sse_app() if options.sse else server.streamable_http_app()

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"READY unix:{options.socket}", flush=True)

    Server(uvicorn.Config(app, uds=options.socket, log_level="warning")).run()


if __name__ == "__main__":
    main()
