//! The client's identity at an authorization server: which one is used, how it is registered, and how it is proven.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::config::{ClientAuthentication, Config, Grant};
use super::documents::{self, Registration, ServerMetadata, allows, check_url};
use super::error::{Document, Endpoint, Refusal};
use super::form::{self, Form};
use super::io::Event;
use super::record::{Client, ClientSource, Record};
use super::secret::Secret;
use super::sign_in::Flow;
use super::table::Cue;
use super::{Authorizer, MAX_SIGN_INS};
use crate::http::url::is_loopback;
use crate::http::{Fields, ResponseHead, Url, Verb, value};

impl Grant {
    /// Its name in requests and in metadata.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Grant::AuthorizationCode => "authorization_code",
            Grant::ClientCredentials => "client_credentials",
            Grant::DeviceCode => "urn:ietf:params:oauth:grant-type:device_code",
            Grant::EnterpriseManaged(_) | Grant::WorkloadIdentity => {
                "urn:ietf:params:oauth:grant-type:jwt-bearer"
            }
        }
    }
}

impl Authorizer {
    /// Whether a record belongs to the identity that the configuration names.
    pub(super) fn is_of_config(&self, record: &Record) -> bool {
        match &self.config.client.known {
            Some(known) => known.id == record.client.id,
            // A platform's token may be all that there is. Then the client has no id, and its source is the configuration.
            None if self.config.grant == Grant::WorkloadIdentity => {
                record.client.source == ClientSource::Known && record.client.id.is_empty()
            }
            None => record.client.source != ClientSource::Known,
        }
    }

