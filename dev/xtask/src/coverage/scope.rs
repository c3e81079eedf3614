//! Which rows an end of a link can show over which binding, and which tests speak for it. Knows no particular row.

use super::rows::Requirement;

/// An end of a link over a binding; or outside of the core, whatever the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    ServerStream,
    ClientStream,
    ServerHttp,
    ClientHttp,
    Outside,
}

impl Scope {
    pub(crate) const ALL: [Scope; 5] = [
        Scope::ServerStream,
        Scope::ClientStream,
        Scope::ServerHttp,
        Scope::ClientHttp,
        Scope::Outside,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Scope::ServerStream => "Server over a byte stream",
            Scope::ClientStream => "Client over a byte stream",
            Scope::ServerHttp => "Server over HTTP",
            Scope::ClientHttp => "Client over HTTP",
            Scope::Outside => "Not the core's",
        }
    }

    /// How `excused.tsv` names it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Scope::ServerStream => "server-stream",
            Scope::ClientStream => "client-stream",
            Scope::ServerHttp => "server-http",
            Scope::ClientHttp => "client-http",
            Scope::Outside => "outside",
        }
    }

    /// Whether a row belongs here. An error is a word of its columns that has no meaning yet.
    pub(crate) fn holds(self, row: &Requirement) -> Result<bool, String> {
        let unknown = |column: &str, word: &str| {
            format!("{} has a {column} that is not known: {word}", row.id)
        };
        let ends = ends_of_role(row.role).ok_or_else(|| unknown("role", row.role))?;
        let bindings = bindings_of_transport(row.transport)
            .ok_or_else(|| unknown("transport", row.transport))?;
        let of_core = is_of_core(row.layer).ok_or_else(|| unknown("layer", row.layer))?;
        Ok(match self.place() {
            Some(place) => of_core && place.is_in(ends, bindings),
            None => !of_core,
        })
    }

    /// Whether a test in the file at `path` can show a row here.
    pub(crate) fn hears(self, path: &str) -> bool {
        match self.place() {
            Some(place) => place.is_in(ends_of_file(path), bindings_of_file(path)),
            None => true,
        }
    }

    fn place(self) -> Option<Place> {
        let (end, binding) = match self {
            Scope::ServerStream => (End::Server, Binding::Stream),
            Scope::ClientStream => (End::Client, Binding::Stream),
            Scope::ServerHttp => (End::Server, Binding::Http),
            Scope::ClientHttp => (End::Client, Binding::Http),
            Scope::Outside => return None,
        };
        Some(Place { end, binding })
    }
}

/// How binding the words of a row are; a row that has both is of the stricter kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Must,
    Should,
    May,
    /// Whatever has no such word: from a schema, from another standard, or concluded.
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
        let says = |word: &str| level.to_ascii_uppercase().contains(word);
        if says("MUST") {
            Class::Must
        } else if says("SHOULD") || says("ENCOURAGED") {
            Class::Should
        } else if says("MAY") {
            Class::May
        } else {
            Class::Rule
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Binding {
    Http,
    Stream,
}

/// One end over one binding.
#[derive(Clone, Copy)]
struct Place {
    end: End,
    binding: Binding,
}

impl Place {
    fn is_in(self, ends: &[End], bindings: &[Binding]) -> bool {
        ends.contains(&self.end) && bindings.contains(&self.binding)
    }
}

const BOTH_ENDS: &[End] = &[End::Client, End::Server];
const BOTH_BINDINGS: &[Binding] = &[Binding::Http, Binding::Stream];

fn ends_of_role(role: &str) -> Option<&'static [End]> {
    match role {
        "client" | "dual client" | "modern-only client" => Some(&[End::Client]),
        "server" | "dual server" | "modern-only server" => Some(&[End::Server]),
        // Either end asks and answers, at least in legacy; a library is both ends, and so is what stands between two.
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

/// Whether a row is about HTTP and nothing else.
pub(crate) fn is_of_http(transport: &str) -> bool {
    bindings_of_transport(transport).is_some_and(|bindings| bindings == [Binding::Http])
}

/// A row that the core shares with an adapter or a user is the core's.
fn is_of_core(layer: &str) -> Option<bool> {
    match layer.split(' ').next() {
        Some("core") => Some(true),
        Some("adapter" | "user") => Some(false),
        _ => None,
    }
}

fn ends_of_file(path: &str) -> &'static [End] {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
    if begins(&["tests/server", "tests/pair", "src/server"]) {
        &[End::Server]
    } else if is_shared(path) || begins(&["tests/relay", "src/relay", "src/http"]) {
        BOTH_ENDS
    } else {
        &[End::Client]
    }
}

fn bindings_of_file(path: &str) -> &'static [Binding] {
    if is_shared(path) {
        BOTH_BINDINGS
    } else if path.contains("http") {
        &[Binding::Http]
    } else {
        &[Binding::Stream]
    }
}

