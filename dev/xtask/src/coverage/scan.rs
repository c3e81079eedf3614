//! Finds test functions in Rust source, and the ids that they cite. Must not compile anything or depend on rows.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// A test function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// The rows that it cites: requirements and failures in its name and in the comments directly above it, and requirements in the
    /// comments and strings inside it.
    pub(crate) cites: BTreeSet<String>,
}

/// Returns the tests in `source` in order, also those in the arguments of a macro. A test that a macro names is not found.
pub(crate) fn tests(source: &str) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    collect(source, parse(source)?, Wanted::Tests, &mut tests);
    Ok(tests)
}

/// Returns all functions in `source` in order. For checks of the driver kit: they are tests, but have no attribute. A function that is no check cites nothing.
pub(crate) fn functions(source: &str) -> Result<Vec<Test>> {
    let mut functions = Vec::new();
    collect(source, parse(source)?, Wanted::All, &mut functions);
    Ok(functions)
}

/// The functions that are collected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    Tests,
}

/// Splits Rust source into tokens.
pub(crate) fn parse(source: &str) -> Result<TokenStream> {
    source
        .parse()
        .map_err(|error| anyhow!("not valid Rust: {error}"))
}

/// Appends the tests among these tokens and in their groups.
fn collect(source: &str, tokens: TokenStream, wanted: Wanted, tests: &mut Vec<Test>) {
    let mut attributes = Attributes::default();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) =
                    tokens.next_if(|next| matches!(next, TokenTree::Group(_)))
                {
                    attributes.begin.get_or_insert(mark.span());
                    attributes.is_test |= is_test(attribute.stream());
                }
            }
            TokenTree::Ident(word)
                if word == "fn" && (attributes.is_test || wanted == Wanted::All) =>
            {
                let name = tokens.next();
                let body = tokens.find_map(|token| match token {
                    TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => Some(body),
                    TokenTree::Group(_)
                    | TokenTree::Ident(_)
                    | TokenTree::Literal(_)
                    | TokenTree::Punct(_) => None,
                });
                if let (Some(TokenTree::Ident(name)), Some(body)) = (name, body) {
                    let end = body.span().byte_range().end;
                    tests.push(test(
                        source,
                        &attributes,
                        word.span(),
                        &name.to_string(),
                        end,
                    ));
                }
                attributes = Attributes::default();
            }
            // `pub(crate)`, `async` and the like may stand between the attributes and `fn`.
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Parenthesis && attributes.is_test => {}
            TokenTree::Group(group) => {
                collect(source, group.stream(), wanted, tests);
                attributes = Attributes::default();
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {}
            TokenTree::Punct(_) => attributes = Attributes::default(),
        }
    }
}

/// Whether an attribute marks a test. Only the last segment of a path such as `tokio::test` counts.
fn is_test(attribute: TokenStream) -> bool {
    let path = attribute.into_iter().take_while(|token| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(mark) => mark.as_char() == ':',
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    });
    path.last().is_some_and(|last| last.to_string() == "test")
}

/// The attributes above an item, documentation included.
#[derive(Default)]
struct Attributes {
    begin: Option<Span>,
    is_test: bool,
}

fn test(source: &str, attributes: &Attributes, function: Span, name: &str, end: usize) -> Test {
    let function = function.byte_range().start;
    let begin = attributes
        .begin
        .map_or(function, |span| span.byte_range().start);
    let is_comment = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("//") && !line.starts_with("//!")
    };
    let lines_before = source[..begin].rfind('\n').map_or("", |end| &source[..end]);
    let comments = lines_before
        .split('\n')
        .rev()
        .take_while(is_comment)
        .chain(source[begin..function].lines().filter(is_comment));
    let mut cites: BTreeSet<String> = comments.flat_map(ids).map(str::to_owned).collect();
    cites.extend(ids_in_name(name));
    let inside = ids(&source[function..end]).filter(|id| is_requirement(id));
    cites.extend(inside.map(str::to_owned));
    Test {
        name: name.to_owned(),
        cites,
    }
}

/// The ids in a text, in order, whether or not such rows exist.
pub(crate) fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
        .map(|word| word.trim_end_matches('-'))
        .filter(|word| is_requirement(word) || is_failure(word))
}

