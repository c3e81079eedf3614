//! Finds test functions in Rust source, and the ids that are written about them. Compiles nothing and knows no row.

use core::iter::Peekable;
use std::collections::BTreeSet;

/// A function that is marked as a test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// The rows that it cites: any by its name and in the comments directly above it; requirements also in the comments
    /// and strings inside it.
    pub(crate) cites: BTreeSet<String>,
}

/// The tests in `source`, in order. Ones that a macro names are not seen.
pub(crate) fn tests(source: &str) -> Vec<Test> {
    let mut tokens = Tokens { rest: source }.peekable();
    let mut tests = Vec::new();
    let mut above = Above::default();
    while let Some(token) = tokens.next() {
        match token {
            Token::Blank => above.cut(),
            Token::Doc(text) => above.docs.push(text),
            Token::Note(text) => above.notes.push(text),
            Token::Mark('#') => above.is_test |= attribute(&mut tokens),
            Token::Word("fn") => {
                let above = core::mem::take(&mut above);
                if above.is_test {
                    tests.extend(test(above, &mut tokens));
                }
            }
            Token::Mark(';' | '{' | '}') => above = Above::default(),
            // Between the attribute and the function stands at most `pub(crate)`, `async` and the like.
            Token::Mark(_) | Token::Text(_) | Token::Word(_) if above.is_test => {}
            Token::Mark(_) | Token::Text(_) | Token::Word(_) => above = Above::default(),
        }
    }
    tests
}

/// The ids in a text, in order, whether or not there are such rows.
pub(crate) fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
        .map(|word| word.trim_end_matches('-'))
        .filter(|word| is_requirement(word) || is_failure(word))
}

