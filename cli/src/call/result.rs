//! Formats results of tools, completions, prompts and resources for a person. Each function returns `None` if JSON shows the result better.

use std::io::{IsTerminal, stdout};

use serde_json::Value;

use crate::output::single_line;

/// The texts in the result of a tool, with a newline after each.
pub(super) fn tool(result: &Value) -> Option<Vec<u8>> {
    let parts = result["content"].as_array()?.iter();
    let texts: Vec<_> = parts.filter_map(|part| part["text"].as_str()).collect();
    let text = texts.join("\n");
    (!text.is_empty()).then(|| format!("{text}\n").into_bytes())
}

/// The values of a completion, each in its own line.
pub(super) fn completion(result: &Value) -> Option<Vec<u8>> {
    let values = result["completion"]["values"].as_array()?.iter();
    let values = values.map(|value| value.as_str().map(|value| single_line(value) + "\n"));
    Some(values.collect::<Option<String>>()?.into_bytes())
}

/// The messages of a prompt, each with its role.
pub(super) fn prompt(result: &Value) -> Option<Vec<u8>> {
    let mut page = String::new();
    for message in result["messages"].as_array()? {
        let role = message["role"].as_str()?;
        let parts = match &message["content"] {
            Value::Array(parts) => parts.iter().collect(),
            part => vec![part],
        };
        for part in parts {
            let text = part["text"]
                .as_str()
                .or_else(|| part["resource"]["text"].as_str());
            let text = text.map_or_else(|| part.to_string(), str::to_owned);
            page.push_str(&format!("{role}: {text}\n"));
        }
    }
    Some(page.into_bytes())
}

/// The contents of a resource: its text or bytes, unchanged. A terminal gets a description instead of bytes, and a newline at the end.
pub(super) fn resource(result: &Value) -> Option<Vec<u8>> {
    let is_terminal = stdout().is_terminal();
    let contents = result["contents"].as_array()?;
    let mut page = Vec::new();
    for content in contents {
        let bytes = match (content["text"].as_str(), content["blob"].as_str()) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(blob)) => {
                let bytes = from_base64(blob)?;
                if is_terminal {
                    let kind = content["mimeType"].as_str().unwrap_or("binary data");
                    let (kind, len) = (single_line(kind), bytes.len());
                    format!("({kind}, {len} bytes; redirect the output to a file to get them)")
                        .into_bytes()
                } else {
                    bytes
                }
            }
            (None, None) => return None,
        };
        page.extend(bytes);
        let is_alone = contents.len() == 1 && !is_terminal;
        if !is_alone && !page.ends_with(b"\n") {
            page.push(b'\n');
        }
    }
    Some(page)
}

/// Decodes Base64 (RFC 4648, section 4). Skips line breaks.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let (mut bytes, mut bits, mut len) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        len += 6;
        if len >= 8 {
            len -= 8;
            bytes.push((bits >> len) as u8);
            bits &= (1 << len) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn base64_decodes_and_refuses_other_characters() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9v\nYmFy", b"foobar"),
            ("+/8A", b"\xfb\xff\x00"),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(from_base64("no-base64"), None);
    }

    #[test]
    fn prompt_messages_are_formatted_with_their_roles() {
        let result = json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": "Hello"}},
            {"role": "assistant", "content": {"type": "resource", "resource": {"uri": "x:", "text": "Hi"}}},
            {"role": "user", "content": {"type": "image", "data": "AA=="}},
        ]});
        let text = prompt(&result).expect("messages");
        let text = String::from_utf8(text).expect("UTF-8");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("user: Hello"));
        assert_eq!(lines.next(), Some("assistant: Hi"));
        assert!(lines.next().is_some_and(|line| line.contains(r#""image""#)));
    }

    #[test]
    fn result_without_text_is_not_formatted() {
        assert_eq!(tool(&json!({"content": []})), None);
        assert_eq!(prompt(&json!({})), None);
        assert_eq!(completion(&json!({"completion": {"values": [1]}})), None);
        assert_eq!(resource(&json!({"contents": [{"uri": "x:"}]})), None);
    }
}
