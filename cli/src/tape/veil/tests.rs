//! What is hidden, what is not, and that a machine reads the one like the other.

use serde_json::Value;

use super::*;

/// Chance that is the same each time.
struct Dice(u64);

impl Dice {
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
                    let words = [
                        "params",
                        "result",
                        "arguments",
                        "requestState",
                        "_meta",
                        "method",
                        "tools",
                    ];
                    let is_word = self.below(2) == 0;
                    let name = if is_word {
                        self.one_of(&words).to_owned()
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
    let mut mask = Mask::new(cipher);
    bytes.iter().map(|byte| mask.byte(*byte)).collect()
}

/// The same JSON, but for what is said in it.
fn shape(json: &str) -> String {
    let mut shape = String::new();
    let (mut is_text, mut is_escaped) = (false, false);
    for letter in json.chars() {
        match letter {
            '"' if !is_escaped => is_text = !is_text,
            '{' | '}' | '[' | ']' | ',' | ':' if !is_text => {}
            _ => {
                is_escaped = letter == '\\' && !is_escaped;
                continue;
            }
        }
        shape.push(letter);
    }
    shape
}

#[test]
fn masked_json_is_json_of_the_same_length_and_shape() {
    let (cipher, mut dice) = (Cipher::new(), Dice(42));
    for _ in 0..3_000 {
        let json = dice.json(0);
        let other = masked(&cipher, json.as_bytes());
        assert_eq!(other.len(), json.len());
        let other = String::from_utf8(other).unwrap_or_else(|_| panic!("{json}"));
        assert_eq!(shape(&other), shape(&json), "{json}\n{other}");
        // Both are read alike: a number of any size, and a half of a pair, may be refused.
        let reads =
            |text: &str| serde_json::from_str::<Box<serde_json::value::RawValue>>(text).is_ok();
        assert!(reads(&json), "{json}");
        assert!(reads(&other), "{json}\n{other}");
        let strict = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        if !json.contains("1e400") && strict(&json) {
            // What became an exponent may have become too large.
            assert!(strict(&other) || other.contains("e+"), "{json}\n{other}");
        }
    }
}

#[test]
fn what_is_broken_stays_broken() {
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
        let (json, words) = (*json, String::from_utf8_lossy(&other));
        assert!(!reads(json), "{}", json.escape_ascii());
        assert!(!reads(&other), "{} became {words}", json.escape_ascii());
    }
}

#[test]
fn no_two_texts_become_one() {
    let cipher = Cipher::new();
    let names = (0..1_000).map(|number| format!("tool {number}"));
    let letters = ('a'..='z').chain('A'..='Z').map(String::from);
    let texts: Vec<_> = names.chain(letters).collect();
    let mut others: Vec<_> = texts.iter().map(|text| cipher.text(text)).collect();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), texts.len());
}

#[test]
fn a_number_is_masked_alike_in_a_field_and_in_a_message() {
    let cipher = Cipher::new();
    for number in ["7", "-12", "1990"] {
        let field = cipher.text(number);
        assert_eq!(masked(&cipher, number.as_bytes()), field.as_bytes());
        let text = masked(&cipher, format!("\"{number}\"").as_bytes());
        assert_eq!(text, format!("\"{field}\"").as_bytes());
    }
    let text = r#"a "b" \ c/d é"#;
    let quoted = serde_json::to_string(text).expect("it is JSON");
    let other: String =
        serde_json::from_slice(&masked(&cipher, quoted.as_bytes())).expect("it is JSON");
    assert_eq!(other, cipher.text(text));
}

#[test]
fn a_name_that_is_no_word_becomes_none() {
    for _ in 0..200 {
        let other = masked(&Cipher::new(), br#"{"toolx":{"methoe":"sesame"}}"#);
        let other = String::from_utf8(other).expect("it is text");
        assert!(
            !other.contains("\"tools\"") && !other.contains("\"method\""),
            "{other}"
        );
    }
}

#[test]
fn where_words_are_shown_nothing_else_is() {
    let cipher = Cipher::new();
    for json in [
        r#"{"jsonrpc":"2.0","id":"sesame","params":{"level":"sesame","progress":"sesame","_meta":{"progressToken":"sesame"}}}"#,
        r#"{"result":{"resultType":["sesame",{"sesame":"sesame"}],"protocolVersion":"2025-sesame","ttlMs":"sesame"}}"#,
        r#"{"result":{"tools":[{"inputSchema":{"properties":{"type":{"description":"sesame","sesame":["sesame"]}}}}]}}"#,
        r#"{"error":{"code":"sesame","data":{"supported":["sesame"],"requested":{"sesame":1}}}}"#,
    ] {
        let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("it is text");
        assert!(!other.contains("sesame"), "{other}");
    }
    let shown = r#"{"jsonrpc":"2.0","id":17,"result":{"resultType":"input_required","isError":true,"protocolVersion":"2025-11-25","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":false}},"tools":[{"inputSchema":{"type":["object","null"],"properties":{"type":{"type":"string","x-mcp-header":"Kind"}}}}]}}"#;
    assert_eq!(masked(&cipher, shown.as_bytes()), shown.as_bytes());
}

#[test]
fn of_a_sealed_state_only_the_proof_is_hidden() {
    let cipher = Cipher::new();
    let state = "everlink.2a.1.0123456789abcdef";
    let json = format!(r#"{{"params":{{"requestState":"{state}","name":"everlink.2"}}}}"#);
    let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("it is text");
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
        let other = String::from_utf8(masked(&cipher, json.as_bytes())).expect("it is text");
        assert!(!other.contains("sesame"), "{other}");
    }
}

fn events(cipher: &Cipher, hides: bool, stream: &str) -> String {
    let mut mask = EventMask::new(cipher, &"http://shop:80".into(), hides);
    let bytes = stream.bytes().map(|byte| mask.byte(byte)).collect();
    let other = String::from_utf8(bytes).expect("it is text");
    assert_eq!(other.len(), stream.len());
    other
}

#[test]
fn the_place_for_messages_is_hidden_however_it_is_said() {
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
            let other = events(&cipher, hides, stream);
            assert!(!other.contains("sesame"), "{other}");
            assert!(other.contains(shown), "{other}");
        }
    }
}

#[test]
fn a_stream_of_events_shows_messages_only_where_it_may() {
    let cipher = Cipher::new();
    let stream = "retry: 10\n: a sesame\nid: sesame\ndata: {\"id\": 1,\ndata: \"sesame\": \"a sesame\"}\n\nevent: sesame\nsesame: 1\nsesame\n\n";
    assert_eq!(events(&cipher, false, stream), stream);
    let other = events(&cipher, true, stream);
    assert!(!other.contains("sesame"), "{other}");
    assert!(
        other.starts_with("retry: 10\n:") && other.contains("data: {\"id\": 1,\ndata: \""),
        "{other}"
    );
}
