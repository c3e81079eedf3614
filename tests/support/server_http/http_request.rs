//! The HTTP requests of clients: a head whose fields can be changed, and a body.

use core::fmt;
use core::net::IpAddr;

use everlink::http::{Fields, RequestHead, Verb};
use serde_json::{Value, json};

/// An HTTP request. It is correct until a script changes it.
#[derive(Clone)]
pub(crate) struct HttpRequest {
    pub(crate) verb: Verb,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) user: Option<String>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn new(verb: Verb, body: impl Into<Vec<u8>>) -> HttpRequest {
        HttpRequest {
            verb,
            target: "/mcp".to_owned(),
            fields: Vec::new(),
            user: None,
            address: None,
            body: body.into(),
        }
        .with("host", "localhost:8080")
    }

    /// Sets this field, in place of any with the same name.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> HttpRequest {
        self = self.without(name);
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds this field, beside any with the same name.
    pub(crate) fn append(mut self, name: &str, value: impl AsRef<[u8]>) -> HttpRequest {
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Removes this field.
    pub(crate) fn without(mut self, name: &str) -> HttpRequest {
        self.fields.retain(|(of, _)| !of.eq_ignore_ascii_case(name));
        self
    }

    /// Sets the path.
    pub(crate) fn to(mut self, target: &str) -> HttpRequest {
        target.clone_into(&mut self.target);
        self
    }

    /// Sets the user.
    pub(crate) fn by(mut self, user: Option<&str>) -> HttpRequest {
        self.user = user.map(str::to_owned);
        self
    }

    /// Sets the network address that it comes from.
    pub(crate) fn coming_from(mut self, address: &str) -> HttpRequest {
        self.address = Some(address.parse().expect("an address"));
        self
    }

    pub(crate) fn head(&self) -> RequestHead<'_> {
        let fields = self.fields.iter();
        let fields: Fields<'_> = fields
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        let mut head = RequestHead::new(self.verb, self.target.as_str()).with_fields(fields);
        head.address = self.address;
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

impl fmt::Display for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.target)?;
        for (name, value) in &self.fields {
            write!(f, " {name}: {};", String::from_utf8_lossy(value))?;
        }
        write!(f, " {}", String::from_utf8_lossy(&self.body))
    }
}

/// A POST of a message, without the header fields of any era.
pub(crate) fn post(message: &Value) -> HttpRequest {
    HttpRequest::new(Verb::Post, message.to_string())
        .with("content-type", "application/json")
        .with("accept", "application/json, text/event-stream")
}

/// A GET for an event stream.
pub(crate) fn get() -> HttpRequest {
    HttpRequest::new(Verb::Get, "").with("accept", "text/event-stream")
}

/// A DELETE, which ends a session.
pub(crate) fn delete() -> HttpRequest {
    HttpRequest::new(Verb::Delete, "")
}

/// A modern request, with the header fields that repeat its body.
pub(crate) fn modern(id: impl Into<Value>, method: &str, params: Value) -> HttpRequest {
    let params = with_meta(params);
    let name = params.get("name").or_else(|| params.get("uri"));
    let name = name.and_then(Value::as_str).map(str::to_owned);
    let message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
    let http_request = post(&message)
        .with("mcp-protocol-version", "2026-07-28")
        .with("mcp-method", method);
    match name {
        Some(name) => http_request.with("mcp-name", name),
        None => http_request,
    }
}

/// A notification, without the header fields of any era.
pub(crate) fn notification(method: &str, params: Value) -> HttpRequest {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if !params.is_null() {
        message["params"] = params;
    }
    post(&message)
}

/// An `initialize` request.
pub(crate) fn initialize(version: &str) -> HttpRequest {
    initialize_with(
        version,
        &json!({"elicitation": {}, "roots": {}, "sampling": {}}),
    )
}

/// An `initialize` request of a client with these capabilities.
pub(crate) fn initialize_with(version: &str, capabilities: &Value) -> HttpRequest {
    post(&json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "scripted", "version": "1"},
        },
    }))
}

/// Declares these client capabilities in the parameters of a modern request.
pub(crate) fn declaring(capabilities: &Value, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    params
}

/// Adds the `_meta` of a modern request to the parameters. Members that the parameters already have win.
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

    /// Adds the header fields and the user of this session.
    pub(crate) fn in_session(&self, http_request: HttpRequest) -> HttpRequest {
        let http_request = http_request
            .with("mcp-session-id", &self.id)
            .by(self.user.as_deref());
        // The version header exists from 2025-06-18 on.
        if *self.version >= *"2025-06-18" {
            http_request.with("mcp-protocol-version", &self.version)
        } else {
            http_request
        }
    }

    /// A POST of a message.
    pub(crate) fn post_message(&self, message: &Value) -> HttpRequest {
        self.in_session(post(message))
    }

    /// A POST of a request.
    pub(crate) fn post(&self, id: impl Into<Value>, method: &str, params: Value) -> HttpRequest {
        let mut message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        self.post_message(&message)
    }

    pub(crate) fn notification(&self, method: &str, params: Value) -> HttpRequest {
        self.in_session(notification(method, params))
    }

    /// A POST of the reply to a request of the server.
    pub(crate) fn answer(&self, id: &Value, result: Value) -> HttpRequest {
        self.post_message(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// A GET for the standalone stream.
    pub(crate) fn get(&self) -> HttpRequest {
        self.in_session(get())
    }

    /// A GET for the rest of a stream, after this event.
    pub(crate) fn resume(&self, last: &str) -> HttpRequest {
        self.get().with("last-event-id", last)
    }

    pub(crate) fn delete(&self) -> HttpRequest {
        self.in_session(delete())
    }
}
