//! The names that the containers of a network have for each other: lines in each one's `/etc/hosts`.
//!
//! The lines stand between two marks, and are written anew in each container's file when a container of the network comes or goes. All
//! text outside of the marks is the container's own. The file is written in place, because a container sees it by a bind mount.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::OFlags;

use crate::attachment::Attachment;
use crate::{NetworkError, Places};

/// The marks around the lines.
const BEGIN: &str = "# Xebec writes these lines anew when containers of the network come and go.";
const END: &str = "# End of Xebec's lines.";

/// Largest file that is rewritten. A container that makes its own larger gets no more names.
const LIMIT: u64 = 1 << 20;

/// A name for `/etc/hosts`, as `--add-host` has it: `NAME:ADDRESS`, `NAME=ADDRESS`, or `host-gateway` for the
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    name: String,
    /// `None` stands for the host.
    address: Option<IpAddr>,
}

impl FromStr for HostEntry {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError::HostEntry(text.to_owned());
        let (name, address) = text.split_once(['=', ':']).ok_or_else(wrong)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > 255 || !name.chars().all(is_name) {
            return Err(wrong());
        }
        let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match address {
            "host-gateway" => None,
            _ => Some(inner.unwrap_or(address).parse().map_err(|_| wrong())?),
        };
        Ok(HostEntry {
            name: name.to_owned(),
            address,
        })
    }
}

/// The lines of these entries. `host` is the address by which the container reaches the host.
///
/// # Errors
/// If an entry asks for the host, and the container does not reach it.
pub fn host_lines(entries: &[HostEntry], host: Option<IpAddr>) -> Result<String, NetworkError> {
    let line = |entry: &HostEntry| match entry.address.or(host) {
        Some(address) => Ok(format!("{address}\t{}\n", entry.name)),
        None => Err(NetworkError::HostEntry(format!(
            "{}:host-gateway (the container's network does not lead to the host)",
            entry.name
        ))),
    };
    entries.iter().map(line).collect()
}

/// Writes the names of a network's containers into the file of each. A file that cannot be written is reported
/// in the log: it must keep no other container from starting or ending.
pub(crate) fn publish(places: &Places, network: &str) -> Result<(), NetworkError> {
    let _lock = places.lock_names()?;
    let (mut attached, _) = Attachment::all(places)?;
    attached.retain(|one| one.network == network && one.addresses.is_some());
    for own in &attached {
        let lines = lines(own, &attached);
        if let Err(error) = rewrite(&own.hosts, &lines)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, container = own.container, "cannot write the names of its network for a container");
        }
    }
    Ok(())
}

/// The lines for one container: its own first.
fn lines(own: &Attachment, attached: &[Attachment]) -> String {
    let others = attached.iter().filter(|one| one.id != own.id);
    let mut text = String::new();
    for one in [own].into_iter().chain(others) {
        let names = one.names.join(" ");
        for ip in one.addresses.iter().flat_map(|addresses| addresses.ips()) {
            text += &format!("{ip}\t{names}\n");
        }
    }
    text
}

/// Puts the lines between the marks of a file, or at its end if it has none.
fn rewrite(path: &Path, lines: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LIMIT {
        let what = format!("{} is not a file of at most {LIMIT} bytes", path.display());
        return Err(io::Error::other(what));
    }
    let mut old = Vec::new();
    (&file).take(LIMIT).read_to_end(&mut old)?;
    let new = replaced(&old, lines);
    if new != old {
        // First all of it, and then the end: a reader finds no empty file.
        file.write_all_at(&new, 0)?;
        file.set_len(new.len() as u64)?;
    }
    Ok(())
}

/// The file's contents with these lines between the marks. The other lines may have any encoding.
pub(crate) fn replaced(old: &[u8], lines: &str) -> Vec<u8> {
    let begin = format!("{BEGIN}\n");
    let end = format!("{END}\n");
    let (before, rest) = split_once(old, &begin).unwrap_or((old, b""));
    let (_, after) = split_once(rest, &end).unwrap_or_default();
    let gap = match before {
        [] | [.., b'\n'] => "",
        _ => "\n",
    };
    let own = [gap, &begin, lines, &end].concat();
    [before, own.as_bytes(), after].concat()
}

