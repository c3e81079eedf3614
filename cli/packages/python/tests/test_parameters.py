"""`guarded`: parameters that start a server behind a guard."""

from __future__ import annotations

import os
import signal

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client as sdk_client
from support import Place, call, echo, pid_of_server, run, until

import everlink


def test_model_keeps_its_type_and_all_other_members(program: str) -> None:
    params = StdioServerParameters(command="npx", args=["-y", "server"], env={"A": "1"}, cwd="/tmp")
    guarded = everlink.guarded(params, guard_options=["--hang-timeout", "10"])
    assert type(guarded) is StdioServerParameters
    assert (guarded.command, guarded.args) == (program, ["guard", "--hang-timeout", "10", "--", "npx", "-y", "server"])
    assert (guarded.env, guarded.cwd) == ({"A": "1"}, "/tmp")
    assert (params.command, params.args) == ("npx", ["-y", "server"])
    assert everlink.guarded(guarded) == guarded


@pytest.mark.parametrize(
    ("words", "position"),
    [
        ("/opt/everlink-0.1 guard -- x", 1),
        ("C:\\tools\\Everlink.exe guard -- x", 1),
        ("uvx everlink guard -- x", 2),
        ("npx -y everlink@0.1.0 guard --drain 5 -- x", 3),
    ],
)
def test_guard_that_is_there_gets_options_however_it_is_started(words: str, position: int) -> None:
    command, *args = words.split(" ")
    guarded = everlink.guarded({"command": command, "args": args}, guard_options=["--hang-timeout", "10"])
    assert guarded == {"command": command, "args": [*args[:position], "--hang-timeout", "10", *args[position:]]}


@pytest.mark.parametrize("words", ["everlinked guard", "x -- everlink guard", "guard", "everlink call guard"])
def test_other_commands_are_no_guards(words: str, program: str) -> None:
    command, *args = words.split(" ")
    assert everlink.guarded({"command": command, "args": args}) == {"command": program, "args": ["guard", "--", *words.split(" ")]}


def test_guard_goes_behind_a_watchdog_that_must_be_a_child_of_the_host(program: str) -> None:
    """The watchdog of hermes-agent ends its server if its own parent is not the host."""
    args = ["/lib/tools/mcp_stdio_watchdog.py", "--ppid", "7", "--", "my-server", "--", "x"]
    guarded = everlink.guarded(StdioServerParameters(command="/usr/bin/python3", args=args))
    assert guarded.command == "/usr/bin/python3"
    assert guarded.args == [*args[:4], program, "guard", "--", "my-server", "--", "x"]


def test_dictionary_with_a_command(program: str) -> None:
    params = {"command": "my-server", "env": {"A": "1"}, "transport": "stdio"}
    guarded = everlink.guarded(params)
    assert guarded == {"command": program, "args": ["guard", "--", "my-server"], "env": {"A": "1"}, "transport": "stdio"}
    assert everlink.guarded(guarded) == guarded
    assert "args" not in params


def test_dictionary_with_a_url_becomes_a_command_with_its_headers_in_the_environment(program: str) -> None:
    params = {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x", "X-Key": 7}, "timeout": 5}
    assert everlink.guarded(params) == {
        "type": "stdio",
        "command": program,
        "args": ["guard", "--header-env", "EVERLINK_HEADER_1", "--header-env", "EVERLINK_HEADER_2", "--url", "https://example.com/mcp"],
        "env": {"EVERLINK_HEADER_1": "Authorization: Bearer x", "EVERLINK_HEADER_2": "X-Key: 7"},
        "timeout": 5,
    }
    assert "env" not in everlink.guarded({"url": "https://example.com/mcp"})


@pytest.mark.parametrize("headers", [{"a b": "1"}, {"": "1"}, {"A": "sesame\r\nB: 2"}, {"A": "sesame\n"}, {"A": "sesame\0"}])
def test_header_that_http_does_not_allow_is_refused_without_its_value(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError) as caught:
        everlink.guarded({"url": "https://example.com/mcp", "headers": headers})
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("params", [{"name": "x"}, {}])
def test_dictionary_without_a_server_is_refused(params: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="`command` or with `url`"):
        everlink.guarded(params)


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="not str"):
        everlink.guarded("my-server")


def test_transport_of_the_sdk_survives_with_guarded_parameters(place: Place, backend: str) -> None:
    async def main() -> None:
        async with sdk_client(everlink.guarded(place.server())) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            server = await pid_of_server(session)
            outcome: list[tuple[bool, str]] = []

            async def sleep() -> None:
                outcome.append(await call(session, "sleep", ms=60_000, number=1))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sleep)
                await until(lambda: place.runs(1) == 1, "the server has the call")
                os.kill(server, signal.SIGKILL)
            [(is_good, text)] = outcome
            assert not is_good and "SIGKILL" in text and "may have run" in text
            await echo(session)

    run(backend, main)
