//! Connections are used again, also when a body came that nobody wanted.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use xebec_format::digest::Digest;
use xebec_oci::Repository;

use crate::support::{NAME, client};

/// Answers that redirect, and one that has the blob, each with its body in two pieces. Tells by which connections blobs were asked for.
async fn answer(socket: TcpStream, connections: Arc<Mutex<BTreeSet<SocketAddr>>>) {
    let client = socket.peer_addr().unwrap();
    let mut socket = BufStream::new(socket);
    let mut line = String::new();
    while socket.read_line(&mut line).await.is_ok_and(|length| length > 0) {
        let (has_blob, is_ping) = (line.contains(" /elsewhere"), line.contains(" /v2/ "));
        if !is_ping {
            connections.lock().insert(client);
        }
        while !line.trim_end().is_empty() {
            line.clear();
            socket.read_line(&mut line).await.unwrap();
        }
        let (head, pieces) = match has_blob {
            true => (
                "206 Partial Content\r\nContent-Range: bytes 0-5/6",
                ["abc", "def"],
            ),
            false => (
                "307 Temporary Redirect\r\nLocation: /elsewhere",
                ["it is ", "there"],
            ),
        };
        let length = pieces.concat().len();
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        for piece in pieces {
            socket.write_all(piece.as_bytes()).await.unwrap();
            socket.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        line.clear();
    }
}

#[tokio::test]
async fn a_body_that_nobody_wants_is_read_so_that_its_connection_can_be_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(Mutex::new(BTreeSet::new()));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(socket, Arc::clone(&counted)));
        }
    });
    let repository = Repository::new(&address, NAME).unwrap();
    let client = client();
    for _ in 0..3 {
        let bytes = client.blob_range(&repository, &Digest::of(b"abcdef"), 0..6).await;
        assert_eq!(bytes.unwrap().as_ref(), b"abcdef");
    }
    assert_eq!(connections.lock().len(), 1);
}