/// The bytes before a mark, and those after it.
fn split_once<'a>(bytes: &'a [u8], mark: &str) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes
        .windows(mark.len())
        .position(|part| part == mark.as_bytes())?;
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.get(mark.len()..)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;
    use crate::Addresses;

    fn attachment(container: &str, address: &str, directory: &Path) -> Attachment {
        let hosts = directory.join(format!("{container}.hosts"));
        std::fs::write(&hosts, "127.0.0.1\tlocalhost\n").unwrap();
        Attachment {
            id: format!("{container}-0123456789ab"),
            container: container.to_owned(),
            network: "web".to_owned(),
            names: vec![container.to_owned(), format!("{container}-alias")],
            hosts,
            addresses: Some(Addresses {
                addresses: vec![address.to_owned()],
                ..Addresses::default()
            }),
            ..Attachment::default()
        }
    }

    #[test]
    fn containers_of_a_network_know_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let places = Places::new(&directory.path().join("root"), &directory.path().join("run"));
        let one = attachment("one", "10.4.0.2/24", directory.path());
        let two = attachment("two", "10.4.0.3/24", directory.path());
        let stranger = Attachment {
            network: "other".into(),
            ..attachment("three", "10.5.0.2/24", directory.path())
        };
        for attachment in [&one, &two, &stranger] {
            attachment.save(&places).unwrap();
        }
        publish(&places, "web").unwrap();
        let text = |one: &Attachment| std::fs::read_to_string(&one.hosts).unwrap();
        let wanted = format!(
            "127.0.0.1\tlocalhost\n{BEGIN}\n10.4.0.2\tone one-alias\n10.4.0.3\ttwo two-alias\n{END}\n"
        );
        assert_eq!(text(&one), wanted);
        assert!(text(&two).contains("10.4.0.3\ttwo two-alias\n10.4.0.2\tone one-alias\n"));
        assert_eq!(text(&stranger), "127.0.0.1\tlocalhost\n");
        // The container adds a line of its own, by the same file.
        use std::io::Write;
        let mut file = OpenOptions::new().append(true).open(&one.hosts).unwrap();
        writeln!(file, "192.0.2.1\tmine").unwrap();
        two.remove(&places).unwrap();
        publish(&places, "web").unwrap();
        assert_eq!(
            text(&one),
            format!("127.0.0.1\tlocalhost\n{BEGIN}\n10.4.0.2\tone one-alias\n{END}\n192.0.2.1\tmine\n")
        );
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            file.metadata().unwrap().ino(),
            std::fs::metadata(&one.hosts).unwrap().ino(),
            "it is written in place"
        );
    }

    #[test]
    fn links_and_large_files_are_left() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(rewrite(&link, "x\n").is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(LIMIT + 1)
            .unwrap();
        assert!(rewrite(&file, "x\n").is_err());
        assert!(rewrite(&directory.path().join("missing"), "x\n").is_err());
    }

    #[test]
    fn marks_that_were_changed_lose_no_line_before_them() {
        let ours = |lines: &str| format!("{BEGIN}\n{lines}{END}\n").into_bytes();
        assert_eq!(replaced(b"", "a\n"), ours("a\n"));
        assert_eq!(replaced(b"x", "a\n"), [b"x\n", &ours("a\n")[..]].concat());
        let twice = replaced(&replaced(b"x\n", "a\n"), "b\n");
        assert_eq!(twice, [b"x\n", &ours("b\n")[..]].concat());
    }

    #[test]
    fn what_a_container_wrote_stays_in_whatever_encoding() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        std::fs::write(&file, b"192.0.2.1\tcaf\xe9 # caf\xe9\n").unwrap();
        for lines in ["10.4.0.2\tone\n", "10.4.0.3\ttwo\n"] {
            rewrite(&file, lines).unwrap();
            let wanted = [
                b"192.0.2.1\tcaf\xe9 # caf\xe9\n",
                format!("{BEGIN}\n{lines}{END}\n").as_bytes(),
            ]
            .concat();
            assert_eq!(std::fs::read(&file).unwrap(), wanted);
        }
    }

    #[test]
    fn entries_are_read_and_wrong_ones_are_named() {
        let entries: Vec<HostEntry> = [
            "a:192.0.2.1",
            "b=[2001:db8::1]",
            "c:2001:db8::2",
            "host:host-gateway",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
        let lines = host_lines(&entries, Some(IpAddr::from([10, 4, 0, 1]))).unwrap();
        assert_eq!(
            lines,
            "192.0.2.1\ta\n2001:db8::1\tb\n2001:db8::2\tc\n10.4.0.1\thost\n"
        );
        assert!(
            host_lines(&entries, None)
                .unwrap_err()
                .to_string()
                .contains("host-gateway")
        );
        for wrong in ["", "a", ":1.2.3.4", "a:", "a:b", "a b:1.2.3.4", "a\n:1.2.3.4"] {
            assert!(wrong.parse::<HostEntry>().is_err(), "{wrong:?}");
        }
    }
}
