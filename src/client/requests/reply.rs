//! Decides what the reply to a call means.

use super::Requests;
use super::calls::Call;
use crate::client::config::Config;
use crate::client::session::SessionState;
use crate::client::session::result_head::ResultHead;
use crate::driver::CallId;
use crate::json::Json;
use crate::protocol::method::names;
use crate::protocol::{code, round};
use crate::wire::ErrorObject;

/// A reply: the result, or the error instead of it.
pub(in crate::client) type Reply<'a> = Result<Json<'a>, ErrorObject>;

/// The code of an error reply.
pub(in crate::client) fn refusal(reply: &Reply<'_>) -> Option<i64> {
    reply.as_ref().err().map(|error| error.code)
}

/// A reply whose error is borrowed.
pub(in crate::client) fn as_ref<'a>(reply: &'a Reply<'a>) -> Result<Json<'a>, &'a ErrorObject> {
    match reply {
        Ok(result) => Ok(*result),
        Err(error) => Err(error),
    }
}

/// The meaning of the result of a call.
pub(in crate::client) enum Meaning<'a> {
    /// It is what the caller gets.
    Complete,
    /// It is a page of the list of tools. `is_first`: the first one.
    Tools { is_first: bool },
    /// The server wants input before the call continues.
    InputRequired(ResultHead<'a>),
    /// It breaks the rules.
    Invalid(&'static str),
}

impl Requests {
    /// Decides what the result of a call to a modern server means.
    #[inline]
    pub(in crate::client) fn meaning<'a>(
        &self,
        session: &SessionState,
        config: &Config,
        id: CallId,
        head: ResultHead<'a>,
    ) -> Meaning<'a> {
        let call = self.call(id);
        let method = call.and_then(|call| call.facts);
        match head.result_type.as_deref() {
            // S-RPC-19: a missing type means complete.
            None | Some(round::COMPLETE) => {
                if method.is_some_and(|method| method.name == names::TOOLS_LIST) {
                    let is_first = self.asks_for_first_page(id);
                    return Meaning::Tools { is_first };
                }
                Meaning::Complete
            }
            Some(round::INPUT_REQUIRED) if method.is_some_and(|method| method.may_need_input) => {
                Meaning::InputRequired(head)
            }
            Some(kind) => {
                let declared = self.declared_for(config, id);
                // S-RPC-22: an extension that both ends declare may define its own types.
                let is_known = kind == round::TASK && SessionState::expects_task(declared, method)
                    || kind != round::INPUT_REQUIRED
                        && (session.passes_call(call.and_then(Call::era))
                            || session.shares_an_extension(declared));
                if is_known {
                    Meaning::Complete
                } else {
                    // S-RPC-20, S-MRTR-03
                    Meaning::Invalid("its result type means nothing for this method")
                }
            }
        }
    }

    /// Whether a tool call was refused because of its header fields, for the first time (S-XHDR-12).
    pub(in crate::client) fn lacks_fields(&self, id: CallId, error: &ErrorObject) -> bool {
        let call = self.call(id);
        error.code == code::HEADER_MISMATCH
            && call.is_some_and(|call| call.method == names::TOOLS_CALL && !call.has_new_schema)
    }
}
