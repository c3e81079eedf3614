//! Every answer in every state: each flow ends with one outcome and without a lock, whatever one exchange is answered with.

use std::time::Duration;

use everlink::auth::{Config, Event, Grant, IdentityProvider, KnownClient, Secret, State};
use everlink::http::{Fields, Url};
use serde_json::json;

use crate::support::*;

const IDP: &str = "https://idp.example/token";

/// What is done with an authorizer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// The server refuses a request without a token.
    SignIn,
    /// The server refuses the token of a sign-in.
    Renew,
    /// The token of a sign-in is not sufficient.
    StepUp,
    SignOut,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Code,
    Device,
    Credentials,
    PrivateKey,
    Workload,
    Enterprise,
    Legacy,
}

const KINDS: [Kind; 7] = [
    Kind::Code,
    Kind::Device,
    Kind::Credentials,
    Kind::PrivateKey,
    Kind::Workload,
    Kind::Enterprise,
    Kind::Legacy,
];

fn configure(kind: Kind, config: &mut Config) {
    let client = |secret: Option<&str>| {
        Some(KnownClient {
            id: "me".into(),
            secret: secret.map(Secret::new),
            method: None,
            issuer: None,
        })
    };
    match kind {
        Kind::Code | Kind::Legacy => {}
        Kind::Device => config.grant = Grant::DeviceCode,
        Kind::Credentials => {
            config.grant = Grant::ClientCredentials;
            config.client.known = client(Some("s"));
        }
        Kind::PrivateKey => {
            config.grant = Grant::ClientCredentials;
            config.client.known = client(None);
        }
        Kind::Workload => config.grant = Grant::WorkloadIdentity,
        Kind::Enterprise => {
            config.grant = Grant::EnterpriseManaged(Box::new(IdentityProvider {
                token_endpoint: Url::parse(IDP).unwrap(),
                client_id: "x".into(),
                client_secret: None,
            }));
            config.client.known = client(Some("s"));
        }
    }
}

fn web_of(kind: Kind) -> Web {
    let mut web = usual_web();
    if kind == Kind::Legacy {
        web = Web::default();
        web.at("https://mcp.example/register", |_| {
            Answer::json(201, json!({"client_id": "client-1"}))
        });
        web.at("https://mcp.example/token", counted_tokens());
    }
    web.document(
        DEVICE,
        json!({
            "device_code": "d",
            "user_code": "u",
            "verification_uri": "https://as.example/x",
            "expires_in": 300,
        }),
    );
    let jag = "urn:ietf:params:oauth:token-type:id-jag";
    web.document(
        IDP,
        json!({"access_token": "jag", "issued_token_type": jag}),
    );
    web
}

/// The answers, with their names. `None` is the usual one.
fn answers() -> Vec<(&'static str, Option<Answer>)> {
    let text = |text: &str| Answer::Body(200, Fields::new(), text.as_bytes().to_vec());
    let mut answers = vec![
        ("good", None),
        ("rubbish", Some(text("<html>"))),
        ("empty object", Some(text("{}"))),
        ("empty", Some(text(""))),
        ("broken", Some(Answer::Broken)),
        ("never", Some(Answer::Never)),
        (
            "302",
            Some(Answer::status(302).with("Location", "https://evil.example/")),
        ),
        (
            "303",
            Some(Answer::status(303).with("Location", "/elsewhere")),
        ),
        ("429", Some(Answer::status(429).with("Retry-After", "3"))),
    ];
    for (name, error) in [
        ("invalid_grant", "invalid_grant"),
        ("invalid_client", "invalid_client"),
        ("invalid_request", "invalid_request"),
        ("slow_down", "slow_down"),
        ("use_dpop_nonce", "use_dpop_nonce"),
    ] {
        answers.push((name, Some(refusal(400, error))));
    }
    for (name, status) in [
        ("204", 204),
        ("400", 400),
        ("401", 401),
        ("403", 403),
        ("404", 404),
        ("500", 500),
        ("503", 503),
    ] {
        answers.push((name, Some(Answer::status(status))));
    }
    answers
}

/// Lets time pass, and the person sign in, until nothing is under way. Fails if that takes more than an hour.
fn settle(process: &mut Process) {
    let mut visits = process.visits.len().saturating_sub(1);
    for _ in 0..720 {
        if process.auth.state().is_idle() {
            return;
        }
        if process.auth.state() == State::Asking && process.visits.len() > visits {
            visits = process.visits.len();
            process.sign_in();
        }
        process.pass(Duration::from_secs(5));
    }
    panic!("{:?} never ends", process.auth.state());
}

/// A process that is ready for the action.
fn ready(kind: Kind, action: Action) -> Process {
    let mut process = Process::start(web_of(kind), |config| configure(kind, config));
    process.gifts = vec!["gift"; 200];
    if action != Action::SignIn {
        process.unauthorized();
        settle(&mut process);
        assert_eq!(
            process.auth.state(),
            State::SignedIn,
            "{:?}",
            process.events
        );
    }
    process
}

fn act(process: &mut Process, action: Action) {
    match action {
        Action::SignIn | Action::Renew => process.unauthorized(),
        Action::StepUp => {
            let (id, _) = process.token().unwrap();
            let demand = r#"Bearer error="insufficient_scope", scope="more""#;
            process.challenge(403, &[demand], Some(id));
        }
        Action::SignOut => {
            let now = process.now();
            process.auth.sign_out(now);
            process.run();
        }
    }
    settle(process);
}

