//! The socket at which Prometheus asks for metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, info, warn};

use crate::metrics::Metrics;

/// The value of `Content-Type` for the format.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How often an address that is taken is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// A connection that has sent no request for this long is closed.
const SLOWEST_REQUEST: Duration = Duration::from_secs(10);
/// Connections at a time; Prometheus needs one.
const MAX_CONNECTIONS: usize = 16;

/// Serves metrics over HTTP, for ever. An address that is taken is tried again: readers come first, so it is no
/// reason for the worker to end.
pub(crate) async fn serve(address: SocketAddr, metrics: Arc<Metrics>) {
    let mut said = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if said => debug!("cannot serve metrics at {address}: {error}"),
            Err(error) => {
                warn!(
                    "cannot serve metrics at {address}: {error}; the daemon tries again every {BIND_AGAIN:?}"
                );
                said = true;
            }
        }
        tokio::time::sleep(BIND_AGAIN).await;
    };
    info!("metrics at http://{address}/metrics");
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    converse(stream, metrics).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!("cannot accept a connection that asks for metrics: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, metrics: Arc<Metrics>) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let metrics = metrics.clone();
        async move { Ok::<_, Infallible>(answer(&request, &metrics)) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SLOWEST_REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        debug!(%error, "a connection that asked for metrics broke");
    }
}

fn answer<B>(request: &Request<B>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: &str| {
        let mut response = Response::new(Full::from(text.to_owned()));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "metrics are for reading\n");
    }
    match metrics.text() {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            let format = hyper::header::HeaderValue::from_static(FORMAT);
            response.headers_mut().insert(CONTENT_TYPE, format);
            response
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}
