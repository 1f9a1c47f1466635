//! The bucket: objects in it by their keys.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::sync::Semaphore;

use crate::config::ObjectsConfig;

/// A store that says nothing for so long is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// It says nothing either while it takes in what is put, and a pack has up to 64 MiB: 110 KB a second are enough.
const PATIENCE_WITH_LARGE: Duration = Duration::from_secs(600);
/// What has more bytes is large: 5 MiB within the shorter time take 175 KB a second.
const LARGE: usize = 5 << 20;
/// What conflicts with another request is put again after this pause, and after twice as long each time until that is longer than the
/// longest: eight times within a second and a third.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(640);
/// So many parts of the first size are on their way in all uploads together, beside the one that each may wait for. Each is in memory.
const PARTS_AHEAD: usize = 16;

/// A bucket, and what stands before each key in it.
#[derive(Clone)]
pub struct Bucket {
    pub(super) client: Arc<AmazonS3>,
    /// The same for what is large and is put.
    patient: Arc<AmazonS3>,
    /// The same bucket by the name that clients reach it by. It is asked for nothing.
    signer: Arc<AmazonS3>,
    /// The room for parts that no upload waits for yet.
    pub(super) ahead: Arc<Semaphore>,
    prefix: String,
}

impl Bucket {
    pub fn open(config: &ObjectsConfig) -> io::Result<Self> {
        let ObjectsConfig::S3 {
            endpoint,
            public_endpoint,
            prefix,
            ..
        } = config
        else {
            return Err(io::Error::other("no bucket is configured"));
        };
        // Another part of the program may have installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = builder(config, endpoint.as_deref(), PATIENCE).build();
        let client = Arc::new(client.map_err(from_store)?);
        let with_its_credentials = |builder: AmazonS3Builder| {
            let built = builder.with_credentials(Arc::clone(client.credentials())).build();
            built.map(Arc::new).map_err(from_store)
        };
        let patient = builder(config, endpoint.as_deref(), PATIENCE_WITH_LARGE);
        let patient = with_its_credentials(patient)?;
        let signer = match public_endpoint {
            None => Arc::clone(&client),
            Some(public) => with_its_credentials(builder(config, Some(public), PATIENCE))?,
        };
        Ok(Self {
            client,
            patient,
            signer,
            ahead: Arc::new(Semaphore::new(PARTS_AHEAD)),
            prefix: prefix.clone(),
        })
    }

    /// The client that puts so many bytes.
    pub(super) fn to_put(&self, size: usize) -> &AmazonS3 {
        match size > LARGE {
            true => &self.patient,
            false => &self.client,
        }
    }

    pub(super) fn path(&self, key: &str) -> Path {
        match self.prefix.is_empty() {
            true => Path::from(key),
            false => Path::from(format!("{}/{key}", self.prefix)),
        }
    }

    pub async fn size(&self, key: &str) -> io::Result<Option<u64>> {
        match self.client.head(&self.path(key)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(from_store(error)),
        }
    }

    pub async fn read(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> io::Result<BoxStream<'static, io::Result<Bytes>>> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let found = self
            .client
            .get_opts(&self.path(key), options)
            .await
            .map_err(from_store)?;
        if found.range != range {
            let message = format!("it has bytes {:?} only, of {range:?}", found.range);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        Ok(found.into_stream().map(|piece| piece.map_err(from_store)).boxed())
    }

    /// Puts an object, under a key that has no other content. A server may answer that it conflicts with another request, as one that
    /// removes the folder of an object that is gone (`OperationAborted` of Amazon's, any failure to make a folder of versitygw's): nothing
    /// is stored then, and it is put again.
    pub(crate) async fn put(&self, key: &str, content: impl Into<PutPayload>) -> io::Result<()> {
        let content: PutPayload = content.into();
        let mut pause = SHORTEST_PAUSE;
        loop {
            let put = self
                .to_put(content.content_length())
                .put(&self.path(key), content.clone())
                .await;
            match put {
                Err(object_store::Error::AlreadyExists { .. }) if pause <= LONGEST_PAUSE => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                put => return put.map(drop).map_err(from_store),
            }
        }
    }

    pub(super) async fn remove(&self, path: &Path) -> io::Result<()> {
        match self.client.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }

    /// An address at which anybody may read an object for a while, by the name of the server that clients know. The signature is for
    /// that name.
    pub async fn signed_address(&self, key: &str, lasting: Duration) -> io::Result<String> {
        let signed = self
            .signer
            .signed_url(reqwest::Method::GET, &self.path(key), lasting)
            .await;
        signed.map(|address| address.to_string()).map_err(from_store)
    }
}

/// A client of the bucket at a server; of Amazon's own, without one. A server that says nothing for longer than `patience` is away.
fn builder(config: &ObjectsConfig, endpoint: Option<&str>, patience: Duration) -> AmazonS3Builder {
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_read_timeout(patience)
        .with_connect_timeout(PATIENCE);
    let mut builder = AmazonS3Builder::new().with_client_options(options);
    if let Some(endpoint) = endpoint {
        builder = builder
            .with_endpoint(endpoint)
            .with_allow_http(endpoint.starts_with("http://"));
    }
    let ObjectsConfig::S3 {
        bucket,
        region,
        access_key,
        secret_key,
        ..
    } = config
    else {
        return builder;
    };
    builder = builder.with_bucket_name(bucket).with_region(region);
    if let (Some(access_key), Some(secret_key)) = (access_key, secret_key) {
        builder = builder
            .with_access_key_id(access_key)
            .with_secret_access_key(secret_key);
    }
    builder
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
pub(super) fn from_store(error: object_store::Error) -> io::Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::time::Instant;

    use super::*;

    /// A server that never answers.
    fn silent() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let connections: Vec<_> = listener.incoming().collect();
            drop(connections);
        });
        address
    }

    /// The time is the runtime's: it goes on when nothing else can.
    #[tokio::test(start_paused = true)]
    async fn a_store_has_longer_to_take_in_what_is_large() {
        let config = ObjectsConfig::S3 {
            endpoint: Some(silent()),
            public_endpoint: None,
            bucket: "blobs".to_owned(),
            prefix: String::new(),
            region: "us-east-1".to_owned(),
            access_key: Some("key".to_owned()),
            secret_key: Some("secret".to_owned()),
        };
        let bucket = Bucket::open(&config).unwrap();
        for (size, least, most) in [
            (LARGE, PATIENCE, PATIENCE_WITH_LARGE),
            (LARGE + 1, PATIENCE_WITH_LARGE, Duration::MAX),
        ] {
            let begun = Instant::now();
            let put = bucket.put("key", Bytes::from(vec![7; size])).await;
            let waited = begun.elapsed();
            assert!(
                put.is_err() && waited >= least && waited < most,
                "{waited:?}: {put:?}"
            );
        }
    }
}
