//! Stores which tools have arguments that modern calls repeat in header fields. Does not depend on the requests in flight.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::Deserialize;

use crate::http::Fields;
use crate::json::Json;
use crate::protocol::param_headers::{Mirrored, survey};

/// The most bytes that are kept of names, users and arguments, enough for thousands of tools. If there are more, the tools that were listed
/// longest ago are forgotten. Their calls are not checked until they are listed again.
const MOST_BYTES: usize = 1 << 20;

/// The tools with arguments that header fields repeat, by audience and name: two users may see different tools under one name.
#[derive(Debug, Default)]
pub(crate) struct ParamHeaders {
    /// The arguments of each tool, and its number in `order`. Tools for all users are not in `order`: they are never forgotten.
    table: BTreeMap<Key, (u64, Mirrored)>,
    /// The tools that users were told of, in the order in which they were listed.
    order: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
}

/// The audience of a tool, and its name.
type Key = (Audience, Box<str>);

/// The users that a list of tools is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Audience {
    /// All users. The application set the list.
    All,
    /// The user that asked for the list. `None` stands for all users without checked credentials.
    User(Option<Box<str>>),
}

impl Audience {
    fn bytes(&self) -> usize {
        match self {
            Audience::All | Audience::User(None) => 0,
            Audience::User(Some(user)) => user.len(),
        }
    }
}

impl ParamHeaders {
    /// Learns from a result of `tools/list` for these users, which may be one page of many.
    pub(crate) fn learn(&mut self, audience: &Audience, result: Json<'_>) {
        let found = survey(result).tools;
        if found.is_empty() && self.table.is_empty() {
            return;
        }
        for name in named(result) {
            self.forget(&(audience.clone(), name.as_ref().into()));
            if self
                .table
                .contains_key(&(Audience::All, name.as_ref().into()))
            {
                // The list that a user was given overrides the list for all users.
                self.add(audience, name.into(), Mirrored::default());
            }
        }
        for (name, mirrored) in found {
            self.add(audience, name, mirrored);
        }
    }

    /// Checks that the fields of a user's call agree with its arguments.
    pub(crate) fn check(
        &self,
        user: Option<&str>,
        tool: &str,
        fields: &Fields<'_>,
        arguments: Option<Json<'_>>,
    ) -> Result<(), Box<str>> {
        if self.table.is_empty() {
            return Ok(());
        }
        let own = (Audience::User(user.map(Into::into)), tool.into());
        let own = self.table.get(&own);
        match own.or_else(|| self.table.get(&(Audience::All, tool.into()))) {
            Some((_, mirrored)) => mirrored.check(fields, arguments),
            None => Ok(()),
        }
    }

    fn add(&mut self, audience: &Audience, name: Box<str>, mirrored: Mirrored) {
        let bytes = audience.bytes() + name.len() + mirrored.bytes();
        let key = (audience.clone(), name);
        self.forget(&key);
        if bytes > MOST_BYTES {
            return;
        }
        while self.bytes + bytes > MOST_BYTES {
            let Some(oldest) = self.order.first_key_value().map(|(_, key)| key.clone()) else {
                return;
            };
            self.forget(&oldest);
        }
        self.next += 1;
        if *audience != Audience::All {
            self.order.insert(self.next, key.clone());
        }
        self.bytes += bytes;
        self.table.insert(key, (self.next, mirrored));
    }

    fn forget(&mut self, key: &Key) {
        if let Some((number, mirrored)) = self.table.remove(key) {
            self.order.remove(&number);
            self.bytes -= key.0.bytes() + key.1.len() + mirrored.bytes();
        }
    }
}

/// Returns the names of all tools in a result of `tools/list`.
fn named(result: Json<'_>) -> Vec<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        tools: Vec<Tool<'a>>,
    }

    #[derive(Deserialize)]
    struct Tool<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let list = serde_json::from_str::<List<'_>>(result.as_str());
    let tools = list.map(|list| list.tools).unwrap_or_default();
    tools.into_iter().map(|tool| tool.name).collect()
}

#[cfg(test)]
mod tests {
    use crate::json::Payload;

    use super::*;

    const MARKED: &str =
        r#"{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X"}}}"#;

    const ANYBODY: Audience = Audience::User(None);

