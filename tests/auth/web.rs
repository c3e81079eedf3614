//! A web of documents and endpoints, which are values.

use std::collections::BTreeMap;

use everlink::auth::Request;
use everlink::http::{Fields, Verb};
use serde_json::{Value, json};

/// The MCP server.
pub(crate) const SERVER: &str = "https://mcp.example/v1/mcp";
/// The issuer.
pub(crate) const ISSUER: &str = "https://as.example";
/// The time at which tests begin, in seconds since 1970.
pub(crate) const START: u64 = 1_800_000_000;

/// An answer of the web.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Body(u16, Fields<'static>, Vec<u8>),
    /// No answer: the connection breaks.
    Broken,
    /// No answer yet.
    Never,
}

impl Answer {
    pub(crate) fn json(status: u16, body: Value) -> Answer {
        Answer::Body(status, Fields::new(), body.to_string().into_bytes())
    }

    pub(crate) fn status(status: u16) -> Answer {
        Answer::Body(status, Fields::new(), Vec::new())
    }

    pub(crate) fn with(self, name: &'static str, value: &str) -> Answer {
        match self {
            Answer::Body(status, fields, body) => {
                Answer::Body(status, fields.and(name, value.to_owned()), body)
            }
            other => other,
        }
    }
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) verb: Verb,
    pub(crate) url: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) has_proof: bool,
    /// The nonce that its proof must have.
    pub(crate) nonce: Option<String>,
}

impl Sent {
    /// The value of a form parameter.
    pub(crate) fn form(&self, name: &str) -> Option<String> {
        form(&self.body, name)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(of, _)| of.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The value of a parameter in a form or in the query of a URL.
pub(crate) fn form(text: &str, name: &str) -> Option<String> {
    let text = text.split_once('?').map_or(text, |(_, query)| query);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(of, _)| *of == name);
    let (_, value) = named.next()?;
    assert!(named.next().is_none(), "{name} comes twice");
    let mut decoded = Vec::new();
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            b'+' => b' ',
            other => other,
        });
    }
    Some(String::from_utf8(decoded).unwrap())
}

type Handler = Box<dyn FnMut(&Sent) -> Answer>;
type Intercept = Box<dyn FnMut(usize, &Sent) -> Option<Answer>>;

/// A web of documents and endpoints, with the log of all requests.
#[derive(Default)]
pub(crate) struct Web {
    handlers: BTreeMap<String, Handler>,
    /// Asked first, with the number of the request: an answer in place of the usual one.
    pub(crate) intercept: Option<Intercept>,
    pub(crate) log: Vec<Sent>,
}

impl Web {
    pub(crate) fn at(
        &mut self,
        url: impl Into<String>,
        handler: impl FnMut(&Sent) -> Answer + 'static,
    ) {
        self.handlers.insert(url.into(), Box::new(handler));
    }

    pub(crate) fn document(&mut self, url: impl Into<String>, body: Value) {
        self.at(url, move |_| Answer::json(200, body.clone()));
    }

    pub(crate) fn answer(&mut self, request: &Request) -> Answer {
        let fields = request.fields.iter();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let sent = Sent {
            verb: request.verb,
            url: request.url.as_str().to_owned(),
            fields: fields
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect(),
            body: text(&request.body),
            has_proof: request.proof.is_some(),
            nonce: request
                .proof
                .as_ref()
                .and_then(|proof| proof.nonce.as_deref().map(str::to_owned)),
        };
        let number = self.log.len();
        self.log.push(sent.clone());
        let intercepted = self.intercept.as_mut().and_then(|ask| ask(number, &sent));
        if let Some(answer) = intercepted {
            return answer;
        }
        match self.handlers.get_mut(&sent.url) {
            Some(handler) => handler(&sent),
            None => Answer::status(404),
        }
    }

    /// The URLs of all requests.
    pub(crate) fn urls(&self) -> Vec<&str> {
        self.log.iter().map(|sent| sent.url.as_str()).collect()
    }

    /// The requests to a URL.
    pub(crate) fn to(&self, url: &str) -> Vec<&Sent> {
        self.log.iter().filter(|sent| sent.url == url).collect()
    }
}

