//! Views that may have served holes: they were mounted, and not complete, while no process held the fanotify group.
//!
//! Their page cache may hold zeros in place of bytes, and nothing can tell which pages. So they are taken out of the
//! tree, where a new container could find them. The kernel offers no way to take the pages from processes that are on them:
//! such processes are named for as long as there are any. Their layers are served on: what they read from
//! now on is right.
//!
//! Two numbers tell whether a process is on a view. One is the unique number of a mount (`statx(2)`, `STATX_MNT_ID_UNIQUE`,
//! Linux 6.8), which stays true after the mount was taken out of the tree and is never used again. The other one is the number of
//! the process's mount namespace, if that namespace showed the view when it was found.

mod places;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};
use xebec_kernel::file::write_atomically;
use xebec_kernel::mount::{self, MountInfo, Top};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::LayerPair;
use xebec_protocol::wire::{ProcessStatus, SuspectStatus};

use crate::views::ViewRecord;
use places::Places;

/// Asks statx for a number of a mount that is never used again (`include/uapi/linux/stat.h`).
const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The suspects of a run directory, kept in its file `suspects.json`.
#[derive(Debug)]
pub struct Suspects {
    file: PathBuf,
    list: Mutex<Vec<Suspect>>,
}

/// A view that may have served holes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Suspect {
    view: String,
    reference: String,
    layers: Vec<LayerPair>,
    /// Unique numbers of its mounts, and of those of overlays on it, in the daemon's mount namespace.
    mounts: BTreeSet<u64>,
    /// Other mount namespaces that show it, by [`namespace_name`]; earlier versions wrote what `/proc/PID/ns/mnt` says.
    namespaces: BTreeSet<PathBuf>,
}

impl Suspects {
    /// The suspects that earlier workers found.
    pub fn read(paths: &Paths) -> Suspects {
        let file = paths.run().join("suspects.json");
        let bytes = fs::read(&file).unwrap_or_default();
        let list = serde_json::from_slice(&bytes).unwrap_or_default();
        Suspects {
            file,
            list: Mutex::new(list),
        }
    }

    /// After a time without a holder: takes every mount of ours out of the tree that is not on a complete view.
    /// `views` are those that are known, with whether all of their layers are complete. Gives the names of the views
    /// that are gone.
    pub fn find(&self, paths: &Paths, views: &[(ViewRecord, bool)]) -> BTreeSet<String> {
        let mounts = mount::mounts().unwrap_or_else(|problem| {
            error!("{problem}; Xebec treats every view as one that may have served zeros");
            Vec::new()
        });
        let places = Places::of_snapshots(&paths.snapshots());
        let found = sort_out(&mounts, paths, views, &places, unique_number, |devices, names| {
            namespaces_on(devices, names, &places)
        });
        {
            let mut list = self.list.lock();
            for suspect in &found.suspects {
                match list.iter_mut().find(|other| other.view == suspect.view) {
                    // It may be the second such time, with processes left from the first.
                    Some(known) => {
                        known.mounts.extend(&suspect.mounts);
                        known.namespaces.extend(suspect.namespaces.iter().cloned());
                    }
                    None => list.push(suspect.clone()),
                }
            }
            self.write(&list);
        }
        for suspect in &found.suspects {
            let processes = processes_on(suspect);
            error!(
                view = suspect.view,
                "{} was in use while no daemon guarded it: reads from it may have given zeros. Xebec unmounts it, and new \
                 containers get another; restart {}",
                suspect.reference,
                name_all(&processes)
            );
        }
        // Children first: the table lists parents before what is mounted on them.
        for mount in found.unmount.iter().rev() {
            warn!("unmounting {} ({})", mount.target.display(), mount.filesystem);
            // Another mount may be there by now.
            match Top::still(mount).and_then(|top| top.map_or(Ok(()), Top::detach)) {
                Ok(()) => {}
                Err(problem) => error!("{problem}"),
            }
        }
        found.suspects.into_iter().map(|suspect| suspect.view).collect()
    }

    /// The layers of all suspects: they are served as long as somebody may read them.
    pub fn layers(&self) -> Vec<LayerPair> {
        self.list
            .lock()
            .iter()
            .flat_map(|suspect| suspect.layers.clone())
            .collect()
    }

