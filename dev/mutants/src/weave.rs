//! Writes a source file with all its mutants, each behind a switch. Must not run anything.

use core::ops::Range;
use std::collections::BTreeSet;

use crate::find::{Form, Site};

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
