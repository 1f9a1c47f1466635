//! Uploads that this process continues: each by one request at a time, and where the last one stopped.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use xebec_names::UploadId;
use xebec_objects::Writer;

/// So many writers wait for their next request at most; each holds a file open. Further ones are resumed from what is on the disk.
const MOST_IDLE: usize = 256;
/// So many bytes they hold in memory together at most: those after the last part of an upload to S3.
const MOST_IDLE_BYTES: usize = 64 << 20;

/// All of them. It is cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    sessions: HashMap<UploadId, Session>,
    idle: usize,
    idle_bytes: usize,
    serial: u64,
}

impl Known {
    /// Takes a writer that waits for its next request.
    fn take_idle(&mut self, id: &UploadId) -> Option<Writer> {
        match self.sessions.remove(id)? {
            Session::Idle(writer, _) => {
                self.idle -= 1;
                self.idle_bytes -= writer.in_memory();
                Some(*writer)
            }
            held @ Session::Held(_) => {
                self.sessions.insert(id.clone(), held);
                None
            }
        }
    }

    fn oldest_idle(&self) -> Option<UploadId> {
        let idle = self.sessions.iter().filter_map(|(id, session)| match session {
            Session::Idle(_, serial) => Some((*serial, id)),
            Session::Held(_) => None,
        });
        idle.min().map(|(_, id)| id.clone())
    }
}

enum Session {
    /// A request continues it. So many bytes were safe before, if that is known yet.
    Held(Option<u64>),
    /// With the number of its end, by which the oldest is found.
    Idle(Box<Writer>, u64),
}

impl Sessions {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// Takes an upload for one request, with its writer if that is here; `None` if another request has it.
    pub fn hold(&self, id: &UploadId) -> Option<(Held, Option<Writer>)> {
        let mut known = self.lock();
        if let Some(Session::Held(_)) = known.sessions.get(id) {
            return None;
        }
        let writer = known.take_idle(id);
        let size = writer.as_ref().map(Writer::size);
        known.sessions.insert(id.clone(), Session::Held(size));
        let held = Held {
            sessions: self.clone(),
            id: id.clone(),
        };
        Some((held, writer))
    }

    /// Whether a request of this process continues an upload.
    pub fn is_held(&self, id: &UploadId) -> bool {
        matches!(self.lock().sessions.get(id), Some(Session::Held(_)))
    }

    /// How many bytes of an upload are safe, while a request of this process continues it. Of others the record says more: another node
    /// may have continued them since.
    pub fn size(&self, id: &UploadId) -> Option<u64> {
        match self.lock().sessions.get(id)? {
            Session::Held(size) => *size,
            Session::Idle(..) => None,
        }
    }
}

/// The right of one request to continue an upload. It ends with this.
pub struct Held {
    sessions: Sessions,
    id: UploadId,
}

impl Held {
    /// So many bytes are safe.
    pub fn note(&self, size: u64) {
        let session = Session::Held(Some(size));
        self.sessions.lock().sessions.insert(self.id.clone(), session);
    }

    /// Leaves the writer for the next request.
    pub fn leave(self, writer: Writer) {
        let mut known = self.sessions.lock();
        known.serial += 1;
        known.idle += 1;
        known.idle_bytes += writer.in_memory();
        let session = Session::Idle(Box::new(writer), known.serial);
        known.sessions.insert(self.id.clone(), session);
        while (known.idle > MOST_IDLE || known.idle_bytes > MOST_IDLE_BYTES)
            && let Some(oldest) = known.oldest_idle()
        {
            known.take_idle(&oldest);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut known = self.sessions.lock();
        if matches!(known.sessions.get(&self.id), Some(Session::Held(_))) {
            known.sessions.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use xebec_objects::Objects;
    use xebec_objects::ObjectsConfig;

    /// Has so many uploads to S3 wait with as many bytes in memory; how many of their writers are still here.
    async fn wait(uploads: usize, bytes: usize) -> usize {
        let config = ObjectsConfig::S3 {
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            public_endpoint: None,
            bucket: "bucket".to_owned(),
            region: "region".to_owned(),
            prefix: String::new(),
            access_key: Some("key".to_owned()),
            secret_key: Some("secret".to_owned()),
        };
        let objects = Objects::open(&config, std::path::Path::new("/nowhere")).unwrap();
        let sessions = Sessions::default();
        let mut ids = Vec::new();
        for number in 0..uploads {
            let id = UploadId::random().unwrap();
            let writer = objects.begin(&number.to_string()).unwrap();
            let writer = writer.write(vec![Bytes::from(vec![0; bytes])]).await.unwrap();
            sessions.hold(&id).unwrap().0.leave(writer);
            ids.push(id);
        }
        let is_here = |id: &&UploadId| sessions.hold(id).unwrap().1.is_some();
        let here = ids.iter().rev().take_while(is_here).count();
        assert_eq!(ids.iter().filter(is_here).count(), 0, "an older one is kept");
        let known = sessions.lock();
        assert_eq!((known.idle, known.idle_bytes, known.sessions.len()), (0, 0, 0));
        here
    }

    #[tokio::test]
    async fn few_writers_wait_and_hold_little_memory() {
        assert_eq!(wait(300, 1).await, MOST_IDLE);
        assert_eq!(wait(20, 4 << 20).await, 16);
    }
}
