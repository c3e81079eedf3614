"""A fastmcp server that takes the JWT access tokens of another authorization server (oidc-provider)."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from pydantic import AnyHttpUrl

port, issuer = int(sys.argv[1]), sys.argv[2]

verifier = JWTVerifier(
    jwks_uri=f"{issuer}/jwks",
    issuer=issuer,
    audience=f"http://127.0.0.1:{port}/mcp",
    required_scopes=["read"],
)
provider = RemoteAuthProvider(
    token_verifier=verifier,
    authorization_servers=[AnyHttpUrl(issuer)],
    base_url=f"http://127.0.0.1:{port}",
)
server = FastMCP("resource", auth=provider)


@server.tool
def add(a: int, b: int) -> int:
    return a + b


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
