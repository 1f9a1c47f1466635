//! A small HTTP server on this host, for what the registry itself asks.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

/// An answer: a status, one header more, and a body. For `None`, the connection is cut.
pub(crate) type Answer = Option<(u16, String, Vec<u8>)>;

pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Answer {
    Some((200, String::new(), body.into()))
}

/// A server that runs until the test ends.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            requests: Arc::default(),
        };
        let (requests, answer) = (Arc::clone(&server.requests), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                tokio::spawn(async move { serve(stream, &requests, &*answer).await });
            }
        });
        server
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }
}

/// One request for each connection.
async fn serve(
    mut stream: TcpStream,
    requests: &Mutex<Vec<Request>>,
    answer: &(dyn Fn(&Request) -> Answer + Send + Sync),
) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut request = Request {
        path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
        head,
        body: Vec::new(),
    };
    let length: usize = request
        .header("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    request.body = bytes[end..].to_vec();
    let answered = answer(&request);
    requests.lock().push(request);
    if let Some((status, header, body)) = answered {
        let header = if header.is_empty() {
            header
        } else {
            format!("{header}\r\n")
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\n{header}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&body).await;
        let _ = stream.shutdown().await;
    }
}
