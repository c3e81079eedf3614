//! Arbitrary challenges, documents and redirects for an authorizer, and arbitrary operations on two that share a store. `rig` is the driver of one and has
//! the rules, `setup` has its settings, and `machine` has the operations.

mod machine;
mod rig;
mod setup;

use std::time::Duration;

use everlink::auth::{Grant, State};
use everlink::http::Fields;

use rig::Rig;
pub(crate) use rig::machine;
use setup::Setup;

/// Tests challenges: the bytes are the fields `WWW-Authenticate`, one on each line. The first byte chooses the status and what came before.
///
/// # Panics
///
/// When a rule is broken.
pub fn auth_challenge(data: &[u8]) {
    let [first, rest @ ..] = data else {
        return;
    };
    let mut rig = Rig::new(Setup::default());
    rig.expect_texts(rest);
    rig.finish();
    if first & 1 == 1 {
        rig.challenge(401, &[b"Bearer"]);
        rig.finish();
    }
    let status = [401, 403, 400, 407][usize::from(first >> 1 & 3)];
    let fields: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    rig.visited = None;
    rig.challenge(status, &fields);
    rig.finish();
    if let (401, [field]) = (status, &fields[..]) {
        if let (Some(expected), Some(visited)) = (scopes(field), &rig.visited) {
            let visited = url::Url::parse(visited.as_str()).expect("a URL");
            let scope = visited.query_pairs().find(|(name, _)| name == "scope");
            let scope = scope.map(|(_, scope)| scope.into_owned());
            assert_eq!(scope.unwrap_or_default(), expected.join(" "));
        }
    }
    rig.challenge(status, &fields);
    rig.finish();
}

/// How long an authorizer waits that is told so with these fields.
pub(crate) fn pause_after(fields: Fields<'_>) -> Duration {
    let mut rig = Rig::new(Setup::default());
    rig.finish();
    rig.challenge(401, &[b"Bearer"]);
    rig.refuse(429, fields).expect("a deadline")
}

/// Signs in at a server that names this authorization server. The rig checks where requests go.
pub(crate) fn authorization_server(url: &str) {
    let mut rig = Rig::new(Setup::default());
    rig.finish();
    let servers = serde_json::json!([url]);
    let document =
        format!(r#"{{"resource":"https://mcp.example/mcp","authorization_servers":{servers}}}"#);
    rig.replace("oauth-protected-resource", 200, document.as_bytes());
    rig.challenge(401, &[b"Bearer"]);
    rig.finish();
}

/// The scopes that a challenge names, by the crate `http-auth`. `None` if it cannot read the field, or if the challenge says more than that.
///
/// These differences are meant: ours skips what is invalid where the crate refuses the field, and ignores a parameter that comes twice.
fn scopes(field: &[u8]) -> Option<Vec<String>> {
    let challenges = http_auth::parse_challenges(std::str::from_utf8(field).ok()?).ok()?;
    let of = |scheme: &str| {
        let mut found = challenges.iter();
        found.find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme))
    };
    let chosen = of("bearer").or_else(|| of("dpop"))?;
    let named = |name: &str| {
        let of_name = chosen
            .params
            .iter()
            .filter(|(of, _)| of.eq_ignore_ascii_case(name));
        of_name
            .map(|(_, value)| value.to_unescaped())
            .collect::<Vec<_>>()
    };
    if !named("resource_metadata").is_empty() || !named("error").is_empty() {
        return None;
    }
    let scope = match &named("scope")[..] {
        [one] => one.clone(),
        _ => String::new(),
    };
    let mut scopes: Vec<String> = Vec::new();
    for scope in scope.split([' ', '\t']).filter(|scope| !scope.is_empty()) {
        if !scopes.iter().any(|found| found == scope) {
            scopes.push(scope.into());
        }
    }
    Some(scopes)
}

/// Tests documents: the first byte chooses which one, the second its status. The rest is its body. All others are as expected.
///
/// # Panics
///
/// When a rule is broken.
pub fn auth_document(data: &[u8]) {
    let [which, status, body @ ..] = data else {
        return;
    };
    let grant = match which % 6 {
        4 | 5 => Grant::DeviceCode,
        _ => Grant::AuthorizationCode,
    };
    let mut rig = Rig::new(Setup {
        grant,
        ..Setup::default()
    });
    rig.finish();
    let path = [
        "oauth-protected-resource",
        "oauth-authorization-server",
        "/register",
        "/token",
        "/device",
        "/token",
    ][usize::from(which % 6)];
    let status = [200, 201, 400, 401, 500, 302, 429, 404][usize::from(status % 8)];
    rig.replace(path, status, body);
    rig.challenge(401, &[b"Bearer scope=\"read\""]);
    rig.finish();
    // The same document for a renewal, or for a second attempt.
    rig.pass_hours(2);
    rig.challenge(401, &[b"Bearer"]);
    rig.finish();
}

/// Tests redirects: the bytes are the query. A byte 1 stands for the right `state`, a byte 2 for the right issuer.
///
/// # Panics
///
/// When a rule is broken, or when an answer of somebody else is used.
pub fn auth_redirect(data: &[u8]) {
    let mut rig = Rig::new(Setup {
        waits_for_redirect: true,
        ..Setup::default()
    });
    rig.expect_texts(data);
    rig.finish();
    rig.challenge(401, &[b"Bearer"]);
    rig.finish();
    assert_eq!(rig.state(), State::Asking);
    let text = String::from_utf8_lossy(data);
    let query = text
        .replace('\u{1}', rig::STATE)
        .replace('\u{2}', rig::ISSUER);
    rig.redirect(&query);
    if !query.contains(rig::STATE) && !query.contains('%') {
        assert_eq!(rig.state(), State::Asking, "a forged answer was used");
    }
    rig.finish();
}

/// Tests the whole machine, in two processes with one store: the bytes choose the settings, and then one operation after the other.
///
/// # Panics
///
/// When a rule is broken.
pub fn auth_machine(data: &[u8]) {
    machine::run(data);
}

/// The settings and the operations of [`auth_machine`].
pub(crate) fn show_machine(data: &[u8]) -> String {
    machine::show(data)
}
