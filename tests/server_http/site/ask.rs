//! What clients ask over HTTP: a head that can be changed field by field, and a body.

use core::fmt;

use everlink::http::{Fields, RequestHead, Verb};
use serde_json::{Value, json};

/// Something to ask. It is as it should be, until a script changes it.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) verb: Verb,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) user: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Ask {
    pub(crate) fn new(verb: Verb, body: impl Into<Vec<u8>>) -> Ask {
        Ask {
            verb,
            target: "/mcp".to_owned(),
            fields: Vec::new(),
            user: None,
            body: body.into(),
        }
        .with("host", "localhost:8080")
    }

    /// With this field, instead of any of the same name.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Ask {
        self = self.without(name);
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// And this field, beside any of the same name.
    pub(crate) fn and(mut self, name: &str, value: impl AsRef<[u8]>) -> Ask {
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Without this field.
    pub(crate) fn without(mut self, name: &str) -> Ask {
        self.fields.retain(|(of, _)| !of.eq_ignore_ascii_case(name));
        self
    }

    /// To another path.
    pub(crate) fn to(mut self, target: &str) -> Ask {
        target.clone_into(&mut self.target);
        self
    }

    /// On behalf of this user.
    pub(crate) fn by(mut self, user: Option<&str>) -> Ask {
        self.user = user.map(str::to_owned);
        self
    }

    pub(crate) fn head(&self) -> RequestHead<'_> {
        let fields = self.fields.iter();
        let fields: Fields<'_> = fields
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        let head = RequestHead::new(self.verb, self.target.as_str()).with_fields(fields);
        match &self.user {
            Some(user) => head.by(user.as_str()),
            None => head,
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(of, _)| of.eq_ignore_ascii_case(name))?;
        core::str::from_utf8(value).ok()
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.target)?;
        for (name, value) in &self.fields {
            write!(f, " {name}: {};", String::from_utf8_lossy(value))?;
        }
        write!(f, " {}", String::from_utf8_lossy(&self.body))
    }
}

/// A message, posted as such, with nothing that belongs to an era.
pub(crate) fn post(message: &Value) -> Ask {
    Ask::new(Verb::Post, message.to_string())
        .with("content-type", "application/json")
        .with("accept", "application/json, text/event-stream")
}

/// A stream is wanted.
pub(crate) fn get() -> Ask {
    Ask::new(Verb::Get, "").with("accept", "text/event-stream")
}

/// A session is to end.
pub(crate) fn delete() -> Ask {
    Ask::new(Verb::Delete, "")
}

/// A modern request, with all that repeats it.
pub(crate) fn modern(id: impl Into<Value>, method: &str, params: Value) -> Ask {
    let params = with_meta(params);
    let name = params.get("name").or_else(|| params.get("uri"));
    let name = name.and_then(Value::as_str).map(str::to_owned);
    let message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
    let ask = post(&message)
        .with("mcp-protocol-version", "2026-07-28")
        .with("mcp-method", method);
    match name {
        Some(name) => ask.with("mcp-name", name),
        None => ask,
    }
}

/// A notification without anything of an era.
pub(crate) fn notice(method: &str, params: Value) -> Ask {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if !params.is_null() {
        message["params"] = params;
    }
    post(&message)
}

/// The beginning of a handshake.
pub(crate) fn initialize(version: &str) -> Ask {
    introduce(
        version,
        &json!({"elicitation": {}, "roots": {}, "sampling": {}}),
    )
}

/// The same, of a client that can be asked this.
pub(crate) fn introduce(version: &str, capabilities: &Value) -> Ask {
    post(&json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "scripted", "version": "1"},
        },
    }))
}

/// The parameters of a modern request whose client can be asked this.
pub(crate) fn declaring(capabilities: &Value, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    params
}

/// The parameters with what a modern request says of its client, except where they say that themselves.
pub(crate) fn with_meta(mut params: Value) -> Value {
    if params.is_null() {
        params = json!({});
    }
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}, "sampling": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "scripted", "version": "1"},
    });
    if let Some(Value::Object(own)) = params.get("_meta") {
        meta.as_object_mut().expect("an object").extend(own.clone());
    }
    params["_meta"] = meta;
    params
}

/// A legacy client that has done its handshake.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) version: String,
    user: Option<String>,
}

impl Session {
    pub(crate) fn new(id: impl Into<String>, version: &str) -> Session {
        Session {
            id: id.into(),
            version: version.to_owned(),
            user: None,
        }
    }

    pub(crate) fn by(mut self, user: Option<&str>) -> Session {
        self.user = user.map(str::to_owned);
        self
    }

    /// Anything, in this session.
    pub(crate) fn own(&self, ask: Ask) -> Ask {
        let ask = ask
            .with("mcp-session-id", &self.id)
            .by(self.user.as_deref());
        // The header is there from 2025-06-18 on.
        if *self.version >= *"2025-06-18" {
            ask.with("mcp-protocol-version", &self.version)
        } else {
            ask
        }
    }

    /// A message.
    pub(crate) fn say(&self, message: &Value) -> Ask {
        self.own(post(message))
    }

    /// A request.
    pub(crate) fn post(&self, id: impl Into<Value>, method: &str, params: Value) -> Ask {
        let mut message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        self.say(&message)
    }

    pub(crate) fn notice(&self, method: &str, params: Value) -> Ask {
        self.own(notice(method, params))
    }

    /// The answer to a request of the server.
    pub(crate) fn answer(&self, id: &Value, result: Value) -> Ask {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// The standalone stream.
    pub(crate) fn get(&self) -> Ask {
        self.own(get())
    }

    /// The rest of a stream, after this event.
    pub(crate) fn resume(&self, last: &str) -> Ask {
        self.get().with("last-event-id", last)
    }

    pub(crate) fn delete(&self) -> Ask {
        self.own(delete())
    }
}
