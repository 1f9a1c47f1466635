//! Random changes of random trees through a real overlay: the layer, unpacked by umoci on the base, is what the overlay shows.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, makedev, mknodat, utimensat,
};
use xebec_commit::{Compression, Layer, make_layer};
use xebec_kernel::mount::{Attributes, Overlay};

use crate::tree;

/// Trees that are tried. Each takes some tenths of a second, most of it umoci's.
const ROUNDS: u64 = 24;
/// Set in the process that has a mount namespace of its own.
const INSIDE: &str = "XEBEC_TEST_COMMIT_INSIDE";

#[test]
fn a_layer_says_what_an_overlay_shows() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let has_umoci = Command::new("umoci").arg("--version").output().is_ok();
    if !rustix::process::geteuid().is_root() || !has_umoci {
        return println!("SKIPPED a_layer_says_what_an_overlay_shows: it needs root and umoci");
    }
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private"]);
    again.arg(std::env::current_exe().unwrap());
    again.args(["a_layer_says_what_an_overlay_shows", "--nocapture"]);
    let done = again.env(INSIDE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

fn inside() {
    let top = tempfile::tempdir().unwrap();
    // A file system that keeps attributes, whatever the one of temporary files is. It goes with the namespace.
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(top.path())
        .status();
    assert!(mounted.unwrap().success());
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    for round in 0..ROUNDS {
        let directory = top.path().join(round.to_string());
        let problem = one_round(&directory, &mut fastrand::Rng::with_seed(seed + round));
        assert!(
            problem.is_empty(),
            "SEED={seed}, round {round}:\n{}",
            problem.join("\n")
        );
    }
}

fn one_round(directory: &Path, random: &mut fastrand::Rng) -> Vec<String> {
    let paths = ["lower", "upper", "work", "merged"].map(|name| directory.join(name));
    for path in &paths {
        fs::create_dir_all(path).unwrap();
    }
    let [lower, upper, work, merged] = paths;
    let mut tree = Changer {
        top: lower.clone(),
        random,
    };
    for _ in 0..60 {
        tree.change();
    }
    let overlay = Overlay::new().lower(&lower).upper(&upper, &work);
    let _mounted = overlay.mount_at(&merged, Attributes::empty()).unwrap();
    tree.top = merged.clone();
    for _ in 0..60 {
        tree.change();
    }
    let layout = directory.join("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let layers = [&lower, &upper].map(|upper| {
        let [made, again, other] = [Compression::Gzip(1), Compression::Gzip(1), Compression::Zstd(1)]
            .map(|codec| layer(upper, codec, &layout));
        assert_eq!(made, again, "the same tree has another layer");
        // umoci reads no zstd, and another compression changes nothing.
        assert_eq!(made.diff_id, other.diff_id);
        made
    });
    describe(&layout, &layers);
    let bundle = directory.join("bundle");
    let mut unpack = Command::new("umoci");
    unpack
        .arg("unpack")
        .arg("--image")
        .arg(format!("{}:image", layout.display()));
    let unpacked = unpack.arg(&bundle).output().unwrap();
    assert!(
        unpacked.status.success(),
        "{}",
        String::from_utf8_lossy(&unpacked.stderr)
    );
    let (shown, unpacked) = (tree::read(&merged), tree::read(&bundle.join("rootfs")));
    assert!(shown.len() > 5, "nothing is compared");
    tree::differences(&shown, &unpacked)
}

fn layer(upper: &Path, compression: Compression, layout: &Path) -> Layer {
    let path = layout.join("new");
    let file = File::create(&path).unwrap();
    let made = make_layer(upper, compression, &file, &mut || Ok(()), &mut |note| {
        panic!("{note:?}")
    })
    .unwrap();
    fs::rename(&path, layout.join("blobs/sha256").join(made.digest.hex())).unwrap();
    made
}

