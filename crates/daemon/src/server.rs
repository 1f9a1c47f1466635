//! The daemon's side of the socket: one request a connection, progress while it runs, one final reply.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tracing::debug;
use xebec_images::images::Report;
use xebec_images::outages::reporting;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{MAX_LINE, Reply, Request};
use xebec_snapshotter::server::is_of_this_user;

use crate::requests::Requests;

/// Serves one connection. When `hand_over` is notified, the client is told to ask the next worker.
pub(crate) async fn converse(stream: UnixStream, requests: Arc<Requests>, hand_over: Arc<Notify>) {
    // The socket's own permissions say so already; they may have been changed, or somebody may have handed a connection on.
    if !is_of_this_user(&stream) {
        return;
    }
    let (reader, mut writer) = stream.into_split();
    let mut line = Vec::new();
    let mut reader = BufReader::new(reader.take(MAX_LINE));
    match reader.read_until(b'\n', &mut line).await {
        Ok(length) if length > 0 => {}
        // A client that only checks whether a daemon is there sends nothing.
        _ => return,
    }
    let (sender, mut receiver) = mpsc::unbounded_channel();
    // The request goes on when the client leaves: the pages that it brings into the cache are not lost.
    tokio::spawn(async move {
        let reply = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => {
                let report = report_to(sender.clone(), request.clone());
                reporting(&report, requests.answer(request, &report)).await
            }
            Err(error) => Err(Failure::new(
                FailureKind::Usage,
                format!("not a request: {error}"),
            )),
        };
        let _ = sender.send(reply.unwrap_or_else(Reply::Failed));
    });
    loop {
        let reply = tokio::select! {
            // The next worker must not be asked again for work that is done already.
            biased;
            reply = receiver.recv() => reply,
            () = hand_over.notified() => Some(Reply::Again),
        };
        let Some(reply) = reply else { return };
        let last = reply.is_final();
        let Ok(mut bytes) = serde_json::to_vec(&reply) else {
            return;
        };
        bytes.push(b'\n');
        if let Err(error) = writer.write_all(&bytes).await {
            debug!(%error, "the asker left");
            return;
        }
        if last {
            return;
        }
    }
}

/// Progress, sent to the client that asked, if it wants progress.
fn report_to(sender: mpsc::UnboundedSender<Reply>, request: Request) -> Report {
    Arc::new(move |reply| {
        if request.wants(&reply) {
            let _ = sender.send(reply);
        }
    })
}