    /// Forgets suspects that no process is on any more.
    pub fn sweep(&self) {
        let mut list = self.list.lock();
        if list.is_empty() {
            return;
        }
        let before = list.len();
        list.retain(|suspect| {
            let is_used = !processes_on(suspect).is_empty();
            if !is_used {
                info!("no process is on the old view of {} any more", suspect.reference);
            }
            is_used
        });
        if list.len() != before {
            self.write(&list);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }

    /// The suspects, with the processes on them now.
    pub fn status(&self) -> Vec<SuspectStatus> {
        let list = self.list.lock().clone();
        list.into_iter()
            .map(|suspect| SuspectStatus {
                processes: processes_on(&suspect),
                view: suspect.view,
                reference: suspect.reference,
            })
            .collect()
    }

    fn write(&self, list: &[Suspect]) {
        let written = if list.is_empty() {
            fs::remove_file(&self.file).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        } else {
            serde_json::to_vec(list)
                .map_err(std::io::Error::other)
                .and_then(|bytes| write_atomically(&self.file, &bytes))
        };
        if let Err(problem) = written {
            warn!("{}: {problem}", self.file.display());
        }
    }
}

/// Numbers of devices, as mount tables show them.
type Devices = BTreeSet<(u32, u32)>;

/// The suspects on the mounts of one namespace, and the mounts to take away.
struct Sorted {
    suspects: Vec<Suspect>,
    unmount: Vec<MountInfo>,
}

/// `number` gives a mount's unique number, `namespaces` the other mount namespaces that show any of some devices, or an
/// overlay on a directory of one of some names. One function, since all its questions are about the same mounts.
fn sort_out(
    mounts: &[MountInfo],
    paths: &Paths,
    views: &[(ViewRecord, bool)],
    places: &Places,
    number: impl Fn(&Path) -> Option<u64>,
    namespaces: impl Fn(&Devices, &BTreeSet<PathBuf>) -> BTreeSet<PathBuf>,
) -> Sorted {
    let device = |mount: &MountInfo| (mount.major, mount.minor);
    let erofs_at = |path: &Path| {
        let mount = mounts.iter().rfind(|mount| mount.target == path);
        mount.filter(|mount| mount.filesystem == "erofs")
    };
    let device_of = |path: &Path| erofs_at(path).map(device);
    let clean: Vec<(u32, u32)> = views
        .iter()
        .filter(|(_, complete)| *complete)
        .filter_map(|(view, _)| device_of(&view.path))
        .collect();
    let clean_paths: Vec<&Path> = views
        .iter()
        .filter(|(_, complete)| *complete)
        .map(|(view, _)| view.path.as_path())
        .collect();
    let is_unclean_view = |mount: &MountInfo| is_our_view(mount, paths) && !clean.contains(&device(mount));
    let is_unclean_below = |directory: &PathBuf| {
        let directory = places.lead(directory);
        if directory.starts_with(paths.mounts()) {
            return !clean_paths.contains(&directory);
        }
        places.is_bound(directory) && erofs_at(directory).is_some_and(is_unclean_view)
    };
    let is_unclean = |mount: &&MountInfo| match mount.filesystem.as_str() {
        "erofs" => is_unclean_view(mount),
        "overlay" => places.below(mount).iter().any(is_unclean_below),
        _ => false,
    };
    let unmount: Vec<MountInfo> = mounts.iter().filter(is_unclean).cloned().collect();
    let suspects = views.iter().filter(|(_, complete)| !complete).map(|(view, _)| {
        let own = device_of(&view.path);
        let is_view = |mount: &&MountInfo| Some(device(mount)) == own;
        let targets = mounts.iter().filter(is_view).map(|mount| mount.target.clone());
        let names = places.names_of(&view.path, targets);
        let is_on = |mount: &&MountInfo| {
            is_view(mount) || places.below(mount).iter().any(|below| names.contains(below))
        };
        let devices = mounts.iter().filter(is_on).map(device).collect();
        Suspect {
            view: view.name.clone(),
            reference: view.reference.clone(),
            layers: view.layers.clone(),
            mounts: mounts
                .iter()
                .filter(is_on)
                .filter_map(|mount| number(&mount.target))
                .collect(),
            namespaces: namespaces(&devices, &names),
        }
    });
    Sorted {
        suspects: suspects.collect(),
        unmount,
    }
}

/// Views, wherever they are mounted. The run directory may hold other people's mounts, so being below it is not
/// enough.
fn is_our_view(mount: &MountInfo, paths: &Paths) -> bool {
    let below = |path: &Path| path.starts_with(paths.root()) || path.starts_with(paths.run());
    // A metadata image whose path is too long for the kernel is given by its descriptor.
    below(&mount.source) || mount.source.starts_with("/proc/self/fd") && below(&mount.target)
}

/// The unique number of the mount that is at a path.
fn unique_number(path: &Path) -> Option<u64> {
    // Of files of others nothing but the mount is asked: a server of theirs that does not answer must not matter.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let status = rustix::fs::statx(CWD, path, flags, STATX_MNT_ID_UNIQUE).ok()?;
    let told = StatxFlags::from_bits_retain(status.stx_mask).contains(STATX_MNT_ID_UNIQUE);
    told.then_some(status.stx_mnt_id)
}

/// The directories of all processes that have a mount namespace, with its name.
fn processes() -> impl Iterator<Item = (u32, PathBuf, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let directory = entry.path();
        // Kernel threads have none that can be read; processes that have just ended neither.
        let namespace = fs::read_link(directory.join("ns/mnt")).ok()?;
        Some((pid, directory, namespace))
    })
}