/// How many exchanges an action needs if all goes well.
fn exchanges(kind: Kind, action: Action) -> usize {
    let mut process = ready(kind, action);
    let before = process.web.borrow().log.len();
    act(&mut process, action);
    let count = process.web.borrow().log.len() - before;
    assert!(count > 0, "{kind:?} {action:?}");
    count
}

/// Answers one exchange of an action, or all from it on, in an unusual way.
fn check(kind: Kind, action: Action, at: usize, answer: &(&str, Option<Answer>), lasts: bool) {
    let shown = format!("{kind:?} {action:?} {at} {} {lasts}", answer.0);
    let mut process = ready(kind, action);
    let before = process.web.borrow().log.len();
    let (outcomes, visits) = (process.outcomes(), process.visits.len());
    let stored = process.store.tokens();
    let unusual = answer.1.clone();
    process.web.borrow_mut().intercept = Some(Box::new(move |number, _| {
        let is_it = number == before + at || (lasts && number > before + at);
        unusual.clone().filter(|_| is_it)
    }));
    act(&mut process, action);
    let ends = process.events.iter();
    let ends = ends
        .filter(|event| matches!(event, Event::SignedOut { .. }))
        .count();
    if action == Action::SignOut {
        assert_eq!((process.outcomes(), ends), (outcomes, 1), "{shown}");
        assert!(process.store.get().records.is_empty(), "{shown}");
    } else {
        assert_eq!(
            (process.outcomes(), ends),
            (outcomes + 1, 0),
            "{shown}: {:?}",
            process.events
        );
    }
    assert!(process.locks().is_empty(), "{shown}: {:?}", process.locks());
    assert!(process.pending.is_empty(), "{shown}: an exchange is left");
    assert!(!process.is_redirect_open, "{shown}");
    assert!(process.visits.len() <= visits + 3, "{shown}");
    let sent = process.web.borrow().log.len() - before;
    assert!(sent <= 130, "{shown}: {sent} requests");
    let is_refused = matches!(process.events.last(), Some(Event::Refused(_)));
    if is_refused && action == Action::StepUp {
        assert_eq!(process.store.tokens(), stored, "{shown}: tokens are lost");
        assert!(process.token().is_some(), "{shown}: the token is lost");
    }
    let urls = process.web.borrow();
    assert!(!urls.urls().contains(&"https://evil.example/"), "{shown}");
}

fn check_all(action: Action) {
    for kind in KINDS {
        for at in 0..exchanges(kind, action) {
            for answer in &answers() {
                check(kind, action, at, answer, false);
                check(kind, action, at, answer, true);
            }
        }
    }
}

/// A-REF-09, A-REF-10
#[test]
fn every_answer_in_every_state_of_a_sign_in_ends_it_with_one_outcome() {
    check_all(Action::SignIn);
}

/// A-REF-07, A-REF-10
#[test]
fn every_answer_in_every_state_of_a_renewal_ends_it_with_one_outcome() {
    check_all(Action::Renew);
}

/// A-STEP-02
#[test]
fn every_answer_in_every_state_of_a_step_up_ends_it_and_loses_no_token() {
    check_all(Action::StepUp);
}

#[test]
fn every_answer_in_every_state_of_a_sign_out_ends_it() {
    for kind in [Kind::Code, Kind::Device, Kind::Credentials] {
        for at in 0..exchanges(kind, Action::SignOut) {
            for answer in &answers() {
                check(kind, Action::SignOut, at, answer, true);
            }
        }
    }
}

/// A driver that never gives what it was asked for delays nobody for ever.
#[test]
fn driver_that_never_answers_is_given_up_after_a_deadline() {
    let mut process = Process::start(usual_web(), |_| {});
    process.is_unprepared = true;
    process.unauthorized();
    assert_eq!(process.auth.state(), State::Preparing);
    process.pass(Duration::from_secs(31));
    assert!(process.refusal().contains("too long"));
    assert!(process.locks().is_empty());
    let mut process = Process::start(usual_web(), |_| {});
    process.unprepared = "no browser";
    process.unauthorized();
    assert!(process.refusal().contains("no browser"));
    assert!(process.locks().is_empty());
}

/// The application may give up in every state of a sign-in.
#[test]
fn cancel_ends_every_state_of_a_sign_in_with_one_outcome() {
    for kind in KINDS {
        for at in 0..exchanges(kind, Action::SignIn) {
            let mut process = ready(kind, Action::SignIn);
            process.web.borrow_mut().intercept = Some(Box::new(move |number, _| {
                (number == at).then_some(Answer::Never)
            }));
            process.unauthorized();
            for _ in 0..20 {
                if process.auth.state() == State::Asking {
                    process.sign_in();
                } else if process.pending.is_empty() {
                    process.pass(Duration::from_secs(1));
                }
            }
            assert_eq!(process.pending.len(), 1, "{kind:?} {at}");
            let now = process.now();
            process.auth.cancel(now);
            process.run();
            assert!(process.auth.state().is_idle(), "{kind:?} {at}");
            assert_eq!(process.outcomes(), 1, "{kind:?} {at}");
            assert!(process.locks().is_empty() && !process.is_redirect_open);
            assert!(process.pending.is_empty());
        }
    }
}
