//! A TCP proxy that records what the server sends, even after the client stops reading. Must not depend on a protocol.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub(super) struct RecordingProxy {
    /// The address on which it listens.
    pub(super) address: String,
    received: Arc<Received>,
    accept_task: AbortHandle,
}

type Received = Mutex<Vec<u8>>;

impl RecordingProxy {
    /// Starts a proxy for the server at this address.
    pub(super) async fn start(server: &str) -> io::Result<RecordingProxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (server, received) = (server.to_owned(), Arc::<Received>::default());
        let shared = Arc::clone(&received);
        let accept_task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), Arc::clone(&shared)));
            }
        });
        Ok(RecordingProxy {
            address,
            received,
            accept_task: accept_task.abort_handle(),
        })
    }

    /// Whether the server has sent this text.
    pub(super) fn has_received(&self, text: &str) -> bool {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&received).contains(text)
    }
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

/// Forwards one connection until either end closes it.
async fn forward(client: TcpStream, server: String, received: Arc<Received>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = tokio::io::copy(&mut from_client, &mut to_server);
    let back = async {
        let mut chunk = vec![0; 16 << 10];
        loop {
            let len = from_server.read(&mut chunk).await?;
            if len == 0 {
                return io::Result::Ok(());
            }
            received
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(&chunk[..len]);
            to_client.write_all(&chunk[..len]).await?;
        }
    };
    tokio::select! {
        forwarded = there => forwarded.map(drop),
        forwarded = back => forwarded,
    }
}
