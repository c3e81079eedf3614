//! Counts what the guard does, and encodes the counts as metrics. All are cumulative.

use std::collections::HashMap;
use std::time::Duration;

use everlink::relay::Trace;

use super::Endpoints;
use super::attributes::{self, error_type, name_key};
use super::protobuf::Message;
use super::spans::UnixNanos;

/// The upper bounds that the conventions give for durations of operations, in seconds.
const BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// The most combinations of method, name and error. Hosts choose names, so their number is not bounded by the tools of the server. Further
/// combinations are counted under their method alone.
const MOST_SERIES: usize = 1000;

/// The temporality of sums that go on from the start.
const CUMULATIVE: u64 = 2;

#[derive(Default)]
pub(super) struct Metrics {
    series: HashMap<String, Series>,
    /// The key that is looked up, kept for its capacity.
    key: String,
    connections: u64,
    restarts: u64,
    failures: HashMap<&'static str, u64>,
    sessions: Histogram,
    /// Spans that were not delivered.
    pub(super) dropped: u64,
}

/// The requests with one method, name and error.
struct Series {
    /// The encoded attributes.
    attributes: Vec<u8>,
    front: Histogram,
    back: Histogram,
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
    fn write(&self, histogram: &mut Message<'_>, times: [UnixNanos; 2], attributes: &[&[u8]]) {
        histogram.message(1, |point| {
            point.fixed64(2, times[0]);
            point.fixed64(3, times[1]);
            point.fixed64(4, self.count());
            point.double(5, self.sum);
            point.packed(6, self.counts.iter().copied());
            point.packed(7, BOUNDS.iter().map(|bound| bound.to_bits()));
            for encoded in attributes {
                point.splice(encoded);
            }
        });
    }
}

impl Metrics {
    /// Counts a request.
    pub(super) fn add_request(&mut self, trace: &Trace) {
        let failed = error_type(trace);
        let error = failed.as_ref().map_or("", |(class, _)| class);
        let name = trace.name.as_deref().unwrap_or_default();
        self.key.clear();
        for part in [&*trace.method, "\n", name, "\n", error] {
            self.key.push_str(part);
        }
        if !self.series.contains_key(&self.key) {
            self.add_series(trace, failed.as_ref());
        }
        if let Some(series) = self.series.get_mut(&self.key) {
            series.front.add(trace.ended.since(trace.accepted));
            if let Some((sent, _)) = trace.sent {
                series.back.add(trace.ended.since(sent));
            }
        }
    }

    /// Adds the series of this request, or changes the key to the series that counts what does not fit.
    fn add_series(&mut self, trace: &Trace, failed: Option<&(String, bool)>) {
        let is_full = self.series.len() >= MOST_SERIES;
        if is_full {
            // Unknown methods come from hosts, too.
            self.key.clear();
        }
        self.series.entry(self.key.clone()).or_insert_with(|| {
            let mut encoded = Vec::new();
            let mut point = Message::new(&mut encoded);
            if is_full {
                attributes::text(&mut point, 9, "mcp.method.name", "_OTHER");
            } else {
                describe(&mut point, trace, failed);
            }
            Series {
                attributes: encoded,
                front: Histogram::default(),
                back: Histogram::default(),
            }
        });
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
        in_flight: Option<u64>,
    ) {
        let mut histogram = |name, is_front: bool| {
            metric(scope, name, "s", 9, |histogram| {
                for series in self.series.values() {
                    let (counted, endpoint) = match is_front {
                        true => (&series.front, &endpoints.front),
                        false => (&series.back, &endpoints.back),
                    };
                    if counted.count() > 0 {
                        counted.write(histogram, times, &[&series.attributes, endpoint]);
                    }
                }
                histogram.number(2, CUMULATIVE);
            });
        };
        histogram("mcp.server.operation.duration", true);
        histogram("mcp.client.operation.duration", false);
        if self.sessions.count() > 0 {
            metric(scope, "mcp.client.session.duration", "s", 9, |histogram| {
                self.sessions.write(histogram, times, &[&endpoints.back]);
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
        if let Some(in_flight) = in_flight {
            sum(scope, "everlink.calls.in_flight", "{call}", false, |sum| {
                point(sum, times, in_flight, |_| {});
            });
        }
    }
}

fn describe(point: &mut Message<'_>, trace: &Trace, failed: Option<&(String, bool)>) {
    let method = &*trace.method;
    attributes::text(point, 9, "mcp.method.name", method);
    if let (Some(name), Some(key)) = (&trace.name, name_key(method)) {
        attributes::text(point, 9, key, name);
    }
    if method == "tools/call" {
        attributes::text(point, 9, "gen_ai.operation.name", "execute_tool");
    }
    if let Some((class, is_code)) = failed {
        attributes::text(point, 9, "error.type", class);
        if *is_code {
            attributes::text(point, 9, "rpc.response.status_code", class);
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
