//! Lines of servers to be read, in three sizes. Reads none itself.

/// A short result: 200 bytes.
pub(crate) fn result_200() -> Vec<u8> {
    let text = "x".repeat(110);
    line(format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
    ))
}

/// A list of tools as large servers have it: 60 KB.
pub(crate) fn tools_60k() -> Vec<u8> {
    let tool = |number: usize| {
        format!(
            r#"{{"name":"tool_{number}","title":"Tool {number}","description":"Does what tool {number} does, and says \"done\" when it is.","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"Where to look"}},"depth":{{"type":"integer","minimum":0,"default":3}},"tags":{{"type":"array","items":{{"type":"string"}}}}}},"required":["path"]}},"annotations":{{"readOnlyHint":true}}}}"#
        )
    };
    let tools: Vec<String> = (0..163).map(tool).collect();
    let tools = tools.join(",");
    line(format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"tools":[{tools}]}}}}"#
    ))
}

/// A text of 1 MB with a line break, and so an escape, after every 62 bytes.
pub(crate) fn text_1m() -> Vec<u8> {
    let text = ["x".repeat(62), r"\n".into()].concat().repeat(16 << 10);
    line(format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    ))
}

fn line(message: String) -> Vec<u8> {
    (message + "\n").into_bytes()
}
