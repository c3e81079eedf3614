//! The content of a set: tools, resources, prompts and completions, and the capabilities that follow from them. Runs nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use everlink::Payload;
use everlink::protocol::{Implementation, ServerCapabilities, ServerFeature};
use everlink::server::Offer;
use everlink_types::Completion;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::check::short;
use crate::context::Context;
use crate::error::Error;
use crate::function::{BoxedAnswer, Started};
use crate::uri_template::UriTemplate;

/// Begins a call of a tool with these arguments.
pub(crate) type ToolFn = dyn Fn(Option<&RawValue>, Context) -> Started + Send + Sync;
/// Reads the resource with this URI, which has these variables.
pub(crate) type ResourceFn =
    dyn Fn(&str, Vec<(String, String)>, Context) -> BoxedAnswer + Send + Sync;
/// Gets a prompt with these arguments.
pub(crate) type PromptFn = dyn Fn(Vec<(String, String)>, Context) -> BoxedAnswer + Send + Sync;
/// Completes an argument.
pub(crate) type CompleteFn = dyn Fn(CompletionInput, Context) -> BoxedAnswer + Send + Sync;
/// Answers a request of another method.
pub(crate) type MethodFn = dyn Fn(Option<Payload>, Context) -> BoxedAnswer + Send + Sync;

/// What is known when an argument is completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionInput {
    /// The text of the argument so far.
    pub value: String,
    /// The other arguments that are already known.
    pub arguments: BTreeMap<String, String>,
}

impl CompletionInput {
    /// Keeps the words that begin with the text so far.
    #[must_use]
    pub fn matching<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Completion {
        let words = words
            .into_iter()
            .filter(|word| word.starts_with(&self.value));
        Completion::new(words.map(str::to_owned).collect())
    }
}

/// A prompt or a template with an argument that can be completed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Completable {
    Prompt(String),
    Template(String),
}

pub(crate) struct ToolEntry {
    pub(crate) listed: Payload,
    /// The form for a legacy client, if it differs.
    pub(crate) listed_legacy: Option<Payload>,
    pub(crate) call: Arc<ToolFn>,
}

pub(crate) struct ResourceEntry {
    pub(crate) listed: Payload,
    pub(crate) read: Arc<ResourceFn>,
}

pub(crate) struct TemplateEntry {
    pub(crate) listed: Payload,
    pub(crate) template: UriTemplate,
    pub(crate) read: Arc<ResourceFn>,
}

pub(crate) struct PromptEntry {
    pub(crate) listed: Payload,
    pub(crate) get: Arc<PromptFn>,
}

/// Everything that is registered.
pub(crate) struct Registry {
    pub(crate) server: Implementation,
    pub(crate) instructions: Option<Box<str>>,
    /// The features that were offered by name.
    pub(crate) features: Vec<ServerFeature>,
    /// The most items of one page of a list.
    pub(crate) page_size: usize,
    pub(crate) tools: Set<ToolEntry>,
    pub(crate) resources: Set<ResourceEntry>,
    pub(crate) templates: Set<TemplateEntry>,
    pub(crate) prompts: Set<PromptEntry>,
    pub(crate) completions: HashMap<Completable, HashMap<String, Arc<CompleteFn>>>,
    pub(crate) methods: HashMap<String, Arc<MethodFn>>,
}

impl Registry {
    pub(crate) fn new(server: Implementation) -> Registry {
        Registry {
            server,
            instructions: None,
            features: Vec::new(),
            page_size: usize::MAX,
            tools: Set::default(),
            resources: Set::default(),
            templates: Set::default(),
            prompts: Set::default(),
            completions: HashMap::new(),
            methods: HashMap::new(),
        }
    }

    /// The capabilities that follow from what is registered. Each list may change.
    pub(crate) fn offer(&self) -> Offer {
        let mut capabilities = ServerCapabilities::default();
        if self.tools.was_used() {
            capabilities = capabilities.with_tools(true);
        }
        if self.resources.was_used() || self.templates.was_used() {
            capabilities = capabilities.with_resources(true, false);
        }
        if self.prompts.was_used() {
            capabilities = capabilities.with_prompts(true);
        }
        if !self.completions.is_empty() {
            capabilities = capabilities.with_completions();
        }
        for feature in &self.features {
            capabilities = capabilities.with(*feature);
        }
        let offer = Offer::of(self.server.clone()).with_capabilities(capabilities);
        match &self.instructions {
            Some(instructions) => offer.with_instructions(instructions.clone()),
            None => offer,
        }
    }
}

/// Named items in the order in which they were added.
pub(crate) struct Set<T> {
    items: BTreeMap<u64, T>,
    numbers: HashMap<String, u64>,
    /// The number of the newest item. It stays when the item is removed.
    last: u64,
}

impl<T> Default for Set<T> {
    fn default() -> Set<T> {
        Set {
            items: BTreeMap::new(),
            numbers: HashMap::new(),
            last: 0,
        }
    }
}

impl<T> Set<T> {
    /// Adds an item. An item of the same name is replaced, keeps its place, and is returned.
    pub(crate) fn insert(&mut self, name: String, item: T) -> Option<T> {
        let last = &mut self.last;
        let number = *self.numbers.entry(name).or_insert_with(|| {
            *last += 1;
            *last
        });
        self.items.insert(number, item)
    }

    /// Removes an item and returns it.
    pub(crate) fn remove(&mut self, name: &str) -> Option<T> {
        let number = self.numbers.remove(name)?;
        self.items.remove(&number)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.items.get(self.numbers.get(name)?)
    }

    /// Whether it ever had an item. A client that was offered the list must learn that it is empty now.
    fn was_used(&self) -> bool {
        self.last > 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    /// Returns the page after this cursor. Cursors name the last item of a page by its number, so they stay valid when other items are added or removed.
    pub(crate) fn page(
        &self,
        key: &'static str,
        cursor: Option<&str>,
        size: usize,
        listed: impl Fn(&T) -> &Payload,
    ) -> Result<Payload, Error> {
        let after = match cursor {
            None => 0,
            Some(cursor) => cursor
                .parse()
                .ok()
                .filter(|number| (1..=self.last).contains(number))
                .ok_or_else(|| {
                    Error::invalid_params(format!("Invalid cursor: {}", short(cursor)))
                })?,
        };
        let mut rest = self.items.range(after + 1..);
        let page: Vec<_> = rest.by_ref().take(size).collect();
        let last = page.last().map(|(number, _)| **number);
        let page = Page {
            key,
            items: page.into_iter().map(|(_, item)| listed(item)).collect(),
            next: last.filter(|_| rest.next().is_some()),
        };
        Ok(Payload::of(&page)?)
    }
}

/// A page of a list.
struct Page<'a> {
    key: &'static str,
    items: Vec<&'a Payload>,
    next: Option<u64>,
}

impl Serialize for Page<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.key, &self.items)?;
        if let Some(next) = self.next {
            map.serialize_entry("nextCursor", &next.to_string())?;
        }
        map.end()
    }
}
