//! Checks whether the application's answers and asks fit a request and its client. Changes nothing.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;

use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::question::{self, Unaskable};
use crate::protocol::{ClientFeature, Era, Peer, ServerCapabilities, ServerFeature, round};
use crate::server::misuse::Misuse;
use crate::server::requests::Entry;
use crate::server::requests::reply::{InputRequired, Shape, Verdict};
use crate::server::requests::state_token::PREFIX;

impl Entry {
    /// Checks a result, and returns which members of a modern result it has. `is_passed` says that it is that of a server behind a relay.
    pub(crate) fn check_result(
        &self,
        result: &Payload,
        is_passed: bool,
        offered: Option<&ServerCapabilities>,
    ) -> Result<Shape, Misuse> {
        // A legacy client reads no result types, so its results are not checked.
        if self.version().era() == Era::Legacy {
            return Ok(Shape::default());
        }
        let (shape, kind) = Shape::read(result, self.is_cacheable());
        let kind = kind.filter(|kind| !is_passed || **kind == *round::INPUT_REQUIRED);
        if let Some(kind) = kind {
            self.check_kind(kind, offered)?;
        }
        Ok(shape)
    }

    /// Checks whether a result of this type may answer the request (S-RPC-21, S-TASKX-02).
    fn check_kind(
        &self,
        kind: Cow<'_, str>,
        offered: Option<&ServerCapabilities>,
    ) -> Result<(), Misuse> {
        let declared = &self.arrival.peer.capabilities;
        // S-VER-15: both ends must declare an extension.
        let is_allowed = match &*kind {
            round::COMPLETE => true,
            round::INPUT_REQUIRED => {
                let (method, instead) = (round::INPUT_REQUIRED, "require_input");
                return Err(Misuse::OwnedByLink { method, instead });
            }
            round::TASK => {
                self.method == names::TOOLS_CALL
                    && declared.declares(ClientFeature::TasksExtension)
                    && offered.is_some_and(|o| o.offers(ServerFeature::TasksExtension))
            }
            // S-RPC-22: an extension may have result types of its own, which only the two applications know.
            _ => {
                declared.has_strange_extension()
                    && offered.is_some_and(ServerCapabilities::has_strange_extension)
            }
        };
        if is_allowed {
            return Ok(());
        }
        let kind = kind.into_owned().into();
        Err(Misuse::InvalidResultType { kind })
    }

    /// Checks the input that the application needs from the client of a modern request.
    pub(crate) fn check_input(&self, input: &InputRequired) -> Result<(), Misuse> {
        if self.version().era() == Era::Legacy {
            let kind = round::INPUT_REQUIRED.into();
            return Err(Misuse::InvalidResultType { kind });
        }
        self.check_can_wait()?;
        if input.questions.is_empty() && input.state.is_none() {
            return Err(Misuse::EmptyInput);
        }
        if input.state.as_ref().is_some_and(|s| s.starts_with(PREFIX)) {
            return Err(Misuse::ReservedState { prefix: PREFIX });
        }
        let mut keys = BTreeSet::new();
        for question in &input.questions {
            self.check_question(&question.method, question.params.as_ref())?;
            if !keys.insert(&question.key) {
                let key = question.key.clone();
                return Err(Misuse::DuplicateKey { key });
            }
        }
        Ok(())
    }

    /// Checks that a modern request can wait for input, which only some methods can (S-MRTR-01, S-MRTR-02).
    fn check_can_wait(&self) -> Result<(), Misuse> {
        if self.facts.is_some_and(|facts| facts.may_need_input) {
            return Ok(());
        }
        Err(Misuse::CannotAsk {
            method: self.method.clone(),
        })
    }

    /// Checks that a modern request can wait for one more round.
    pub(crate) fn check_round(&self, rounds: u32) -> Result<(), Misuse> {
        if self.version().era() == Era::Legacy {
            return Ok(());
        }
        self.check_can_wait()?;
        if self.round >= rounds {
            return Err(Misuse::TooManyRounds { rounds });
        }
        Ok(())
    }

    /// Checks that the client declared, with this very request, that it can be asked this (S-MRTR-06, S-META-08).
    pub(crate) fn check_question(
        &self,
        method: &str,
        params: Option<&Payload>,
    ) -> Result<(), Misuse> {
        check_params(params)?;
        let peer = &self.arrival.peer;
        check_askable(peer, method, params).map_err(|why| Misuse::Unaskable {
            method: Cow::Owned(method.into()),
            why,
        })
    }

    /// The feature that a verdict needs and that the client does not declare now, if any.
    pub(super) fn lacks(&self, verdict: &Verdict) -> Option<ClientFeature> {
        let Verdict::Input(input) = verdict else {
            return None;
        };
        let peer = &self.arrival.peer;
        input.questions.iter().find_map(|asked| {
            check_askable(peer, &asked.method, asked.params.as_ref())
                .err()?
                .missing()
        })
    }
}

/// Checks that params are an object.
pub(crate) fn check_params(params: Option<&Payload>) -> Result<(), Misuse> {
    if params.is_some_and(|params| !params.is_object()) {
        return Err(Misuse::NotAnObject { what: "parameters" });
    }
    Ok(())
}

/// Checks whether this client can be asked this, in this form, and as a task if it is asked as one.
pub(crate) fn check_askable(
    peer: &Peer,
    method: &str,
    params: Option<&Payload>,
) -> Result<(), Unaskable> {
    let params = params.map(Payload::json);
    question::check(&peer.capabilities, peer.version, method, params)?;
    match question::task_feature(method, params) {
        Some(feature)
            if feature.versions().contains(peer.version)
                && !peer.capabilities.declares(feature) =>
        {
            Err(Unaskable::UndeclaredManner(feature))
        }
        Some(_) | None => Ok(()),
    }
}
