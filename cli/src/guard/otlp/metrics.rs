//! Counts what the guard does, and encodes the counts as metrics. All are cumulative.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use everlink::protocol::Version;
use everlink::relay::Trace;

use super::Endpoints;
use super::attributes::{self, Failed, name_key};
use super::protobuf::Message;
use super::spans::{Templates, UnixNanos};

/// The upper bounds that the conventions give for durations of operations, in seconds.
const BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// The most kinds of requests that are counted apart. Hosts choose names, so their number is not bounded by the tools of the server.
const MOST_SERIES: usize = 1000;

/// The durations of requests in front of and behind the guard.
const OPERATIONS: [&str; 2] = [
    "mcp.server.operation.duration",
    "mcp.client.operation.duration",
];

/// The temporality of sums that go on from the start.
const CUMULATIVE: u64 = 2;

#[derive(Default)]
pub(super) struct Metrics {
    /// Ordered by what their requests have in common.
    series: Vec<Series>,
    /// Counts the requests that have no series, because there are too many.
    others: [Histogram; 2],
    connections: u64,
    restarts: u64,
    failures: HashMap<&'static str, u64>,
    sessions: Histogram,
    /// Spans that were not delivered.
    pub(super) dropped: u64,
}

/// The requests with one method, name, error and versions.
struct Series {
    method: Cow<'static, str>,
    name: Option<Box<str>>,
    failed: Option<Failed>,
    versions: (Version, Option<Version>),
    /// The encoded attributes.
    attributes: [Vec<u8>; 2],
    /// The durations in front of and behind the guard.
    durations: [Histogram; 2],
    templates: Templates,
}

impl Series {
    fn new(trace: &Trace, failed: Option<Failed>, endpoints: &Endpoints) -> Series {
        let versions = (trace.host_version, trace.server_version);
        let sides = [
            (Some(versions.0), &endpoints.front),
            (versions.1, &endpoints.back),
        ];
        Series {
            method: trace.method.clone(),
            name: trace.name.clone(),
            versions,
            attributes: sides.map(|(version, endpoint)| {
                let mut encoded = endpoint.clone();
                describe(&mut Message::new(&mut encoded), trace, failed.as_ref());
                if let Some(version) = version {
                    let version = version.as_str();
                    let mut point = Message::new(&mut encoded);
                    attributes::text(&mut point, 9, "mcp.protocol.version", version);
                }
                encoded
            }),
            durations: Default::default(),
            templates: Templates::new(trace, failed.as_ref(), endpoints),
            failed,
        }
    }

    fn compare(&self, trace: &Trace, failed: Option<&Failed>) -> Ordering {
        let by_name = self.name.cmp(&trace.name);
        by_name
            .then_with(|| self.method.cmp(&trace.method))
            .then_with(|| self.failed.as_ref().cmp(&failed))
            .then_with(|| {
                self.versions
                    .cmp(&(trace.host_version, trace.server_version))
            })
    }
}

#[derive(Default)]
struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Histogram {
    fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(BOUNDS.len())] += 1;
        self.sum += seconds;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Writes a data point. The attributes are encoded as its field 9.
    fn write(&self, histogram: &mut Message<'_>, times: [UnixNanos; 2], attributes: &[u8]) {
        histogram.message(1, |point| {
            point.fixed64(2, times[0]);
            point.fixed64(3, times[1]);
            point.fixed64(4, self.count());
            point.double(5, self.sum);
            point.packed(6, self.counts.iter().copied());
            point.packed(7, BOUNDS.iter().map(|bound| bound.to_bits()));
            point.splice(attributes);
        });
    }
}

impl Metrics {
    /// Counts a request. Returns what its spans have in common with those of others, if there are not too many kinds of requests.
    pub(super) fn add_request(
        &mut self,
        trace: &Trace,
        endpoints: &Endpoints,
    ) -> Option<&Templates> {
        let failed = Failed::of(trace);
        let order = |series: &Series| series.compare(trace, failed.as_ref());
        let index = match self.series.binary_search_by(order) {
            Ok(index) => Some(index),
            Err(index) if self.series.len() < MOST_SERIES => {
                let series = Series::new(trace, failed, endpoints);
                self.series.insert(index, series);
                Some(index)
            }
            Err(_) => None,
        };
        let durations = match index {
            Some(index) => &mut self.series[index].durations,
            None => &mut self.others,
        };
        durations[0].add(trace.ended.since(trace.accepted));
        if let Some((sent, _)) = trace.sent {
            durations[1].add(trace.ended.since(sent));
        }
        index.map(|index| &self.series[index].templates)
    }

