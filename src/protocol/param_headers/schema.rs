//! Finds the marked properties in the input schema of a tool. Must not know the arguments of a call.

use alloc::{borrow::Cow, boxed::Box, collections::BTreeSet, format, string::String, vec::Vec};

use memchr::memchr2;

use super::{
    DEPTH_LIMIT, MARK, Mark, Mirrored, Property, SHOWN_LIMIT, Unfit, is_markable, unquoted,
};

/// A search for marks in a schema. It reads every byte once and does not recurse.
#[derive(Default)]
pub(super) struct Search<'a> {
    /// The objects and lists that are open, the innermost last.
    open: Vec<Open<'a>>,
    /// The names in the marks, in lower case.
    names: BTreeSet<String>,
    /// Whether a key that matters for marks occurred twice.
    is_ambiguous: bool,
    found: Vec<Property>,
}

/// An object or a list that is open.
struct Open<'a> {
    role: Role,
    /// The key just read; empty in a list.
    key: Cow<'a, str>,
    /// The keys that must not occur again.
    seen: BTreeSet<Cow<'a, str>>,
    /// The name in its own mark.
    mark: Option<Cow<'a, str>>,
    /// Whether its type can be marked.
    is_markable: bool,
    /// Whether it is only a reference to a schema. Then its own `properties` do not describe it.
    is_reference: bool,
    /// The properties found in it.
    found: Vec<Property>,
}

/// The role of an object or a list in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A value, whose keys have no meaning here.
    Data,
    /// A list of schemas.
    List,
    /// Schemas by name. `is_reached`: a chain of `properties` leads here.
    Names { is_reached: bool },
    /// A schema.
    Schema { is_reached: bool },
}

impl<'a> Search<'a> {
    /// Finds the marks in a schema.
    pub(super) fn over(mut self, schema: &'a str) -> Result<Mirrored, Unfit> {
        for token in Tokens(schema) {
            match token {
                Token::Close => self.close()?,
                Token::Key(key) => self.key(key)?,
                Token::Open { is_list } => self.open(is_list)?,
                Token::Value(value) => self.value(value)?,
            }
        }
        if self.is_ambiguous && !self.found.is_empty() {
            return Err(Unfit::Ambiguous);
        }
        Ok(Mirrored(self.found.into()))
    }

    fn open(&mut self, is_list: bool) -> Result<(), Unfit> {
        if self.open.len() == DEPTH_LIMIT {
            return Err(Unfit::Deep);
        }
        let role = match self.open.last() {
            None => Role::Schema { is_reached: true },
            Some(outer) => outer.role.of_member(&outer.key),
        };
        if self.is_at_mark() {
            return Err(Unfit::Name {
                at: self.path_to_mark(),
            });
        }
        self.open.push(Open {
            role: if is_list { role.of_list() } else { role },
            key: Cow::Borrowed(""),
            seen: BTreeSet::new(),
            mark: None,
            is_markable: false,
            is_reference: false,
            found: Vec::new(),
        });
        Ok(())
    }

    fn key(&mut self, key: Cow<'a, str>) -> Result<(), Unfit> {
        let is_root = self.open.len() == 1;
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        open.key = key;
        let is_decisive = match (open.role, &*open.key) {
            (Role::Schema { is_reached }, MARK) if is_root || !is_reached => {
                return Err(Unfit::Place {
                    at: self.path_to_mark(),
                });
            }
            (Role::Schema { is_reached: true }, "$dynamicRef" | "$ref") => {
                open.is_reference = true;
                false
            }
            (Role::Schema { is_reached: true }, MARK | "properties" | "type") => true,
            (Role::Names { is_reached }, _) => is_reached,
            (Role::Data | Role::List | Role::Schema { .. }, _) => false,
        };
        self.is_ambiguous |= is_decisive && !open.seen.insert(open.key.clone());
        Ok(())
    }

