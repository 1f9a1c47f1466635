//! Copies to and from tar streams, hostile ones among them.

use super::*;

fn to_tar(top: &Path, path: &str) -> Vec<u8> {
    let root = root(top);
    let source = Source::open(&within(&root), Path::new(path), false).unwrap();
    let prefix = source.name.clone().map(PathBuf::from);
    let mut bytes = Vec::new();
    let mut sink = TarSink::new(&mut bytes);
    walk(source, prefix.as_deref(), &mut sink, &mut |_| ()).unwrap();
    sink.finish().unwrap();
    bytes
}

fn from_tar(bytes: &[u8], top: &Path) -> Result<Vec<Note>, CopyError> {
    let base = OwnedFd::from(File::open(top).unwrap());
    let mut sink = TreeSink::new(base, "box:/".into(), Rules::new(true, false));
    let mut notes = Vec::new();
    tar_source::read(bytes, &mut sink, &mut |note| notes.push(note))?;
    sink.finish()?;
    Ok(notes)
}

/// Long names, links, holes, times: `tar` reads what is written, and what it writes is read.
#[test]
fn tar_streams_are_those_of_tar() {
    let top = tempfile::tempdir().unwrap();
    make_source(top.path(), "directory");
    let long = top.path().join("s").join("n".repeat(200)).join("m".repeat(200));
    fs::create_dir_all(&long).unwrap();
    write(&long.join("file"), "deep", 0o600);
    symlink("x".repeat(300), long.join("link")).unwrap();
    fs::hard_link(top.path().join("s/a"), long.join("same")).unwrap();
    let wanted = listing(&top.path().join("s"));

    let (by_tar, by_us) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stream = to_tar(top.path(), "s");
    let path = by_tar.path().join("stream");
    fs::write(&path, &stream).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xpf").arg(&path).arg("-C").arg(by_tar.path());
    assert!(tar.status().unwrap().success());
    assert_eq!(listing(&by_tar.path().join("s")), wanted);

    for format in ["gnu", "pax"] {
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&path).arg("-H").arg(format);
        tar.arg("-C").arg(top.path()).arg("./s");
        assert!(tar.status().unwrap().success());
        let target = by_us.path().join(format);
        fs::create_dir(&target).unwrap();
        assert_eq!(from_tar(&fs::read(&path).unwrap(), &target).unwrap(), []);
        assert_eq!(listing(&target.join("s")), wanted, "{format}");
        let [one, other] = ["s/a".into(), long.strip_prefix(top.path()).unwrap().join("same")]
            .map(|name: PathBuf| fs::metadata(target.join(name)).unwrap().ino());
        assert_eq!(one, other);
    }
    assert_eq!(from_tar(&stream, by_us.path()).unwrap(), []);
    assert_eq!(listing(&by_us.path().join("s")), wanted);
}

#[test]
fn a_hostile_tar_stream_leads_nowhere() {
    let top = tempfile::tempdir().unwrap();
    let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    let entry = |kind: tar::EntryType, path: &str, target: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o777);
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        let link = &mut header.as_old_mut().linkname;
        link[..target.len()].copy_from_slice(target.as_bytes());
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let outside_text = outside.to_str().unwrap();
    let absolute = format!("{outside_text}/file");
    for entries in [
        vec![entry(tar::EntryType::Regular, "../outside/new", "")],
        vec![entry(tar::EntryType::Regular, "a/../../outside/new", "")],
        vec![
            entry(tar::EntryType::Symlink, "link", outside_text),
            entry(tar::EntryType::Regular, "link/new", ""),
        ],
        vec![
            entry(tar::EntryType::Symlink, "link", outside_text),
            entry(tar::EntryType::Directory, "link", ""),
        ],
        vec![entry(tar::EntryType::Link, "same", "../outside/file")],
        vec![
            entry(tar::EntryType::Symlink, "link", outside_text),
            entry(tar::EntryType::Link, "same", "link/file"),
        ],
        vec![entry(tar::EntryType::Link, "same", &absolute)],
        vec![b"no tar archive, but as long as a header is, which has 512 bytes".repeat(9)],
    ] {
        let outcome = from_tar(&entries.concat(), &inside);
        assert!(outcome.is_err(), "{outcome:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret");
    }
    let device = entry(tar::EntryType::Char, "device", "");
    let notes = from_tar(&device, &inside).unwrap();
    assert_eq!(notes.len(), 1);
    assert!(!inside.join("device").exists());
}
