//! Docker Engine's way to containerd, on which the blobs of lazy layers are brought when they are asked for.
//!
//! A process of its own, which needs no daemon: Docker must be able to list, stop and enter containers while the daemon is
//! stopped or replaced, and an end of this process ends Docker's connection to containerd. [`xebec_snapshotter::relay`] says which
//! calls pass by, and which blobs are brought.
//!
//! Docker is told to find containerd at a *link*. While this runs, it leads here; when the service manager ended this, it
//! leads to containerd itself, and Docker connects to that. When this died it still leads here: the service manager starts it
//! again, and until then Docker is refused rather than given a containerd that leaves layers out. A name that is no link is not
//! touched.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tracing::{info, warn};
use xebec_format::digest::Digest;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_snapshotter::containerd::Containerd;
use xebec_snapshotter::containerd::ingest::NewBlob;
use xebec_snapshotter::relay::{Blobs, MissingBlob, Relay};

use xebec_images::clients::Clients;

/// Where Docker finds containerd, unless somebody says otherwise.
pub const USUAL_LINK: &str = "/run/xebec-docker/containerd.sock";

/// The place of the relay, between Docker and containerd.
#[derive(Clone, Debug)]
pub struct Place {
    /// containerd's socket.
    pub containerd: PathBuf,
    /// The link, whose path Docker is told; the relay's socket is beside it.
    pub link: PathBuf,
    /// The name of our snapshotter in containerd.
    pub snapshotter: String,
    /// Credentials, as the daemon uses them.
    pub docker_config: Option<PathBuf>,
}

/// Brings blobs from the registries that they were to be pulled from.
struct FromRegistries {
    clients: Clients,
    docker_config: Option<PathBuf>,
}

/// Serves until `ended` does. `ready` is called when Docker may connect.
///
/// # Errors
/// When the socket or the link cannot be made.
pub async fn serve(
    clients: Clients,
    place: &Place,
    ready: impl FnOnce(),
    ended: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let socket = prepare(&place.link)?;
    let listener = UnixListener::bind(&socket)
        .map_err(|error| Failure::host(format!("listen at {}", socket.display()), error))?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))
        .map_err(|error| Failure::host(format!("close {} to others", socket.display()), error))?;
    lead(&place.link, &socket)?;
    let blobs = FromRegistries {
        clients,
        docker_config: place.docker_config.clone(),
    };
    let relay = Arc::new(Relay::new(place.containerd.clone(), &place.snapshotter, blobs));
    let (stop, told) = watch::channel(false);
    let serving = tokio::spawn(relay.serve(listener, told));
    info!("Docker's way to containerd: {}", place.link.display());
    ready();
    ended.await;
    // First, so that who is cut off finds containerd itself.
    if let Err(failure) = lead(&place.link, &place.containerd) {
        warn!("{failure}");
    }
    // While it is this one's, which answers there until now: once nobody does, the name is the next one's.
    let _ = fs::remove_file(&socket);
    let _ = stop.send(true);
    let _ = serving.await;
    Ok(())
}

/// The directory, and the socket's name in it, which nobody has.
fn prepare(link: &Path) -> Result<PathBuf, Failure> {
    let wrong = |message: String| Err(Failure::new(FailureKind::Usage, message));
    let Some(directory) = link.parent().filter(|directory| directory.is_absolute()) else {
        return wrong(format!("{}: give a path from / on", link.display()));
    };
    let failed = |error| Failure::host(format!("make {}", directory.display()), error);
    xebec_protocol::closed::make(directory).map_err(failed)?;
    let there = fs::metadata(directory).map_err(failed)?;
    if there.uid() != rustix::process::geteuid().as_raw() || there.mode() & 0o077 != 0 {
        return wrong(format!(
            "{} is open to other users, and may not be Xebec's: give a --link in a directory that does not exist \
             yet, or close this one (chmod 0700)",
            directory.display()
        ));
    }
    let socket = directory.join("relay.sock");
    // An answer means that another relay runs.
    if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        let message = format!(
            "another process serves at {} already: stop it first",
            socket.display()
        );
        return Err(Failure::new(FailureKind::Host, message));
    }
    match fs::symlink_metadata(&socket) {
        Ok(there) if std::os::unix::fs::FileTypeExt::is_socket(&there.file_type()) => {
            fs::remove_file(&socket)
                .map_err(|error| Failure::host(format!("remove {}", socket.display()), error))?
        }
        Ok(_) => return wrong(format!("{} is not a socket: remove it", socket.display())),
        Err(_) => {}
    }
    Ok(socket)
}

