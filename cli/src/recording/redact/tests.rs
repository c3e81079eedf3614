//! Tests what is redacted and what is not, and that a machine handles both in the same way.

use serde_json::Value;

use super::*;

/// A random number generator with a fixed seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn text(&mut self) -> String {
        let parts = [
            "a",
            "Z",
            "7",
            " ",
            "tools",
            "é",
            "π",
            "अ",
            "한",
            "🧞",
            "\u{feff}",
            r"\n",
            r#"\""#,
            r"\\",
            r"\/",
            r"\u00e9",
            r"\u000a",
            r"\u0041",
            r"\uD83E\uDDDE",
            r"\u30c4",
            "/",
            "{",
            "]",
            ",",
            ":",
            "-",
            "e",
        ];
        let len = self.below(8);
        (0..len).map(|_| self.one_of(&parts)).collect()
    }

    fn json(&mut self, depth: usize) -> String {
        let space = self.one_of(&["", "", "", " ", "\t", "\r "]);
        let kind = self.below(if depth > 5 { 3 } else { 5 });
        let len = self.below(4);
        let value = match kind {
            0 => self.one_of(&["true", "false", "null"]).to_owned(),
            1 => {
                let numbers = [
                    "0",
                    "-0",
                    "10",
                    "-1.50e+09",
                    "1e400",
                    "0.0",
                    "12345678901234567890",
                ];
                self.one_of(&numbers).to_owned()
            }
            2 => format!("\"{}\"", self.text()),
            3 => {
                let items: Vec<_> = (0..len).map(|_| self.json(depth + 1)).collect();
                format!("[{}]", items.join(","))
            }
            _ => {
                let members = (0..len).map(|_| {
                    let protocol_names = [
                        "params",
                        "result",
                        "arguments",
                        "requestState",
                        "_meta",
                        "method",
                        "tools",
                    ];
                    let is_protocol_name = self.below(2) == 0;
                    let name = if is_protocol_name {
                        self.one_of(&protocol_names).to_owned()
                    } else {
                        self.text()
                    };
                    format!("\"{name}\"{space}:{}", self.json(depth + 1))
                });
                let members: Vec<_> = members.collect();
                format!("{{{}}}", members.join(","))
            }
        };
        format!("{space}{value}{space}")
    }
}

fn masked(cipher: &Cipher, bytes: &[u8]) -> Vec<u8> {
    let (mut mask, mut out) = (Mask::new(cipher), Vec::new());
    bytes
        .iter()
        .for_each(|byte| mask.push_byte(*byte, &mut out));
    mask.end(&mut out);
    out
}

/// Returns the JSON without the content of texts, numbers and literals.
fn shape(json: &str) -> String {
    let mut shape = String::new();
    let (mut is_text, mut is_escaped) = (false, false);
    for character in json.chars() {
        match character {
            '"' if !is_escaped => is_text = !is_text,
            '{' | '}' | '[' | ']' | ',' | ':' if !is_text => {}
            _ => {
                is_escaped = character == '\\' && !is_escaped;
                continue;
            }
        }
        shape.push(character);
    }
    shape
}

#[test]
fn masked_json_is_valid_json_of_the_same_length_and_shape() {
    let (cipher, mut rng) = (Cipher::new(), Rng(42));
    for _ in 0..3_000 {
        let json = rng.json(0);
        let other = masked(&cipher, json.as_bytes());
        assert_eq!(other.len(), json.len());
        let other = String::from_utf8(other).unwrap_or_else(|_| panic!("{json}"));
        assert_eq!(shape(&other), shape(&json), "{json}\n{other}");
        // Both must be valid. Only a strict reader refuses a number out of range, or half of a surrogate pair.
        let reads =
            |text: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(text).is_ok();
        assert!(reads(&json), "{json}");
        assert!(reads(&other), "{json}\n{other}");
        let strict = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        if !json.contains("1e400") && strict(&json) {
            // An exponent may have become too large.
            assert!(strict(&other) || other.contains("e+"), "{json}\n{other}");
        }
    }
}

