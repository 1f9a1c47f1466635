//! Finds what a user's directory shows already: Xebec mounts nothing on a view there, and no image twice.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use xebec_format::digest::Digest;
use xebec_kernel::mount::Top;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Allowed, Completion, Holder};

use super::record::ViewRecord;
use super::table::Views;

/// A view that a user's directory shows.
pub struct Shown {
    /// The view.
    pub view: ViewRecord,
    /// The image, as it was named when it was mounted there.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// The permissions on the directory.
    pub allowed: Allowed,
    directory: PathBuf,
}

impl Shown {
    /// Why nothing else is mounted there.
    pub fn refusal(&self) -> Failure {
        let directory = self.directory.display();
        let message = format!(
            "cannot mount on {directory}: {} ({}) is mounted there{}; unmount it first (`xebec umount {directory}`), or choose \
             another directory",
            self.reference,
            self.manifest,
            self.options()
        );
        Failure::new(FailureKind::Usage, message)
    }

    fn options(&self) -> &'static str {
        match (self.allowed.suid, self.allowed.dev) {
            (false, false) => "",
            (true, false) => " with --suid",
            (false, true) => " with --dev",
            (true, true) => " with --suid and --dev",
        }
    }
}

impl Views {
    /// The view that a directory shows, if it is one that the directory holds.
    ///
    /// # Errors
    /// When it cannot be seen what is mounted.
    pub fn shown_on(&self, directory: &Path) -> Result<Option<Shown>, Failure> {
        let table = self.lock();
        // A directory that cannot be opened shows nothing; a command that mounts there tells why.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else {
            return Ok(None);
        };
        let top = Top::of(opened).map_err(|error| Failure::host("look at the mount point", error))?;
        let Some(top) = top else { return Ok(None) };
        let view = table
            .values()
            .find(|record| self.is_view(record, top.info(), top.table()));
        Ok(view.map(|view| shown(view, directory, &top.info().options)))
    }

    /// The rest of a view that is mounted is to be brought in, by a later worker too.
    pub fn complete_later(&self, name: &str, completion: Completion) {
        let mut table = self.lock();
        if let Some(record) = table.get_mut(name) {
            record.completion = Some(completion);
            // If the note is lost, the next mount asks again.
            let _ = self.write(record);
        }
    }
}

/// `options` are those of the mount, comma-separated.
pub(super) fn shown(view: &ViewRecord, directory: &Path, options: &str) -> Shown {
    let holder = Holder::Directory {
        path: directory.to_owned(),
    };
    let (reference, manifest) = view.image_of(&holder);
    let is_set = |name: &str| options.split(',').any(|option| option == name);
    Shown {
        reference: reference.to_owned(),
        manifest,
        allowed: Allowed {
            suid: !is_set("nosuid"),
            dev: !is_set("nodev"),
        },
        directory: directory.to_owned(),
        view: view.clone(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    /// Two directories show two images that have one view.
    #[test]
    fn the_refusal_names_the_image_of_that_directory_and_its_options() {
        let manifests = [Digest::of(b"one"), Digest::of(b"two")];
        let holder = |path: &str| Holder::Directory { path: path.into() };
        let mut view: ViewRecord = serde_json::from_value(serde_json::json!({
            "name": "v", "path": "/v", "reference": "r/one:1", "manifest": manifests[0], "layers": [],
            "holders": [holder("/a"), holder("/b")],
        }))
        .unwrap();
        view.note_image(&holder("/a"), "r/one:1", manifests[0]);
        view.note_image(&holder("/b"), "r/two:1", manifests[1]);
        let shown = shown(&view, Path::new("/b"), "ro,nosuid,relatime");
        assert_eq!(
            shown.allowed,
            Allowed {
                suid: false,
                dev: true
            }
        );
        let said = shown.refusal();
        assert_eq!(said.kind, FailureKind::Usage);
        for part in [
            "r/two:1",
            &manifests[1].to_string(),
            "with --dev;",
            "`xebec umount /b`",
        ] {
            assert!(said.message.contains(part), "{said}");
        }
    }
}
