"""A server of fastmcp behind a login at its own issuer, for the integration tests; the port is in the variable PORT.

The issuer keeps all in memory, lets everyone in at once, and rotates refresh tokens.
"""

import os

from fastmcp import FastMCP
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

PORT = int(os.environ["PORT"])
issuer = InMemoryOAuthProvider(
    base_url=f"http://127.0.0.1:{PORT}",
    client_registration_options=ClientRegistrationOptions(enabled=True),
    revocation_options=RevocationOptions(enabled=True),
)
server = FastMCP("behind-a-login", auth=issuer)


@server.tool
def greet(name: str) -> str:
    """Greets by name."""
    return f"Hello, {name}!"


server.run(transport="http", host="127.0.0.1", port=PORT)