#[test]
fn masked_invalid_json_is_still_invalid_and_has_the_same_length() {
    let cipher = Cipher::new();
    let broken: &[&[u8]] = &[
        b"plain words",
        b"",
        b"{",
        b"[1,]",
        b"{\"a\" 1}",
        b"nul",
        b"truex",
        b"falsee",
        b"-",
        b"1.",
        b"1e",
        b"+1",
        b"[\"a tab \t is here\"]",
        b"[\"\\x\"]",
        b"[\"\\u12G4\"]",
        b"[\"\\u12\"]",
        b"[\"\xe9t\xe9\"]",
        b"[\"\xff\"]",
        b"[\"\xc3\"]",
        b"[\"\xed\xa0\x80\"]",
        b"[\"\xf4\x90\x80\x80\"]",
        b"[\"\xe0\x80\x80\"]",
        b"'a'",
        b"{a:1}",
        b"[1 2]",
        b"NaN",
        b"\"half",
        b"[\"\\",
    ];
    for json in broken {
        let other = masked(&cipher, json);
        assert_eq!(other.len(), json.len());
        let reads =
            |bytes| serde_json::from_slice::<Box<serde_json::value::RawValue>>(bytes).is_ok();
        let (json, text) = (*json, String::from_utf8_lossy(&other));
        assert!(!reads(json), "{}", json.escape_ascii());
        assert!(!reads(&other), "{} became {text}", json.escape_ascii());
    }
}

#[test]
fn different_linked_texts_get_different_replacements() {
    let cipher = Cipher::new();
    let names = (0..1_000).map(|number| format!("tool {number}"));
    let letters = ('a'..='z').chain('A'..='Z').map(String::from);
    let texts: Vec<_> = names.chain(letters).collect();
    let mut others: Vec<_> = texts.iter().map(|text| cipher.linked(text)).collect();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), texts.len());
}