/// Makes the files of an OCI layout with one image.
fn describe(layout: &Path, layers: &[Layer]) {
    let keep = |document: &serde_json::Value| {
        let bytes = document.to_string().into_bytes();
        let digest = xebec_format::digest::Digest::of(&bytes);
        fs::write(layout.join("blobs/sha256").join(digest.hex()), &bytes).unwrap();
        (digest, bytes.len())
    };
    let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id).collect();
    let (config, size) = keep(&serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": {}, "rootfs": { "type": "layers", "diff_ids": diff_ids },
    }));
    let listed: Vec<_> = layers
        .iter()
        .map(|layer| serde_json::json!({ "mediaType": layer.media_type, "digest": layer.digest, "size": layer.size }))
        .collect();
    let (manifest, length) = keep(&serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": listed,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": size },
    }));
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": length,
        "annotations": { "org.opencontainers.image.ref.name": "image" },
    }] });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

/// Changes a tree at random. A change that does not fit what is there is none.
struct Changer<'a> {
    top: PathBuf,
    random: &'a mut fastrand::Rng,
}

impl Changer<'_> {
    /// One of a few paths, so that changes meet each other.
    fn path(&mut self) -> PathBuf {
        let names = [
            "a",
            "b",
            "c",
            "d",
            "-first",
            "line\nbreak",
            "\u{e4}\u{20ac}",
            "a name of more than a hundred bytes, so that it does not fit into the field of a header, which has a hundred",
        ];
        let levels = self.random.usize(1..4);
        let mut path = self.top.clone();
        path.extend((0..levels).map(|_| names[self.random.usize(..names.len())]));
        path
    }

    fn change(&mut self) {
        let (path, other) = (self.path(), self.path());
        if !is_within(&self.top, &path) || !is_within(&self.top, &other) {
            return;
        }
        match self.random.u32(0..16) {
            0..4 => {
                let length = [0, 1, 511, 512, 513, 5000][self.random.usize(..6)];
                let contents: Vec<u8> = (0..length).map(|_| self.random.u8(..)).collect();
                // To open a FIFO waits for its other end, and a link leads anywhere.
                if path.symlink_metadata().map_or(true, |found| found.is_file()) {
                    let _ = fs::write(&path, contents);
                }
            }
            4..6 => _ = fs::create_dir_all(&path),
            6 => {
                _ = symlink(
                    ["a", "/no such/file", "../b", "no such"][self.random.usize(..4)],
                    &path,
                )
            }
            7 => _ = fs::hard_link(&other, &path),
            8 => {
                let kind = [FileType::Fifo, FileType::CharacterDevice, FileType::BlockDevice]
                    [self.random.usize(..3)];
                let _ = mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), makedev(7, 300));
            }
            9 => _ = fs::remove_file(&path),
            10 => _ = fs::remove_dir_all(&path),
            11 => {
                // Gone, and there again: nothing of below shows through.
                let _ = fs::remove_dir_all(&path).and_then(|()| fs::create_dir(&path));
            }
            12 => _ = fs::rename(&path, &other),
            13 => {
                let _ = File::options()
                    .append(true)
                    .open(regular(&path))
                    .and_then(|mut file| file.write_all(b"more"));
            }
            14 => {
                if path.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
                    let _ = chown(
                        &path,
                        Some(self.random.u32(0..3_000_000)),
                        Some(self.random.u32(0..3_000_000)),
                    );
                    let _ =
                        fs::set_permissions(&path, fs::Permissions::from_mode(self.random.u32(0..0o10000)));
                }
            }
            _ => {
                let value = self.random.u8(1..);
                let _ = rustix::fs::lsetxattr(&path, "user.note", &[value, b'\n', 0], XattrFlags::empty());
            }
        }
        let time = Timespec {
            tv_sec: self.random.i64(-5..2_000_000_000),
            tv_nsec: self.random.i64(0..1_000_000_000),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let _ = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

/// Whether no link is on the way to a path: a change must not reach what is not in the tree.
fn is_within(top: &Path, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1).take_while(|above| *above != top);
    above.all(|above| !above.is_symlink())
}

/// The path, if a regular file is there: to open a FIFO waits for its other end.
fn regular(path: &Path) -> &Path {
    match path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        true => path,
        false => Path::new("/no such file"),
    }
}
