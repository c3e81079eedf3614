//! The registration of resources, prompts, completions and other methods.

use std::future::Future;
use std::sync::Arc;

use everlink::{Change, List, Payload};
use everlink_types::{CompleteResult, Completion, Prompt, Resource, ResourceTemplate};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::dispatch::written;
use crate::error::Error;
use crate::prompting::{Messages, prompt_arguments};
use crate::reading::Contents;
use crate::registry::{
    Completable, CompleteFn, CompletionInput, MethodFn, PromptEntry, ResourceEntry, ResourceFn,
    TemplateEntry,
};
use crate::tools::Tools;
use crate::uri_template::UriTemplate;
use crate::{schema, text};

/// # Resources
impl Tools {
    /// Adds a resource: its URI, its name, and an `async` function that reads it.
    pub fn resource<R, F, Fut>(
        self,
        uri: impl Into<String>,
        name: impl Into<String>,
        function: F,
    ) -> Tools
    where
        R: Into<Contents>,
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        self.resource_as(Resource::new(uri, name), function)
    }

    /// Adds a resource like [`resource`](Tools::resource), with a description that may have a media type, a title, annotations and icons.
    pub fn resource_as<R, F, Fut>(self, resource: Resource, function: F) -> Tools
    where
        R: Into<Contents>,
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let read = reader(resource.mime_type.clone(), move |(): (), context| {
            function(context)
        });
        let listed = payload(&resource);
        let entry = ResourceEntry { listed, read };
        self.change(Some(List::Resources), |registry| {
            registry.resources.insert(resource.uri, entry)
        })
    }

    /// Adds a template of resources: its URI template, its name, and an `async` function of its variables that reads the resource.
    ///
    /// Templates know `{name}` (text without `/` and `%2F`), `{+name}` (any text) and, at the end, `{?a,b}` (a query). Values are percent-decoded, and numbers and
    /// booleans are parsed. The function returns [`Error::resource_not_found`] for a URI without a resource.
    ///
    /// A client chooses the values. A value of `{name}` has no `/`, but may be `..`, and on Windows may contain `\`: check it before you join it to a path.
    ///
    /// # Panics
    ///
    /// When the template has other expressions, or a query that is not at the end.
    pub fn template<A, R, F, Fut>(
        self,
        uri_template: impl Into<String>,
        name: impl Into<String>,
        function: F,
    ) -> Tools
    where
        A: DeserializeOwned + Send + 'static,
        R: Into<Contents>,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        self.template_as(ResourceTemplate::new(uri_template, name), function)
    }

    /// Adds a template like [`template`](Tools::template), with a description that may have a media type, a title, annotations and icons.
    ///
    /// # Panics
    ///
    /// When the template has other expressions, or a query that is not at the end.
    pub fn template_as<A, R, F, Fut>(self, template: ResourceTemplate, function: F) -> Tools
    where
        A: DeserializeOwned + Send + 'static,
        R: Into<Contents>,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let parsed = UriTemplate::parse(&template.uri_template);
        let parsed = parsed.unwrap_or_else(|error| {
            panic!(
                "the URI template `{}` cannot be used: {error}",
                template.uri_template
            )
        });
        let entry = TemplateEntry {
            listed: payload(&template),
            template: parsed,
            read: reader(template.mime_type, function),
        };
        self.change(Some(List::ResourceTemplates), |registry| {
            registry.templates.insert(template.uri_template, entry)
        })
    }

    /// Removes a resource. Returns whether there was one.
    pub fn remove_resource(&self, uri: &str) -> bool {
        self.remove(List::Resources, |registry| registry.resources.remove(uri))
    }

    /// Removes a template. Returns whether there was one.
    pub fn remove_template(&self, uri_template: &str) -> bool {
        self.remove(List::ResourceTemplates, |registry| {
            registry.templates.remove(uri_template)
        })
    }

    /// Tells the clients that subscribed to this resource that it changed. The set must [offer](Tools::with_resource_updates) that.
    pub fn resource_updated(&self, uri: &str) {
        self.publish(&Change::Resource { uri: uri.into() });
    }
}