/// Has the link lead there, with no moment without one.
fn lead(link: &Path, to: &Path) -> Result<(), Failure> {
    if fs::symlink_metadata(link).is_ok_and(|there| !there.file_type().is_symlink()) {
        let message = format!(
            "{} is not a link, so Docker does not find Xebec: remove it, or give another --link",
            link.display()
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let next = link.with_extension("next");
    // An earlier relay that was killed may have left one.
    if fs::symlink_metadata(&next).is_ok_and(|there| there.file_type().is_symlink()) {
        let _ = fs::remove_file(&next);
    }
    symlink(to, &next)
        .and_then(|()| fs::rename(&next, link))
        .map_err(|error| Failure::host(format!("lead {} to {}", link.display(), to.display()), error))
}

impl Blobs for FromRegistries {
    async fn bring(&self, containerd: &Containerd, blob: &MissingBlob) -> Result<(), String> {
        let mut problems = Vec::new();
        for reference in &blob.references {
            match self.bring_from(containerd, blob, reference).await {
                Ok(()) => return Ok(()),
                Err(problem) => problems.push(problem),
            }
        }
        Err(problems.join("; "))
    }
}

impl FromRegistries {
    async fn bring_from(
        &self,
        containerd: &Containerd,
        blob: &MissingBlob,
        reference: &str,
    ) -> Result<(), String> {
        let reference: Reference = reference
            .parse()
            .map_err(|error| format!("{reference:?}: {error}"))?;
        let digest: Digest = blob
            .digest
            .parse()
            .map_err(|error| format!("{:?}: {error}", blob.digest))?;
        let client = self.clients.get(self.docker_config.as_deref());
        let client = client.map_err(|failure| failure.to_string())?;
        let new = NewBlob {
            name: format!("xebec-relay-{digest}"),
            digest: blob.digest.clone(),
            size: blob.size,
            labels: Default::default(),
        };
        let name = new.name.clone();
        let Some(mut ingest) = containerd.ingest(new).await.map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let brought = async {
            let stream = client.blob_stream(reference.repository(), &digest, blob.size, ingest.offset());
            let mut stream = stream.await.map_err(|error| error.to_string())?;
            while let Some(part) = stream.next_part().await.map_err(|error| error.to_string())? {
                ingest.write(&part).await.map_err(|error| error.to_string())?;
            }
            // containerd compares the digest.
            ingest.commit(containerd).await.map_err(|error| error.to_string())
        };
        let brought = brought.await;
        if brought.is_err() {
            // The part of the blob that is there may be the cause of the failure.
            let _ = containerd.give_up(&name).await;
        }
        brought
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn only_links_are_led_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("containerd.sock");
        lead(&link, Path::new("/one")).unwrap();
        lead(&link, Path::new("/two")).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/two"));
        fs::remove_file(&link).unwrap();
        fs::write(&link, "somebody's").unwrap();
        assert!(lead(&link, Path::new("/one")).is_err());
        assert_eq!(fs::read(&link).unwrap(), b"somebody's");
    }

    /// A connection is open while the first one ends, which it waits for; the next one has the socket by then, and keeps it.
    #[tokio::test]
    async fn the_next_one_begins_while_the_last_one_ends() {
        let directory = tempfile::tempdir().unwrap();
        let in_it = |name: &str| directory.path().join(name);
        let paths = xebec_protocol::paths::Paths::create(&in_it("root"), &in_it("run")).unwrap();
        let containerd = in_it("containerd.sock");
        let _containerd = UnixListener::bind(&containerd).unwrap();
        let place = Place {
            containerd: containerd.clone(),
            link: in_it("way/link.sock"),
            snapshotter: "xebec".to_owned(),
            docker_config: None,
        };
        let begin = || {
            let (tell, told) = tokio::sync::oneshot::channel::<()>();
            let (ready, is_ready) = tokio::sync::oneshot::channel();
            let (clients, place) = (Clients::new(&paths), place.clone());
            let serving = tokio::spawn(async move {
                let ended = async { _ = told.await };
                serve(clients, &place, move || _ = ready.send(()), ended).await
            });
            (serving, is_ready, tell)
        };
        let (first, is_ready, end) = begin();
        is_ready.await.unwrap();
        let socket = in_it("way/relay.sock");
        let _open = tokio::net::UnixStream::connect(&socket).await.unwrap();
        end.send(()).unwrap();
        while fs::read_link(&place.link).unwrap() != containerd {
            tokio::task::yield_now().await;
        }
        let (second, is_ready, end) = begin();
        is_ready.await.unwrap();
        first.await.unwrap().unwrap();
        assert_eq!(fs::read_link(&place.link).unwrap(), socket);
        assert!(tokio::net::UnixStream::connect(&socket).await.is_ok());
        end.send(()).unwrap();
        second.await.unwrap().unwrap();
        assert!(!socket.exists() && fs::read_link(&place.link).unwrap() == containerd);
    }

    #[test]
    fn an_open_directory_is_not_closed() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(prepare(&directory.path().join("containerd.sock")).is_err());
        assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o777, 0o755);
        let new = directory.path().join("new");
        prepare(&new.join("containerd.sock")).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let link = directory.path().join("containerd.sock");
        let socket = directory.path().join("relay.sock");
        fs::write(&socket, "somebody's").unwrap();
        assert!(prepare(&link).is_err());
        fs::remove_file(&socket).unwrap();
        // Nobody ever listened there: a listener that is closed lives on in a command that another test starts just then.
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &socket, rustix::fs::FileType::Socket, mode, 0).unwrap();
        assert_eq!(prepare(&link).unwrap(), socket);
        let _serves = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(prepare(&link).is_err());
    }
}
