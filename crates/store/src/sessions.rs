//! Uploads that this process continues: each by one request at a time, and where the last one stopped.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::name::UploadId;
use crate::objects::Writer;

/// So many writers wait for their next request at most; each holds a file open. Further ones are resumed from what is on the disk.
const MOST_IDLE: usize = 256;

#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    sessions: HashMap<UploadId, Session>,
    idle: usize,
    serial: u64,
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
    pub(crate) fn hold(&self, id: &UploadId) -> Option<(Held, Option<Writer>)> {
        let mut known = self.lock();
        let writer = match known.sessions.remove(id) {
            Some(Session::Held(size)) => {
                known.sessions.insert(id.clone(), Session::Held(size));
                return None;
            }
            Some(Session::Idle(writer, _)) => {
                known.idle -= 1;
                Some(*writer)
            }
            None => None,
        };
        let size = writer.as_ref().map(Writer::size);
        known.sessions.insert(id.clone(), Session::Held(size));
        let held = Held {
            sessions: self.clone(),
            id: id.clone(),
        };
        Some((held, writer))
    }

    /// Whether a request of this process continues an upload.
    pub(crate) fn is_held(&self, id: &UploadId) -> bool {
        matches!(self.lock().sessions.get(id), Some(Session::Held(_)))
    }

    /// How many bytes of an upload are safe, while a request of this process continues it. Of others the record says more: another node
    /// may have continued them since.
    pub(crate) fn size(&self, id: &UploadId) -> Option<u64> {
        match self.lock().sessions.get(id)? {
            Session::Held(size) => *size,
            Session::Idle(..) => None,
        }
    }
}

/// The right of one request to continue an upload. It ends with this.
pub(crate) struct Held {
    sessions: Sessions,
    id: UploadId,
}

impl Held {
    /// So many bytes are safe.
    pub(crate) fn note(&self, size: u64) {
        let session = Session::Held(Some(size));
        self.sessions.lock().sessions.insert(self.id.clone(), session);
    }

    /// Leaves the writer for the next request.
    pub(crate) fn leave(self, writer: Writer) {
        let mut known = self.sessions.lock();
        known.serial += 1;
        known.idle += 1;
        let session = Session::Idle(Box::new(writer), known.serial);
        known.sessions.insert(self.id.clone(), session);
        if known.idle > MOST_IDLE {
            let idle = known.sessions.iter().filter_map(|(id, session)| match session {
                Session::Idle(_, serial) => Some((*serial, id.clone())),
                Session::Held(_) => None,
            });
            if let Some((_, oldest)) = idle.min() {
                known.sessions.remove(&oldest);
                known.idle -= 1;
            }
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
