//! The table of all requests and notifications: the versions and directions in which each exists, and the features that it needs.
//!
//! It knows no params except the member that names a target. It does not know how a message is sent.

pub mod names;

use super::{
    feature::{ClientFeature, ServerFeature},
    version::{Version, Versions},
};

/// The facts of the protocol about one method.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Method {
    /// The name on the wire, one of [`names`].
    pub name: &'static str,
    /// Whether it is a request or a notification.
    pub kind: Kind,
    /// The versions in which a client may send it.
    pub to_server: Versions,
    /// The versions in which a server may send it as a message of its own.
    pub to_client: Versions,
    /// Whether a modern server may embed it in the result of another request. There it may not send it as a message.
    pub embedded: bool,
    /// The features of the server that it needs, each in the versions that know it: see [`Method::gate`].
    pub needs_of_server: &'static [ServerFeature],
    /// The features of the client that it needs, each in the versions that know it: see [`Method::client_gate`].
    pub needs_of_client: &'static [ClientFeature],
    /// Whether it may be sent again after its connection was lost before the reply.
    pub repeat: Repeat,
    /// Whether it only reads, so that it changes nothing, however often it runs.
    pub only_reads: bool,
    /// Whether a modern result carries cache hints.
    pub cacheable: bool,
    /// Whether a modern result may be `input_required`.
    pub may_need_input: bool,
    /// The member of the params that the modern HTTP transport repeats in the `Mcp-Name` header field.
    pub named_by: Option<&'static str>,
    /// The owner of the method.
    pub owner: Owner,
}

/// Whether a method gets a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// It has no id and gets no reply.
    Notification,
    /// It has an id and gets one reply.
    Request,
}

/// The owner of a method: the code that sends and handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// The application. The link carries the method and adds only the envelope.
    Application,
    /// The link. The method is part of, or changes, the link's own state. If the application sent it directly, the two would disagree.
    /// Where an application may decide, there is a verb for it.
    Link,
}

/// Whether a request may be sent again with a new id, after its connection was lost before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repeat {
    /// A second run does no harm: it only reads, or leads to the same state.
    Safe,
    /// A second run may act twice, or has no meaning on another connection. Every notification is of this kind.
    Unsafe,
}

/// Finds the method with this name, if the protocol has one in any version.
#[must_use]
pub fn find(name: &str) -> Option<&'static Method> {
    let mut slot = first_slot(name.as_bytes());
    loop {
        let method = TABLE.get(usize::from(*INDEX.get(slot)?))?;
        if method.name == name {
            return Some(method);
        }
        slot = (slot + 1) % SLOTS;
    }
}

impl Method {
    /// Every method of every version, sorted by name.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &TABLE
    }

    /// The feature that the server must have offered in `version`, if any.
    ///
    /// It applies to requests that the server answers, and to notifications about what it provides. A method that goes both ways, such as
    /// `tasks/get`, has one gate per direction: this one applies if the task is the server's.
    #[must_use]
    pub fn gate(&self, version: Version) -> Option<ServerFeature> {
        let mut needs = self.needs_of_server.iter().copied();
        needs.find(|feature| feature.versions().contains(version))
    }

    /// The feature that the client must have declared in `version`, if any.
    ///
    /// The counterpart of [`Method::gate`]: for requests that the client answers, and for notifications about what it provides.
    #[must_use]
    pub fn client_gate(&self, version: Version) -> Option<ClientFeature> {
        let mut needs = self.needs_of_client.iter().copied();
        needs.find(|feature| feature.versions().contains(version))
    }
}

/// A template: a request of the application that only reads, without a direction.
const REQUEST: Method = Method {
    name: "",
    kind: Kind::Request,
    to_server: Versions::NONE,
    to_client: Versions::NONE,
    embedded: false,
    needs_of_server: &[],
    needs_of_client: &[],
    repeat: Repeat::Safe,
    only_reads: true,
    cacheable: false,
    may_need_input: false,
    named_by: None,
    owner: Owner::Application,
};

/// A template: a notification of the application, without a direction.
const NOTIFICATION: Method = Method {
    kind: Kind::Notification,
    repeat: Repeat::Unsafe,
    only_reads: false,
    ..REQUEST
};

/// The only version that has tasks in its core.
const CORE_TASKS: Versions = Versions::only(Version::V2025_11_25);