    /// Chooses the client's identity: the known one, the document, the one that is registered, or a new registration.
    pub(super) fn choose_client(&mut self) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        let redirect_uri = flow.prepared.redirect_uri.as_str();
        let is_valid = |client: &Client| {
            let is_there = !redirect_uri.is_empty();
            let is_same_uri = client.redirect_uri.as_deref().unwrap_or_default() == redirect_uri;
            let expiry = client.secret_expires.unwrap_or(u64::MAX);
            client.source == ClientSource::Registered
                && self.history.refused_client.as_ref() != Some(&client.id)
                && (is_same_uri || !is_there)
                && self.now.unix < expiry
        };
        if let Some(client) = known_client(&self.config, &flow.server) {
            return self.client_known(client);
        }
        let reads_document = flow.server.client_id_metadata_document_supported == Some(true);
        if let Some(document) = &self.config.client.document {
            // A document that was refused is not tried again in each sign-in, because each attempt bothers the person and counts against the limit.
            let registers =
                flow.server.registration_endpoint.is_some() && self.config.client.registers;
            let is_refused = self.history.refused_client.as_deref() == Some(document.as_str());
            if reads_document && !flow.has_replaced_client && !(is_refused && registers) {
                let client = client_of_document(document);
                return self.client_known(client);
            }
        }
        let stored = flow.stored.take().filter(is_valid);
        flow.is_client_stored = stored.is_some();
        if let Some(client) = stored {
            return self.client_known(client);
        }
        match &flow.server.registration_endpoint {
            Some(endpoint) if self.config.client.registers && self.config.grant.needs_person() => {
                let document = Document::ServerMetadata;
                match check_url(&self.config, document, Endpoint::Registration, endpoint) {
                    Ok(url) => self.register(url),
                    Err(refusal) => self.fail(refusal),
                }
            }
            _ => {
                let issuer = flow.issuer();
                self.fail(Refusal::NoClientId { issuer });
            }
        }
    }

    fn register(&mut self, url: Url) {
        let Some(flow) = &self.flow else {
            return;
        };
        let body = Value::Object(registration(&self.config, flow)).to_string();
        let fields = Fields::new()
            .and("Content-Type", "application/json")
            .and("Accept", "application/json");
        self.go(Cue::Unregistered);
        self.send(Verb::Post, url, fields, body, None);
    }

    pub(super) fn registered(&mut self, url: &Url, head: &ResponseHead<'_>, body: &[u8]) {
        let issuer = self.issuer();
        if documents::is_busy(head.status) {
            return self.busy(url, head);
        }
        let is_by_convention = self.flow.as_ref().is_some_and(|flow| flow.is_by_convention);
        if !(200..300).contains(&head.status) {
            if is_by_convention {
                return self.fail_without_server();
            }
            let answer = documents::refusal(head.status, body);
            return self.fail(Refusal::ClientRefused { issuer, answer });
        }
        match self.registered_client(url, body) {
            Ok(client) => {
                self.emit(Event::registered(&issuer, &client));
                self.client_known(client);
            }
            // A page for people, for example.
            Err(_) if is_by_convention => self.fail_without_server(),
            Err(refusal) => self.fail(refusal),
        }
    }

    /// Nothing says that there is an authorization server at all.
    fn fail_without_server(&mut self) {
        let server = self.config.server.to_string().into();
        self.fail(Refusal::NoSignIn { server });
    }

    /// Takes what the authorization server answered, which may differ from what was asked.
    fn registered_client(&self, url: &Url, body: &[u8]) -> Result<Client, Refusal> {
        let answer: Registration = documents::parse(Document::Registration, url, body)?;
        let bad = |why: String| Refusal::BadDocument {
            document: Document::Registration,
            url: url.to_string().into(),
            why: why.into(),
        };
        let method = match &answer.token_endpoint_auth_method {
            Some(name) => ClientAuthentication::parse(name)
                .filter(|method| *method != ClientAuthentication::PrivateKeyJwt)
                .ok_or_else(|| {
                    let name = super::error::printable(name);
                    bad(format!("it wants the client to authenticate with {name}"))
                })?,
            None if answer.client_secret.is_some() => ClientAuthentication::Basic,
            None => ClientAuthentication::None,
        };
        if method != ClientAuthentication::None && answer.client_secret.is_none() {
            let name = method.as_str();
            return Err(bad(format!("it wants {name} and has no client_secret")));
        }
        let redirect_uri = self
            .flow
            .as_ref()
            .map(|flow| flow.prepared.redirect_uri.as_str());
        let redirect_uri = redirect_uri.filter(|uri| !uri.is_empty());
        Ok(Client {
            id: answer.client_id.into(),
            secret: answer
                .client_secret
                .filter(|_| method != ClientAuthentication::None),
            method,
            source: ClientSource::Registered,
            redirect_uri: redirect_uri.map(Into::into),
            // Zero means never.
            secret_expires: answer.client_secret_expires_at.filter(|at| *at > 0),
        })
    }

    /// Replaces an identity that the authorization server does not take, once in a sign-in. Returns false if nothing can be done.
    pub(super) fn replace_client(&mut self) -> bool {
        let Some(flow) = &mut self.flow else {
            return false;
        };
        let source = flow.client.as_ref().map(|client| client.source);
        self.history.refused_client = flow.client.as_ref().map(|client| client.id.clone());
        let can_register =
            flow.server.registration_endpoint.is_some() && self.config.client.registers;
        let is_at_limit = self.history.sign_ins >= MAX_SIGN_INS;
        if is_at_limit
            || flow.has_replaced_client
            || source == Some(ClientSource::Known)
            || !can_register
        {
            return false;
        }
        flow.has_replaced_client = true;
        flow.stored = None;
        flow.client = None;
        self.prepare();
        true
    }
}

/// The identity that the configuration gives.
fn known_client(config: &Config, server: &ServerMetadata) -> Option<Client> {
    let Some(known) = &config.client.known else {
        // The token of a platform may say everything.
        return (config.grant == Grant::WorkloadIdentity).then(|| Client {
            id: Box::default(),
            secret: None,
            method: ClientAuthentication::None,
            source: ClientSource::Known,
            redirect_uri: None,
            secret_expires: None,
        });
    };
    let supported = server.token_endpoint_auth_methods_supported.as_ref();
    let method = match (known.method, &known.secret) {
        (Some(method), _) => method,
        (None, None) if config.grant == Grant::ClientCredentials => {
            ClientAuthentication::PrivateKeyJwt
        }
        (None, None) => ClientAuthentication::None,
        (None, Some(_)) if allows(supported, "client_secret_basic") => ClientAuthentication::Basic,
        (None, Some(_)) => ClientAuthentication::Post,
    };
    Some(Client {
        id: known.id.clone(),
        secret: known.secret.clone(),
        method,
        source: ClientSource::Known,
        redirect_uri: None,
        secret_expires: None,
    })
}

fn client_of_document(document: &Url) -> Client {
    Client {
        id: document.as_str().into(),
        secret: None,
        method: ClientAuthentication::None,
        source: ClientSource::Document,
        redirect_uri: None,
        secret_expires: None,
    }
}

