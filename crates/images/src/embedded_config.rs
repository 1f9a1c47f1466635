//! The configuration of an image inside the manifest of an artifact, so that a start that asks for the artifact need not ask for it.

use xebec_artifact::recording::MAX_INLINE_CONFIG;
use xebec_container::Identity;
use xebec_oci::Descriptor;

/// Annotation of the configuration's descriptor: JSON with the ids of the configuration's `User` by the image's lists.
pub const USER_ANNOTATION: &str = "dev.xebec.user";

/// The configuration of an image, as an artifact of it lists it, with the numbers of its user; `None` where it is too large to travel
/// inside.
pub fn embedded_config(media_type: &str, bytes: &[u8], user: Option<&Identity>) -> Option<Descriptor> {
    let mut descriptor =
        (bytes.len() <= MAX_INLINE_CONFIG).then(|| Descriptor::embedding(media_type, bytes))?;
    let user = user.and_then(|user| serde_json::to_string(user).ok());
    descriptor
        .annotations
        .extend(user.map(|user| (USER_ANNOTATION.to_owned(), user)));
    Some(descriptor)
}

/// The image's user, if the configuration's descriptor names one.
pub fn config_user(config: &Descriptor) -> Option<Identity> {
    Identity::remembered(config.annotations.get(USER_ANNOTATION)?)
}