fn own_namespace() -> PathBuf {
    fs::read_link("/proc/self/ns/mnt").unwrap_or_default()
}

/// Mount namespaces other than this process's that show a device, or an overlay on a directory of one of these names.
fn namespaces_on(devices: &Devices, names: &BTreeSet<PathBuf>, places: &Places) -> BTreeSet<PathBuf> {
    let own = own_namespace();
    let mut seen: HashMap<PathBuf, Option<PathBuf>> = HashMap::new();
    for (_, process, namespace) in processes() {
        if namespace != own && !seen.contains_key(&namespace) {
            let table = fs::read(process.join("mountinfo")).unwrap_or_default();
            let mounts = mount::parse_mountinfo(&table).unwrap_or_default();
            let shows = mounts.iter().any(|mount| {
                let is_view = mount.filesystem == "erofs" && devices.contains(&(mount.major, mount.minor));
                is_view || places.below(mount).iter().any(|below| names.contains(below))
            });
            let name = shows.then(|| namespace_name(&process).unwrap_or_else(|| namespace.clone()));
            seen.insert(namespace, name);
        }
    }
    seen.into_values().flatten().collect()
}

/// The name of a process's mount namespace, which no later one gets: a container that is started again must not be taken for
/// the earlier one.
fn namespace_name(process: &Path) -> Option<PathBuf> {
    let number = xebec_kernel::namespace::mount_namespace(process).ok()?;
    Some(PathBuf::from(format!("mnt:{number}")))
}

/// The processes on a suspect view. Looking at every process costs milliseconds, and is done only while there are suspects.
fn processes_on(suspect: &Suspect) -> Vec<ProcessStatus> {
    let is_on = |(pid, directory, namespace): &(u32, PathBuf, PathBuf)| {
        *pid != std::process::id()
            && (suspect.namespaces.contains(namespace)
                || namespace_name(directory).is_some_and(|name| suspect.namespaces.contains(&name))
                || has_file_on(directory, suspect))
    };
    let on = processes().filter(is_on).map(|(pid, directory, _)| {
        let command = fs::read_to_string(directory.join("comm")).unwrap_or_default();
        ProcessStatus {
            pid,
            command: command.trim_end().to_owned(),
        }
    });
    on.collect()
}

