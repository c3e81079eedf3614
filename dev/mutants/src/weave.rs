//! Writes a source file with all its mutants, each behind a switch. Must not run anything.

use core::hash::{Hash, Hasher};
use core::ops::Range;
use std::collections::BTreeSet;
use std::fs;
use std::hash::DefaultHasher;
use std::path::Path;

use crate::find::{self, Form, Site};

/// The switch in the woven copy of the library; it is appended to `src/lib.rs`.
const SWITCH: &str = include_str!("switch.txt");

/// The number of a mutant. It starts at 1; 0 means none.
pub(crate) type Id = u32;

/// A source file to weave.
#[derive(Debug)]
pub(crate) struct File {
    /// From the root of the project, with slashes.
    pub(crate) path: String,
    pub(crate) source: String,
    pub(crate) sites: Vec<Site>,
    /// The number of the first alternative. The others follow in the order of the sites.
    pub(crate) first: Id,
}

impl File {
    /// How many mutants it has.
    pub(crate) fn mutants(&self) -> Id {
        let counts = self.sites.iter().map(|site| site.alternatives.len() as Id);
        counts.sum()
    }
}

/// What the compiler refused so far.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// The mutants that do not compile.
    pub(crate) mutants: BTreeSet<Id>,
    /// The functions that must stay `const`, by their last two names.
    pub(crate) constant: BTreeSet<String>,
}

impl Refused {
    /// Whether a mutant of this site cannot be switched, because its function stays `const`.
    pub(crate) fn keeps_const(&self, site: &Site) -> bool {
        site.is_const && self.constant.contains(&last_names(&site.function))
    }
}

impl Refused {
    /// Adds the `const` functions that those which must stay `const` may call. The compiler would find them too, but one level in each round.
    pub(crate) fn add_callees(&mut self, files: &[File]) {
        let is_const = |site: &&Site| site.form == Form::Const;
        let functions: Vec<(String, &str)> = files
            .iter()
            .flat_map(|file| {
                let sites = file.sites.iter().filter(is_const);
                sites.map(|site| {
                    (
                        last_names(&site.function),
                        body(&file.source[site.range.end..]),
                    )
                })
            })
            .collect();
        let mut ahead: Vec<String> = self.constant.iter().cloned().collect();
        while let Some(caller) = ahead.pop() {
            let bodies = functions.iter().filter(|(name, _)| *name == caller);
            for (callee, _) in bodies.flat_map(|(_, body)| {
                functions
                    .iter()
                    .filter(|(name, _)| may_call(&caller, body, name))
            }) {
                if self.constant.insert(callee.clone()) {
                    ahead.push(callee.clone());
                }
            }
        }
    }

    /// Reads what was refused the last time, if that was for the same files and mutants.
    pub(crate) fn read(path: &Path, files: &[File]) -> Refused {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let mut refused = Refused::default();
        if lines.next() != Some(stamp(files).as_str()) {
            return refused;
        }
        for line in lines {
            match line.parse() {
                Ok(id) => refused.mutants.insert(id),
                Err(_) => refused.constant.insert(line.to_owned()),
            };
        }
        refused
    }

    /// Keeps what was refused. If that fails, the next run finds it again.
    pub(crate) fn write(&self, path: &Path, files: &[File]) {
        let mut text = stamp(files) + "\n";
        for id in &self.mutants {
            text += &format!("{id}\n");
        }
        for function in &self.constant {
            text += &format!("{function}\n");
        }
        let _ = fs::write(path, text);
    }
}

/// The body of the function whose text starts here. Braces in texts are not understood; a wrong end only keeps a `const` too many.
fn body(source: &str) -> &str {
    let mut depth = 0_usize;
    let start = source.find('{').unwrap_or(0);
    for (at, character) in source[start..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return &source[start..start + at],
            '}' => depth -= 1,
            _ => {}
        }
    }
    &source[start..]
}

/// Whether the body of `caller` has a call that looks like one of `callee`. A method of another type is left to the compiler.
fn may_call(caller: &str, body: &str, callee: &str) -> bool {
    if let Some((owner, method)) = callee.rsplit_once("::")
        && caller
            .rsplit_once("::")
            .is_some_and(|(own, _)| own == owner)
        && (body.contains(&format!(".{method}(")) || body.contains(&format!("Self::{method}(")))
    {
        return true;
    }
    body.match_indices(&format!("{callee}(")).any(|(at, _)| {
        let before = body[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != '.')
    })
}

/// A hash of the code. A new test or comment changes no mutant.
fn stamp(files: &[File]) -> String {
    let mut hasher = DefaultHasher::new();
    for file in files {
        (&file.path, file.first, find::code_only(&file.source)).hash(&mut hasher);
    }
    format!("of {:016x}", hasher.finish())
}

