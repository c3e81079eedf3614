//! The tools, resources and prompts that the scenarios for servers name.
