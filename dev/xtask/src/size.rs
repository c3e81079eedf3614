//! Counts the code lines of each part of the project, and holds the limits for files and functions. Must not compile anything.
//!
//! A code line is a line with a token of Rust. Comments, blank lines, `#[cfg(test)]` modules and, outside `tests/`, test directories do
//! not count.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use fs_err as fs;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::coverage::scan;
use crate::step::{self, root};

/// The parts that are counted.
const PARTS: &[&str] = &["src", "adapters", "cli", "dev", "tests", "benches"];
/// The parts whose files and functions have limits.
const LIMITED: &[&str] = &["src", "adapters", "cli", "dev"];
/// The most lines of a file outside its test modules, comments included.
const MAX_FILE_LINES: usize = 600;
/// The most lines of a function that is no test.
const MAX_FUNCTION_LINES: usize = 80;

/// Prints the code lines of each part, and of each directory in those that have many.
pub(crate) fn run() -> Result<()> {
    let mut parts: Vec<PathBuf> = PARTS.iter().map(PathBuf::from).collect();
    for part in ["src", "adapters", "dev"] {
        let entries = fs::read_dir(root().join(part))?.flatten();
        let directories = entries.filter(|entry| entry.path().is_dir());
        let mut directories: Vec<PathBuf> = directories
            .map(|entry| Path::new(part).join(entry.file_name()))
            .collect();
        directories.sort();
        parts.extend(directories);
    }
    for part in parts {
        let lines: usize = files(&part)?.iter().map(|file| file.code_lines).sum();
        println!("{lines:>7}  {}", part.display());
    }
    Ok(())
}

/// Fails with the name of every file and function that is too long.
pub(crate) fn check() -> Result<()> {
    let mut flaws = Vec::new();
    for part in LIMITED {
        flaws.extend(files(Path::new(part))?.iter().flat_map(File::flaws));
    }
    step::check_none(&flaws)
}

/// The sizes of one source file.
#[derive(Default)]
struct File {
    path: PathBuf,
    /// Lines outside test modules, comments included.
    lines: usize,
    code_lines: usize,
    /// Functions that are not tests, with their number of lines.
    functions: Vec<(String, usize)>,
    /// The text of the code lines.
    code: String,
}

impl File {
    fn flaws(&self) -> Vec<String> {
        let path = self.path.display();
        let file = (format!("{path}"), self.lines, MAX_FILE_LINES);
        let functions = self.functions.iter().map(|(name, lines)| {
            let name = format!("{path}: `{name}`");
            (name, *lines, MAX_FUNCTION_LINES)
        });
        [file]
            .into_iter()
            .chain(functions)
            .filter(|(_, lines, most)| lines > most)
            .map(|(name, lines, most)| format!("{name} has {lines} lines, of at most {most}"))
            .collect()
    }
}

/// Returns the source files below a directory of the project, in order, each with its code: no tests, blank lines and lines of comments.
pub(crate) fn code(part: &str) -> Result<Vec<(PathBuf, String)>> {
    let files = files(Path::new(part))?.into_iter();
    Ok(files.map(|file| (file.path, file.code)).collect())
}

