//! The MCP server and its two authorization servers.

use std::time::Duration;

use crate::mark::{Kind, Mark};
use crate::script::{Refreshes, Setup};

/// The MCP server.
pub(crate) const SERVER: &str = "https://mcp.example/v1/mcp";

/// The first client of each authorization server that it still knows, and all tokens that were ever given out.
pub(crate) struct Site {
    life: Duration,
    refreshes: Refreshes,
    /// The authorization server that the MCP server names.
    pub(crate) issuer: usize,
    clients: usize,
    oldest_client: usize,
    codes: Vec<Code>,
    pub(crate) families: Vec<Family>,
}

/// The result of a sign-in at the page of the authorization server.
struct Code {
    challenge: String,
    is_wide: bool,
    is_used: bool,
}

/// All tokens of one grant.
pub(crate) struct Family {
    issuer: usize,
    client: usize,
    /// The newest refresh token.
    serial: usize,
    /// When each access token expires.
    expiries: Vec<Duration>,
    is_wide: bool,
    pub(crate) is_revoked: bool,
}

/// What a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Issued(Mark),
    Rotated { from: Mark, to: Mark },
    Reused(Mark),
    Ended(Mark),
    Revoked(Mark),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) effect: Effect,
}

/// The verdict of the MCP server about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    Unauthorized,
    TooNarrow,
}

fn answer(status: u16, body: impl Into<String>) -> Answer {
    Answer {
        status,
        body: body.into(),
        effect: Effect::Nothing,
    }
}

/// The value of a parameter in a form or a query, as it is encoded.
pub(crate) fn parameter<'t>(text: &'t str, name: &str) -> &'t str {
    let text = text.split_once('?').map_or(text, |(_, query)| query);
    let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(of, _)| *of == name);
    found.map_or("", |(_, value)| value)
}

fn client_number(text: &str) -> Option<usize> {
    let id = parameter(text, "client_id");
    id.strip_prefix("client-")?.parse().ok()
}

impl Site {
    pub(crate) fn new(setup: &Setup) -> Site {
        Site {
            life: Duration::from_secs(setup.life),
            refreshes: setup.refreshes,
            issuer: 0,
            clients: 0,
            oldest_client: 0,
            codes: Vec::new(),
            families: Vec::new(),
        }
    }

