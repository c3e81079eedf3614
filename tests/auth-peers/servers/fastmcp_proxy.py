"""A fastmcp server whose OAuth proxy asks for consent and sends people on to another authorization server (oidc-provider)."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.oauth_proxy import OAuthProxy
from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier
from key_value.aio.stores.memory import MemoryStore

port, issuer, seconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])

verifier = IntrospectionTokenVerifier(
    introspection_url=f"{issuer}/token/introspection",
    client_id="proxy",
    client_secret="proxy-secret",
    client_auth_method="client_secret_basic",
)
provider = OAuthProxy(
    upstream_authorization_endpoint=f"{issuer}/auth",
    upstream_token_endpoint=f"{issuer}/token",
    upstream_client_id="proxy",
    upstream_client_secret="proxy-secret",
    upstream_revocation_endpoint=f"{issuer}/token/revocation",
    token_verifier=verifier,
    base_url=f"http://127.0.0.1:{port}",
    valid_scopes=["openid", "offline_access"],
    forward_resource=False,
    extra_authorize_params={"prompt": "consent"},
    fastmcp_access_token_expiry_seconds=seconds,
    client_storage=MemoryStore(),
)
server = FastMCP("proxy", auth=provider)


@server.tool
def add(a: int, b: int) -> int:
    return a + b


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
