//! The arguments of `everlink complete`, and the request that they make. Does not depend on a link.

use clap::Args as Arguments;
use serde_json::{Map, Value, json};

use crate::args::Target;
use crate::{Failure, usage_error};

#[derive(Debug, Arguments)]
pub(crate) struct Complete {
    /// The name of a prompt, or a URI template; `everlink inspect` lists both. A text with `{` is a template
    #[arg(value_name = "PROMPT | TEMPLATE")]
    reference: String,
    /// The argument or variable to complete, and its text so far, which may be empty
    #[arg(value_name = "ARGUMENT=TEXT")]
    argument: String,
    /// The arguments or variables that are known already
    #[arg(value_name = "OTHER=VALUE")]
    others: Vec<String>,
    /// Print the result, or the error, as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) target: Target,
}

/// The parameters of `completion/complete`.
pub(super) struct CompletionRequest {
    reference: Value,
    name: String,
    value: String,
    others: Map<String, Value>,
}

impl CompletionRequest {
    pub(super) fn read(args: &Complete) -> Result<CompletionRequest, Failure> {
        let reference = &args.reference;
        let reference = match reference.contains('{') {
            true => json!({"type": "ref/resource", "uri": reference}),
            false => json!({"type": "ref/prompt", "name": reference}),
        };
        let (name, value) = split(&args.argument)?;
        let mut others = Map::new();
        for other in &args.others {
            let (name, value) = split(other)?;
            others.insert(name.to_owned(), value.into());
        }
        Ok(CompletionRequest {
            reference,
            name: name.to_owned(),
            value: value.to_owned(),
            others,
        })
    }

    pub(super) fn params(&self) -> Value {
        let argument = json!({"name": self.name, "value": self.value});
        let mut params = json!({"ref": self.reference, "argument": argument});
        if !self.others.is_empty() {
            params["context"] = json!({"arguments": self.others});
        }
        params
    }
}

fn split(pair: &str) -> Result<(&str, &str), Failure> {
    let parts = pair.split_once('=').filter(|(name, _)| !name.is_empty());
    parts.ok_or_else(|| {
        usage_error(format!(
            "`{pair}` has no name and `=`; write it as NAME=TEXT, or NAME= for an empty text"
        ))
    })
}
