//! Sends encoded spans and metrics to the collector. A collector that is away, slow or refuses costs the guard nothing but bounded memory.

use std::sync::Arc;

use bytes::Bytes;
use everlink::auth::Request;
use everlink::http::{Url, Verb};
use everlink_tokio::Guard;
use everlink_tokio::http::HttpWeb;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::log::LogLine;
use super::settings::{self, Settings};
use super::spans::UnixNanos;
use super::{Envelope, FULL, SLACK, Shared, unix_time};

/// Statuses after which the same request may succeed later, by the specification of OTLP.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];

pub(super) struct Exporter {
    settings: Settings,
    shared: Arc<Shared>,
    web: HttpWeb,
    guard: Guard,
    remarks: UnboundedSender<LogLine>,
    started: UnixNanos,
    /// A batch that the collector did not take, and may take later.
    unsent: Option<Batch>,
    has_complained: bool,
}

/// An encoded request with spans.
struct Batch {
    /// Kept until the collector has taken it.
    body: Bytes,
    count: u64,
}

/// Why the collector did not take a request.
struct Refusal {
    why: String,
    /// Whether it may take the same request later.
    is_retryable: bool,
}

impl Exporter {
    pub(super) fn new(
        settings: Settings,
        shared: Arc<Shared>,
        web: HttpWeb,
        guard: Guard,
        remarks: UnboundedSender<LogLine>,
    ) -> Exporter {
        Exporter {
            settings,
            shared,
            web,
            guard,
            remarks,
            started: unix_time(),
            unsent: None,
            has_complained: false,
        }
    }

    /// Sends at each interval, and once more at the end.
    pub(super) async fn run(mut self) {
        let mut next_spans = Instant::now() + self.settings.span_interval;
        let mut next_metrics = Instant::now() + self.settings.metric_interval;
        let mut is_delivered = true;
        loop {
            let is_ending = tokio::select! {
                () = sleep_until(next_spans.min(next_metrics)) => false,
                // While the collector takes nothing, only the interval counts.
                () = self.shared.full.notified(), if is_delivered => false,
                () = self.shared.ending.notified() => true,
            };
            is_delivered = self.send_spans(is_ending).await;
            let now = Instant::now();
            next_spans = now + self.settings.span_interval;
            if is_ending || now >= next_metrics {
                next_metrics = now + self.settings.metric_interval;
                self.send_metrics().await;
            }
            if is_ending {
                break;
            }
        }
        let state = self.shared.lock();
        let dropped = state.metrics.dropped + state.span_count;
        if dropped > 0 {
            let remark = format!("--otlp: {dropped} spans were not delivered");
            let _ = self.remarks.send(LogLine::Warning(remark));
        }
    }

    /// Sends the batch that the collector did not take before, and then one batch with all spans that wait. Returns whether they were delivered, or there
    /// are none. Spans that end meanwhile wait for the next time, so that a busy guard sends few large batches.
    async fn send_spans(&mut self, is_last: bool) -> bool {
        for take in [|it: &mut Exporter| it.unsent.take(), Exporter::take_new] {
            let Some(batch) = take(self) else {
                continue;
            };
            let url = self.settings.traces.clone();
            let body = batch.body.clone();
            if let Err(refusal) = self.post(url, body).await {
                if refusal.is_retryable && !is_last {
                    self.unsent = Some(batch);
                } else {
                    self.shared.lock().metrics.dropped += batch.count;
                }
                self.complain(&refusal);
                return false;
            }
        }
        true
    }

    fn take_new(&mut self) -> Option<Batch> {
        let mut state = self.shared.lock();
        state.clock = None;
        if state.span_count == 0 {
            return None;
        }
        let empty = Envelope::new(&self.settings.resource, FULL + SLACK);
        Some(Batch {
            body: std::mem::replace(&mut state.spans, empty).close().into(),
            count: std::mem::take(&mut state.span_count),
        })
    }

    async fn send_metrics(&mut self) {
        let status = self.guard.status().await;
        let in_flight = status.map_or(0, |status| status.requests as u64);
        let times = [self.started, unix_time()];
        let mut request = Envelope::new(&self.settings.resource, 0);
        self.shared.encode_metrics(&mut request, times, in_flight);
        let body = request.close().into();
        let url = self.settings.metrics.clone();
        // The next ones include what these count.
        if let Err(refusal) = self.post(url, body).await {
            self.complain(&refusal);
        }
    }

    async fn post(&self, url: Url, body: Bytes) -> Result<(), Refusal> {
        let mut request = Request::get(url);
        request.verb = Verb::Post;
        request.fields = settings::request_fields(&self.settings);
        let retryable = |why| Refusal {
            why,
            is_retryable: true,
        };
        match timeout(self.settings.timeout, self.web.send_body(request, body)).await {
            Err(_) => Err(retryable("it did not answer in time".to_owned())),
            Ok(Err(fault)) => Err(retryable(fault.to_string())),
            Ok(Ok(response)) => match response.head.status {
                200..=299 => Ok(()),
                status => Err(Refusal {
                    why: format!("it answered with HTTP status {status}"),
                    is_retryable: RETRYABLE.contains(&status),
                }),
            },
        }
    }

    /// Reports the first problem. Further ones are only counted.
    fn complain(&mut self, refusal: &Refusal) {
        if !self.has_complained {
            self.has_complained = true;
            let (collector, why) = (self.settings.traces.origin(), &refusal.why);
            let remark = format!(
                "--otlp: the collector at {collector} did not take telemetry: {why}; the guard goes on, and further problems are counted but not shown"
            );
            let _ = self.remarks.send(LogLine::Warning(remark));
        }
    }
}