#[test]
fn linked_value_has_the_same_replacement_in_a_header_field_and_in_a_message() {
    let cipher = Cipher::new();
    let name_in_message = |value: &str| {
        let json = format!(r#"{{"params":{{"name":{value}}}}}"#);
        let other = masked(&cipher, json.as_bytes());
        let other: Value = serde_json::from_slice(&other).expect("valid JSON");
        other["params"]["name"].clone()
    };
    for number in ["7", "-12", "1990", "0", "1.5"] {
        let field = cipher.linked(number);
        assert_eq!(name_in_message(number).to_string(), field);
        assert_eq!(name_in_message(&format!("\"{number}\"")), field);
    }
    for text in [r#"a "b" \ c/d é"#, "file:///a/b", "x"] {
        let quoted = serde_json::to_string(text).expect("valid JSON");
        assert_eq!(name_in_message(&quoted), cipher.linked(text));
        assert_eq!(
            name_in_message(&quoted.replace('/', "\\/")),
            cipher.linked(text)
        );
    }
}

#[test]
fn replacement_of_an_unknown_name_is_no_protocol_name() {
    for _ in 0..200 {
        let other = masked(&Cipher::new(), br#"{"toolx":{"methoe":"sesame"}}"#);
        let other = String::from_utf8(other).expect("valid UTF-8");
        assert!(
            !other.contains("\"tools\"") && !other.contains("\"method\""),
            "{other}"
        );
    }
}

#[test]
fn other_texts_are_hidden_where_protocol_texts_are_shown() {
    let cipher = Cipher::new();
    for json in [
        r#"{"jsonrpc":"2.0","id":"sesame","params":{"level":"sesame","progress":"sesame","_meta":{"progressToken":"sesame"}}}"#,
        r#"{"result":{"resultType":["sesame",{"sesame":"sesame"}],"protocolVersion":"2025-sesame","ttlMs":"sesame"}}"#,
        r#"{"result":{"tools":[{"inputSchema":{"properties":{"type":{"description":"sesame","sesame":["sesame"]}}}}]}}"#,
        r#"{"error":{"code":"sesame","data":{"supported":["sesame"],"requested":{"sesame":1}}}}"#,
    ] {
        let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("valid UTF-8");
        assert!(!other.contains("sesame"), "{other}");
    }
    let shown = r#"{"jsonrpc":"2.0","id":17,"result":{"resultType":"input_required","isError":true,"protocolVersion":"2025-11-25","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":false}},"tools":[{"inputSchema":{"type":["object","null"],"properties":{"type":{"type":"string","x-mcp-header":null}}}}]}}"#;
    assert_eq!(masked(&cipher, shown.as_bytes()), shown.as_bytes());
    // A link accepts an id that is the text of a number.
    let shown = r#"{"jsonrpc":"2.0","id":"17"}"#;
    assert_eq!(masked(&cipher, shown.as_bytes()), shown.as_bytes());
}

#[test]
fn signed_state_is_shown_without_its_proof_and_foreign_states_are_hidden() {
    let cipher = Cipher::new();
    let state = "everlink.2a.1.0123456789abcdef";
    let json = format!(r#"{{"params":{{"requestState":"{state}","name":"everlink.2"}}}}"#);
    let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("valid UTF-8");
    assert!(other.contains(r#""everlink.2a.1."#), "{other}");
    assert!(
        !other.contains("0123456789abcdef") && !other.contains(r#""everlink.2""#),
        "{other}"
    );
    for foreign in [
        "open sesame",
        "everlink",
        "sesame.everlink.2a.1.",
        "everlink.open sesame",
    ] {
        let json = format!(r#"{{"params":{{"requestState":"{foreign}"}}}}"#);
        let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("valid UTF-8");
        assert!(!other.contains("sesame"), "{other}");
    }
}

fn masked_events(cipher: &Cipher, hides: bool, stream: &str) -> String {
    let mut mask = EventMask::new(cipher, &"http://shop:80".into(), hides);
    let mut out = Vec::new();
    stream
        .bytes()
        .for_each(|byte| mask.push_byte(byte, &mut out));
    mask.flush_partial(&mut out);
    let other = String::from_utf8(out).expect("valid UTF-8");
    assert_eq!(other.len(), stream.len());
    other
}

#[test]
fn address_in_an_endpoint_event_is_hidden_except_for_the_known_origin() {
    let cipher = Cipher::new();
    for hides in [false, true] {
        for (stream, shown) in [
            (
                "event: endpoint\ndata: /sesame?session=sesame\n\n",
                "data: /",
            ),
            (
                "data: /sesame?session=sesame\nevent: endpoint\n\n",
                "data: /",
            ),
            (
                "event:endpoint\r\ndata:sesame/sesame\r\n\r\n",
                "endpoint\r\ndata:",
            ),
            ("data: ../sesame\revent: endpoint\r\r", "data: ../"),
            (
                "event: endpoint\ndata: http://shop:80/sesame\n\n",
                "data: http://shop:80/",
            ),
            (
                "event: endpoint\ndata: http://sesame:sesame@shop:80/\n\n",
                "data: http://",
            ),
            (
                "\u{feff}event: endpoint\ndata: ?sesame\n\n",
                "\u{feff}event: endpoint\ndata: ?",
            ),
        ] {
            let other = masked_events(&cipher, hides, stream);
            assert!(!other.contains("sesame"), "{other}");
            assert!(other.contains(shown), "{other}");
        }
    }
}

#[test]
fn event_stream_is_unchanged_without_redaction_and_hides_texts_with_it() {
    let cipher = Cipher::new();
    let stream = "retry: 10\n: a sesame\nid: sesame\ndata: {\"id\": 1,\ndata: \"sesame\": \"a sesame\"}\n\nevent: sesame\nsesame: 1\nsesame\n\n";
    assert_eq!(masked_events(&cipher, false, stream), stream);
    let other = masked_events(&cipher, true, stream);
    assert!(!other.contains("sesame"), "{other}");
    assert!(
        other.starts_with("retry: 10\n:") && other.contains("data: {\"id\": 1,\ndata: \""),
        "{other}"
    );
}

/// Fixed keys, so that each run gives the same result.
fn cipher(number: u64) -> Cipher {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    Cipher::with_key(key)
}

/// Messages with a secret in every place for a text, and no other text that begins like the secret.
fn messages(secret: &str) -> Vec<String> {
    let s = secret;
    vec![
        format!(
            r#"{{"jsonrpc":"2.0","id":"{s}","method":"{s}","params":{{"{s}":"{s}","name":"{s}","uri":"{s}","cursor":"{s}"}}}}"#
        ),
        format!(
            r#"{{"id":1,"method":"tools/call","params":{{"name":"{s}","arguments":{{"{s}":["{s}",{{"{s}":"{s}"}}]}},"_meta":{{"{s}":"{s}","progressToken":"{s}"}}}}}}"#
        ),
        format!(
            r#"{{"id":1,"result":{{"tools":[{{"name":"{s}","description":"{s}","inputSchema":{{"type":"{s}","properties":{{"{s}":{{"type":"{s}","x-mcp-header":"{s}"}}}}}}}}],"nextCursor":"{s}"}}}}"#
        ),
        format!(
            r#"{{"id":1,"result":{{"protocolVersion":"{s}","capabilities":{{"experimental":{{"{s}":{{"{s}":"{s}"}}}}}},"serverInfo":{{"name":"{s}","{s}":"{s}"}},"instructions":"{s}"}}}}"#
        ),
        format!(
            r#"{{"id":1,"result":{{"resultType":"{s}","inputRequests":{{"{s}":{{"method":"{s}","params":{{"message":"{s}"}}}}}},"requestState":"{s}"}}}}"#
        ),
        format!(
            r#"{{"id":1,"error":{{"code":-1,"message":"{s}","data":{{"{s}":"{s}","supported":["{s}"]}}}}}}"#
        ),
        format!(
            r#"{{"method":"notifications/message","params":{{"level":"{s}","logger":"{s}","data":"{s}"}}}}"#
        ),
        format!(r#"{s} is no JSON {{"{s}" {s}}}"#),
    ]
}

fn redact_everywhere(cipher: &Cipher, secret: &str) -> String {
    let mut output = String::new();
    for message in messages(secret) {
        let other = masked(cipher, message.as_bytes());
        output += &String::from_utf8(other).expect("valid UTF-8");
        let stream = format!(
            "event: {secret}\nid: {secret}\n{secret}: {secret}\n: {secret}\ndata: {message}\n\n"
        );
        output += &masked_events(cipher, true, &stream);
    }
    let lines = cipher.lines(format!("{secret}\nand {secret}\n").as_bytes());
    output += &String::from_utf8(lines).expect("valid UTF-8");
    output + &cipher.text(secret) + &cipher.linked(secret)
}

/// Texts that begin like words of the protocol, like each other, and like texts that are shown.
const SECRETS: [&str; 8] = [
    "toolsSecret",
    "messageKey1",
    "nameOfAgent",
    "paramsHide2",
    "everlinkKey",
    "methodTrick",
    "2025-11-SEC",
    "resourcesQ3",
];

#[test]
fn redacted_output_contains_no_beginning_or_end_of_a_secret_of_4_bytes_or_more() {
    for (number, secret) in SECRETS.into_iter().enumerate() {
        let output = redact_everywhere(&cipher(number as u64), secret);
        // The text around the secret is shown with or without it.
        let without = messages("").concat() + "event: id: data: ";
        for len in 4..=secret.len() {
            for start in [0, secret.len() - len] {
                let part = &secret[start..start + len];
                let is_leaked = output.contains(part) && !without.contains(part);
                assert!(!is_leaked, "{secret}: {part}: {output}");
            }
        }
    }
}

/// Two secrets of the same length and kind cannot be told apart by their replacements: each byte of the replacements has the same distribution.
#[test]
fn replacements_of_two_secrets_of_the_same_form_have_the_same_distribution() {
    const RUNS: u64 = 3_000;
    let counts = |secret: &str, linked: bool| {
        let mut counts = vec![[0_u64; 256]; secret.len()];
        for number in 0..RUNS {
            let cipher = cipher(number);
            let other = if linked {
                cipher.linked(secret)
            } else {
                cipher.text(secret)
            };
            for (count, byte) in counts.iter_mut().zip(other.bytes()) {
                count[usize::from(byte)] += 1;
            }
        }
        counts
    };
    for linked in [false, true] {
        let (one, other) = (counts("openSesame7", linked), counts("aaaaaaaaaa1", linked));
        for (at, (one, other)) in one.iter().zip(&other).enumerate() {
            // The sum of (a - b)^2 / (a + b) over all bytes is about the number of possible bytes: 52.
            let distance: f64 = one
                .iter()
                .zip(other)
                .filter(|(a, b)| **a + **b > 0)
                .map(|(a, b)| (*a as f64 - *b as f64).powi(2) / (*a + *b) as f64)
                .sum();
            assert!(distance < 110.0, "byte {at}, linked: {linked}: {distance}");
        }
    }
}

/// Lists what a reader of a recording can still learn. An addition to this test belongs into the docs of the module, too.
#[test]
fn linked_texts_names_and_lengths_are_all_that_a_redacted_message_reveals() {
    let cipher = cipher(1);
    let read = |json: &str| -> Value {
        serde_json::from_slice(&masked(&cipher, json.as_bytes())).expect("valid JSON")
    };
    // Equal texts stay equal only where a machine compares them.
    let content_of = |text: &str| {
        read(&format!(
            r#"{{"result":{{"content":[{{"text":"{text}"}},{{"text":"{text}"}}]}}}}"#
        ))
    };
    let content = &content_of("open sesame")["result"]["content"];
    assert_ne!(content[0]["text"], content[1]["text"]);
    assert_ne!(content_of("open sesame"), content_of("open sesame"));
    let assert_linked = |json: &str| assert_eq!(read(json), read(json), "{json}");
    assert_linked(
        r#"{"id":"sesame","method":"x/sesame","params":{"name":"sesame","uri":"a://sesame/b","cursor":"sesame"}}"#,
    );
    assert_linked(
        r#"{"params":{"taskId":"sesame","requestId":"sesame","progressToken":"sesame","clientInfo":{"sesame":"sesame"}}}"#,
    );
    assert_linked(
        r#"{"result":{"tools":[{"name":"sesame","sesame":{"sesame":7}}],"nextCursor":"sesame","instructions":"sesame"}}"#,
    );
    assert_linked(
        r#"{"result":{"capabilities":{"experimental":{"sesame":{"sesame":"sesame"}}},"serverInfo":{"name":"sesame"}}}"#,
    );
    let names = |json: &str| -> Vec<String> {
        let params = &read(json)["params"];
        let object = params.as_object().and_then(|params| params.values().next());
        let names = object.and_then(Value::as_object).into_iter().flatten();
        names.map(|(name, _)| name.clone()).collect()
    };
    for linked in ["arguments", "inputResponses"] {
        let json = format!(r#"{{"params":{{"{linked}":{{"sesame":"x"}}}}}}"#);
        assert_eq!(names(&json), names(&json), "{linked}");
    }
    // Other names stay different within one object. In another object, the same name gets another replacement.
    let json = r#"{"params":{"sesame":{"a":1,"b":1,"c":1,"d":1}}}"#;
    assert_eq!(names(json).len(), 4);
    assert_ne!(
        names(r#"{"params":{"x":{"open sesame":1}}}"#),
        names(r#"{"params":{"x":{"open sesame":1}}}"#)
    );
    // Two linked texts show their common parts before a slash, and nothing else.
    let [one, other] =
        ["file:///home/ali/one", "file:///home/ali/two"].map(|uri| cipher.linked(uri));
    assert_eq!(
        one.rsplit_once('/').map(|(before, _)| before),
        other.rsplit_once('/').map(|(before, _)| before)
    );
    let [one, other] = ["tool_for_ali", "tool_for_bob"].map(|name| cipher.linked(name));
    assert_ne!(one[..4], other[..4]);
    // Lengths and kinds of bytes stay.
    assert_eq!(
        cipher
            .text("Ab1/é \"")
            .chars()
            .map(char::len_utf8)
            .collect::<Vec<_>>(),
        [1, 1, 1, 1, 2, 1, 1]
    );
}

/// The replacement is the same for any division into pieces, and is never longer than the input so far.
#[test]
fn mask_output_is_the_same_with_a_new_buffer_for_each_byte() {
    for message in messages("toolsSecret") {
        let (whole, mut parts) = (masked(&cipher(3), message.as_bytes()), Vec::new());
        let cipher = cipher(3);
        let mut mask = Mask::new(&cipher);
        for byte in message.bytes() {
            let mut out = Vec::new();
            mask.push_byte(byte, &mut out);
            parts.extend(out);
            assert!(parts.len() <= message.len());
        }
        mask.end(&mut parts);
        assert_eq!(whole, parts);
    }
}
