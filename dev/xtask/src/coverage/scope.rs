//! Decides which rows an end of a link can show over which binding, and which tests count for it. Must not depend on a particular row.

use anyhow::{Context as _, Result};

use super::rows::Requirement;

/// An end of a link over a binding, or everything outside of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) title: &'static str,
    /// The key in `excused.tsv`.
    pub(crate) key: &'static str,
    end_and_binding: Option<(End, Binding)>,
}

pub(crate) const SERVER_STREAM: Scope = Scope {
    title: "Server over a byte stream",
    key: "server-stream",
    end_and_binding: Some((End::Server, Binding::Stream)),
};
pub(crate) const CLIENT_STREAM: Scope = Scope {
    title: "Client over a byte stream",
    key: "client-stream",
    end_and_binding: Some((End::Client, Binding::Stream)),
};
pub(crate) const SERVER_HTTP: Scope = Scope {
    title: "Server over HTTP",
    key: "server-http",
    end_and_binding: Some((End::Server, Binding::Http)),
};
pub(crate) const CLIENT_HTTP: Scope = Scope {
    title: "Client over HTTP",
    key: "client-http",
    end_and_binding: Some((End::Client, Binding::Http)),
};
const OUTSIDE: Scope = Scope {
    title: "Not the core's",
    key: "outside",
    end_and_binding: None,
};

pub(crate) const SCOPES: [Scope; 5] = [
    SERVER_STREAM,
    CLIENT_STREAM,
    SERVER_HTTP,
    CLIENT_HTTP,
    OUTSIDE,
];

impl Scope {
    /// Whether a row belongs to this scope. Fails if a column has an unknown word.
    pub(crate) fn contains_row(self, row: &Requirement) -> Result<bool> {
        let unknown = |column: &str, word: &str| {
            format!("{} has a {column} that is not known: {word}", row.id)
        };
        let ends = ends_of_role(row.role).with_context(|| unknown("role", row.role))?;
        let bindings = bindings_of_transport(row.transport)
            .with_context(|| unknown("transport", row.transport))?;
        let is_core = is_core(row.layer).with_context(|| unknown("layer", row.layer))?;
        Ok(is_core == self.end_and_binding.is_some() && self.is_among(ends, bindings))
    }

    /// Whether a test in the file at `path` can show a row of this scope.
    pub(crate) fn accepts_tests_in(self, path: &str) -> bool {
        self.is_among(ends_of_file(path), bindings_of_file(path))
    }

    fn is_among(self, ends: &[End], bindings: &[Binding]) -> bool {
        self.end_and_binding
            .is_none_or(|(end, binding)| ends.contains(&end) && bindings.contains(&binding))
    }
}

/// The level of a row; a row with several levels has the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Must,
    Should,
    May,
    /// No such level: from a schema, from another standard, or derived.
    Rule,
}

impl Class {
    pub(crate) const ALL: [Class; 4] = [Class::Must, Class::Should, Class::May, Class::Rule];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Class::Must => "MUST",
            Class::Should => "SHOULD",
            Class::May => "MAY",
            Class::Rule => "Other rules",
        }
    }

    pub(crate) fn of(level: &str) -> Class {
        let has_word = |word: &str| level.to_ascii_uppercase().contains(word);
        if has_word("MUST") {
            Class::Must
        } else if has_word("SHOULD") || has_word("ENCOURAGED") {
            Class::Should
        } else if has_word("MAY") {
            Class::May
        } else {
            Class::Rule
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    Http,
    Stream,
}

const BOTH_ENDS: &[End] = &[End::Client, End::Server];
const BOTH_BINDINGS: &[Binding] = &[Binding::Http, Binding::Stream];

fn ends_of_role(role: &str) -> Option<&'static [End]> {
    match role {
        "client" | "dual client" | "modern-only client" => Some(&[End::Client]),
        "server" | "dual server" | "modern-only server" => Some(&[End::Server]),
        // Either end requests and responds, at least in legacy. A library is both ends, and so is an intermediary.
        "both" | "binding" | "canceller" | "intermediary" | "receiver" | "requestor"
        | "requestor (both)" | "responder" | "sender" | "SDK" => Some(BOTH_ENDS),
        _ => None,
    }
}

fn bindings_of_transport(transport: &str) -> Option<&'static [Binding]> {
    match transport {
        "any" => Some(BOTH_BINDINGS),
        "byte stream" | "custom" | "stdio" | "stdio (text: any)" => Some(&[Binding::Stream]),
        "HTTP" | "HTTP+SSE" | "SSE" => Some(&[Binding::Http]),
        _ => None,
    }
}

/// Whether a row is about HTTP only.
pub(crate) fn is_http_only(transport: &str) -> bool {
    bindings_of_transport(transport).is_some_and(|bindings| bindings == [Binding::Http])
}

/// A row that the core shares with an adapter or a user belongs to the core.
fn is_core(layer: &str) -> Option<bool> {
    match layer.split(' ').next() {
        Some("core") => Some(true),
        Some("adapter" | "user") => Some(false),
        _ => None,
    }
}

fn ends_of_file(path: &str) -> &'static [End] {
    let starts_with_any =
        |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
    if starts_with_any(&["tests/server", "tests/pair", "src/server"]) {
        &[End::Server]
    } else if is_shared(path) || starts_with_any(&["tests/relay", "src/relay", "src/http"]) {
        BOTH_ENDS
    } else {
        &[End::Client]
    }
}

fn bindings_of_file(path: &str) -> &'static [Binding] {
    if is_shared(path) {
        BOTH_BINDINGS
    } else if path.contains("http") || is_authorization(path) {
        &[Binding::Http]
    } else {
        &[Binding::Stream]
    }
}