/// The ids that a test is named after: `f_012_…` is F-012, `s_sub_11_12_…` is S-SUB-11 and S-SUB-12.
pub(crate) fn ids_in_name(name: &str) -> Vec<String> {
    let mut words = name.split('_');
    match (words.next(), words.next()) {
        (Some("f"), Some(number)) if is_number(number) => vec![format!("F-{number}")],
        (Some("s"), Some(family)) => {
            let family = family.to_ascii_uppercase();
            words
                // A longer number is a status or an amount.
                .take_while(|word| is_number(word) && word.len() <= 2)
                .map(|number| format!("S-{family}-{number}"))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn is_requirement(word: &str) -> bool {
    let is_family = |family: &str| {
        let mut bytes = family.bytes();
        !family.is_empty() && bytes.all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    word.strip_prefix("S-")
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(family, number)| is_family(family) && is_number(number))
}

fn is_failure(word: &str) -> bool {
    word.strip_prefix("F-").is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What stands directly above an item.
#[derive(Default)]
struct Above<'a> {
    docs: Vec<&'a str>,
    notes: Vec<&'a str>,
    is_test: bool,
}

impl Above<'_> {
    /// An empty line parts an item from a comment, but not from its documentation.
    fn cut(&mut self) {
        if !self.is_test {
            self.notes.clear();
        }
    }
}

/// Whether the attribute whose `#` was just read marks a test. Passes over it.
fn attribute<'a>(tokens: &mut Peekable<Tokens<'a>>) -> bool {
    tokens.next_if(|token| matches!(token, Token::Mark('!')));
    if tokens.next_if_eq(&Token::Mark('[')).is_none() {
        return false;
    }
    // A path, as in `tokio::test`, is judged by its last word; arguments do not matter.
    let mut last = "";
    let mut in_path = true;
    let mut depth = 1;
    for token in tokens.by_ref() {
        match token {
            Token::Word(word) if in_path => last = word,
            Token::Mark('[') => depth += 1,
            Token::Mark(']') => depth -= 1,
            Token::Mark(mark) => in_path &= mark == ':',
            Token::Blank | Token::Doc(_) | Token::Note(_) | Token::Text(_) | Token::Word(_) => {}
        }
        if depth == 0 {
            break;
        }
    }
    last == "test"
}

/// The test whose `fn` was just read. Passes over its body.
fn test(above: Above<'_>, tokens: &mut Peekable<Tokens<'_>>) -> Option<Test> {
    let Some(Token::Word(name)) = tokens.next() else {
        return None;
    };
    let written_above = above.docs.iter().chain(&above.notes);
    let mut cites: BTreeSet<String> = written_above
        .flat_map(|text| ids(text))
        .map(str::to_owned)
        .collect();
    cites.extend(ids_in_name(name));
    let mut depth = 0_usize;
    for token in tokens.by_ref() {
        match token {
            Token::Doc(text) | Token::Note(text) | Token::Text(text) => {
                let inside = ids(text).filter(|id| is_requirement(id));
                cites.extend(inside.map(str::to_owned));
            }
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']') => depth = depth.saturating_sub(1),
            Token::Mark('}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            Token::Blank | Token::Mark(_) | Token::Word(_) => {}
        }
    }
    Some(Test {
        name: name.to_owned(),
        cites,
    })
}

/// As much of Rust's syntax as it takes to tell code from what is written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// An empty line.
    Blank,
    /// The documentation of an item. That of a module around it is passed over: it shows nothing.
    Doc(&'a str),
    /// Any other character of code.
    Mark(char),
    /// A comment.
    Note(&'a str),
    /// A string.
    Text(&'a str),
    /// A name, a keyword or a number.
    Word(&'a str),
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let first = self.rest.chars().next()?;
            if first.is_whitespace() {
                let len = run_len(self.rest, char::is_whitespace);
                if self.take(len).matches('\n').count() > 1 {
                    return Some(Token::Blank);
                }
            } else if let Some(len) = comment_len(self.rest) {
                let text = self.take(len);
                if text.starts_with("///") || text.starts_with("/**") {
                    return Some(Token::Doc(text));
                }
                if !(text.starts_with("//!") || text.starts_with("/*!")) {
                    return Some(Token::Note(text));
                }
            } else if let Some(len) = string_len(self.rest) {
                return Some(Token::Text(self.take(len)));
            } else if first == '\'' {
                self.take(quote_len(self.rest));
            } else if is_of_word(first) {
                let len = run_len(self.rest, is_of_word);
                return Some(Token::Word(self.take(len)));
            } else {
                self.take(first.len_utf8());
                return Some(Token::Mark(first));
            }
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn run_len(text: &str, is_of_run: fn(char) -> bool) -> usize {
    text.find(|c| !is_of_run(c)).unwrap_or(text.len())
}

/// The length of the comment that `text` begins with.
fn comment_len(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(run_len(text, |c| c != '\n'));
    }
    let mut inside = text.strip_prefix("/*")?;
    let mut depth = 1_usize;
    while depth > 0 {
        let Some(at) = inside.find(['/', '*']) else {
            return Some(text.len());
        };
        inside = &inside[at..];
        let step = if inside.starts_with("/*") {
            depth += 1;
            2
        } else if inside.starts_with("*/") {
            depth -= 1;
            2
        } else {
            1
        };
        inside = &inside[step..];
    }
    Some(text.len() - inside.len())
}

/// The length of the string that `text` begins with, its prefix and its quotes included.
fn string_len(text: &str) -> Option<usize> {
    ["br", "cr", "r"]
        .into_iter()
        .find_map(|prefix| raw_string_len(text, prefix))
        .or_else(|| {
            ["b", "c", ""]
                .into_iter()
                .find_map(|prefix| plain_string_len(text, prefix))
        })
}

fn raw_string_len(text: &str, prefix: &str) -> Option<usize> {
    let after = text.strip_prefix(prefix)?;
    let hashes = &after[..run_len(after, |c| c == '#')];
    let inside = after[hashes.len()..].strip_prefix('"')?;
    let end = format!("\"{hashes}");
    Some(match inside.find(&end) {
        Some(at) => text.len() - inside.len() + at + end.len(),
        None => text.len(),
    })
}

fn plain_string_len(text: &str, prefix: &str) -> Option<usize> {
    let inside = text.strip_prefix(prefix)?.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        if c == '"' && !escaped {
            return Some(text.len() - inside.len() + at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    Some(text.len())
}

/// The length of the character that `text` begins with, quotes included; or of the quote of a lifetime.
fn quote_len(text: &str) -> usize {
    let mut after = text.char_indices().skip(1);
    match (after.next(), after.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = at + escaped.len_utf8();
            text[from..]
                .find('\'')
                .map_or(text.len(), |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{ids, tests};

    /// The tests of `source`, each as its name and what it cites.
    fn found(source: &str) -> Vec<String> {
        let written = |test: super::Test| {
            let cites: Vec<String> = test.cites.into_iter().collect();
            format!("{}: {}", test.name, cites.join(" "))
                .trim_end()
                .to_owned()
        };
        tests(source).into_iter().map(written).collect()
    }

    #[test]
    fn only_functions_that_are_marked_are_tests() {
        let source = r#"
            /// S-A-01
            fn helper() {}
            /// S-A-02
            #[test]
            fn a() {}
            #[cfg(test)]
            mod inner {
                #[tokio::test(flavor = "x")]
                pub(crate) async fn b() {}
                #[cfg(feature = "test")]
                fn not_c() {}
            }
            #[test]
            #[should_panic(expected = "[ S-A-09")]
            fn d() {}
        "#;
        assert_eq!(found(source), ["a: S-A-02", "b:", "d:"]);
    }

    #[test]
    fn what_is_directly_above_or_inside_is_cited() {
        let source = r#"
            /// S-A-01, S-A-02: both.
            // S-A-03
            #[test]
            // S-A-04
            fn a() {
                // S-A-05
                assert!(true, "S-A-06: it is");
            }

            // S-A-07

            #[test]
            fn b() {}

            /// S-A-08

            #[test]
            fn c() {}

            /// S-A-09
            const X: u8 = 0;
            #[test]
            fn d() {}
        "#;
        assert_eq!(
            found(source),
            [
                "a: S-A-01 S-A-02 S-A-03 S-A-04 S-A-05 S-A-06",
                "b:",
                "c: S-A-08",
                "d:"
            ]
        );
    }

    #[test]
    fn the_docs_of_a_module_cover_nothing() {
        let source = "//! S-A-01\n#![allow(x)]\n#[test]\nfn a() {}\nmod m {\n//! F-001\n#[test]\nfn b() {}\n}";
        assert_eq!(found(source), ["a:", "b:"]);
    }

    #[test]
    fn a_name_cites_too() {
        let source = "
            #[test] fn s_s2c_07_a() {}
            #[test] fn s_sub_11_12_14_a_2() {}
            #[test] fn s_sess_06_404_is_the_end() {}
            #[test] fn f_012_b() {}
            #[test] fn s_curve() {}
            #[test] fn s_rpc_x() {}
            #[test] fn f() {}
            #[test] fn f_x_of_y() {}
            #[test] fn of_f_012() {}
        ";
        assert_eq!(
            found(source),
            [
                "s_s2c_07_a: S-S2C-07",
                "s_sub_11_12_14_a_2: S-SUB-11 S-SUB-12 S-SUB-14",
                "s_sess_06_404_is_the_end: S-SESS-06",
                "f_012_b: F-012",
                "s_curve:",
                "s_rpc_x:",
                "f:",
                "f_x_of_y:",
                "of_f_012:"
            ]
        );
    }

    #[test]
    fn a_failure_is_not_shown_by_a_word_in_passing() {
        let source = r#"
            #[test]
            fn f_012_wrapper() { /* F-013 */ assert!(true, "F-014"); }
            /// F-015
            #[test]
            fn b() {}
        "#;
        assert_eq!(found(source), ["f_012_wrapper: F-012", "b: F-015"]);
    }

    #[test]
    fn tests_inside_a_macro_are_seen() {
        let source = r"
            proptest! {
                #![config({ x })]

                /// S-A-01
                #[test]
                fn a(x in vec({ y }, 1..2), z in [{ 1 }]) { // S-A-02
                }

                #[test]
                fn b(x in y()) {}
            }
            macro_rules! m { ($name:ident) => { #[test] fn $name() {} } }
            #[test]
            fn c() {}
        ";
        assert_eq!(found(source), ["a: S-A-01 S-A-02", "b:", "c:"]);
    }

    #[test]
    fn braces_that_are_no_code_do_not_end_a_body() {
        for inside in [
            r#""}""#,
            r#""\"}\\""#,
            r###"r#""}"#"###,
            r##"br"}\""##,
            "'}'",
            r"'\''; '}'",
            r"b'}'",
            r"'\u{7d}'",
            "// }\n",
            "/* } /* } */ } */",
            "'label: loop { break 'label; }",
            "x::<'static, '_>('{', '\"')",
        ] {
            let source = format!("#[test] fn a() {{ {inside}; /* S-A-01 */ }} /* S-A-02 */");
            assert_eq!(found(&source), ["a: S-A-01"], "{inside}");
        }
    }

    #[test]
    fn source_that_ends_early_is_no_trouble() {
        for source in [
            "#[test] fn a() { \"",
            "#[test] fn a() { r#\"\"",
            "#[test] fn a() { /* /* */",
            "#[test] fn a() { '",
            "#[test] fn a() { '\\",
            "#[test] fn a(",
        ] {
            assert_eq!(found(source), ["a:"], "{source}");
        }
        for source in ["#[test] fn", "#[test", "#", "'", ""] {
            assert!(found(source).is_empty(), "{source}");
        }
    }

    #[test]
    fn ids_are_whole_words() {
        let cited = |text: &'static str| ids(text).collect::<Vec<_>>();
        assert_eq!(
            cited("(S-RPC-07), S-S2C-03; F-012's F-1–F-2. S-A-1-"),
            ["S-RPC-07", "S-S2C-03", "F-012", "F-1", "F-2", "S-A-1"]
        );
        assert!(cited("UTF-8 S-S2C S-RPC- S--07 F- XS-RPC-07 S-RPC-07a F-12-x f_012_a").is_empty());
    }
}
