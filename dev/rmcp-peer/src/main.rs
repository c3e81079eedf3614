//! A host and a server on rmcp for `cargo xtask transparent`. For other libraries, `tests/transparency` has scripts.
//!
//! ```text
//! rmcp-peer host WHOLE|QUICK ERA stdio COMMAND...
//! rmcp-peer host WHOLE|QUICK ERA http URL
//! rmcp-peer server stdio
//! rmcp-peer server http PORT
//! ```

mod host;
mod server;

use std::path::Path;

use serde_json::Value;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be built");
    match arguments.as_slice() {
        ["host", size, era, transport, target @ ..] => {
            runtime.block_on(host::run(*size == "WHOLE", era, transport, target));
        }
        ["server", "stdio"] => runtime.block_on(server::serve_stdio()),
        ["server", "http", port] => runtime.block_on(server::serve_http(port)),
        _ => panic!("say `host` or `server`, and how"),
    }
}

/// Reads a file of `tests/transparency`.
fn json_file(name: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("tests/transparency").join(name));
    // Replaces two values that serde_json cannot hold.
    let text = text.expect("the file is there");
    let text = text.replace("1e400", "null").replace("\\ud800", "?");
    serde_json::from_str(&text).expect("it is JSON")
}