/// The last two names of a path, without generic arguments.
pub(crate) fn last_names(path: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0_usize;
    for character in path.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(character),
            _ => {}
        }
    }
    let names: Vec<&str> = plain.split("::").filter(|name| !name.is_empty()).collect();
    let is_type = |name: &str| name.starts_with(char::is_uppercase);
    match names.as_slice() {
        [.., owner, name] if is_type(owner) => format!("{owner}::{name}"),
        [.., name] => (*name).to_owned(),
        [] => String::new(),
    }
}

/// A woven file.
#[derive(Debug, Default)]
pub(crate) struct Woven {
    pub(crate) text: String,
    /// The parts of the text that belong to mutants.
    places: Vec<(Range<usize>, Vec<Id>)>,
}

impl Woven {
    /// The mutants of the smallest part that contains this offset.
    pub(crate) fn mutants_at(&self, offset: usize) -> &[Id] {
        let around = self
            .places
            .iter()
            .filter(|(range, _)| range.contains(&offset));
        let smallest = around.min_by_key(|(range, _)| range.len());
        smallest.map_or(&[], |(_, mutants)| mutants)
    }
}

/// Weaves a file without what the compiler refused.
pub(crate) fn weave(file: &File, refused: &Refused) -> Woven {
    let mut sites = Vec::new();
    let mut first = file.first;
    for site in &file.sites {
        sites.push((site, first));
        first += site.alternatives.len() as Id;
    }
    // The outer site comes before the inner ones. Of two with the same range, the one that was found first is the outer one.
    sites.sort_by_key(|(site, first)| {
        (site.range.start, core::cmp::Reverse(site.range.end), *first)
    });
    let mut weaver = Weaver {
        source: &file.source,
        sites,
        next: 0,
        refused,
        woven: Woven::default(),
    };
    weaver.write(0..file.source.len());
    weaver.woven
}

/// The module with the switch, for mutants with numbers up to `last`.
pub(crate) fn switch(last: Id) -> String {
    SWITCH.replace("LAST_MUTANT", &last.to_string())
}

struct Weaver<'a> {
    source: &'a str,
    sites: Vec<(&'a Site, Id)>,
    next: usize,
    refused: &'a Refused,
    woven: Woven,
}

impl Weaver<'_> {
    /// Writes a part of the source with the sites in it.
    fn write(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some(&(site, first)) = self.sites.get(self.next)
            && site.range.start < range.end
        {
            self.next += 1;
            self.push(at..site.range.start);
            self.write_site(site, first);
            at = site.range.end;
        }
        self.push(at..range.end);
    }

    fn push(&mut self, range: Range<usize>) {
        self.woven.text.push_str(&self.source[range]);
    }

    fn write_site(&mut self, site: &Site, first: Id) {
        if site.form == Form::Const {
            if self.refused.keeps_const(site) {
                self.push(site.range.clone());
            }
            return;
        }
        let alternatives = (first..).zip(&site.alternatives);
        let live: Vec<(Id, &str)> = alternatives
            .filter(|(id, _)| !self.refused.mutants.contains(id))
            .filter(|_| !self.refused.keeps_const(site))
            .map(|(id, alternative)| (id, alternative.code.as_str()))
            .collect();
        if live.is_empty() {
            self.write(site.range.clone());
            return;
        }
        let start = self.woven.text.len();
        match site.form {
            Form::Expression => self.write_expression(site, &live),
            Form::Body => {
                for (id, code) in &live {
                    let text = format!(" if crate::__mutant::on({id}) {{ return {code}; }}");
                    self.push_mutant(*id, &text);
                }
            }
            Form::Statement => {
                for (id, _) in &live {
                    let text = format!("if !crate::__mutant::on({id}) {{ ");
                    self.woven.text.push_str(&text);
                }
                self.write(site.range.clone());
                self.woven.text.push_str(" }");
            }
            Form::Arm => {
                for (id, _) in &live {
                    let text = format!(" if !crate::__mutant::on({id})");
                    self.woven.text.push_str(&text);
                }
            }
            Form::Const => {}
        }
        let ids = live.iter().map(|(id, _)| *id).collect();
        self.woven.places.push((start..self.woven.text.len(), ids));
    }

    fn write_expression(&mut self, site: &Site, live: &[(Id, &str)]) {
        let mut word = "(if";
        for (id, code) in live {
            let switch = format!("{word} crate::__mutant::on({id}) {{ ");
            self.woven.text.push_str(&switch);
            self.push_mutant(*id, code);
            word = " } else if";
        }
        self.woven.text.push_str(" } else { ");
        self.write(site.range.clone());
        self.woven.text.push_str(" })");
    }

    fn push_mutant(&mut self, id: Id, text: &str) {
        let start = self.woven.text.len();
        self.woven.text.push_str(text);
        self.woven
            .places
            .push((start..self.woven.text.len(), vec![id]));
    }
}

#[cfg(test)]
mod tests;
