//! The root of a container: the overlay on the view of its image, and the volumes in it.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::mount::{Attributes, Detached, MountError, Overlay};
use xebec_volume::Place;

use super::Bundle;
use crate::layout::{UPPER, WORK};
use crate::network::set_mode;
use crate::process::Process;
use crate::{RunError, record, spec};

impl Bundle {
    /// Mounts the overlay on the view of an image where nobody sees it yet. The view and the command line are noted for the record,
    /// which is written when the container's process is known.
    pub(crate) fn mount(&mut self, view: &Path, process: &Process) -> Result<Detached, RunError> {
        let view = fs::canonicalize(view).map_err(RunError::file("find the image view", view))?;
        let root = self.mount_overlay(&view)?;
        self.record.view = view;
        self.record.set_command(&process.args);
        self.saved.set_command(&process.args);
        Ok(root)
    }

    /// Mounts the overlay where the runtime looks for the container's root.
    pub(crate) fn attach(&self, root: &Detached) -> Result<(), RunError> {
        root.attach(&self.root())
            .map_err(|source| self.overlay_failed(source))
    }

    /// Makes the volumes that are not there, and fills new ones with what the image has in their places.
    pub(crate) fn make_volumes(&mut self, go_on: &mut dyn FnMut() -> io::Result<()>) -> Result<(), RunError> {
        let label = self.security.labels.selinux.as_ref();
        let place = Place {
            state: &self.state,
            view: &self.record.view,
            label: label.map(|(_, file)| file.as_str()),
            is_active: &|name| record::path(&self.dirs.run, name).exists(),
        };
        Ok(self.volumes.make(&place, go_on)?)
    }

    /// Refuses a container whose mounts are not those that were opened for it.
    pub(crate) fn compare_volumes(&self, pid: i32) -> Result<(), RunError> {
        Ok(self.volumes.compare(pid, spec::is_masked)?)
    }

    fn mount_overlay(&self, view: &Path) -> Result<Detached, RunError> {
        let upper = self.state.join(UPPER);
        if !self.record.is_kept {
            copy_root_attributes(view, &upper)?;
        }
        let mut overlay = Overlay::new().lower(view).upper(upper, self.state.join(WORK));
        if self.rm {
            // The layer is removed in any case, so a power cut may take it. Without this option an unmount
            // syncs the whole file system that the layer is on.
            overlay = overlay.option("volatile", None);
        }
        if let Some((_, label)) = &self.security.labels.selinux {
            overlay = overlay.option("context", Some(label));
        }
        let mounted = overlay.mount(Attributes::empty());
        mounted.map_err(|source| self.overlay_failed(source))
    }

    fn overlay_failed(&self, source: MountError) -> RunError {
        RunError::Overlay {
            id: self.id().to_owned(),
            source,
        }
    }
}

/// Gives the upper directory the owner and the mode of the view: the root of an overlay shows those of its
/// uppermost layer.
fn copy_root_attributes(view: &Path, upper: &Path) -> Result<(), RunError> {
    use std::os::unix::fs::{MetadataExt, chown};
    let root = fs::metadata(view).map_err(RunError::file("look at the image view", view))?;
    let owned = chown(upper, Some(root.uid()), Some(root.gid()));
    owned.map_err(RunError::file("change the owner of", upper))?;
    set_mode(upper, root.mode() & 0o7777)
}