/// The source files below a directory of the project.
fn files(part: &Path) -> Result<Vec<File>> {
    let counts_tests = part.starts_with("tests");
    let mut files = Vec::new();
    for path in step::files(part, ".rs")? {
        let mut names = path.iter();
        if counts_tests || !names.any(|name| name == "tests" || name == "tests.rs") {
            let sizes = measure(&step::read(&path)?);
            let sizes = sizes.with_context(|| path.display().to_string())?;
            files.push(File { path, ..sizes });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Measures the text of a source file.
fn measure(source: &str) -> Result<File> {
    let tokens = scan::parse(source)?;
    let mut file = File::default();
    let (mut code, mut test) = (BTreeSet::new(), BTreeSet::new());
    walk(tokens, &mut code, &mut test, &mut file.functions);
    file.code_lines = code.len();
    for (number, line) in (1..).zip(source.lines()) {
        if code.contains(&number) {
            file.code.push_str(line);
            file.code.push('\n');
        }
    }
    file.lines = source.lines().count() - test.len();
    Ok(file)
}

/// Adds the lines of code and the lines of test modules among these tokens, and the functions that are not tests.
fn walk(
    tokens: TokenStream,
    code: &mut BTreeSet<usize>,
    test: &mut BTreeSet<usize>,
    functions: &mut Vec<(String, usize)>,
) {
    let mut is_test = false;
    let mut function: Option<(String, usize)> = None;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let lines = token.span().start().line..=token.span().end().line;
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                let is_attribute =
                    |next: &TokenTree| matches!(next, TokenTree::Group(_) | TokenTree::Punct(_));
                match tokens.next_if(is_attribute) {
                    Some(TokenTree::Group(attribute)) => {
                        let text = attribute.stream().to_string();
                        let text_of_cfg = text.replace(' ', "");
                        is_test |= text_of_cfg.starts_with("cfg(test)")
                            || text_of_cfg.starts_with("cfg(all(test,");
                        // A doc comment is an attribute to the parser.
                        if !text.starts_with("doc =") || text.starts_with("doc = include") {
                            code.extend(lines);
                            code.extend(
                                attribute.span().start().line..=attribute.span().end().line,
                            );
                        }
                    }
                    // `#![…]` and `//!` stand at the head of a file or block.
                    Some(_) => {
                        if let Some(TokenTree::Group(attribute)) = tokens.next()
                            && !attribute.stream().to_string().starts_with("doc =")
                        {
                            code.extend(
                                attribute.span().start().line..=attribute.span().end().line,
                            );
                        }
                    }
                    None => code.extend(lines),
                }
            }
            TokenTree::Group(group) => {
                let is_body = group.delimiter() == Delimiter::Brace;
                if is_test && is_body {
                    test.extend(lines);
                    is_test = false;
                    function = None;
                    continue;
                }
                code.insert(group.span_open().start().line);
                code.insert(group.span_close().start().line);
                if is_body && let Some((name, first)) = function.take() {
                    functions.push((name, lines.end() + 1 - first));
                }
                walk(group.stream(), code, test, functions);
            }
            TokenTree::Ident(word) if word == "fn" => {
                code.extend(lines.clone());
                if let Some(TokenTree::Ident(name)) = tokens.peek() {
                    function = Some((name.to_string(), *lines.start()));
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => {
                code.extend(lines);
                (is_test, function) = (false, None);
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) | TokenTree::Punct(_) => code.extend(lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::measure;

    const SOURCE: &str = "\
//! A module.

/// A function.
#[inline]
fn long(
    one: u8,
) -> u8 {
    // Why.
    let text = \"a
b\";

    one
}

#[cfg(test)]
mod tests {
    #[test]
    fn test() {}
}
";

    #[test]
    fn comments_blank_lines_and_test_modules_are_no_code() {
        let file = measure(SOURCE).expect("it is Rust");
        // The attribute, seven lines of the function with the two of its text, and two of the head of the test module.
        assert_eq!(file.code_lines, 10);
        let with_other_comments = SOURCE.replace("A function", "One").replace("// Why.", "");
        let other = measure(&with_other_comments).expect("it is Rust");
        assert_eq!(other.code, file.code);
        let other = measure(&SOURCE.replace("u8", "u16")).expect("it is Rust");
        assert_ne!(other.code, file.code);
    }

    #[test]
    fn length_of_a_file_counts_comments_and_leaves_out_test_modules() {
        let file = measure(SOURCE).expect("it is Rust");
        assert_eq!(file.lines, 15);
    }

    #[test]
    fn function_is_measured_from_its_keyword_to_its_brace() {
        let file = measure(SOURCE).expect("it is Rust");
        assert_eq!(file.functions, [("long".to_owned(), 9)]);
    }
}
