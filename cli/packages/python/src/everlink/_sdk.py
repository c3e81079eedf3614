"""Hides what differs between the versions of the SDK `mcp`: the types of messages, and what its transports yield."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage


@dataclass(frozen=True)
class Sdk:
    """The installed version of the SDK."""

    major: int
    """1 or 2."""

    _session_message: Any
    _types: Any

    def decode(self, line: bytes) -> SessionMessage | Exception:
        """Parses a line of the guard. An error is a value, because the SDK takes it as an item of the stream."""
        try:
            if self.major == 1:
                message = self._types.JSONRPCMessage.model_validate_json(line)
            else:
                message = self._types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            return error
        decoded: SessionMessage = self._session_message(message)
        return decoded

    def encode(self, message: SessionMessage) -> bytes:
        """Formats a message of the host as a line."""
        # In 2.x, a member that was set to null on purpose must be sent. In 1.x, all unset members are null.
        text = (
            message.message.model_dump_json(by_alias=True, exclude_none=True)
            if self.major == 1
            else message.message.model_dump_json(by_alias=True, exclude_unset=True)
        )
        return text.encode() + b"\n"


def method_of(message: SessionMessage) -> str | None:
    """The method of a request or a notification. `None` for a response."""
    method: str | None = getattr(_inner(message), "method", None)
    return method


def id_of(message: SessionMessage) -> str | int | None:
    """The id of a request or a response. `None` for a notification."""
    id: str | int | None = getattr(_inner(message), "id", None)
    return id


def error_of(message: SessionMessage) -> str | None:
    """The text of an error response. `None` for any other message."""
    error = getattr(_inner(message), "error", None)
    return None if error is None else str(error.message)


def _inner(message: SessionMessage) -> object:
    # 1.x wraps each message in a model with the member `root`.
    return getattr(message.message, "root", message.message)


@lru_cache(maxsize=None)
def load_sdk() -> Sdk:
    """Imports the SDK.

    Raises:
        ImportError: It is not installed.
    """
    try:
        version = metadata.version("mcp")
        session_message = importlib.import_module("mcp.shared.message").SessionMessage
    except ImportError as error:
        raise ImportError("the clients of everlink need the MCP SDK: install it with `pip install mcp`") from error
    major = int(version.split(".")[0])
    types = importlib.import_module("mcp.types" if major == 1 else "mcp_types")
    return Sdk(major, session_message, types)
