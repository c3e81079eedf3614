//! Arbitrary challenges, documents and redirects for an authorizer, and arbitrary operations on one. `rig` is its driver and has the rules.

mod rig;

use everlink::auth::{Grant, State};

use crate::script::Script;
pub(crate) use rig::machine;
use rig::{Rig, Setup};

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
    rig.challenge(status, &fields);
    rig.finish();
    rig.challenge(status, &fields);
    rig.finish();
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

/// Tests the whole machine: the bytes choose the settings, and then one operation after the other.
///
/// # Panics
///
/// When a rule is broken.
pub fn auth_machine(data: &[u8]) {
    let mut script = Script::new(data, 0);
    let mut rig = Rig::new(Setup::read(&mut script));
    rig.expect_texts(data);
    rig.run(&mut script);
    rig.finish();
}