/// Whether a process has its root, its directory, its program, an open file or a mapped file on the suspect.
fn has_file_on(process: &Path, suspect: &Suspect) -> bool {
    let is_on = |path: PathBuf| unique_number(&path).is_some_and(|number| suspect.mounts.contains(&number));
    let listed = ["fd", "map_files"].into_iter().flat_map(|name| {
        let entries = fs::read_dir(process.join(name)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    });
    ["root", "cwd", "exe"]
        .into_iter()
        .map(|name| process.join(name))
        .chain(listed)
        .any(is_on)
}

fn name_all(processes: &[ProcessStatus]) -> String {
    if processes.is_empty() {
        return "nothing: no process is on it".to_owned();
    }
    let names = processes
        .iter()
        .map(|process| format!("{} ({})", process.command, process.pid));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use xebec_format::digest::Digest;
    use xebec_kernel::mount::parse_mountinfo;

    use super::*;

    fn view(paths: &Paths, name: &str) -> ViewRecord {
        ViewRecord {
            name: name.to_owned(),
            path: paths.mounts().join(name),
            reference: format!("example.com/{name}"),
            manifest: Digest::of(name.as_bytes()),
            layers: Vec::new(),
            holders: Vec::new(),
            images: Vec::new(),
            unused_since_ms: None,
            is_spoiled: false,
            completion: None,
            uses: Vec::new(),
            own_mount: None,
            arriving: Vec::new(),
            narrow: None,
            backing: None,
            was_shared: false,
            was_prefilled: false,
            prefilled: crate::views::PrefillNote::default(),
            narrowed: 0,
        }
    }

    #[test]
    fn only_what_is_ours_and_not_complete_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let paths = Paths::create(&top.join("root"), &top.join("run")).unwrap();
        let table = "\
1 0 254:0 / TOP/run rw - tmpfs tmpfs rw
2 0 254:0 /x/layers TOP/run/guarded rw - ext4 /dev/vda rw
3 0 0:30 / TOP/run/views/whole ro - erofs TOP/root/views/whole ro
4 0 0:31 / TOP/run/views/part ro - erofs TOP/root/views/part ro
5 0 0:31 / /mnt/image ro - erofs TOP/root/views/part ro
6 0 0:32 / TOP/run/views/unknown ro - erofs /proc/self/fd/9 ro
7 0 0:33 / /mnt/other ro - erofs /proc/self/fd/9 ro
8 0 0:34 / /containerd rw - overlay overlay rw,lowerdir=/var/lib/containerd/1:/var/lib/containerd/2
9 0 0:35 / /srv/a rw - overlay overlay rw,lowerdir+=TOP/run/views/part,upperdir=/srv/upper,workdir=/srv/work
10 0 0:36 / /srv/b rw - overlay overlay rw,lowerdir+=TOP/run/views/whole,upperdir=/srv/upper,workdir=/srv/work
11 0 0:30 / /mnt/whole ro - erofs TOP/root/views/whole ro
12 0 0:37 / /run/elsewhere ro - erofs /var/lib/containerd/layer.erofs ro
13 0 0:38 / /docker/a rw - overlay overlay rw,lowerdir=TOP/root/snapshots/u/1:TOP/root/snapshots/u/2.v,upperdir=TOP/root/snapshots/u/2
14 0 0:39 / /docker/b rw - overlay overlay rw,lowerdir=TOP/root/snapshots/u/3.v,upperdir=TOP/root/snapshots/u/3
15 0 0:40 / /docker/c rw - overlay overlay rw,lowerdir=4:2.v,upperdir=TOP/root/snapshots/u/2
16 0 0:31 / TOP/root/snapshots/m/5/v ro - erofs TOP/root/views/part ro
17 0 0:41 / /docker/d rw - overlay overlay rw,lowerdir=/tmp/ovl-idmapped1/v,upperdir=TOP/root/snapshots/u/5
18 0 0:30 / TOP/root/snapshots/m/6/v ro - erofs TOP/root/views/whole ro
19 0 0:42 / /docker/e rw - overlay overlay rw,lowerdir=/tmp/ovl-idmapped2/v,upperdir=TOP/root/snapshots/u/6
"
        .replace("TOP", &top.to_string_lossy());
        let mounts = parse_mountinfo(table.as_bytes()).unwrap();
        let views = [(view(&paths, "whole"), true), (view(&paths, "part"), false)];
        let number = |path: &Path| {
            mounts
                .iter()
                .find(|mount| mount.target == path)
                .map(|mount| 1000 + mount.id)
        };
        let uppers = paths.snapshots().join("u");
        fs::create_dir_all(&uppers).unwrap();
        for (link, to) in [("2.v", "part"), ("3.v", "whole"), ("7.v", "part")] {
            symlink(paths.mounts().join(to), uppers.join(link)).unwrap();
        }
        let places = Places::of_snapshots(&paths.snapshots());
        let shown = |names: &BTreeSet<PathBuf>| {
            names
                .iter()
                .filter(|name| name.starts_with(&top))
                .cloned()
                .collect()
        };
        let namespaces = |devices: &Devices, names: &BTreeSet<PathBuf>| {
            let devices: Vec<u32> = devices.iter().map(|(_, minor)| *minor).collect();
            assert_eq!(devices, [31, 35, 38, 40, 41]);
            shown(names)
        };
        let sorted = sort_out(&mounts, &paths, &views, &places, number, namespaces);
        let ids: Vec<u64> = sorted.unmount.iter().map(|mount| mount.id).collect();
        assert_eq!(ids, [4, 5, 6, 9, 13, 15, 16, 17]);
        let [suspect] = sorted.suspects.as_slice() else {
            panic!("{:?}", sorted.suspects)
        };
        assert_eq!(suspect.view, "part");
        assert_eq!(
            suspect.mounts,
            BTreeSet::from([1004, 1005, 1009, 1013, 1015, 1016, 1017])
        );
        let names = [
            paths.snapshots().join("m/5/v"),
            uppers.join("2.v"),
            uppers.join("7.v"),
            paths.mounts().join("part"),
        ];
        assert_eq!(suspect.namespaces, BTreeSet::from(names));
    }

    #[test]
    fn this_process_is_found_by_its_own_program() {
        let here = unique_number(Path::new("/proc/self/exe")).unwrap();
        let mut suspect = Suspect {
            view: String::new(),
            reference: String::new(),
            layers: Vec::new(),
            mounts: BTreeSet::from([here]),
            namespaces: BTreeSet::new(),
        };
        assert!(has_file_on(Path::new("/proc/self"), &suspect));
        suspect.mounts = BTreeSet::from([u64::MAX]);
        assert!(!has_file_on(Path::new("/proc/self"), &suspect));
    }
}