/// Authorization, which only clients over HTTP have.
fn is_authorization(path: &str) -> bool {
    path.starts_with("src/auth/") || path.starts_with("tests/auth/")
}

/// Code that every end uses over every binding.
fn is_shared(path: &str) -> bool {
    ["src/json/", "src/wire/", "src/protocol/"]
        .iter()
        .any(|directory| path.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::rows::requirements;

    const EMPTY: Requirement = Requirement {
        id: "S-TEST-01",
        versions: "all",
        role: "both",
        transport: "any",
        level: "MUST",
        layer: "core lifecycle",
        text: "",
    };

    fn scopes(row: &Requirement) -> Vec<Scope> {
        let contains_row = |scope: &Scope| scope.contains_row(row).expect("known words");
        SCOPES.into_iter().filter(contains_row).collect()
    }

    fn scopes_of_file(path: &str) -> Vec<Scope> {
        let accepts_tests_in = |scope: &Scope| *scope != OUTSIDE && scope.accepts_tests_in(path);
        SCOPES.into_iter().filter(accepts_tests_in).collect()
    }

    #[test]
    fn role_determines_the_end() {
        let at = |role| {
            scopes(&Requirement {
                role,
                transport: "stdio",
                ..EMPTY
            })
        };
        for role in ["server", "dual server", "modern-only server"] {
            assert_eq!(at(role), [SERVER_STREAM], "{role}");
        }
        for role in ["client", "dual client", "modern-only client"] {
            assert_eq!(at(role), [CLIENT_STREAM], "{role}");
        }
        for role in [
            "both",
            "responder",
            "receiver",
            "requestor (both)",
            "binding",
        ] {
            assert_eq!(at(role), [SERVER_STREAM, CLIENT_STREAM], "{role}");
        }
    }

    #[test]
    fn transport_determines_the_binding() {
        let over = |transport| {
            scopes(&Requirement {
                role: "server",
                transport,
                ..EMPTY
            })
        };
        assert_eq!(over("any"), [SERVER_STREAM, SERVER_HTTP]);
        for transport in ["stdio", "custom", "byte stream"] {
            assert_eq!(over(transport), [SERVER_STREAM], "{transport}");
        }
        for transport in ["HTTP", "HTTP+SSE", "SSE"] {
            assert_eq!(over(transport), [SERVER_HTTP], "{transport}");
        }
    }

    #[test]
    fn layer_determines_whether_the_core_is_responsible() {
        let of = |layer| scopes(&Requirement { layer, ..EMPTY });
        for layer in ["user", "adapter stdio", "adapter stdio + user"] {
            assert_eq!(of(layer), [OUTSIDE], "{layer}");
        }
        for layer in ["core framing", "core lifecycle / user"] {
            assert_eq!(of(layer).len(), 4, "{layer}");
        }
    }

    #[test]
    fn unknown_word_is_an_error_and_the_data_has_none() {
        for bad in [
            Requirement {
                role: "bystander",
                ..EMPTY
            },
            Requirement {
                transport: "pigeon",
                ..EMPTY
            },
            Requirement {
                layer: "crust",
                ..EMPTY
            },
        ] {
            let error = SERVER_STREAM.contains_row(&bad).expect_err("unknown");
            assert!(error.to_string().starts_with("S-TEST-01 has a "), "{error}");
        }
        for row in requirements().expect("well formed") {
            assert!(!scopes(&row).is_empty(), "{} is nowhere", row.id);
        }
    }

    #[test]
    fn file_path_determines_the_scopes_of_a_test() {
        for path in ["tests/server.rs", "tests/server_eras.rs", "tests/pair.rs"] {
            assert_eq!(scopes_of_file(path), [SERVER_STREAM], "{path}");
        }
        assert_eq!(scopes_of_file("src/server/asks.rs"), [SERVER_STREAM]);
        assert_eq!(scopes_of_file("tests/server_http.rs"), [SERVER_HTTP]);
        for path in [
            "tests/asks.rs",
            "tests/failures_calls.rs",
            "src/client/requests/deadlines.rs",
        ] {
            assert_eq!(scopes_of_file(path), [CLIENT_STREAM], "{path}");
        }
        assert_eq!(
            scopes_of_file("tests/relay_ids.rs"),
            [SERVER_STREAM, CLIENT_STREAM]
        );
        assert_eq!(
            scopes_of_file("src/http/url.rs"),
            [SERVER_HTTP, CLIENT_HTTP]
        );
        for path in ["tests/auth/store.rs", "src/auth/table.rs"] {
            assert_eq!(scopes_of_file(path), [CLIENT_HTTP], "{path}");
        }
        assert_eq!(scopes_of_file("src/wire/line.rs").len(), 4);
        assert_eq!(scopes_of_file("src/protocol/meta.rs").len(), 4);
        assert!(OUTSIDE.accepts_tests_in("tests/drive_child.rs"));
    }

    #[test]
    fn strictest_word_determines_the_class() {
        for level in [
            "MUST",
            "MUST NOT",
            "must",
            "MAY / MUST",
            "SHOULD / MUST NOT",
            "SHOULD (schema: MUST)",
            "MUST (C,D) / SHOULD (A,B)",
            "MUST (SEP)",
        ] {
            assert_eq!(Class::of(level), Class::Must, "{level}");
        }
        for level in [
            "SHOULD",
            "should",
            "SHOULD / MAY",
            "OPTIONAL / SHOULD",
            "encouraged",
        ] {
            assert_eq!(Class::of(level), Class::Should, "{level}");
        }
        assert_eq!(Class::of("MAY"), Class::May);
        for level in [
            "(rule)",
            "(schema)",
            "(derived)",
            "(conformance)",
            "inherited",
        ] {
            assert_eq!(Class::of(level), Class::Rule, "{level}");
        }
    }
}