/// The version that has tasks in its core, and the modern ones, which have them as an extension.
const ANY_TASKS: Versions = Versions::since(Version::V2025_11_25);

/// The size of the hash index: large enough that most names do not collide.
const SLOTS: usize = 256;

/// A hash index of `TABLE` with linear probing. An empty slot holds an index outside of the table.
static INDEX: [u8; SLOTS] = {
    let mut index = [u8::MAX; SLOTS];
    let mut at = 0;
    while at < TABLE.len() {
        let mut slot = first_slot(TABLE[at].name.as_bytes());
        while index[slot] != u8::MAX {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = at as u8;
        at += 1;
    }
    index
};

/// The hash of a name: the slot at which to begin the search.
const fn first_slot(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [.., last] => {
            let middle = name[name.len() / 2] as usize;
            (7 * name.len() + 31 * middle + *last as usize) % SLOTS
        }
    }
}

/// Sorted by name.
static TABLE: [Method; 36] = [
    Method {
        name: names::COMPLETION_COMPLETE,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Completions],
        ..REQUEST
    },
    Method {
        name: names::ELICITATION_CREATE,
        to_client: Versions::between(Version::V2025_06_18, Version::V2025_11_25),
        embedded: true,
        needs_of_client: &[ClientFeature::Elicitation],
        repeat: Repeat::Unsafe,
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::INITIALIZE,
        to_server: Versions::LEGACY,
        // A new connection begins with a new `initialize`; the old one is never sent again.
        repeat: Repeat::Unsafe,
        owner: Owner::Link,
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::LOGGING_SET_LEVEL,
        to_server: Versions::LEGACY,
        needs_of_server: &[ServerFeature::Logging],
        owner: Owner::Link,
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::NOTIFICATIONS_CANCELLED,
        to_server: Versions::ALL,
        // A modern server uses it only to end a `subscriptions/listen`.
        to_client: Versions::ALL,
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_ELICITATION_COMPLETE,
        to_client: Versions::only(Version::V2025_11_25),
        needs_of_client: &[ClientFeature::ElicitationUrl],
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_INITIALIZED,
        to_server: Versions::LEGACY,
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_MESSAGE,
        to_client: Versions::ALL,
        needs_of_server: &[ServerFeature::Logging],
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_PROGRESS,
        to_server: Versions::LEGACY,
        to_client: Versions::ALL,
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_PROMPTS_LIST_CHANGED,
        to_client: Versions::ALL,
        needs_of_server: &[ServerFeature::PromptsListChanged],
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_RESOURCES_LIST_CHANGED,
        to_client: Versions::ALL,
        needs_of_server: &[ServerFeature::ResourcesListChanged],
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_RESOURCES_UPDATED,
        to_client: Versions::ALL,
        needs_of_server: &[ServerFeature::ResourcesSubscribe],
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_ROOTS_LIST_CHANGED,
        to_server: Versions::LEGACY,
        needs_of_client: &[ClientFeature::RootsListChanged],
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
        to_client: Versions::MODERN,
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_TASKS,
        to_client: Versions::MODERN,
        needs_of_server: &[ServerFeature::TasksExtension],
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_TASKS_STATUS,
        to_server: CORE_TASKS,
        to_client: CORE_TASKS,
        needs_of_server: &[ServerFeature::Tasks],
        needs_of_client: &[ClientFeature::Tasks],
        ..NOTIFICATION
    },
    Method {
        name: names::NOTIFICATIONS_TOOLS_LIST_CHANGED,
        to_client: Versions::ALL,
        needs_of_server: &[ServerFeature::ToolsListChanged],
        owner: Owner::Link,
        ..NOTIFICATION
    },
    Method {
        name: names::PING,
        to_server: Versions::LEGACY,
        to_client: Versions::LEGACY,
        owner: Owner::Link,
        ..REQUEST
    },
    Method {
        name: names::PROMPTS_GET,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Prompts],
        may_need_input: true,
        named_by: Some("name"),
        ..REQUEST
    },
    Method {
        name: names::PROMPTS_LIST,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Prompts],
        cacheable: true,
        ..REQUEST
    },
    Method {
        name: names::RESOURCES_LIST,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Resources],
        cacheable: true,
        ..REQUEST
    },
    Method {
        name: names::RESOURCES_READ,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Resources],
        cacheable: true,
        may_need_input: true,
        named_by: Some("uri"),
        ..REQUEST
    },
    Method {
        name: names::RESOURCES_SUBSCRIBE,
        to_server: Versions::LEGACY,
        needs_of_server: &[ServerFeature::ResourcesSubscribe],
        owner: Owner::Link,
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::RESOURCES_TEMPLATES_LIST,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Resources],
        cacheable: true,
        ..REQUEST
    },
    Method {
        name: names::RESOURCES_UNSUBSCRIBE,
        to_server: Versions::LEGACY,
        needs_of_server: &[ServerFeature::ResourcesSubscribe],
        owner: Owner::Link,
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::ROOTS_LIST,
        to_client: Versions::LEGACY,
        embedded: true,
        needs_of_client: &[ClientFeature::Roots],
        ..REQUEST
    },
    Method {
        name: names::SAMPLING_CREATE_MESSAGE,
        to_client: Versions::LEGACY,
        embedded: true,
        needs_of_client: &[ClientFeature::Sampling],
        repeat: Repeat::Unsafe,
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::SERVER_DISCOVER,
        to_server: Versions::MODERN,
        cacheable: true,
        owner: Owner::Link,
        ..REQUEST
    },
    Method {
        name: names::SUBSCRIPTIONS_LISTEN,
        to_server: Versions::MODERN,
        owner: Owner::Link,
        ..REQUEST
    },
    Method {
        name: names::TASKS_CANCEL,
        to_server: ANY_TASKS,
        to_client: CORE_TASKS,
        needs_of_server: &[ServerFeature::TasksCancel, ServerFeature::TasksExtension],
        needs_of_client: &[ClientFeature::TasksCancel],
        named_by: Some("taskId"),
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::TASKS_GET,
        to_server: ANY_TASKS,
        to_client: CORE_TASKS,
        needs_of_server: &[ServerFeature::Tasks, ServerFeature::TasksExtension],
        needs_of_client: &[ClientFeature::Tasks],
        named_by: Some("taskId"),
        ..REQUEST
    },
    Method {
        name: names::TASKS_LIST,
        to_server: CORE_TASKS,
        to_client: CORE_TASKS,
        needs_of_server: &[ServerFeature::TasksList],
        needs_of_client: &[ClientFeature::TasksList],
        ..REQUEST
    },
    Method {
        name: names::TASKS_RESULT,
        to_server: CORE_TASKS,
        to_client: CORE_TASKS,
        needs_of_server: &[ServerFeature::Tasks],
        needs_of_client: &[ClientFeature::Tasks],
        ..REQUEST
    },
    Method {
        name: names::TASKS_UPDATE,
        to_server: Versions::MODERN,
        needs_of_server: &[ServerFeature::TasksExtension],
        named_by: Some("taskId"),
        only_reads: false,
        ..REQUEST
    },
    Method {
        name: names::TOOLS_CALL,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Tools],
        repeat: Repeat::Unsafe,
        only_reads: false,
        may_need_input: true,
        named_by: Some("name"),
        ..REQUEST
    },
    Method {
        name: names::TOOLS_LIST,
        to_server: Versions::ALL,
        needs_of_server: &[ServerFeature::Tools],
        cacheable: true,
        ..REQUEST
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{
        format,
        string::{String, ToString},
        vec::Vec,
    };
    use core::fmt::Display;

    // The versions are single letters, oldest first; M is the modern one. A gate follows the versions that it applies to.

    const REQUESTS_TO_SERVER: &str = "
        method                   | versions and gates                | input | cache | name   | repeat | owner
        initialize               | ABCD:-                            | -     | -     | -      | unsafe | link
        server/discover          | M:-                               | -     | yes   | -      | reads  | link
        ping                     | ABCD:-                            | -     | -     | -      | reads  | link
        tools/list               | ABCDM:tools                       | -     | yes   | -      | reads  | app
        tools/call               | ABCDM:tools                       | yes   | -     | name   | unsafe | app
        prompts/list             | ABCDM:prompts                     | -     | yes   | -      | reads  | app
        prompts/get              | ABCDM:prompts                     | yes   | -     | name   | reads  | app
        resources/list           | ABCDM:resources                   | -     | yes   | -      | reads  | app
        resources/templates/list | ABCDM:resources                   | -     | yes   | -      | reads  | app
        resources/read           | ABCDM:resources                   | yes   | yes   | uri    | reads  | app
        resources/subscribe      | ABCD:resources.subscribe          | -     | -     | -      | safe   | link
        resources/unsubscribe    | ABCD:resources.subscribe          | -     | -     | -      | safe   | link
        completion/complete      | A:- BCDM:completions              | -     | -     | -      | reads  | app
        logging/setLevel         | ABCD:logging                      | -     | -     | -      | safe   | link
        subscriptions/listen     | M:-                               | -     | -     | -      | reads  | link
        tasks/get                | D:tasks M:extensions.tasks        | -     | -     | taskId | reads  | app
        tasks/result             | D:tasks                           | -     | -     | -      | reads  | app
        tasks/list               | D:tasks.list                      | -     | -     | -      | reads  | app
        tasks/cancel             | D:tasks.cancel M:extensions.tasks | -     | -     | taskId | safe   | app
        tasks/update             | M:extensions.tasks                | -     | -     | taskId | safe   | app
    ";

    const REQUESTS_TO_CLIENT: &str = "
        method                 | versions and gates | embedded | repeat | owner
        ping                   | ABCD:-             | -        | reads  | link
        sampling/createMessage | ABCD:sampling      | yes      | unsafe | app
        roots/list             | ABCD:roots         | yes      | reads  | app
        elicitation/create     | CD:elicitation     | yes      | unsafe | app
        tasks/get              | D:tasks            | -        | reads  | app
        tasks/result           | D:tasks            | -        | reads  | app
        tasks/list             | D:tasks.list       | -        | reads  | app
        tasks/cancel           | D:tasks.cancel     | -        | safe   | app
    ";

    const NOTIFICATIONS: &str = "
        method                     | to server | to client | of server                   | of client              | owner
        initialized                | ABCD      | -         | -                           | -                      | link
        cancelled                  | ABCDM     | ABCDM     | -                           | -                      | link
        progress                   | ABCD      | ABCDM     | -                           | -                      | link
        message                    | -         | ABCDM     | ABCDM:logging               | -                      | link
        tools/list_changed         | -         | ABCDM     | ABCDM:tools.listChanged     | -                      | link
        prompts/list_changed       | -         | ABCDM     | ABCDM:prompts.listChanged   | -                      | link
        resources/list_changed     | -         | ABCDM     | ABCDM:resources.listChanged | -                      | link
        resources/updated          | -         | ABCDM     | ABCDM:resources.subscribe   | -                      | link
        roots/list_changed         | ABCD      | -         | -                           | ABCD:roots.listChanged | app
        elicitation/complete       | -         | D         | -                           | D:elicitation.url      | app
        tasks/status               | D         | D         | D:tasks                     | D:tasks                | app
        subscriptions/acknowledged | -         | M         | -                           | -                      | link
        tasks                      | -         | M         | M:extensions.tasks          | -                      | link
    ";

    #[test]
    fn requests_to_the_server_are_as_specified() {
        check(REQUESTS_TO_SERVER, Kind::Request, |method| {
            let versions = method.to_server;
            [
                gates(versions, |version| method.gate(version)),
                yes(method.may_need_input),
                yes(method.cacheable),
                method.named_by.unwrap_or("-").to_string(),
                repeat(method),
                owner(method),
            ]
            .to_vec()
        });
    }

    #[test]
    fn requests_to_the_client_are_as_specified() {
        check(REQUESTS_TO_CLIENT, Kind::Request, |method| {
            let versions = method.to_client;
            [
                gates(versions, |version| method.client_gate(version)),
                yes(method.embedded),
                repeat(method),
                owner(method),
            ]
            .to_vec()
        });
    }

    #[test]
    fn notifications_are_as_specified() {
        check(NOTIFICATIONS, Kind::Notification, |method| {
            let Method {
                to_server,
                to_client,
                ..
            } = *method;
            let either: Versions = to_server.iter().chain(to_client.iter()).collect();
            let of_server = gates(either, |version| method.gate(version));
            let of_client = gates(either, |version| method.client_gate(version));
            assert_eq!(repeat(method), "unsafe");
            [
                letters(to_server),
                letters(to_client),
                unless_open(of_server),
                unless_open(of_client),
                owner(method),
            ]
            .to_vec()
        });
    }

    #[test]
    fn every_method_is_in_its_tables() {
        for method in Method::all() {
            let listed =
                |table| rows(table).any(|row| full_name(method.kind, row[0]) == method.name);
            match method.kind {
                Kind::Notification => assert!(listed(NOTIFICATIONS), "{}", method.name),
                Kind::Request => {
                    assert_eq!(
                        listed(REQUESTS_TO_SERVER),
                        !method.to_server.is_empty(),
                        "{}",
                        method.name
                    );
                    assert_eq!(
                        listed(REQUESTS_TO_CLIENT),
                        !method.to_client.is_empty(),
                        "{}",
                        method.name
                    );
                }
            }
        }
    }

    #[test]
    fn the_table_is_sorted_and_every_method_is_found() {
        for pair in TABLE.windows(2) {
            assert!(
                pair[0].name < pair[1].name,
                "{} < {}",
                pair[0].name,
                pair[1].name
            );
        }
        for method in &TABLE {
            assert_eq!(find(method.name), Some(method));
        }
        for unknown in ["", "a", "tools", "tools/call ", "Tools/call", "zzz"] {
            assert_eq!(find(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn a_gate_is_unambiguous_in_every_version() {
        for method in &TABLE {
            for &version in Version::ALL {
                let of_server = method.needs_of_server.iter();
                let of_client = method.needs_of_client.iter();
                assert!(of_server.filter(|f| f.versions().contains(version)).count() <= 1);
                assert!(of_client.filter(|f| f.versions().contains(version)).count() <= 1);
            }
        }
    }

    fn check(table: &str, kind: Kind, cells: impl Fn(&Method) -> Vec<String>) {
        for row in rows(table) {
            let name = full_name(kind, row[0]);
            let method = find(&name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(method.kind, kind, "{name}");
            assert_eq!(cells(method), row[1..], "{name}");
        }
    }

    /// The tables leave out the common prefix of all notifications.
    fn full_name(kind: Kind, name: &str) -> String {
        match kind {
            Kind::Notification => format!("notifications/{name}"),
            Kind::Request => name.to_string(),
        }
    }

    fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
        let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
        lines
            .skip(1)
            .map(|line| line.split('|').map(str::trim).collect())
    }

    /// `A:- BCDM:completions`: the versions, oldest first, grouped by gate.
    fn gates<F: Display>(versions: Versions, gate: impl Fn(Version) -> Option<F>) -> String {
        let mut runs: Vec<(String, String)> = Vec::new();
        for version in versions.iter().rev() {
            let gate = gate(version).map_or("-".to_string(), |feature| feature.to_string());
            let gate = gate.replace("io.modelcontextprotocol/", "");
            match runs.last_mut() {
                Some((run, same)) if *same == gate => run.push(letter(version)),
                _ => runs.push((letter(version).to_string(), gate)),
            }
        }
        let runs: Vec<_> = runs
            .iter()
            .map(|(run, gate)| format!("{run}:{gate}"))
            .collect();
        runs.join(" ")
    }

    fn unless_open(gates: String) -> String {
        if gates.ends_with(":-") {
            "-".to_string()
        } else {
            gates
        }
    }

    fn letters(versions: Versions) -> String {
        if versions.is_empty() {
            return "-".to_string();
        }
        versions.iter().rev().map(letter).collect()
    }

    fn letter(version: Version) -> char {
        match version {
            Version::V2024_11_05 => 'A',
            Version::V2025_03_26 => 'B',
            Version::V2025_06_18 => 'C',
            Version::V2025_11_25 => 'D',
            Version::V2026_07_28 => 'M',
        }
    }

    fn yes(fact: bool) -> String {
        if fact { "yes" } else { "-" }.to_string()
    }

    fn repeat(method: &Method) -> String {
        match (method.repeat, method.only_reads) {
            (Repeat::Safe, true) => "reads",
            (Repeat::Safe, false) => "safe",
            (Repeat::Unsafe, true) => "a read that may not be repeated",
            (Repeat::Unsafe, false) => "unsafe",
        }
        .to_string()
    }

    fn owner(method: &Method) -> String {
        match method.owner {
            Owner::Application => "app",
            Owner::Link => "link",
        }
        .to_string()
    }
}
