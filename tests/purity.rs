//! The core has no clock, thread, I/O, environment, entropy or hidden state: its source names none of them.
//!
//! The scan sees words, not types. It complements `#![no_std]`, which the compiler enforces, and the lists in
//! `clippy.toml`, which see through imports.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that the core must not contain outside of tests, and what each would bring in.
const IMPURE: &[(&str, &str)] = &[
    ("Instant :: now", "a clock"),
    ("SystemTime", "a clock"),
    ("UNIX_EPOCH", "a clock"),
    ("std :: time", "a clock"),
    ("std :: thread", "a thread"),
    ("dbg !", "I/O"),
    ("eprint !", "I/O"),
    ("eprintln !", "I/O"),
    ("print !", "I/O"),
    ("println !", "I/O"),
    ("std :: fs", "I/O"),
    ("std :: io", "I/O"),
    ("std :: net", "I/O"),
    ("std :: os", "I/O"),
    ("std :: process", "I/O"),
    ("env !", "the environment"),
    ("option_env !", "the environment"),
    ("std :: env", "the environment"),
    ("HashMap", "entropy"),
    ("HashSet", "entropy"),
    ("RandomState", "entropy"),
    ("getrandom", "entropy"),
    // Without these, no `static` can hold mutable state.
    ("LazyLock", "hidden state"),
    ("Mutex", "hidden state"),
    ("OnceLock", "hidden state"),
    ("RwLock", "hidden state"),
    ("atomic", "hidden state"),
    ("static mut", "hidden state"),
    ("thread_local", "hidden state"),
    ("asm !", "code the scan cannot see"),
    ("extern \"C\"", "code the scan cannot see"),
    ("extern \"system\"", "code the scan cannot see"),
    ("extern fn", "code the scan cannot see"),
    ("extern {", "code the scan cannot see"),
    ("global_asm !", "code the scan cannot see"),
    ("include !", "code the scan cannot see"),
    ("# [ path", "code the scan cannot see"),
    ("std :: *", "names the scan cannot see"),
    ("std :: {", "names the scan cannot see"),
    ("std as", "names the scan cannot see"),
];

/// Words that may occur only in code for the feature `std`.
const NEEDS_STD: &[(&str, &str)] = &[
    ("crate std", "std without its feature"),
    ("std ::", "std without its feature"),
];

/// Names that begin like something impure but are only data. The conversions for `std` read these types, and the core
/// sends its version to its peer.
const DATA: &[&str] = &[
    "env ! ( \"CARGO_PKG_VERSION\" )",
    "std :: io :: Error",
    "std :: io :: ErrorKind",
    "std :: os :: unix :: process :: ExitStatusExt",
    "std :: process :: ExitStatus",
];

/// The `cfg` conditions of code that exists only in tests, or only with std.
const TEST_GATES: &[&str] = &["test", "all ( test , feature = \"std\" )"];
const STD_GATES: &[&str] = &["feature = \"std\""];