    /// Counts an attempt to connect.
    pub(super) fn add_connection(&mut self) {
        self.restarts += u64::from(self.connections > 0);
        self.connections += 1;
    }

    /// Counts the end of a connection. `failed` is its `error.type`.
    pub(super) fn add_end(&mut self, ready_for: Option<Duration>, failed: Option<&'static str>) {
        if let Some(duration) = ready_for {
            self.sessions.add(duration);
        }
        if let Some(cause) = failed {
            *self.failures.entry(cause).or_default() += 1;
        }
    }

    /// Encodes all metrics, as the fields of a `ScopeMetrics`. `in_flight` is the number of requests without an answer.
    pub(super) fn write(
        &self,
        scope: &mut Message<'_>,
        times: [UnixNanos; 2],
        endpoints: &Endpoints,
        in_flight: u64,
    ) {
        let mut other = Vec::new();
        attributes::text(
            &mut Message::new(&mut other),
            9,
            "mcp.method.name",
            "_OTHER",
        );
        for (side, name) in OPERATIONS.into_iter().enumerate() {
            metric(scope, name, "s", 9, |histogram| {
                let series = self.series.iter();
                let series =
                    series.map(|series| (&series.durations[side], &series.attributes[side]));
                for (durations, attributes) in series.chain([(&self.others[side], &other)]) {
                    if durations.count() > 0 {
                        durations.write(histogram, times, attributes);
                    }
                }
                histogram.number(2, CUMULATIVE);
            });
        }
        if self.sessions.count() > 0 {
            metric(scope, "mcp.client.session.duration", "s", 9, |histogram| {
                self.sessions.write(histogram, times, &endpoints.back);
                histogram.number(2, CUMULATIVE);
            });
        }
        sum(scope, "everlink.restarts", "{restart}", true, |sum| {
            point(sum, times, self.restarts, |_| {});
        });
        sum(scope, "everlink.failures", "{failure}", true, |sum| {
            for (cause, count) in &self.failures {
                point(sum, times, *count, |point| {
                    attributes::text(point, 7, "error.type", cause);
                });
            }
        });
        sum(scope, "everlink.spans.dropped", "{span}", true, |sum| {
            point(sum, times, self.dropped, |_| {});
        });
        sum(scope, "everlink.calls.in_flight", "{call}", false, |sum| {
            point(sum, times, in_flight, |_| {});
        });
    }
}

fn describe(point: &mut Message<'_>, trace: &Trace, failed: Option<&Failed>) {
    let method = &*trace.method;
    attributes::text(point, 9, "mcp.method.name", method);
    if let (Some(name), Some(key)) = (&trace.name, name_key(method)) {
        attributes::text(point, 9, key, name);
    }
    if method == "tools/call" {
        attributes::text(point, 9, "gen_ai.operation.name", "execute_tool");
    }
    if let Some(failed) = failed {
        attributes::text(point, 9, "error.type", &failed.class);
        if failed.is_code {
            attributes::text(point, 9, "rpc.response.status_code", &failed.class);
        }
    }
}

/// Writes a `Metric` whose data are in this field.
fn metric(
    scope: &mut Message<'_>,
    name: &str,
    unit: &str,
    field: u64,
    fill: impl FnOnce(&mut Message<'_>),
) {
    scope.message(2, |metric| {
        metric.text(1, name);
        metric.text(3, unit);
        metric.message(field, fill);
    });
}

fn sum(
    scope: &mut Message<'_>,
    name: &str,
    unit: &str,
    is_monotonic: bool,
    fill: impl FnOnce(&mut Message<'_>),
) {
    metric(scope, name, unit, 7, |sum| {
        fill(sum);
        sum.number(2, CUMULATIVE);
        sum.number(3, u64::from(is_monotonic));
    });
}

fn point(
    sum: &mut Message<'_>,
    times: [UnixNanos; 2],
    value: u64,
    fill: impl FnOnce(&mut Message<'_>),
) {
    sum.message(1, |point| {
        point.fixed64(2, times[0]);
        point.fixed64(3, times[1]);
        point.fixed64(6, value);
        fill(point);
    });
}
