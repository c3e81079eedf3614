//! Scopes: which ones are requested, and what is made of those that are granted.

use everlink::auth::{Scopes, State};
use serde_json::json;

use crate::support::*;

fn requested(process: &Process) -> Option<String> {
    form(process.visits.last().unwrap(), "scope")
}

/// A-SCOPE-01, A-SCOPE-02: the challenge decides, whatever is published.
#[test]
fn scopes_of_the_challenge_come_before_those_that_are_published() {
    let web = || web_with_resource(json!({"scopes_supported": ["a", "b"]}));
    let mut process = Process::start(web(), |_| {});
    process.challenge(401, &[r#"Bearer scope="x  b x""#], None);
    assert_eq!(requested(&process).as_deref(), Some("x b"));
    let mut process = Process::start(web(), |_| {});
    process.challenge(401, &["Bearer"], None);
    assert_eq!(requested(&process).as_deref(), Some("a b"));
    let mut process = Process::start(usual_web(), |_| {});
    process.challenge(401, &["Bearer"], None);
    assert_eq!(requested(&process), None, "the parameter is left out");
}

/// A-SCOPE-01: the application may know better.
#[test]
fn scopes_of_the_application_replace_those_that_the_server_names() {
    for demand in ["Bearer", r#"Bearer scope="a b""#] {
        let web = web_with_resource(json!({"scopes_supported": ["a", "b"]}));
        let mut process = Process::start(web, |config| config.scope = Some("mine".into()));
        process.challenge(401, &[demand], None);
        assert_eq!(requested(&process).as_deref(), Some("mine"));
    }
}

/// A-SCOPE-04: a token with the scopes of the application is not sufficient for a request. Nothing but the union can be.
#[test]
fn step_up_adds_the_scopes_of_the_challenge_to_those_of_the_application() {
    let mut process = Process::start(usual_web(), |config| config.scope = Some("mine".into()));
    process.challenge(401, &[r#"Bearer scope="a""#], None);
    process.sign_in();
    let (id, _) = process.token().unwrap();
    let demand = r#"Bearer error="insufficient_scope", scope="write""#;
    process.challenge(403, &[demand], Some(id));
    assert_eq!(requested(&process).as_deref(), Some("write mine"));
}

/// A-SCOPE-03
#[test]
fn offline_access_is_requested_only_where_the_authorization_server_lists_it() {
    for (listed, demand, scope) in [
        (
            json!(["offline_access"]),
            r#"Bearer scope="a""#,
            Some("a offline_access"),
        ),
        (json!(["a"]), r#"Bearer scope="a""#, Some("a")),
        (json!(null), r#"Bearer scope="a""#, Some("a")),
        (json!(["offline_access"]), "Bearer", None),
    ] {
        let mut process = Process::start(web_with(json!({"scopes_supported": listed})), |_| {});
        process.challenge(401, &[demand], None);
        assert_eq!(requested(&process).as_deref(), scope);
        let prompt = form(&process.visits[0], "prompt");
        let is_offline = scope.is_some_and(|scope| scope.contains("offline_access"));
        assert_eq!(prompt.as_deref(), is_offline.then_some("consent"));
    }
}

/// A-SCOPE-03: parameters of the application are not repeated.
#[test]
fn prompt_of_the_application_replaces_the_usual_one() {
    let web = web_with(json!({"scopes_supported": ["offline_access"]}));
    let mut process = Process::start(web, |config| {
        config.authorize_parameters = vec![
            ("prompt".into(), "select_account".into()),
            ("access_type".into(), "offline".into()),
        ];
    });
    process.challenge(401, &[r#"Bearer scope="a""#], None);
    let visit = &process.visits[0];
    assert_eq!(form(visit, "prompt").as_deref(), Some("select_account"));
    assert_eq!(form(visit, "access_type").as_deref(), Some("offline"));
}

/// A-SCOPE-05: the answer says what was granted; without it, everything was.
#[test]
fn granted_scopes_are_those_of_the_answer_and_are_stored() {
    for (scope, granted) in [(json!("a"), "a"), (json!(null), "a b")] {
        let mut web = usual_web();
        web.at(TOKEN, move |_| {
            Answer::json(200, merged(tokens(1), json!({"scope": scope})))
        });
        let mut process = Process::start(web, |_| {});
        process.challenge(401, &[r#"Bearer scope="a b""#], None);
        process.sign_in();
        let authorized = process.auth.authorized().unwrap();
        assert_eq!(authorized.scopes.to_string(), granted);
        let stored = process.store.tokens().unwrap();
        assert_eq!(stored["tokens"]["scopes"], granted);
        assert_eq!(stored["requested"], "a b");
        assert_eq!(process.auth.state(), State::SignedIn);
    }
}

#[test]
fn other_parameters_of_the_application_leave_the_usual_prompt() {
    let web = web_with(json!({"scopes_supported": ["offline_access"]}));
    let mut process = Process::start(web, |config| {
        config.authorize_parameters = vec![("audience".into(), "x".into())];
    });
    process.challenge(401, &[r#"Bearer scope="a""#], None);
    let prompt = form(&process.visits[0], "prompt");
    assert_eq!(prompt.as_deref(), Some("consent"));
}

#[test]
fn set_of_scopes_has_all_of_another_only_if_none_is_missing() {
    let scopes = Scopes::parse("read write");
    for (others, has_all) in [
        ("", true),
        ("write", true),
        ("write read", true),
        ("admin", false),
        ("read admin", false),
    ] {
        assert_eq!(scopes.has_all(&Scopes::parse(others)), has_all, "{others}");
    }
}

/// A refresh token that was replaced must not be lost because of a member beside it.
#[test]
fn scopes_of_an_answer_may_be_a_list_and_never_cost_the_tokens() {
    for (scope, granted) in [
        (json!(["a", "c"]), "a c"),
        (json!([]), ""),
        (json!([1]), "a b"),
        (json!(7), "a b"),
        (json!({"a": true}), "a b"),
    ] {
        let mut web = usual_web();
        web.at(TOKEN, move |_| {
            Answer::json(200, merged(tokens(1), json!({"scope": scope})))
        });
        let mut process = Process::start(web, |_| {});
        process.challenge(401, &[r#"Bearer scope="a b""#], None);
        process.sign_in();
        let authorized = process.auth.authorized().expect("tokens");
        assert_eq!(authorized.scopes.to_string(), granted);
    }
}