/// What every end is made of, over every binding.
fn is_shared(path: &str) -> bool {
    path.starts_with("src/wire/") || path.starts_with("src/protocol/")
}

#[cfg(test)]
mod tests {
    use super::{Class, Scope};
    use crate::coverage::rows::{Requirement, requirements};

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
        let holds = |scope: &Scope| scope.holds(row).expect("known words");
        Scope::ALL.into_iter().filter(holds).collect()
    }

    fn heard(path: &str) -> Vec<Scope> {
        let hears = |scope: &Scope| *scope != Scope::Outside && scope.hears(path);
        Scope::ALL.into_iter().filter(hears).collect()
    }

    #[test]
    fn the_role_says_which_end() {
        let at = |role| {
            scopes(&Requirement {
                role,
                transport: "stdio",
                ..EMPTY
            })
        };
        for role in ["server", "dual server", "modern-only server"] {
            assert_eq!(at(role), [Scope::ServerStream], "{role}");
        }
        for role in ["client", "dual client", "modern-only client"] {
            assert_eq!(at(role), [Scope::ClientStream], "{role}");
        }
        for role in [
            "both",
            "responder",
            "receiver",
            "requestor (both)",
            "binding",
        ] {
            assert_eq!(
                at(role),
                [Scope::ServerStream, Scope::ClientStream],
                "{role}"
            );
        }
    }

    #[test]
    fn the_transport_says_which_binding() {
        let over = |transport| {
            scopes(&Requirement {
                role: "server",
                transport,
                ..EMPTY
            })
        };
        assert_eq!(over("any"), [Scope::ServerStream, Scope::ServerHttp]);
        for transport in ["stdio", "custom", "byte stream"] {
            assert_eq!(over(transport), [Scope::ServerStream], "{transport}");
        }
        for transport in ["HTTP", "HTTP+SSE", "SSE"] {
            assert_eq!(over(transport), [Scope::ServerHttp], "{transport}");
        }
    }

    #[test]
    fn the_layer_says_whether_it_is_the_cores() {
        let of = |layer| scopes(&Requirement { layer, ..EMPTY });
        for layer in ["user", "adapter stdio", "adapter stdio + user"] {
            assert_eq!(of(layer), [Scope::Outside], "{layer}");
        }
        for layer in ["core framing", "core lifecycle / user"] {
            assert_eq!(of(layer).len(), 4, "{layer}");
        }
    }

    #[test]
    fn a_word_without_a_meaning_is_an_error_and_the_data_has_none() {
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
            let why = Scope::ServerStream.holds(&bad).expect_err("unknown");
            assert!(why.starts_with("S-TEST-01 has a "), "{why}");
        }
        for row in requirements().expect("well formed") {
            assert!(!scopes(&row).is_empty(), "{} is nowhere", row.id);
        }
    }

    #[test]
    fn the_file_says_whom_a_test_speaks_for() {
        for path in ["tests/server.rs", "tests/server_eras.rs", "tests/pair.rs"] {
            assert_eq!(heard(path), [Scope::ServerStream], "{path}");
        }
        assert_eq!(heard("src/server/asks.rs"), [Scope::ServerStream]);
        assert_eq!(heard("tests/server_http.rs"), [Scope::ServerHttp]);
        for path in [
            "tests/asks.rs",
            "tests/failures_calls.rs",
            "src/client/clock.rs",
        ] {
            assert_eq!(heard(path), [Scope::ClientStream], "{path}");
        }
        assert_eq!(
            heard("tests/relay_ids.rs"),
            [Scope::ServerStream, Scope::ClientStream]
        );
        assert_eq!(
            heard("src/http/url.rs"),
            [Scope::ServerHttp, Scope::ClientHttp]
        );
        assert_eq!(heard("src/wire/line.rs").len(), 4);
        assert_eq!(heard("src/protocol/meta.rs").len(), 4);
        assert!(Scope::Outside.hears("tests/drive_child.rs"));
    }

    #[test]
    fn the_strictest_word_gives_the_class() {
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
