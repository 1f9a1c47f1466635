//! Where objects are kept.

/// The object store.
#[derive(Clone, PartialEq, Eq)]
pub enum ObjectsConfig {
    /// Files in the root directory.
    Directory,
    /// A bucket of an S3-compatible store, for more than one node.
    S3 {
        /// The server: `https://s3.example.com`; none for Amazon's own.
        endpoint: Option<String>,
        /// The server by the name that clients reach it by, which signed addresses are for; `endpoint` if there is none.
        public_endpoint: Option<String>,
        /// The bucket.
        bucket: String,
        /// The beginning of each key in the bucket, without a slash at its end.
        prefix: String,
        /// The region; many servers take any.
        region: String,
        /// The access key; none where the host itself has the right.
        access_key: Option<String>,
        /// The secret that belongs to the access key.
        secret_key: Option<String>,
    },
}

// It is not shown: it may hold a password.
impl std::fmt::Debug for ObjectsConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory => formatter.write_str("Directory"),
            Self::S3 { bucket, .. } => write!(formatter, "S3({bucket:?})"),
        }
    }
}
