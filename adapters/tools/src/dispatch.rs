//! Answers requests: finds the function that is registered for each, and begins it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use everlink::ErrorObject;
use everlink::Payload;
use everlink::protocol::{Era, code};
use everlink::server::Request;
use everlink_handle::Context as RequestContext;
use everlink_types::{CompleteParams, CompleteResult, Completion, Reference};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::check::short;
use crate::context::Context;
use crate::error::Error;
use crate::function::{Answer, Started};
use crate::registry::{Completable, CompletionInput, Registry};
use crate::tools::Tools;

/// Begins the function of a request.
pub(crate) fn start(tools: &Tools, request: Request, context: RequestContext) -> Started {
    let method = request.method.clone();
    let (params, context) = Context::of(request, context);
    let params = params.as_ref();
    let started = match &*method {
        "tools/call" => call_tool(tools, params, context),
        "prompts/get" => get_prompt(tools, params, context),
        "resources/read" => read_resource(tools, params, context),
        "completion/complete" => complete(tools, params, context),
        "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list" => {
            Ok(Started::Done(list(tools, &method, params, &context)))
        }
        other => {
            let function = tools.read().methods.get(other).map(Arc::clone);
            match function {
                Some(function) => Ok(Started::Future(function(params.cloned(), context))),
                None => {
                    let text = format!("{other} is not served here");
                    Err(ErrorObject::new(code::METHOD_NOT_FOUND, text))
                }
            }
        }
    };
    started.unwrap_or_else(|error| Started::Done(Err(error)))
}

fn call_tool(
    tools: &Tools,
    params: Option<&Payload>,
    context: Context,
) -> Result<Started, ErrorObject> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let params: Params<'_> = parse("tools/call", params)?;
    let call = match tools.read().tools.get(&params.name) {
        Some(tool) => Arc::clone(&tool.call),
        None => return Err(invalid(format!("Unknown tool: {}", short(&params.name)))),
    };
    let arguments = params.arguments.filter(|it| it.get() != "null");
    if arguments.is_some_and(|arguments| !arguments.get().starts_with('{')) {
        return Err(invalid("tools/call: `arguments` must be an object"));
    }
    Ok(call(arguments, context))
}

fn get_prompt(
    tools: &Tools,
    params: Option<&Payload>,
    context: Context,
) -> Result<Started, ErrorObject> {
    #[derive(Deserialize)]
    struct Params {
        name: String,
        arguments: Option<BTreeMap<String, Value>>,
    }
    let params: Params = parse("prompts/get", params)?;
    let get = match tools.read().prompts.get(&params.name) {
        Some(prompt) => Arc::clone(&prompt.get),
        None => return Err(invalid(format!("Unknown prompt: {}", short(&params.name)))),
    };
    // The specification allows only texts. Some clients send numbers.
    let arguments = params.arguments.into_iter().flatten();
    let arguments = arguments.filter(|(_, value)| !value.is_null());
    let arguments = arguments.map(|(name, value)| match value {
        Value::String(text) => (name, text),
        value => (name, value.to_string()),
    });
    Ok(Started::Future(get(arguments.collect(), context)))
}

fn read_resource(
    tools: &Tools,
    params: Option<&Payload>,
    context: Context,
) -> Result<Started, ErrorObject> {
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    let Params { uri } = parse("resources/read", params)?;
    let (read, variables) = find_resource(&tools.read(), &uri)?;
    Ok(Started::Future(read(&uri, variables, context)))
}

type FoundResource = (Arc<crate::registry::ResourceFn>, Vec<(String, String)>);

/// Finds the function for a URI: that of a resource first, then that of the first template that matches.
fn find_resource(registry: &Registry, uri: &str) -> Result<FoundResource, ErrorObject> {
    if let Some(resource) = registry.resources.get(uri) {
        return Ok((Arc::clone(&resource.read), Vec::new()));
    }
    let mut templates = registry.templates.iter();
    let found = templates.find_map(|entry| {
        let variables = entry.template.variables(uri)?;
        Some((Arc::clone(&entry.read), variables))
    });
    found.ok_or_else(|| Error::resource_not_found(uri).into_error_object())
}

fn complete(
    tools: &Tools,
    params: Option<&Payload>,
    context: Context,
) -> Result<Started, ErrorObject> {
    let params: CompleteParams = parse("completion/complete", params)?;
    let registry = tools.read();
    let (target, is_known) = match params.reference {
        Reference::Prompt { name, .. } => {
            let is_known = registry.prompts.get(&name).is_some();
            (Completable::Prompt(name), is_known)
        }
        Reference::Resource { uri, .. } => {
            let is_known = registry.templates.get(&uri).is_some();
            (Completable::Template(uri), is_known)
        }
        _ => return Err(invalid("completion/complete: unknown type of reference")),
    };
    if !is_known {
        let text = match target {
            Completable::Prompt(name) => format!("Unknown prompt: {}", short(&name)),
            Completable::Template(uri) => format!("Unknown resource template: {}", short(&uri)),
        };
        return Err(invalid(text));
    }
    let functions = registry.completions.get(&target);
    let function = functions.and_then(|it| it.get(&params.argument.name));
    let function = function.map(Arc::clone);
    // The function may change the set.
    drop(registry);
    let Some(function) = function else {
        let nothing = CompleteResult::new(Completion::new(Vec::new()));
        return Ok(Started::Done(written(&nothing)));
    };
    let input = CompletionInput {
        value: params.argument.value,
        arguments: params
            .context
            .and_then(|it| it.arguments)
            .unwrap_or_default(),
    };
    Ok(Started::Future(function(input, context)))
}

/// Returns a page of one of the four lists.
fn list(tools: &Tools, method: &str, params: Option<&Payload>, context: &Context) -> Answer {
    #[derive(Default, Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        cursor: Option<Cow<'a, str>>,
    }
    let params: Params<'_> = match params {
        Some(_) => parse(method, params)?,
        None => Params::default(),
    };
    let (cursor, registry) = (params.cursor.as_deref(), tools.read());
    let (size, is_legacy) = (
        registry.page_size,
        context.peer().version.era() == Era::Legacy,
    );
    let page = match method {
        "tools/list" => registry.tools.page("tools", cursor, size, |tool| {
            let legacy = tool.listed_legacy.as_ref().filter(|_| is_legacy);
            legacy.unwrap_or(&tool.listed)
        }),
        "prompts/list" => registry
            .prompts
            .page("prompts", cursor, size, |it| &it.listed),
        "resources/list" => registry
            .resources
            .page("resources", cursor, size, |it| &it.listed),
        _ => registry
            .templates
            .page("resourceTemplates", cursor, size, |it| &it.listed),
    };
    page.map(Into::into).map_err(Error::into_error_object)
}

/// Reads the parameters of a request.
fn parse<'a, T: Deserialize<'a>>(
    method: &str,
    params: Option<&'a Payload>,
) -> Result<T, ErrorObject> {
    let Some(params) = params else {
        return Err(invalid(format!("{method}: the parameters are missing")));
    };
    params
        .parse()
        .map_err(|error| invalid(format!("{method}: {error}")))
}

/// Writes a result.
pub(crate) fn written(result: &impl serde::Serialize) -> Answer {
    match Payload::of(result) {
        Ok(payload) => Ok(payload.into()),
        Err(error) => Err(Error::from(error).into_error_object()),
    }
}

fn invalid(text: impl Into<String>) -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, text)
}
