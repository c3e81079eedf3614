//! A collector for the tests: receives OTLP over HTTP and decodes it with the messages of OpenTelemetry.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    HistogramDataPoint, Metric, metric, number_data_point,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::support::wait_until;

/// How the collector answers.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// With this HTTP status.
    Status(u16),
    /// Never.
    Silence,
}

pub(crate) struct Collector {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

/// A request that the collector got.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// The header, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A span with the name of the service that sent it.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSpan {
    pub(crate) service: String,
    pub(crate) span: Span,
}

impl Collector {
    pub(crate) fn start(answer: Answer) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(&stream, answer, &shared));
            }
        });
        Collector {
            url: format!("http://{address}"),
            received,
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }

    /// Returns all spans so far.
    pub(crate) fn spans(&self) -> Vec<ServiceSpan> {
        let mut spans = Vec::new();
        for received in self.received() {
            if received.path != "/v1/traces" {
                continue;
            }
            let request = ExportTraceServiceRequest::decode(&*received.body).expect("valid OTLP");
            for resource_spans in request.resource_spans {
                let resource = resource_spans.resource.expect("a resource");
                let service = text(&resource.attributes, "service.name").expect("a service name");
                for scope_spans in resource_spans.scope_spans {
                    assert_eq!(scope_spans.scope.expect("a scope").name, "everlink");
                    spans.extend(scope_spans.spans.into_iter().map(|span| ServiceSpan {
                        service: service.clone(),
                        span,
                    }));
                }
            }
        }
        spans
    }

    /// Waits until a span is there, and returns it.
    pub(crate) fn span(&self, is_wanted: impl Fn(&ServiceSpan) -> bool) -> ServiceSpan {
        wait_until("there is a span", || self.spans().iter().any(&is_wanted));
        let mut spans = self.spans().into_iter();
        spans.find(|span| is_wanted(span)).expect("it was there")
    }

    /// Returns the newest metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let received = self.received();
        let newest = received.iter().rfind(|it| it.path == "/v1/metrics");
        let newest = newest.expect("metrics were sent");
        let request = ExportMetricsServiceRequest::decode(&*newest.body).expect("valid OTLP");
        let resources = request.resource_metrics.into_iter();
        let scopes = resources.flat_map(|it| it.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).collect()
    }

    /// Returns the data points of a histogram.
    pub(crate) fn histogram(&self, name: &str) -> Vec<HistogramDataPoint> {
        let found = self.metrics().into_iter().find(|it| it.name == name);
        match found.expect("the metric is there").data {
            Some(metric::Data::Histogram(histogram)) => histogram.data_points,
            other => panic!("{name} is no histogram: {other:?}"),
        }
    }

    /// Returns the values of a sum, each with its `error.type`.
    pub(crate) fn sum(&self, name: &str) -> Vec<(Option<String>, i64)> {
        let found = self.metrics().into_iter().find(|it| it.name == name);
        let Some(metric::Data::Sum(sum)) = found.expect("the metric is there").data else {
            panic!("{name} is no sum");
        };
        let points = sum.data_points.into_iter();
        points
            .map(|point| {
                let Some(number_data_point::Value::AsInt(value)) = point.value else {
                    panic!("{name} has no integer");
                };
                (text(&point.attributes, "error.type"), value)
            })
            .collect()
    }
}

impl ServiceSpan {
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        text(&self.span.attributes, key)
    }

    /// Returns an attribute that is an integer.
    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        let pair = self.span.attributes.iter().find(|pair| pair.key == key)?;
        match pair.value.as_ref()?.value.as_ref()? {
            any_value::Value::IntValue(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.span
            .status
            .as_ref()
            .is_some_and(|status| status.code == 2)
    }
}

/// Returns an attribute that is a text.
pub(crate) fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let pair = attributes.iter().find(|pair| pair.key == key)?;
    match pair.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(value) => Some(value.clone()),
        _ => None,
    }
}

fn serve(stream: &TcpStream, answer: Answer, received: &Mutex<Vec<Received>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let path = head.split(' ').nth(1)?.to_owned();
        let head = head.to_lowercase();
        let len = head.split("content-length: ").nth(1)?;
        let len = len.lines().next()?.parse().ok()?;
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        let request = Received { path, head, body };
        received.lock().expect("no panic").push(request);
        let Answer::Status(status) = answer else {
            thread::park();
            return None;
        };
        let mut writer = stream;
        write!(
            writer,
            "HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n"
        )
        .ok()?;
    }
}
