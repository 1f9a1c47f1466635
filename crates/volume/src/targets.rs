//! Places in the container that two mounts want.

use super::error::VolumeError;
use super::request::Volume;
use super::tmpfs::Tmpfs;

/// Refuses two mounts with one target.
///
/// # Errors
/// [`VolumeError::SameTarget`].
pub fn check_targets(volumes: &[Volume], tmpfs: &[Tmpfs]) -> Result<(), VolumeError> {
    let mut targets: Vec<_> = volumes.iter().map(|volume| volume.target.as_path()).collect();
    targets.extend(tmpfs.iter().map(|tmpfs| tmpfs.target.as_path()));
    targets.sort_unstable();
    match targets.windows(2).find(|pair| pair.first() == pair.last()) {
        Some([target, ..]) => Err(VolumeError::SameTarget((*target).to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn two_mounts_with_one_target_are_refused() {
        let tmpfs = ["/data".parse().unwrap()];
        assert!(check_targets(&[], &tmpfs).is_ok());
        let volumes = ["/tmp:/data".parse().unwrap()];
        let error = check_targets(&volumes, &tmpfs).unwrap_err().to_string();
        assert!(error.contains("/data"), "{error}");
        let both = ["/tmp:/a".parse().unwrap(), "/srv:/a".parse().unwrap()];
        assert!(check_targets(&both, &[]).is_err() && check_targets(&volumes, &[]).is_ok());
    }
}
