"""Starts the servers that nobody of this project wrote."""

import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from common import HERE, Everlink, Server, free_port

SERVERS = HERE / "servers"


@dataclass
class Place:
    """A server with its authorization server."""

    url: str
    issuer: Server | None = None
    # A tool and its arguments, and a part of its answer.
    call: tuple = ("add", "a=2", "b=3")
    answer: str = "5"
    servers: list = field(default_factory=list)

    def everlink(self, setup: dict, directory: Path, options: list[str] = ()) -> Everlink:
        return Everlink(setup["everlink"], directory, self.url, options)


@contextlib.contextmanager
def started(place: Place):
    try:
        yield place
    finally:
        for server in place.servers:
            server.stop()


def python(name: str, *words) -> list[str]:
    return [sys.executable, SERVERS / name, *words]


def memory(setup: dict, directory: Path, seconds: int):
    """fastmcp with its in-memory provider."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    server = Server(python("fastmcp_memory.py", port, seconds), url, directory)
    return started(Place(url, server, servers=[server]))


def oidc(setup: dict, directory: Path, seconds: int, resources: list[str], env: dict | None = None, port: int | None = None) -> Server:
    """oidc-provider, as the authorization server of others."""
    port = port or free_port()
    issuer = f"http://127.0.0.1:{port}"
    command = ["node", SERVERS / "oidc.mjs", setup["node_modules"], port, seconds, *resources]
    server = Server(command, f"{issuer}/jwks", directory, env)
    server.issuer = issuer
    return server


def with_oidc(setup: dict, directory: Path, seconds: int, env: dict | None = None):
    """A fastmcp server that takes the tokens of oidc-provider."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    issuer = oidc(setup, directory, seconds, [url], env)
    server = Server(python("resource.py", port, issuer.issuer), url, directory)
    return started(Place(url, issuer, servers=[server, issuer]))


def proxy(setup: dict, directory: Path, seconds: int):
    """fastmcp's OAuth proxy in front of oidc-provider."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    issuer = oidc(setup, directory, 3600, [url])
    server = Server(python("fastmcp_proxy.py", port, issuer.issuer, seconds), url, directory)
    return started(Place(url, issuer, servers=[server, issuer]))


def sdk_example(setup: dict, directory: Path, seconds: int):
    """The example of the Python SDK: an authorization server and a server."""
    port, issuer_port = free_port(), free_port()
    url, issuer = f"http://localhost:{port}/mcp", f"http://localhost:{issuer_port}"
    examples = setup["examples"]
    authorization = Server(
        python("sdk_example.py", "authorization", issuer_port, seconds, examples),
        f"{issuer}/.well-known/oauth-authorization-server",
        directory,
    )
    server = Server(python("sdk_example.py", "server", port, seconds, examples, issuer), url, directory)
    return started(Place(url, authorization, ("get_time",), "current_time", [server, authorization]))