/// The body of a registration (RFC 7591).
fn registration(config: &Config, flow: &Flow) -> Map<String, Value> {
    let mut body = config.client.metadata.clone();
    let supported = flow.server.token_endpoint_auth_methods_supported.as_ref();
    let methods = [
        ClientAuthentication::None,
        // Some servers look for the secret in the body only, though they say otherwise.
        ClientAuthentication::Post,
        ClientAuthentication::Basic,
    ];
    let method = methods
        .into_iter()
        .find(|method| allows(supported, method.as_str()));
    let method = method.unwrap_or(ClientAuthentication::None);
    let redirect_uri = flow.prepared.redirect_uri.as_str();
    let is_web = Url::parse(redirect_uri).is_ok_and(|uri| !is_loopback(uri.authority()));
    let mut add = |name: &str, value: Value| {
        // What the configuration says wins.
        body.entry(name).or_insert(value);
    };
    add(
        "application_type",
        json!(if is_web { "web" } else { "native" }),
    );
    add("grant_types", json!([config.grant.name(), "refresh_token"]));
    add("token_endpoint_auth_method", json!(method.as_str()));
    if redirect_uri.is_empty() {
        add("redirect_uris", json!([]));
        add("response_types", json!([]));
    } else {
        add("redirect_uris", json!([redirect_uri]));
        add("response_types", json!(["code"]));
    }
    if let Some(scope) = flow.requested.to_parameter() {
        add("scope", json!(scope));
    }
    body
}

/// The URL of the sign-in page.
pub(super) fn authorize_url(config: &Config, flow: &Flow, resource: Option<&str>) -> String {
    let mut form = Form::default();
    form.push("response_type", "code");
    if let Some(client) = &flow.client {
        form.push("client_id", &client.id);
    }
    form.push("redirect_uri", &flow.prepared.redirect_uri);
    form.push_some("state", flow.prepared.state.as_ref().map(Secret::expose));
    form.push("code_challenge", &flow.prepared.challenge);
    form.push("code_challenge_method", "S256");
    form.push_some("scope", flow.requested.to_parameter().as_deref());
    form.push_some("resource", resource);
    let is_given = |name: &str| config.authorize_parameters.iter().any(|(of, _)| of == name);
    // Providers of OpenID Connect give a refresh token only after the person has agreed to it.
    if flow.requested.has("offline_access") && !is_given("prompt") {
        form.push("prompt", "consent");
    }
    for (name, value) in &config.authorize_parameters {
        form.push(name, value);
    }
    let endpoint = flow
        .server
        .authorization_endpoint
        .as_deref()
        .unwrap_or_default();
    let (endpoint, _) = endpoint.split_once('#').unwrap_or((endpoint, ""));
    let separator = match endpoint.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    format!("{endpoint}{separator}{}", form.into_string())
}

/// The fields of a request with a form.
pub(super) fn form_fields() -> Fields<'static> {
    Fields::new()
        .and("Content-Type", "application/x-www-form-urlencoded")
        .and("Accept", "application/json")
}

/// Adds the proof of the client's identity to a token request. `assertion` is its signed token, if it has a private key.
pub(super) fn authenticate(
    client: &Client,
    assertion: Option<&Secret>,
    form: &mut Form,
    fields: &mut Fields<'static>,
) {
    let secret = client.secret.as_ref().map_or("", Secret::expose);
    match client.method {
        ClientAuthentication::None if client.id.is_empty() => {}
        ClientAuthentication::None => form.push("client_id", &client.id),
        ClientAuthentication::Post => {
            form.push("client_id", &client.id);
            form.push("client_secret", secret);
        }
        ClientAuthentication::Basic => {
            // Some servers look for the id in the body only.
            form.push("client_id", &client.id);
            let mut pair = String::new();
            form::encode(&client.id, &mut pair);
            pair.push(':');
            form::encode(secret, &mut pair);
            fields.push(
                "Authorization",
                format!("Basic {}", value::base64(pair.as_bytes())),
            );
        }
        ClientAuthentication::PrivateKeyJwt => {
            form.push(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            );
            form.push_some("client_assertion", assertion.map(Secret::expose));
        }
    }
}

/// The algorithms for the client's signed token that the authorization server takes.
pub(super) fn algorithms(server: &ServerMetadata) -> Vec<Box<str>> {
    let listed = server
        .token_endpoint_auth_signing_alg_values_supported
        .iter();
    listed.flatten().map(|name| name.as_str().into()).collect()
}
