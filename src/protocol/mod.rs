//! What MCP says.
