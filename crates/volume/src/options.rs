//! The options after the last colon of `--volume`.

use super::request::{Propagation, Relabel, Source, Volume};

/// Sets what these options say. Options that are for other systems are passed over, as in docker.
pub(super) fn apply(volume: &mut Volume, options: &str) -> Result<(), String> {
    let mut mode = None;
    let mut propagation = None;
    for option in options.split(',') {
        let is_of = |one: &Propagation| one.name() == option;
        match option {
            "ro" | "rw" => once(&mut mode, option, "one of ro and rw")?,
            "z" | "Z" if volume.relabel.is_some() => return Err("give one of z and Z".to_owned()),
            "z" => volume.relabel = Some(Relabel::Shared),
            "Z" => volume.relabel = Some(Relabel::Private),
            "nocopy" => volume.copies = false,
            "consistent" | "cached" | "delegated" => {}
            "" => return Err("an option is empty".to_owned()),
            _ => match Propagation::ALL.iter().find(|one| is_of(one)) {
                Some(one) => once(&mut propagation, one.name(), "one propagation")?,
                None => return Err(unknown(option)),
            },
        }
        if let Some(one) = Propagation::ALL.into_iter().find(is_of) {
            volume.propagation = one;
        }
    }
    volume.read_only = mode == Some("ro");
    let is_volume = !matches!(volume.source, Source::Host { .. });
    if is_volume && propagation.is_some() {
        return Err("a volume has no propagation; it is for directories of the host".to_owned());
    }
    if !is_volume && !volume.copies {
        return Err("nocopy is for volumes; a directory of the host gets no files of the image".to_owned());
    }
    Ok(())
}

fn once<'a>(slot: &mut Option<&'a str>, option: &'a str, what: &str) -> Result<(), String> {
    match slot.replace(option) {
        Some(_) => Err(format!("give {what}")),
        None => Ok(()),
    }
}

fn unknown(option: &str) -> String {
    let podmans = match option {
        "U" | "O" | "exec" | "noexec" | "suid" | "nosuid" | "dev" | "nodev" => {
            " (it is podman's, and docker has none either)"
        }
        _ => "",
    };
    format!(
        "{option:?} is not an option{podmans}; use ro, rw, z, Z, nocopy, rprivate, private, rslave, slave, rshared or shared"
    )
}