/// The ids in the name of a test: `f_012_…` is F-012, `s_sub_11_12_…` is S-SUB-11 and S-SUB-12. A name that begins with `a_` has none, because
/// that is also a word.
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
    // `S-` is the protocol, `A-` authorization.
    word.strip_prefix("S-")
        .or_else(|| word.strip_prefix("A-"))
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(family, number)| is_family(family) && is_number(number))
}

fn is_failure(word: &str) -> bool {
    word.strip_prefix("F-").is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{functions, ids, tests};

    /// The tests of `source`, each with its name and its ids.
    fn found_tests(source: &str) -> Vec<String> {
        let describe = |test: super::Test| {
            let cites: Vec<String> = test.cites.into_iter().collect();
            format!("{}: {}", test.name, cites.join(" "))
                .trim_end()
                .to_owned()
        };
        tests(source)
            .expect("it is Rust")
            .into_iter()
            .map(describe)
            .collect()
    }

    #[test]
    fn only_functions_with_a_test_attribute_are_tests() {
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
        assert_eq!(found_tests(source), ["a: S-A-02", "b:", "d:"]);
    }

    #[test]
    fn ids_directly_above_and_inside_a_test_are_cited() {
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
            found_tests(source),
            [
                "a: S-A-01 S-A-02 S-A-03 S-A-04 S-A-05 S-A-06",
                "b:",
                "c: S-A-08",
                "d:"
            ]
        );
    }

    #[test]
    fn module_docs_cite_nothing() {
        let source = "//! S-A-01\n#![allow(x)]\n#[test]\nfn a() {}\nmod m {\n//! F-001\n#[test]\nfn b() {}\n}";
        assert_eq!(found_tests(source), ["a:", "b:"]);
    }

    #[test]
    fn ids_in_a_test_name_are_cited() {
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
            found_tests(source),
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
    fn failure_id_inside_a_test_is_not_cited() {
        let source = r#"
            #[test]
            fn f_012_wrapper() { /* F-013 */ assert!(true, "F-014"); }
            /// F-015
            #[test]
            fn b() {}
        "#;
        assert_eq!(found_tests(source), ["f_012_wrapper: F-012", "b: F-015"]);
    }

    #[test]
    fn tests_inside_a_macro_are_found() {
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
        assert_eq!(found_tests(source), ["a: S-A-01 S-A-02", "b:", "c:"]);
    }

    #[test]
    fn checks_need_no_attribute() {
        let source = r#"
            const CHECKS: &[Check] = &[check!(f_001_a, "It is.")];
            fn f_001_a(harness: &Harness<'_>) { helper(|it: fn(u8)| it); }
            /// F-002
            fn b() {}
        "#;
        let found = functions(source).expect("it is Rust");
        let names: Vec<&str> = found.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["f_001_a", "b"]);
        assert!(found[1].cites.contains("F-002"));
    }

    #[test]
    fn braces_in_literals_and_comments_do_not_end_a_body() {
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
            assert_eq!(found_tests(&source), ["a: S-A-01"], "{inside}");
        }
    }

    #[test]
    fn source_that_ends_early_is_an_error() {
        for source in [
            "#[test] fn a() { \"",
            "#[test] fn a() { /* /* */",
            "#[test] fn a(",
        ] {
            assert!(tests(source).is_err(), "{source}");
        }
        for source in ["#[test] fn", "#", ""] {
            assert!(found_tests(source).is_empty(), "{source}");
        }
    }

    #[test]
    fn ids_are_whole_words() {
        let cited = |text: &'static str| ids(text).collect::<Vec<_>>();
        assert_eq!(
            cited("(S-RPC-07), S-S2C-03; F-012's F-1–F-2. S-A-1- A-CHAL-01 SHA-256 A-1"),
            [
                "S-RPC-07",
                "S-S2C-03",
                "F-012",
                "F-1",
                "F-2",
                "S-A-1",
                "A-CHAL-01"
            ]
        );
        assert!(cited("UTF-8 S-S2C S-RPC- S--07 F- XS-RPC-07 S-RPC-07a F-12-x f_012_a").is_empty());
    }
}