    /// Answers a request to one of the authorization servers, or for metadata.
    pub(crate) fn answer(&mut self, url: &str, body: &str, now: Duration) -> Answer {
        let rest = url.strip_prefix("https://").unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let issuer = match host {
            "mcp.example" => {
                return match path {
                    ".well-known/oauth-protected-resource/v1/mcp" => answer(
                        200,
                        format!(
                            r#"{{"resource":"{SERVER}","authorization_servers":["https://as{}.example"]}}"#,
                            self.issuer
                        ),
                    ),
                    _ => answer(404, ""),
                };
            }
            "as0.example" => 0,
            "as1.example" => 1,
            _ => return answer(404, ""),
        };
        match path {
            ".well-known/oauth-authorization-server" => answer(200, metadata(issuer)),
            "register" => {
                self.clients += 1;
                let id = self.clients - 1;
                answer(201, format!(r#"{{"client_id":"client-{id}"}}"#))
            }
            "token" => self.token(issuer, body, now),
            "revoke" => {
                let mut revoked = answer(200, "");
                if let Some(mark) = Mark::find(body, Kind::Refresh) {
                    self.families[mark.family].is_revoked = true;
                    revoked.effect = Effect::Revoked(mark);
                }
                revoked
            }
            _ => answer(404, ""),
        }
    }

    fn token(&mut self, issuer: usize, body: &str, now: Duration) -> Answer {
        let is_known = |client: &usize| *client >= self.oldest_client;
        let Some(client) = client_number(body).filter(is_known) else {
            let mut refused = answer(401, r#"{"error":"invalid_client"}"#);
            if let Some(mark) = Mark::find(body, Kind::Refresh) {
                refused.effect = Effect::Ended(mark);
            }
            return refused;
        };
        if let Some(token) = Mark::find(body, Kind::Refresh) {
            return self.renew(issuer, client, token, now);
        }
        let refused = || answer(400, r#"{"error":"invalid_grant"}"#);
        let verifier = Mark::find(body, Kind::Verifier);
        let (Some(code), Some(verifier)) = (Mark::find(body, Kind::Code), verifier) else {
            return refused();
        };
        let Some(known) = self.codes.get_mut(code.family) else {
            return refused();
        };
        let is_same = known.challenge == format!("challenge-{}", verifier.family);
        if known.is_used || !is_same || code.issuer != issuer {
            return refused();
        }
        known.is_used = true;
        self.families.push(Family {
            issuer,
            client,
            serial: 0,
            expiries: vec![now + self.life],
            is_wide: known.is_wide,
            is_revoked: false,
        });
        let mark = Mark {
            issuer,
            family: self.families.len() - 1,
            serial: 0,
        };
        self.tokens(mark, Effect::Issued(mark))
    }

    fn renew(&mut self, issuer: usize, client: usize, token: Mark, now: Duration) -> Answer {
        let mut refused = answer(400, r#"{"error":"invalid_grant"}"#);
        refused.effect = Effect::Ended(token);
        let Some(family) = self.families.get_mut(token.family) else {
            return refused;
        };
        if family.is_revoked || family.issuer != issuer || family.client != client {
            return refused;
        }
        if self.refreshes == Refreshes::Rotating && token.serial != family.serial {
            family.is_revoked = true;
            refused.effect = Effect::Reused(token);
            return refused;
        }
        let from = token;
        family.serial += 1;
        family.expiries.push(now + self.life);
        let to = Mark {
            serial: family.serial,
            ..token
        };
        self.tokens(to, Effect::Rotated { from, to })
    }

    fn tokens(&self, mark: Mark, effect: Effect) -> Answer {
        let access = mark.text(Kind::Access);
        let life = self.life.as_secs();
        let refresh = match (self.refreshes, effect) {
            (Refreshes::Rotating, _) | (Refreshes::Fixed, Effect::Issued(_)) => {
                format!(r#","refresh_token":"{}""#, mark.text(Kind::Refresh))
            }
            _ => String::new(),
        };
        let scope = if self.families[mark.family].is_wide {
            "read wide"
        } else {
            "read"
        };
        let body = format!(
            r#"{{"access_token":"{access}","token_type":"Bearer","expires_in":{life},"scope":"{scope}"{refresh}}}"#
        );
        Answer {
            status: 200,
            body,
            effect,
        }
    }

    /// A person signs in at the page of an authorization server. Returns the query of the redirect.
    pub(crate) fn sign_in(&mut self, url: &str, agrees: bool) -> String {
        let issuer = usize::from(url.starts_with("https://as1."));
        let state = parameter(url, "state");
        let iss = format!("iss=https%3A%2F%2Fas{issuer}.example");
        if !agrees {
            return format!("?error=access_denied&state={state}&{iss}");
        }
        if client_number(url).is_none_or(|client| client < self.oldest_client) {
            return format!("?error=unauthorized_client&state={state}&{iss}");
        }
        self.codes.push(Code {
            challenge: parameter(url, "code_challenge").into(),
            is_wide: parameter(url, "scope").contains("wide"),
            is_used: false,
        });
        let mark = Mark {
            issuer,
            family: self.codes.len() - 1,
            serial: 0,
        };
        format!("?code={}&state={state}&{iss}", mark.text(Kind::Code))
    }

    /// Judges a call. `wants_wide` says that the wide scope is needed.
    pub(crate) fn judge(&self, token: Option<Mark>, wants_wide: bool, now: Duration) -> Verdict {
        let Some(mark) = token else {
            return Verdict::Unauthorized;
        };
        let family = &self.families[mark.family];
        let is_over = family.expiries[mark.serial] <= now;
        if is_over || family.is_revoked || mark.issuer != self.issuer {
            Verdict::Unauthorized
        } else if wants_wide && !family.is_wide {
            Verdict::TooNarrow
        } else {
            Verdict::Fine
        }
    }

    /// Revokes the newest grant that is valid. Returns its number.
    pub(crate) fn revoke(&mut self) -> Option<usize> {
        let found = self
            .families
            .iter()
            .rposition(|family| !family.is_revoked)?;
        self.families[found].is_revoked = true;
        Some(found)
    }

    /// Forgets all clients, and with them their grants. Returns the numbers of these.
    pub(crate) fn forget_clients(&mut self) -> Vec<usize> {
        self.oldest_client = self.clients;
        let all = self.families.iter_mut().enumerate();
        let valid = all.filter(|(_, family)| !family.is_revoked);
        let revoke = |(number, family): (usize, &mut Family)| {
            family.is_revoked = true;
            number
        };
        valid.map(revoke).collect()
    }
}

fn metadata(issuer: usize) -> String {
    let at = format!("https://as{issuer}.example");
    format!(
        r#"{{"issuer":"{at}","authorization_endpoint":"{at}/authorize","token_endpoint":"{at}/token","registration_endpoint":"{at}/register","revocation_endpoint":"{at}/revoke","code_challenge_methods_supported":["S256"],"authorization_response_iss_parameter_supported":true}}"#
    )
}
