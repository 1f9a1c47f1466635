//! An image into containerd, for clients that do not say which image they pull.
//!
//! A snapshotter can only leave a layer where it is if it is told which image and which layer that is. `ctr` of containerd 1.7
//! tells it nothing, nor do others. So this works as containerd's own client does, at containerd's own services, and adds the
//! missing labels. It makes a lease; the image's documents as blobs, with labels for their references; a snapshot for each layer;
//! and the image's name. A snapshot is lazy at once, or else the layer is fetched, and containerd unpacks it. Clients can then
//! start the image by that name, as if containerd had pulled it.
//!
//! A pull that fails or is interrupted leaves nothing: only its lease holds the things that it made. A pull that is killed, or
//! cannot delete its lease since containerd does not answer, leaves a lease that expires in a day.

mod blobs;
mod layers;
mod pull;

pub use pull::{PulledLayer, Target};

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use tracing::warn;
use xebec_format::digest::Digest;
use xebec_kernel::clock::since_1970;
use xebec_oci::{Platform, Reference};
use xebec_snapshotter::containerd::images::{Descriptor, Image};
use xebec_snapshotter::containerd::leases::{EXPIRES, rfc3339};
use xebec_snapshotter::containerd::{Containerd, ContainerdError};

use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;

use xebec_images::admission::chain_ids;
use xebec_images::clients::Clients;
use xebec_images::images::Report;
use xebec_images::registry_failure::registry_failure;

use pull::{Pull, refused};

/// How long a lease counts that nobody deletes, as containerd's own client has it.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How long containerd may take to remove the leftovers of a pull that failed, and to delete a lease.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// The result of a pull.
#[derive(Clone, Debug, Serialize)]
pub struct Pulled {
    /// The image's name in containerd.
    pub name: String,
    /// The digest that the name stands for: that of the manifest, or of the image index that has it.
    pub target: Digest,
    /// The manifest.
    pub manifest: Digest,
    /// The layers, the lowest first.
    pub layers: Vec<PulledLayer>,
}

/// Has containerd know an image, with every layer lazy that can be. Ends early, as a failure, when `interrupted` does.
///
/// # Errors
/// The registry's and containerd's; [`FailureKind::NotLazy`] if that was required.
pub async fn pull(
    clients: &Clients,
    request: &ImageRequest,
    target: &Target,
    interrupted: impl Future<Output = ()>,
    report: &Report,
) -> Result<Pulled, Failure> {
    let reference: Reference = request.reference.parse().map_err(wrong)?;
    let platform = match &request.platform {
        Some(text) => text.parse().map_err(wrong)?,
        None => Platform::host(),
    };
    let mut begun = None;
    let pulled = tokio::select! {
        pulled = begin(clients, (&reference, &platform), request, target, report, &mut begun) => Some(pulled),
        () = interrupted => None,
    };
    let mut left = None;
    if let Some(pull) = begun {
        let has_failed = pulled.as_ref().is_none_or(Result::is_err);
        left = pull.end(has_failed).await.err();
        if let Some(problem) = &left {
            warn!("the lease {} may stay until it expires: {problem}", pull.id);
        }
    }
    pulled.unwrap_or_else(|| {
        let message = match left {
            None => "interrupted; nothing of it is left".to_owned(),
            Some(problem) => {
                format!("interrupted; containerd removes the rest when its lease expires in a day: {problem}")
            }
        };
        Err(Failure::new(FailureKind::Host, message))
    })
}

/// Pulls. `begun` gets the pull, which is to be ended afterwards, or when nobody waits for it any more.
async fn begin<'a>(
    clients: &Clients,
    (reference, platform): (&Reference, &Platform),
    request: &ImageRequest,
    target: &'a Target,
    report: &'a Report,
    begun: &mut Option<Pull<'a>>,
) -> Result<Pulled, Failure> {
    let containerd = Containerd::connect(&target.socket, &target.namespace).await;
    let containerd = containerd.map_err(|error| refused(&error))?;
    // Before anything is fetched.
    let known = containerd.snapshots(&target.snapshotter).stat("xebec").await;
    known.map_err(|error| unknown_snapshotter(&error, target))?;
    let client = clients.get(request.docker_config.as_deref())?;
    let image = client.resolve(reference, platform).await;
    let image = image.map_err(|error| registry_failure(&error))?;
    let now = since_1970();
    let id = format!("xebec-ctr-pull-{}-{}", now.as_nanos(), std::process::id());
    let labels = HashMap::from([(EXPIRES.to_owned(), rfc3339((now + LONGEST).as_secs()))]);
    // Before it is asked for: a pull that is interrupted meanwhile may have got it.
    let pull = begun.insert(Pull {
        client,
        containerd,
        image,
        target,
        id,
        report,
    });
    match pull.containerd.leased(&pull.id, labels).await {
        Ok(leased) => pull.containerd = leased,
        Err(error) => {
            *begun = None;
            return Err(refused(&error));
        }
    }
    pull.run().await
}

fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Usage, error)
}

/// The failure when containerd does not ask our snapshotter: the reason, and the remedy.
fn unknown_snapshotter(error: &ContainerdError, target: &Target) -> Failure {
    let text = error.to_string();
    let advice = if text.contains("snapshotter not loaded") {
        "`xebec install` puts it into containerd's configuration; or name another one by --snapshotter"
    } else {
        "is Xebec's daemon running, with [snapshotter] enabled (`xebec daemon status`)?"
    };
    let message = format!(
        "containerd at {} cannot ask the snapshotter {:?}: {text}; {advice}",
        target.socket.display(),
        target.snapshotter
    );
    Failure::new(FailureKind::Host, message)
}

impl Pull<'_> {
    /// Deletes the lease. If the pull has failed, the things that the lease alone holds are gone when this returns.
    async fn end(&self, has_failed: bool) -> Result<(), Failure> {
        let ended = async {
            if has_failed {
                self.give_up().await;
            }
            match self.containerd.unlease(&self.id, has_failed).await {
                // It was not made yet.
                Err(error) if has_failed && error.is_not_found() => Ok(()),
                ended => ended.map_err(|error| refused(&error)),
            }
        };
        let late = |_| {
            let message = format!("containerd has not answered for {} s", LAST_CALLS.as_secs());
            Err(Failure::new(FailureKind::Host, message))
        };
        tokio::time::timeout(LAST_CALLS, ended).await.unwrap_or_else(late)
    }

    async fn run(&self) -> Result<Pulled, Failure> {
        let diff_ids: Vec<Digest> = self.image.layers().map(|(_, diff_id)| diff_id).collect();
        let chains = chain_ids(&diff_ids);
        self.documents(chains.last()).await?;
        let mut layers = self.layers(&chains).await?;
        if self.target.blobs {
            self.layer_blobs(&mut layers).await?;
        }
        let named = self.named();
        let pulled = Pulled {
            name: self.image.reference.to_string(),
            target: named.digest.parse().unwrap_or(self.image.manifest_digest),
            manifest: self.image.manifest_digest,
            layers,
        };
        let image = Image {
            name: pulled.name.clone(),
            labels: HashMap::new(),
            target: Some(named),
        };
        self.containerd
            .put_image(image)
            .await
            .map_err(|error| refused(&error))?;
        Ok(pulled)
    }

    /// The descriptor that the image's name stands for.
    fn named(&self) -> Descriptor {
        let image = &self.image;
        match image.indexes.first() {
            Some(index) => Descriptor {
                media_type: blobs::index_type(index),
                digest: index.digest.to_string(),
                size: length(index.bytes.len()),
                annotations: HashMap::new(),
            },
            None => Descriptor {
                media_type: image.manifest_media_type.clone(),
                digest: image.manifest_digest.to_string(),
                size: length(image.manifest_bytes.len()),
                annotations: HashMap::new(),
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::sync::Arc;

    use xebec_protocol::paths::Paths;
    use xebec_protocol::wire::PullPolicy;

    use super::*;

    /// containerd accepts, and says nothing.
    #[tokio::test]
    async fn one_that_waits_for_containerd_can_be_interrupted() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let socket = directory.path().join("containerd.sock");
        let _silent = tokio::net::UnixListener::bind(&socket).unwrap();
        let target = Target {
            socket,
            namespace: "default".to_owned(),
            snapshotter: "xebec".to_owned(),
            blobs: false,
            require_lazy: false,
        };
        let request = ImageRequest {
            reference: "registry.example.com/app:1".to_owned(),
            platform: None,
            docker_config: None,
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        };
        let report: Report = Arc::new(|_| ());
        let interrupted = tokio::time::sleep(Duration::from_millis(50));
        let clients = Clients::new(&paths);
        let pulled = pull(&clients, &request, &target, interrupted, &report);
        let pulled = tokio::time::timeout(Duration::from_secs(10), pulled).await;
        let failure = pulled.unwrap().unwrap_err();
        assert!(failure.to_string().contains("nothing of it is left"), "{failure}");
    }
}