    /// Handles a value that is neither an object nor a list.
    fn value(&mut self, json: &'a str) -> Result<(), Unfit> {
        let name = if self.is_at_mark() {
            let name = unquoted(json).filter(|name| is_token(name));
            Some(name.ok_or_else(|| Unfit::Name {
                at: self.path_to_mark(),
            })?)
        } else {
            None
        };
        match self.open.last_mut() {
            Some(open) if name.is_some() => open.mark = name,
            Some(open) if open.key == "type" => {
                open.is_markable = unquoted(json).as_deref().is_some_and(is_markable);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Unfit> {
        let Some(mut closed) = self.open.pop() else {
            return Ok(());
        };
        let mark = match closed.mark.take() {
            Some(name) => Some(self.mark(&name, &closed)?),
            None => None,
        };
        let Some(outer) = self.open.last_mut() else {
            self.found = closed.found;
            return Ok(());
        };
        match (closed.role, outer.role) {
            (Role::Names { .. }, _) => {
                closed.found.sort_by(|one, other| one.name.cmp(&other.name));
                outer.found.append(&mut closed.found);
            }
            (Role::Schema { .. }, Role::Names { .. })
                if mark.is_some() || !closed.found.is_empty() =>
            {
                outer.found.push(Property {
                    name: (*outer.key).into(),
                    mark,
                    children: closed.found.into(),
                });
            }
            (Role::Data | Role::List | Role::Schema { .. }, _) => {}
        }
        Ok(())
    }

    /// Creates the mark with this name for this property.
    fn mark(&mut self, name: &str, property: &Open<'_>) -> Result<Mark, Unfit> {
        if property.is_reference {
            return Err(Unfit::Place {
                at: self.path_to_mark(),
            });
        }
        if !property.is_markable {
            return Err(Unfit::Type {
                at: self.path_to_mark(),
            });
        }
        if !self.names.insert(name.to_ascii_lowercase()) {
            let name = shown(name.chars());
            return Err(Unfit::Duplicate { name });
        }
        let field = format!("Mcp-Param-{name}").into();
        Ok(Mark { field })
    }

    /// Whether the next value is that of a mark.
    fn is_at_mark(&self) -> bool {
        let is_schema = |open: &&Open<'_>| matches!(open.role, Role::Schema { .. });
        let open = self.open.last().filter(is_schema);
        open.is_some_and(|open| open.key == MARK)
    }

    /// The path to the current mark, or to the property that was read last.
    fn path_to_mark(&self) -> Box<str> {
        let depth = self.open.len() - usize::from(self.is_at_mark());
        let keys = self.open[..depth].iter().map(|open| &*open.key);
        let path = keys.filter(|key| !key.is_empty());
        let path = path.flat_map(|key| "/".chars().chain(key.chars()));
        shown("inputSchema".chars().chain(path))
    }
}

impl Role {
    /// The role of a member's value.
    fn of_member(self, key: &str) -> Role {
        match self {
            Role::Data => Role::Data,
            Role::List => Role::Schema { is_reached: false },
            Role::Names { is_reached } => Role::Schema { is_reached },
            Role::Schema { is_reached } => match key {
                "properties" => Role::Names { is_reached },
                "$defs" | "definitions" | "dependencies" | "dependentSchemas"
                | "patternProperties" => Role::Names { is_reached: false },
                "const" | "default" | "dependentRequired" | "enum" | "examples" => Role::Data,
                // Schemas occur in many places. Unknown keywords are searched like known ones.
                _ => Role::Schema { is_reached: false },
            },
        }
    }

    /// The role of the value if it is a list.
    fn of_list(self) -> Role {
        match self {
            Role::Data => Role::Data,
            Role::List | Role::Names { .. } | Role::Schema { .. } => Role::List,
        }
    }
}

/// Splits a valid JSON text into tokens.
struct Tokens<'a>(&'a str);

enum Token<'a> {
    Close,
    Key(Cow<'a, str>),
    Open { is_list: bool },
    Value(&'a str),
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        const BETWEEN: [char; 6] = [' ', '\t', '\n', '\r', ',', ':'];
        let rest = self.0.trim_start_matches(BETWEEN);
        let first = *rest.as_bytes().first()?;
        let len = match first {
            b'{' | b'[' | b'}' | b']' => 1,
            b'"' => string_len(rest),
            _ => rest
                .find(|next| BETWEEN.contains(&next) || matches!(next, '}' | ']'))
                .unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(len);
        self.0 = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        Some(match first {
            b'{' | b'[' => Token::Open {
                is_list: first == b'[',
            },
            b'}' | b']' => Token::Close,
            // A key that is not valid Unicode has no meaning here, and equals only itself.
            b'"' if self.0.starts_with(':') => Token::Key(unquoted(token).unwrap_or(token.into())),
            _ => Token::Value(token),
        })
    }
}

/// The length of the string at the beginning of a text, quotes included.
fn string_len(text: &str) -> usize {
    let mut at = 1;
    while let Some(ahead) = text.as_bytes().get(at..) {
        match memchr2(b'"', b'\\', ahead) {
            Some(len) if ahead[len] == b'"' => return at + len + 1,
            Some(len) => at += len + 2,
            None => break,
        }
    }
    text.len()
}

/// Whether a text can be a part of a field name: RFC 9110, section 5.6.2 (S-XHDR-03).
fn is_token(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_fit)
}

/// The first [`SHOWN_LIMIT`] characters of a text.
fn shown(text: impl Iterator<Item = char>) -> Box<str> {
    let shown: String = text.take(SHOWN_LIMIT).collect();
    shown.into()
}