#[test]
fn core_names_no_clock_thread_io_environment_entropy_or_hidden_state() {
    let files = rust_files(&root().join("src"));
    let sources: Vec<String> = files.iter().map(|file| read(file)).collect();
    let scans: Vec<(&Path, Vec<Token<'_>>)> = files
        .iter()
        .zip(&sources)
        .map(|(file, source)| (file.as_path(), tokens(source)))
        .collect();
    let gated = |gates: &[&str]| -> Vec<PathBuf> {
        scans
            .iter()
            .flat_map(|(file, tokens)| gated_files(file, tokens, gates))
            .collect()
    };
    let (for_tests, for_std) = (gated(TEST_GATES), gated(STD_GATES));

    let mut findings = Vec::new();
    for (file, tokens) in &scans {
        let within = |modules: &[PathBuf]| modules.iter().any(|module| file.starts_with(module));
        if !within(&for_tests) {
            for finding in impurities(tokens, within(&for_std)) {
                findings.push(format!("{}:{finding}", file.display()));
            }
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn the_core_is_built_without_std() {
    let source = read(&root().join("src/lib.rs"));
    let tokens = tokens(&source);
    assert!((0..tokens.len()).any(|at| matches_at(&tokens, at, "# ! [ no_std ]")));
}

/// `RandomState` derives the keys of a thread's hash tables from one random number and a counter, so it must not be used
/// for secrets.
#[test]
fn secrets_and_seeds_come_from_the_random_source_of_the_system() {
    let dirs = ["adapters", "cli/src", "examples", "dev"].map(|dir| root().join(dir));
    let files: Vec<PathBuf> = dirs.iter().flat_map(|dir| rust_files(dir)).collect();
    assert!(files.len() > 100, "the scan looks in the wrong place");
    let named = files
        .iter()
        .filter(|file| read(file).contains("RandomState"));
    assert_eq!(named.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

#[test]
fn the_core_has_no_build_script() {
    assert!(!root().join("build.rs").exists());
}

#[test]
fn scan_finds_every_impure_sample() {
    let samples = [
        (
            "let x = 1;\nlet t = Instant::now();",
            "2: a clock: `Instant :: now`",
        ),
        ("fn f(t: SystemTime) {}", "1: a clock: `SystemTime`"),
        (
            "#[cfg(feature = \"std\")] use std::thread;",
            "1: a thread: `std :: thread`",
        ),
        (
            "#[cfg(feature = \"std\")] use std::io;",
            "1: I/O: `std :: io`",
        ),
        (
            "fn f(e: std::io::Error) {}",
            "1: std without its feature: `std ::`",
        ),
        ("std::println!()", "1: I/O: `println !`"),
        (
            "const P: &str = env!(\"PATH\");",
            "1: the environment: `env !`",
        ),
        ("type M = HashMap<u8, u8>;", "1: entropy: `HashMap`"),
        ("static mut N: u8 = 0;", "1: hidden state: `static mut`"),
        (
            "use core::sync::{atomic::AtomicU8};",
            "1: hidden state: `atomic`",
        ),
        ("thread_local! {}", "1: hidden state: `thread_local`"),
        (
            "extern \"C\" { fn f(); }",
            "1: code the scan cannot see: `extern \"C\"`",
        ),
        (
            "include!(\"x\")",
            "1: code the scan cannot see: `include !`",
        ),
        (
            "#[path = \"x.rs\"] mod x;",
            "1: code the scan cannot see: `# [ path`",
        ),
        (
            "#[cfg(feature = \"std\")] use std::{vec};",
            "1: names the scan cannot see: `std :: {`",
        ),
        (
            "extern crate std;",
            "1: std without its feature: `crate std`",
        ),
        ("use std::vec;", "1: std without its feature: `std ::`"),
        (
            "#[cfg(not(test))] use std::vec;",
            "1: std without its feature: `std ::`",
        ),
        // A gate ends with its item, and covers only whole items.
        (
            "#[cfg(test)] mod t { fn f() {} } use std::vec;",
            "1: std without its feature: `std ::`",
        ),
        (
            "#[cfg(test)] mod t; use std::vec;",
            "1: std without its feature: `std ::`",
        ),
        (
            "#[cfg(test)] x: u8, y: std::vec::Vec<u8>",
            "1: std without its feature: `std ::`",
        ),
        // The end of each literal is recognised.
        ("let s = \"\\\"\"; HashSet", "1: entropy: `HashSet`"),
        ("let s = r#\"\"\"#; HashSet", "1: entropy: `HashSet`"),
        ("let c = '\"'; HashSet", "1: entropy: `HashSet`"),
        ("let c = '\\''; HashSet", "1: entropy: `HashSet`"),
        ("fn f<'a>(s: &'a str) {} HashSet", "1: entropy: `HashSet`"),
        ("/* /* */ */ HashSet", "1: entropy: `HashSet`"),
    ];
    for (source, expected) in samples {
        let findings = impurities(&tokens(source), false);
        assert!(
            findings.iter().any(|finding| finding == expected),
            "{source}: {findings:?}"
        );
    }
}

#[test]
fn scan_accepts_every_pure_sample() {
    let samples = [
        "use alloc::collections::BTreeMap; use core::fmt;",
        "// std::thread\n/// HashMap\n//! Instant::now()\n/* std::fs /* std::io */ std::net */",
        "let s = \"std::fs\"; let r = r#\"a \" std::fs\"#; let b = b\"HashMap\";",
        "fn f(s: &'static str) {} static TABLE: [u8; 2] = [1, 2];",
        "const V: &str = env!(\"CARGO_PKG_VERSION\");",
        "let instant = Instant::from_nanos(1); let t = nostd::x;",
        "#[cfg(test)] mod tests { use std::thread; fn f() { if x { HashMap::new() } } }",
        "#[cfg(test)] #[allow(dead_code)] pub(crate) mod tests { use std::thread; }",
        "#![cfg(test)] use std::thread; use std::fs;",
        "#[cfg(feature = \"std\")] extern crate std;",
        "#[cfg(feature = \"std\")] impl From<X> for [u8; 2] { fn f() -> std::vec::Vec<u8> {} }",
    ];
    for source in samples {
        let findings = impurities(&tokens(source), false);
        assert!(findings.is_empty(), "{source}: {findings:?}");
    }
}

#[test]
fn cfg_gate_on_a_module_covers_its_files() {
    let tokens = tokens("#[cfg(test)] mod script; mod wire; #[cfg(test)] mod inline {}");
    let gated = |file: &str| gated_files(Path::new(file), &tokens, TEST_GATES);
    let expected = |dir: &str| ["script.rs", "script"].map(|name| Path::new(dir).join(name));
    assert_eq!(gated("src/lib.rs"), expected("src"));
    assert_eq!(gated("src/wire/mod.rs"), expected("src/wire"));
    assert_eq!(gated("src/wire/line.rs"), expected("src/wire/line"));
}

/// The findings in one file, each with its line.
fn impurities(tokens: &[Token<'_>], within_std: bool) -> Vec<String> {
    let shipped = without_gated_items(tokens, TEST_GATES);
    let mut findings = occurrences(&shipped, IMPURE);
    if !within_std {
        findings.extend(occurrences(
            &without_gated_items(&shipped, STD_GATES),
            NEEDS_STD,
        ));
    }
    findings
}

fn occurrences(tokens: &[Token<'_>], list: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        for (pattern, what) in list {
            let is_data = || DATA.iter().any(|data| matches_at(tokens, at, data));
            if matches_at(tokens, at, pattern) && !(list == IMPURE && is_data()) {
                found.push(format!("{}: {what}: `{pattern}`", token.line));
            }
        }
    }
    found
}

/// Whether the tokens from `at` on begin with the tokens of `pattern`, which are separated by spaces.
fn matches_at(tokens: &[Token<'_>], at: usize, pattern: &str) -> bool {
    let mut here = tokens[at..].iter().map(|token| token.text);
    pattern.split(' ').all(|word| here.next() == Some(word))
}

/// The tokens that are not part of an item behind one of `gates`.
fn without_gated_items<'a>(tokens: &[Token<'a>], gates: &[&str]) -> Vec<Token<'a>> {
    let whole_file = |gate: &&str| matches_at(tokens, 0, &format!("# ! [ cfg ( {gate} ) ]"));
    if tokens.is_empty() || gates.iter().any(whole_file) {
        return Vec::new();
    }
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match gated_item(tokens, at, gates) {
            Some(item) => at += item.len(),
            None => {
                kept.push(tokens[at]);
                at += 1;
            }
        }
    }
    kept
}

/// The files, and the directories of files, that `file` declares as modules behind one of `gates`.
fn gated_files(file: &Path, tokens: &[Token<'_>], gates: &[&str]) -> Vec<PathBuf> {
    let children = if file.ends_with("lib.rs") || file.ends_with("mod.rs") {
        file.with_file_name("")
    } else {
        file.with_extension("")
    };
    (0..tokens.len())
        .filter_map(|at| gated_item(tokens, at, gates))
        .filter_map(|item| match item {
            [.., keyword, name, end] if keyword.text == "mod" && end.text == ";" => Some(name.text),
            _ => None,
        })
        .flat_map(|name| {
            [
                children.join(name).with_extension("rs"),
                children.join(name),
            ]
        })
        .collect()
}

/// The item that begins at `at` with a `cfg` of one of `gates`, up to its semicolon or last brace.
///
/// Fields, arms and statements are not items: a gate there covers nothing, which errs on the strict
/// side.
fn gated_item<'t, 'a>(
    tokens: &'t [Token<'a>],
    at: usize,
    gates: &[&str],
) -> Option<&'t [Token<'a>]> {
    const ITEMS: &[&str] = &[
        "const", "enum", "extern", "fn", "impl", "mod", "pub", "struct", "trait", "type", "use",
    ];
    let is_gate = |gate: &&str| matches_at(tokens, at, &format!("# [ cfg ( {gate} ) ]"));
    if !gates.iter().any(is_gate) {
        return None;
    }
    let mut depth = 0_usize;
    let mut attributes = true;
    for (index, token) in tokens[at..].iter().enumerate() {
        if attributes && depth == 0 && !matches!(token.text, "#" | "[") {
            attributes = false;
            if !ITEMS.contains(&token.text) {
                return None;
            }
        }
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(token.text, ";" | "}") {
            return Some(&tokens[at..=at + index]);
        }
    }
    None
}

/// A word, sign or literal of Rust, and its first line.
#[derive(Clone, Copy)]
struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// Splits source text into tokens, without spaces and comments.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while !rest.is_empty() {
        let (text, after) = rest.split_at(token_length(rest));
        let is_comment = text.starts_with("//") || text.starts_with("/*");
        if !is_comment && !text.trim().is_empty() {
            tokens.push(Token { line, text });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

fn token_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_length(text);
    }
    if text.starts_with("::") {
        return 2;
    }
    if let Some(length) = string_length(text).or_else(|| char_length(text)) {
        return length;
    }
    let word = text.find(|c: char| c != '_' && !c.is_alphanumeric());
    match word.unwrap_or(text.len()) {
        0 => text.chars().next().map_or(0, char::len_utf8),
        length => length,
    }
}

/// Block comments nest.
fn block_comment_length(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while let Some(next) = text[at..].find(['/', '*']) {
        at += next;
        let step = match text.get(at..at + 2) {
            Some("/*") => 1,
            Some("*/") => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of the string literal at the start of `text`, raw or not, with its prefix.
fn string_length(text: &str) -> Option<usize> {
    let open = text.find(|c| !matches!(c, 'b' | 'c' | 'r' | '#'))?;
    let body = text[open..].strip_prefix('"')?;
    let prefix = text[..open].trim_end_matches('#');
    let hashes = &text[prefix.len()..open];
    let length = match prefix {
        "r" | "br" | "cr" => {
            let close = format!("\"{hashes}");
            body.find(&close).map(|end| end + close.len())
        }
        "" | "b" | "c" if hashes.is_empty() => quoted_length(body, '"'),
        _ => return None,
    };
    Some(length.map_or(text.len(), |length| open + 1 + length))
}

/// The length of the character or lifetime at the start of `text`.
fn char_length(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let mut chars = body.chars();
    let (first, second) = (chars.next(), chars.next());
    if first == Some('\\') || second == Some('\'') {
        return quoted_length(body, '\'').map(|length| 1 + length);
    }
    let name = body.find(|c: char| c != '_' && !c.is_alphanumeric());
    Some(1 + name.unwrap_or(body.len()))
}

/// The length up to and including the first `quote` that is not escaped.
fn quoted_length(body: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if c == quote && !escaped {
            return Some(at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("the directory of the source is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