/// The metadata of an authorization server that can do everything.
pub(crate) fn server_metadata(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "registration_endpoint": format!("{issuer}/register"),
        "revocation_endpoint": format!("{issuer}/revoke"),
        "device_authorization_endpoint": format!("{issuer}/device"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
    })
}

/// A web with a server and its authorization server, which gives out the tokens `access-1`, `refresh-1` and so on, for an hour each.
pub(crate) fn usual_web() -> Web {
    let mut web = Web::default();
    web.document(
        "https://mcp.example/.well-known/oauth-protected-resource/v1/mcp",
        json!({"resource": SERVER, "authorization_servers": [ISSUER]}),
    );
    web.document(
        format!("{ISSUER}/.well-known/oauth-authorization-server"),
        server_metadata(ISSUER),
    );
    web.at(format!("{ISSUER}/register"), |_| {
        Answer::json(201, json!({"client_id": "client-1"}))
    });
    web.at(format!("{ISSUER}/token"), counted_tokens());
    web.at(format!("{ISSUER}/revoke"), |_| Answer::status(200));
    web
}

/// Gives out the tokens `access-1`, `refresh-1` and so on.
pub(crate) fn counted_tokens() -> impl FnMut(&Sent) -> Answer {
    let mut count = 0;
    move |_| {
        count += 1;
        Answer::json(200, tokens(count))
    }
}

pub(crate) fn tokens(number: u32) -> Value {
    json!({
        "access_token": format!("access-{number}"),
        "refresh_token": format!("refresh-{number}"),
        "token_type": "Bearer",
        "expires_in": 3600,
    })
}

/// The metadata of the server, and where it could also be.
pub(crate) const RESOURCE: &str = "https://mcp.example/.well-known/oauth-protected-resource/v1/mcp";
pub(crate) const RESOURCE_ROOT: &str = "https://mcp.example/.well-known/oauth-protected-resource";
/// The metadata of the authorization server, and where it could also be.
pub(crate) const METADATA: &str = "https://as.example/.well-known/oauth-authorization-server";
pub(crate) const OPENID: &str = "https://as.example/.well-known/openid-configuration";
/// The endpoints of the authorization server.
pub(crate) const REGISTER: &str = "https://as.example/register";
pub(crate) const TOKEN: &str = "https://as.example/token";
pub(crate) const DEVICE: &str = "https://as.example/device";
pub(crate) const REVOKE: &str = "https://as.example/revoke";

/// The usual web, with other members in the metadata of the authorization server. A member that is null is left out.
pub(crate) fn web_with(members: Value) -> Web {
    let mut web = usual_web();
    web.document(METADATA, merged(server_metadata(ISSUER), members));
    web
}

/// The usual web, with other members in the metadata of the server.
pub(crate) fn web_with_resource(members: Value) -> Web {
    let mut web = usual_web();
    let usual = json!({"resource": SERVER, "authorization_servers": [ISSUER]});
    web.document(RESOURCE, merged(usual, members));
    web
}

/// Replaces members. Those that become null are left out.
pub(crate) fn merged(mut document: Value, members: Value) -> Value {
    let target = document.as_object_mut().unwrap();
    for (name, value) in members.as_object().unwrap() {
        if value.is_null() {
            target.remove(name);
        } else {
            target.insert(name.clone(), value.clone());
        }
    }
    document
}

/// A refusal of a token endpoint.
pub(crate) fn refusal(status: u16, error: &str) -> Answer {
    Answer::json(status, json!({"error": error}))
}

/// Adds an authorization server with this issuer to a web.
pub(crate) fn add_issuer(web: &mut Web, issuer: &str) {
    web.document(
        format!("{issuer}/.well-known/oauth-authorization-server"),
        server_metadata(issuer),
    );
    let client = json!({"client_id": format!("client of {issuer}")});
    web.at(format!("{issuer}/register"), move |_| {
        Answer::json(201, client.clone())
    });
    let mut count = 0;
    let name = issuer.trim_start_matches("https://").to_owned();
    web.at(format!("{issuer}/token"), move |_| {
        count += 1;
        let access = format!("access-{name}-{count}");
        let refresh = format!("refresh-{name}-{count}");
        let members = json!({"access_token": access, "refresh_token": refresh});
        Answer::json(200, merged(tokens(count), members))
    });
}
