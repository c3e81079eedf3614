//! Finds the authorization server of a protected server: reads the metadata of both, and checks it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};

use super::config::Grant;
use super::documents::{
    self, ResourceMetadata, ServerMetadata, allows, check_url, is_issuer, is_resource_of,
};
use super::error::{Document, Endpoint, Refusal, printable};
use super::io::Output;
use super::record::Place;
use super::sign_in::{Flow, Wanted};
use super::table::{Cue, State};
use super::{Authorizer, Lock, MAX_SIGN_INS, discovery};
use crate::http::{ResponseHead, Url};

/// How many redirects are followed for one document.
const MAX_REDIRECTS: u32 = 3;

impl Authorizer {
    /// Begins a sign-in.
    pub(super) fn begin_sign_in(&mut self) {
        if self.history.sign_ins >= MAX_SIGN_INS {
            return self.fail_as_before();
        }
        // Without a waiting caller, this replaces the token in use, for a grant that needs no person (see `renew_if_due`).
        let wanted = self.wanted.clone().unwrap_or_else(|| Wanted {
            refused: self.access_token().cloned(),
            ..Wanted::default()
        });
        let metadata_url = wanted.metadata_url.clone();
        self.flow = Some(Box::new(Flow {
            wanted,
            ..Flow::default()
        }));
        self.go(Cue::SignIn);
        if self.config.endpoints.is_some() {
            return self.use_fixed_endpoints();
        }
        let urls = match metadata_url {
            None => Ok(discovery::resource_urls(&self.config.server)),
            Some(url) => check_url(
                &self.config,
                Document::Challenge,
                Endpoint::ResourceMetadata,
                &url,
            )
            .map(|url| [url].into()),
        };
        match urls {
            Ok(urls) => self.read_metadata(urls),
            Err(refusal) => self.fail(refusal),
        }
    }

    fn use_fixed_endpoints(&mut self) {
        let (Some(endpoints), Some(flow)) = (&self.config.endpoints, &mut self.flow) else {
            return;
        };
        let text = |url: &Option<Url>| url.as_ref().map(|url| url.as_str().into());
        flow.server = ServerMetadata {
            issuer: endpoints
                .issuer
                .as_deref()
                .unwrap_or(endpoints.token.as_str())
                .into(),
            authorization_endpoint: text(&endpoints.authorization),
            token_endpoint: Some(endpoints.token.as_str().into()),
            device_authorization_endpoint: text(&endpoints.device),
            revocation_endpoint: text(&endpoints.revocation),
            code_challenge_methods_supported: Some([String::from("S256")].into()),
            ..ServerMetadata::default()
        };
        self.server_known();
    }

    /// Reads the first of these documents that exists.
    fn read_metadata(&mut self, urls: VecDeque<Url>) {
        if let Some(flow) = &mut self.flow {
            flow.urls = urls;
            (flow.retries, flow.redirects) = (0, 0);
        }
        self.send_again();
    }

    /// Handles the answer to a request for metadata.
    pub(super) fn metadata_arrived(&mut self, url: &Url, head: &ResponseHead<'_>, body: &[u8]) {
        match head.status {
            200 if self.state == State::Resource => self.resource_arrived(url, body),
            200 => self.issuer_arrived(url, body),
            300..400 => self.metadata_moved(url, head),
            status if documents::is_busy(status) => self.busy(url, head),
            _ => self.try_next_url(None),
        }
    }

    /// Follows a redirect within the same origin. Any other one means that the document is not there.
    fn metadata_moved(&mut self, url: &Url, head: &ResponseHead<'_>) {
        let location = head.fields.get("location");
        let target = location.and_then(|location| url.resolve(location).ok());
        let target = target.filter(|target| target.is_same_origin(url));
        let Some(flow) = &mut self.flow else {
            return;
        };
        flow.redirects += 1;
        match target {
            Some(target) if flow.redirects <= MAX_REDIRECTS => {
                flow.urls.push_front(target);
                // The URL that redirected is the second one now.
                flow.urls.remove(1);
                self.send_again();
            }
            _ => self.try_next_url(None),
        }
    }

