"""A fastmcp server with the in-memory OAuth provider of fastmcp. Access tokens live for the given number of seconds."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.providers import in_memory
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions

port, seconds = int(sys.argv[1]), int(sys.argv[2])
in_memory.DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS = seconds

provider = in_memory.InMemoryOAuthProvider(
    base_url=f"http://127.0.0.1:{port}",
    client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"]),
    revocation_options=RevocationOptions(enabled=True),
    required_scopes=["read"],
)
server = FastMCP("memory", auth=provider)


@server.tool
def add(a: int, b: int) -> int:
    return a + b


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
