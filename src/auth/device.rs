//! A sign-in on another device (RFC 8628).

use alloc::string::ToString;
use core::time::Duration;

use super::Authorizer;
use super::client::{authenticate, form_fields};
use super::config::ClientAuthentication;
use super::documents::{self, DeviceAnswer, check_url};
use super::error::{Document, Endpoint, Refusal, printable};
use super::form::Form;
use super::io::{DeviceCode, Output};
use super::table::Cue;
use crate::http::{ResponseHead, Url, Verb};

/// The usual time between two questions for the tokens of a device code, in seconds.
pub(super) const POLL_INTERVAL: u64 = 5;
/// The longest time between two of them.
const MAX_POLL_INTERVAL: u64 = 300;

impl Authorizer {
    /// Asks for a device code.
    pub(super) fn ask_elsewhere(&mut self) {
        let resource = self.resource_parameter();
        let Some(flow) = &self.flow else {
            return;
        };
        let Some(client) = &flow.client else {
            return;
        };
        let endpoint = flow.server.device_authorization_endpoint.as_deref();
        let Ok(url) = Url::parse(endpoint.unwrap_or_default()) else {
            return;
        };
        if client.method == ClientAuthentication::PrivateKeyJwt {
            // Each question for the tokens would need a signature of its own.
            let why = "a client with a private key cannot sign in on another device".into();
            return self.fail(Refusal::CannotPrepare { why });
        }
        let mut form = Form::default();
        let mut fields = form_fields();
        authenticate(client, None, &mut form, &mut fields);
        form.push_some("scope", flow.requested.to_parameter().as_deref());
        form.push_some("resource", resource.as_deref());
        self.go(Cue::AskElsewhere);
        self.send(Verb::Post, url, fields, form.into_string(), None);
    }

    pub(super) fn device_code_arrived(&mut self, url: &Url, head: &ResponseHead<'_>, body: &[u8]) {
        if documents::is_busy(head.status) {
            return self.busy(url, head);
        }
        if !(200..300).contains(&head.status) {
            let answer = documents::refusal(head.status, body);
            let is_of_client = answer.is_of_client();
            return self.sign_in_refused(answer, is_of_client);
        }
        let document = Document::DeviceAnswer;
        let answer: DeviceAnswer = match documents::parse(document, url, body) {
            Ok(answer) => answer,
            Err(bad) => return self.fail(bad),
        };
        let check = |text: &str| check_url(&self.config, document, Endpoint::Verification, text);
        let page = answer.verification_uri.or(answer.verification_url);
        let Some(page) = page else {
            return self.fail(Refusal::BadDocument {
                document,
                url: url.to_string().into(),
                why: "it has no verification_uri".into(),
            });
        };
        let page = match check(&page) {
            Ok(page) => page,
            Err(refusal) => return self.fail(refusal),
        };
        let url_with_code = answer.verification_uri_complete.as_deref();
        let url_with_code = url_with_code.and_then(|text| check(text).ok());
        let patience = self.config.sign_in_timeout;
        let patience = match answer.expires_in {
            Some(seconds) => patience.min(Duration::from_secs(seconds)),
            None => patience,
        };
        let until = self.now.at + patience;
        let interval = answer
            .interval
            .unwrap_or(POLL_INTERVAL)
            .clamp(1, MAX_POLL_INTERVAL);
        if let Some(flow) = &mut self.flow {
            flow.code = Some(answer.device_code);
            (flow.until, flow.interval) = (until, interval);
            flow.patience = Some(patience);
        }
        self.go(Cue::Code);
        self.outputs.push_back(Output::ShowCode(DeviceCode {
            code: printable(&answer.user_code),
            url: page,
            url_with_code,
            until,
        }));
        self.poll_later(0);
    }

    /// Asks for the tokens of the device code again, after the pause, which grows by this many seconds.
    pub(super) fn poll_later(&mut self, more: u64) {
        let Some(flow) = &mut self.flow else {
            return;
        };
        flow.interval = (flow.interval + more).min(MAX_POLL_INTERVAL);
        let next = self.now.at + Duration::from_secs(flow.interval);
        self.timer = Some(next.min(flow.until));
    }
}