    fn list(schema: &str) -> Payload {
        let text = alloc::format!(r#"{{"tools":[{{"name":"a","inputSchema":{schema}}}]}}"#);
        text.parse().unwrap()
    }

    #[test]
    fn newest_tools_are_known_for_which_there_is_room() {
        let mut tools = ParamHeaders::default();
        let names = ["a", "b", "c"].map(|name| name.repeat(MOST_BYTES * 2 / 5));
        for name in &names {
            let text =
                alloc::format!(r#"{{"tools":[{{"name":"{name}","inputSchema":{MARKED}}}]}}"#);
            let list: Payload = text.parse().unwrap();
            tools.learn(&ANYBODY, list.json());
        }
        let arguments: Payload = r#"{"x":"1"}"#.parse().unwrap();
        let are_checked = names.each_ref().map(|name| {
            let checked = tools.check(None, name, &Fields::new(), Some(arguments.json()));
            checked.is_err()
        });
        assert_eq!(are_checked, [false, true, true]);
    }

    #[test]
    fn the_newest_word_on_a_tool_counts() {
        let arguments: Payload = r#"{"x":"1"}"#.parse().unwrap();
        let mut tools = ParamHeaders::default();
        let check =
            |tools: &ParamHeaders| tools.check(None, "a", &Fields::new(), Some(arguments.json()));
        assert_eq!(check(&tools), Ok(()));
        tools.learn(&ANYBODY, list(MARKED).json());
        assert!(check(&tools).is_err());
        assert!(tools.bytes > 0);
        tools.learn(&ANYBODY, list(r#"{"type":"object"}"#).json());
        assert_eq!(check(&tools), Ok(()));
        assert_eq!(tools.bytes, 0);
    }

    #[test]
    fn room_counts_the_user_and_each_tool_once_and_can_be_filled() {
        let user = Audience::User(Some("somebody".into()));
        let mut tools = ParamHeaders::default();
        tools.learn(&user, list(MARKED).json());
        let once = tools.bytes;
        let mut of_anybody = ParamHeaders::default();
        of_anybody.learn(&ANYBODY, list(MARKED).json());
        assert_eq!(once, of_anybody.bytes + "somebody".len());
        let (name, mirrored) = survey(list(MARKED).json()).tools.remove(0);
        tools.add(&user, name, mirrored.clone());
        assert_eq!(tools.bytes, once);
        let most = MOST_BYTES - mirrored.bytes();
        tools.add(&ANYBODY, "x".repeat(most + 1).into(), mirrored.clone());
        assert_eq!(tools.bytes, once, "it is never kept");
        let room = "x".repeat(most - once);
        tools.add(&ANYBODY, room.as_str().into(), mirrored.clone());
        assert_eq!(tools.bytes, MOST_BYTES);
        let more = "y".repeat(most - once + 1);
        tools.add(&ANYBODY, more.into(), mirrored.clone());
        assert_eq!(tools.bytes, MOST_BYTES - once + 1);
        assert_eq!((tools.table.len(), tools.order.len()), (1, 1));
    }

    /// They are those of the application, and are as many as it wants.
    #[test]
    fn tools_of_all_users_do_not_give_way() {
        let mut tools = ParamHeaders::default();
        tools.learn(&Audience::All, list(MARKED).json());
        let (_, mirrored) = survey(list(MARKED).json()).tools.remove(0);
        for name in ["x", "y"] {
            let name = name.repeat(MOST_BYTES / 2);
            tools.add(&ANYBODY, name.into(), mirrored.clone());
        }
        let arguments: Payload = r#"{"x":"1"}"#.parse().unwrap();
        let checked = tools.check(None, "a", &Fields::new(), Some(arguments.json()));
        assert!(checked.is_err());
        assert_eq!(tools.table.len(), 2);
    }

    #[test]
    fn tool_that_takes_all_the_room_is_known() {
        let mut tools = ParamHeaders::default();
        let (_, mirrored) = survey(list(MARKED).json()).tools.remove(0);
        let name = "x".repeat(MOST_BYTES - mirrored.bytes());
        tools.add(&ANYBODY, name.into(), mirrored);
        assert_eq!(tools.bytes, MOST_BYTES);
    }
}