    fn try_next_url(&mut self, bad_document: Option<Refusal>) {
        if let Some(flow) = &mut self.flow {
            flow.urls.pop_front();
            (flow.retries, flow.redirects) = (0, 0);
            flow.bad_document = bad_document.or(flow.bad_document.take());
        }
        self.send_again();
    }

    /// There is no metadata at any of its places.
    pub(super) fn metadata_missing(&mut self) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        let bad = flow.bad_document.take();
        let origin = String::from(self.config.server.base());
        match (self.state, &flow.issuer) {
            (State::Resource, _) => match bad.filter(|_| flow.wanted.metadata_url.is_some()) {
                // The server named a document that cannot be used.
                Some(bad) => self.fail(bad),
                // A server of 2025-03-26: it is its own authorization server.
                None => self.look_up_issuer(None, &origin),
            },
            (_, None) => {
                flow.server = ServerMetadata::by_convention(&origin);
                flow.is_by_convention = true;
                self.server_known();
            }
            (_, Some(issuer)) => {
                let missing = Refusal::BadDocument {
                    document: Document::ServerMetadata,
                    url: issuer.clone(),
                    why: "there is none at its well-known places".into(),
                };
                self.fail(bad.unwrap_or(missing));
            }
        }
    }

    fn resource_arrived(&mut self, url: &Url, body: &[u8]) {
        let found: ResourceMetadata = match documents::parse(Document::ResourceMetadata, url, body)
        {
            Ok(found) => found,
            Err(bad) => return self.try_next_url(Some(bad)),
        };
        if !is_resource_of(&found.resource, &self.config.server) {
            return self.fail(Refusal::ResourceMismatch {
                url: url.to_string().into(),
                server: self.config.server.to_string().into(),
                found: printable(&found.resource),
            });
        }
        // The issuer of the client that was given, or of earlier tokens, if the server still names it.
        let given = self.config.client.known.as_ref();
        let given = given.and_then(|known| known.issuer.as_deref());
        let known = given.or(self.place().map(|place| &*place.issuer));
        let servers = &found.authorization_servers;
        let is_known = |issuer: &&String| known.is_some_and(|known| is_issuer(issuer, known));
        let known = servers.iter().find(is_known);
        let Some(issuer) = known.or(servers.first()).cloned() else {
            return self.fail(Refusal::BadDocument {
                document: Document::ResourceMetadata,
                url: url.to_string().into(),
                why: "it names no authorization server".into(),
            });
        };
        if let Some(flow) = &mut self.flow {
            flow.resource = Some(found);
        }
        let document = Document::ResourceMetadata;
        match check_url(&self.config, document, Endpoint::Issuer, &issuer) {
            Ok(_) => self.look_up_issuer(Some(issuer.as_str().into()), &issuer),
            Err(refusal) => self.fail(refusal),
        }
    }

    fn look_up_issuer(&mut self, issuer: Option<Box<str>>, url: &str) {
        if let Some(flow) = &mut self.flow {
            flow.issuer = issuer;
            flow.bad_document = None;
        }
        self.go(Cue::ResourceKnown);
        // The URL was checked, so it has places.
        self.read_metadata(discovery::issuer_urls(url).unwrap_or_default());
    }

    fn issuer_arrived(&mut self, url: &Url, body: &[u8]) {
        let found: ServerMetadata = match documents::parse(Document::ServerMetadata, url, body) {
            Ok(found) => found,
            Err(bad) => return self.try_next_url(Some(bad)),
        };
        let Some(flow) = &mut self.flow else {
            return;
        };
        // A server that names no issuer is its own (2025-03-26). Then its origin is compared, from which this URL was made: else the server could name
        // the issuer and the sign-in page of somebody else beside its own token endpoint, and would get the code (A-META-05).
        let expected = flow.issuer.as_deref();
        let expected = expected.unwrap_or(self.config.server.base());
        if is_issuer(&found.issuer, expected) || self.config.allows_other_issuer {
            flow.server = found;
            return self.server_known();
        }
        let expected = expected.into();
        self.fail(Refusal::IssuerMismatch {
            url: url.to_string().into(),
            expected,
            found: printable(&found.issuer),
        });
    }

    /// The metadata of the authorization server is known. Checks whether it can do what is needed, and waits for the turn to sign in.
    fn server_known(&mut self) {
        match self.check_server() {
            Ok((token_endpoint, place)) => {
                let key = place.key(&self.config.account);
                if let Some(flow) = &mut self.flow {
                    flow.token_endpoint = Some(token_endpoint);
                    flow.place = Some(place);
                }
                self.go(Cue::IssuerKnown);
                self.store.sign_in_lock = Some(key.clone());
                let lock = Lock::SignIn;
                self.outputs.push_back(Output::Lock { key, lock });
                self.arm(self.config.sign_in_timeout);
            }
            Err(refusal) => self.fail(refusal),
        }
    }

    fn check_server(&self) -> Result<(Url, Place), Refusal> {
        let Some(flow) = &self.flow else {
            return Err(Refusal::Cancelled);
        };
        let server = &flow.server;
        let unsupported = |what: &str| Refusal::Unsupported {
            issuer: flow.issuer(),
            what: what.into(),
        };
        let missing = |endpoint: Endpoint| {
            unsupported(&format!("this grant: it names no URL for {endpoint}"))
        };
        let grant_type = self.config.grant.name();
        if !allows(server.grant_types_supported.as_ref(), grant_type) {
            return Err(unsupported(&format!("the grant {grant_type}")));
        }
        let check = |endpoint, url: Option<&String>| {
            let url = url.ok_or_else(|| missing(endpoint))?;
            check_url(&self.config, Document::ServerMetadata, endpoint, url)
        };
        if self.config.grant == Grant::AuthorizationCode {
            check(
                Endpoint::Authorization,
                server.authorization_endpoint.as_ref(),
            )?;
            let pkce = &server.code_challenge_methods_supported;
            if !pkce.as_ref().is_some_and(|list| allows(Some(list), "S256")) {
                return Err(unsupported(
                    "PKCE with S256, without which a sign-in is not safe",
                ));
            }
            if !allows(server.response_types_supported.as_ref(), "code") {
                return Err(unsupported("the response type code"));
            }
        }
        if self.config.grant == Grant::DeviceCode {
            check(
                Endpoint::Device,
                server.device_authorization_endpoint.as_ref(),
            )?;
        }
        let token_endpoint = check(Endpoint::Token, server.token_endpoint.as_ref())?;
        self.check_known_client(&server.issuer)?;
        let resource: Box<str> = match &flow.resource {
            Some(metadata) => metadata.resource.as_str().into(),
            None => self.config.server.to_string().into(),
        };
        let issuer = flow.issuer();
        Ok((token_endpoint, Place { issuer, resource }))
    }

    /// Where the tokens of this client are, or were.
    fn place(&self) -> Option<&Place> {
        let held = self.held.as_ref().map(|held| &held.place);
        self.store.place.as_ref().or(held)
    }

    /// An identity that was given belongs to one issuer.
    fn check_known_client(&self, issuer: &str) -> Result<(), Refusal> {
        let Some(known) = &self.config.client.known else {
            return Ok(());
        };
        let before = self.place().map(|place| &*place.issuer);
        match known.issuer.as_deref().or(before) {
            Some(expected) if !is_issuer(expected, issuer) => Err(Refusal::OtherIssuer {
                expected: expected.into(),
                found: issuer.into(),
            }),
            _ => Ok(()),
        }
    }
}
