//! A wire to a server over HTTP that remembers what the server says, whether a client still listens to it or not. Knows no protocol.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub(super) struct Tap {
    /// Where to find it.
    pub(super) address: String,
    said: Arc<Said>,
    listening: AbortHandle,
}

type Said = Mutex<Vec<u8>>;

impl Tap {
    /// One before the server at this address.
    pub(super) async fn before(server: &str) -> io::Result<Tap> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (server, said) = (server.to_owned(), Arc::<Said>::default());
        let shared = Arc::clone(&said);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), Arc::clone(&shared)));
            }
        });
        Ok(Tap {
            address,
            said,
            listening: listening.abort_handle(),
        })
    }

    /// Whether the server has said this.
    pub(super) fn has_heard(&self, words: &str) -> bool {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).contains(words)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// One connection, until either end closes it.
async fn carry(client: TcpStream, server: String, said: Arc<Said>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = tokio::io::copy(&mut from_client, &mut to_server);
    let back = async {
        let mut piece = vec![0; 16 << 10];
        loop {
            let len = from_server.read(&mut piece).await?;
            if len == 0 {
                return io::Result::Ok(());
            }
            said.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(&piece[..len]);
            to_client.write_all(&piece[..len]).await?;
        }
    };
    tokio::select! {
        carried = there => carried.map(drop),
        carried = back => carried,
    }
}
