//! Lists snapshots, a message at a time: no caller waits longer because there are many, and a client that reads
//! slowly holds one message. Others go on meanwhile, as in containerd's own store: what is committed between two messages may
//! be listed by both of its names, or by neither.

use std::sync::Arc;

use super::Snapshotter;
use crate::api::Info;
use crate::error::SnapshotError;
use crate::filters::Filters;
use crate::lazy::LazyImages;
use crate::store::{Most, Page};

/// The snapshots in one message of a list: as many as containerd's own service has in one, and not more bytes than any client of gRPC
/// takes, unless one snapshot alone has more labels.
const AT_ONCE: Most = Most {
    records: 100,
    bytes: 1 << 20,
};

impl<L: LazyImages> Snapshotter<L> {
    /// Some of the snapshots that fit, from after the name `after` on, and after which name others may follow.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(
        &self,
        filters: &Arc<Filters>,
        after: String,
    ) -> Result<(Vec<Info>, Option<String>), SnapshotError> {
        let filters = filters.clone();
        let listed = self.in_background(move |inner| {
            let may_fit = |name: &str, stored: &[u8]| filters.may_fit(name, stored);
            let Page { found, after } = inner.store.page(&after, AT_ONCE, may_fit)?;
            let infos = found.into_iter().map(|(name, record)| record.info(name));
            Ok((infos.filter(|info| filters.fit(info)).collect(), after))
        });
        listed.await
    }
}