/// # Prompts and other methods
impl Tools {
    /// Adds a prompt: its name, what it is for, and an `async` function of its arguments.
    ///
    /// Arguments of prompts are texts. Fields that are numbers or booleans are parsed, and doc comments describe them. A prompt without arguments takes `()`.
    pub fn prompt<A, R, F, Fut>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        function: F,
    ) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Into<Messages>,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        self.prompt_as(Prompt::new(name).with_description(description), function)
    }

    /// Adds a prompt like [`prompt`](Tools::prompt), with a description that may have a title and icons. Its arguments follow from the type, unless the
    /// description has some.
    pub fn prompt_as<A, R, F, Fut>(self, mut prompt: Prompt, function: F) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Into<Messages>,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        if prompt.arguments.is_none() {
            let arguments = prompt_arguments(&schema::of_input::<A>());
            prompt.arguments = (!arguments.is_empty()).then_some(arguments);
        }
        let (listed, name) = (payload(&prompt), prompt.name.clone());
        let get = move |arguments, context| {
            let called = text::read(arguments).map(|arguments| function(arguments, context));
            let called = called.map_err(|error| {
                Error::invalid_params(format!("Invalid arguments for prompt {name}: {error}"))
            });
            Box::pin(async move {
                let messages = async { called?.await?.into().into_response() };
                messages.await.map_err(Error::into_error_object)
            }) as _
        };
        let get = Arc::new(get);
        self.change(Some(List::Prompts), |registry| {
            registry
                .prompts
                .insert(prompt.name, PromptEntry { listed, get })
        })
    }

    /// Removes a prompt. Returns whether there was one.
    pub fn remove_prompt(&self, name: &str) -> bool {
        self.remove(List::Prompts, |registry| registry.prompts.remove(name))
    }

    /// Completes an argument of a prompt with an `async` function of the text so far.
    pub fn complete_prompt<R, F, Fut>(
        self,
        prompt: impl Into<String>,
        argument: impl Into<String>,
        function: F,
    ) -> Tools
    where
        R: Into<Completion>,
        F: Fn(CompletionInput, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let target = Completable::Prompt(prompt.into());
        self.complete(target, argument.into(), completer(function))
    }

    /// Completes a variable of a URI template with an `async` function of the text so far.
    pub fn complete_template<R, F, Fut>(
        self,
        uri_template: impl Into<String>,
        variable: impl Into<String>,
        function: F,
    ) -> Tools
    where
        R: Into<Completion>,
        F: Fn(CompletionInput, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let target = Completable::Template(uri_template.into());
        self.complete(target, variable.into(), completer(function))
    }

    fn complete(self, target: Completable, argument: String, function: Arc<CompleteFn>) -> Tools {
        self.change(None, |registry| {
            let functions = registry.completions.entry(target).or_default();
            functions.insert(argument, function)
        })
    }

    /// Answers requests of another method with an `async` function of their parameters, for example those of an extension. The result must be an object.
    ///
    /// Add the first one before [`config`](Tools::config) is called: a server of a set without methods refuses what it does not know.
    pub fn method<P, R, F, Fut>(self, method: impl Into<String>, function: F) -> Tools
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize,
        F: Fn(P, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let method = method.into();
        let name = method.clone();
        let answer = move |params: Option<Payload>, context| {
            let called = read_params(params.as_ref()).map(|params| function(params, context));
            let called = called.map_err(|error| Error::invalid_params(format!("{name}: {error}")));
            Box::pin(async move {
                let result = async { called?.await }.await;
                written(&result.map_err(Error::into_error_object)?)
            }) as _
        };
        self.change(None, |registry| {
            let answer: Arc<MethodFn> = Arc::new(answer);
            registry.methods.insert(method, answer)
        })
    }
}

/// Reads the parameters of another method. Those that are absent or empty may also be read as `()`.
fn read_params<P: DeserializeOwned>(params: Option<&Payload>) -> Result<P, serde_json::Error> {
    let params = params.map_or("{}", Payload::as_str);
    let read = serde_json::from_str(params);
    match params {
        "{}" => read.or_else(|error| serde_json::from_str("null").map_err(|_| error)),
        _ => read,
    }
}

/// Writes a description.
fn payload(value: &impl Serialize) -> Payload {
    Payload::of(value).expect("descriptions have only texts as keys")
}

/// Makes the function of a resource or a template.
fn reader<A, R, F, Fut>(mime_type: Option<String>, function: F) -> Arc<ResourceFn>
where
    A: DeserializeOwned,
    R: Into<Contents>,
    F: Fn(A, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Error>> + Send + 'static,
{
    Arc::new(move |uri, variables, context| {
        let called = text::read(variables).map(|variables| function(variables, context));
        let called =
            called.map_err(|error| Error::invalid_params(format!("Invalid URI {uri}: {error}")));
        let (uri, mime_type) = (uri.to_owned(), mime_type.clone());
        Box::pin(async move {
            let contents = async {
                let contents: Contents = called?.await?.into();
                contents.into_payload(&uri, mime_type.as_deref())
            };
            contents
                .await
                .map(Into::into)
                .map_err(Error::into_error_object)
        })
    })
}

/// Makes the function of a completion.
fn completer<R, F, Fut>(function: F) -> Arc<CompleteFn>
where
    R: Into<Completion>,
    F: Fn(CompletionInput, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Error>> + Send + 'static,
{
    Arc::new(move |input, context| {
        let called = function(input, context);
        Box::pin(async move {
            let completion = called.await.map_err(Error::into_error_object)?;
            written(&CompleteResult::new(completion.into()))
        })
    })
}
