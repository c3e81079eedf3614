"""The example authorization server of the Python SDK (`examples/servers/simple-auth`), as it is, except that its tokens live for the given number of seconds.

It gives no refresh tokens.
"""

import sys

part, port, seconds, examples = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
sys.path.insert(0, f"{examples}/servers/simple-auth")

from mcp_simple_auth import auth_server, server, simple_auth_provider  # noqa: E402

exchange = simple_auth_provider.SimpleOAuthProvider.exchange_authorization_code


async def shorter(self, client, code):
    token = await exchange(self, client, code)
    stored = self.tokens[token.access_token]
    lived = 3600 - seconds
    self.tokens[token.access_token] = stored.model_copy(update={"expires_at": stored.expires_at - lived})
    return token.model_copy(update={"expires_in": seconds})


simple_auth_provider.SimpleOAuthProvider.exchange_authorization_code = shorter

if part == "authorization":
    auth_server.main(["--port", port])
else:
    server.main(["--port", port, "--auth-server", sys.argv[5]])
