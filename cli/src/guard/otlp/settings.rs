//! Reads where telemetry goes and how the guard is named, from `--otlp` and from the environment variables of OpenTelemetry.

use std::env;
use std::time::Duration;

use everlink::http::{Fields, Url};
use everlink_tokio::secret;

use super::attributes;
use super::protobuf::Message;
use crate::{Failure, usage_error};

/// Where a collector listens by default.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

pub(super) struct Settings {
    pub(super) traces: Url,
    pub(super) metrics: Url,
    /// The header fields of each request, which may hold a token.
    pub(super) fields: Vec<(String, String)>,
    /// The encoded resource: field 1 of `ResourceSpans` and of `ResourceMetrics`.
    pub(super) resource: Vec<u8>,
    /// How often spans are sent, at least.
    pub(super) span_interval: Duration,
    /// How often metrics are sent.
    pub(super) metric_interval: Duration,
    /// How long a request may take.
    pub(super) timeout: Duration,
}

impl Settings {
    /// Reads the settings. `url` is the value of `--otlp`, if it has one.
    pub(super) fn read(url: Option<&str>) -> Result<Settings, Failure> {
        let endpoint = |signal: &str, path: &str| {
            let own = variable(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
            let (option, text) = match (url, own, variable("OTEL_EXPORTER_OTLP_ENDPOINT")) {
                (Some(url), _, _) => ("--otlp", with_path(url, path)),
                (None, Some(own), _) => ("OTEL_EXPORTER_OTLP_…_ENDPOINT", own),
                (None, None, Some(all)) => ("OTEL_EXPORTER_OTLP_ENDPOINT", with_path(&all, path)),
                (None, None, None) => ("--otlp", with_path(DEFAULT_ENDPOINT, path)),
            };
            Url::parse(&text).map_err(|error| {
                usage_error(format!("{option}: not the URL of a collector: {error}"))
            })
        };
        let millis = |name, default| {
            let given = variable(name).and_then(|text| text.trim().parse().ok());
            Duration::from_millis(given.filter(|millis| *millis > 0).unwrap_or(default))
        };
        Ok(Settings {
            traces: endpoint("TRACES", "v1/traces")?,
            metrics: endpoint("METRICS", "v1/metrics")?,
            fields: header_fields()?,
            resource: resource(),
            span_interval: millis("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            metric_interval: millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000),
        })
    }
}

/// An environment variable that is set to something.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn with_path(url: &str, path: &str) -> String {
    format!("{}/{path}", url.trim_end_matches('/'))
}

/// Returns the header fields of the environment. An error does not quote them.
fn header_fields() -> Result<Vec<(String, String)>, Failure> {
    const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let pairs = pairs(&variable(NAME).unwrap_or_default());
    let is_field = |(name, value): &(String, String)| {
        http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(value).is_ok()
    };
    if pairs.iter().all(is_field) {
        return Ok(pairs);
    }
    let problem = "write header fields as NAME=VALUE,NAME=VALUE; one of them is invalid";
    Err(usage_error(format!("{NAME}: {problem}")))
}

/// Reads a list such as `a=b,c=d` with percent-encoded values. Parts without `=` are left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split(',').filter_map(|part| part.split_once('='));
    parts
        .map(|(key, value)| (key.trim().to_owned(), decoded(value.trim())))
        .collect()
}

/// Decodes percent-encoded text. A `%` without two digits after it stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Encodes what emits the telemetry. Variables of the environment win.
fn resource() -> Vec<u8> {
    let mut given = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    if let Some(name) = variable("OTEL_SERVICE_NAME") {
        given.retain(|(key, _)| key != "service.name");
        given.push(("service.name".to_owned(), name));
    }
    let instance = format!("{:032x}", u128::from_be_bytes(secret()));
    for (key, value) in [
        ("service.name", "everlink"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &instance),
    ] {
        if given.iter().all(|(other, _)| other != key) {
            given.push((key.to_owned(), value.to_owned()));
        }
    }
    let mut encoded = Vec::new();
    Message::new(&mut encoded).message(1, |resource| {
        for (key, value) in &given {
            attributes::text(resource, 1, key, value);
        }
        attributes::number(resource, 1, "process.pid", u64::from(std::process::id()));
    });
    encoded
}

/// Returns the header fields of a request with telemetry.
pub(super) fn request_fields(settings: &Settings) -> Fields<'static> {
    let mut fields = Fields::new();
    fields.push("content-type", "application/x-protobuf");
    for (name, value) in &settings.fields {
        fields.push(name.clone(), value.clone());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_parts_without_a_value_are_left_out() {
        let read = pairs("api-key = a%20b%3D, broken,x=100%,y=%C3%A9");
        let expected = [("api-key", "a b="), ("x", "100%"), ("y", "é")];
        assert_eq!(read, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn path_is_appended_to_the_url_with_one_slash() {
        for url in ["http://a:1", "http://a:1/"] {
            assert_eq!(with_path(url, "v1/traces"), "http://a:1/v1/traces");
        }
        assert_eq!(with_path("http://a/b", "v1/x"), "http://a/b/v1/x");
    }
}
