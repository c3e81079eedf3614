//! A host and a server on rmcp, for `cargo xtask transparent`: what `tests/transparency` has as scripts for other libraries.
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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be built");
    match words.as_slice() {
        ["host", size, era, transport, target @ ..] => {
            runtime.block_on(host::run(*size == "WHOLE", era, transport, target));
        }
        ["server", "stdio"] => runtime.block_on(server::on_stdio()),
        ["server", "http", port] => runtime.block_on(server::over_http(port)),
        _ => panic!("say `host` or `server`, and how"),
    }
}

/// A file of `tests/transparency`.
fn json_file(name: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("tests/transparency").join(name));
    // Two values that serde_json cannot hold.
    let text = text.expect("the file is there");
    let text = text.replace("1e400", "null").replace("\\ud800", "?");
    serde_json::from_str(&text).expect("it is JSON")
}
