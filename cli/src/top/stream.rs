//! Reads the events of one status address, and connects again when they end.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a guard may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A guard reports once a second, so it is gone after this time.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest event that is accepted, in bytes.
const MAX_EVENT: u64 = 8 << 20;

/// What a guard reports, or why it does not.
pub(super) type Report = Result<Snapshot, String>;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) servers: Vec<Server>,
}

/// A server, as far as the table shows it.
#[derive(Clone, Debug, Deserialize, serde::Serialize)]
pub(super) struct Server {
    pub(super) id: u64,
    pub(super) name: Option<String>,
    pub(super) state: String,
    #[serde(default)]
    pub(super) silent: bool,
    pub(super) epoch: u64,
    pub(super) uptime: Option<f64>,
    pub(super) failures: u32,
    pub(super) next_attempt: Option<f64>,
    pub(super) in_flight: u64,
    pub(super) lost: u64,
    pub(super) samples: u64,
    pub(super) sample: Option<Sample>,
    #[serde(default)]
    pub(super) history: Vec<Sample>,
    #[serde(default)]
    pub(super) recent: Vec<Recent>,
}

/// Calls per second, the percentiles 50 and 99 of the latency in milliseconds, and calls in flight.
pub(super) type Sample = (f64, Option<f64>, Option<f64>, u64);

/// A recent failure of a server, as its guard reports it.
#[derive(Clone, Debug, Deserialize, serde::Serialize)]
pub(super) struct Recent {
    pub(super) ago: f64,
    pub(super) text: String,
}

/// Sends every report of this address, until nobody receives them.
pub(super) async fn follow(index: usize, address: String, reports: Sender<(usize, Report)>) {
    loop {
        let error = match read(index, &address, &reports).await {
            Ok(()) => "the guard has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        if reports.send((index, Err(error))).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

async fn read(index: usize, address: &str, reports: &Sender<(usize, Report)>) -> io::Result<()> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer");
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let mut socket = connecting.await.map_err(late)??;
    // The response to HTTP/1.0 has no chunks: it ends with the connection.
    let request =
        format!("GET /events HTTP/1.0\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut reader = BufReader::new(socket);
    let status = timeout(CONNECT_TIMEOUT, next_line(&mut reader));
    let status = status.await.map_err(late)??.unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        let text = match status.starts_with("HTTP/") {
            true => {
                "the status address refused the request; use an address of --status, and --allow-host for another name"
            }
            false => "this is no status address",
        };
        return Err(io::Error::other(text));
    }
    while let Some(line) = timeout(SILENCE_TIMEOUT, next_line(&mut reader))
        .await
        .map_err(late)??
    {
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        let report = serde_json::from_str(data)
            .map_err(|_| "the status address sends something unknown".to_owned());
        if reports.send((index, report)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads a line without its end. `None` at the end of the stream.
async fn next_line(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let len = reader.take(MAX_EVENT).read_until(b'\n', &mut line).await?;
    if len as u64 == MAX_EVENT {
        return Err(io::Error::other(
            "the status address sends a line that is too long",
        ));
    }
    let line = String::from_utf8_lossy(&line);
    Ok((len > 0).then(|| line.trim_end().to_owned()))
}
