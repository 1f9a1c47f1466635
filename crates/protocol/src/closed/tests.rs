//! Tests of closing directories.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::os::unix::fs::{MetadataExt, chown, symlink};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn put(path: &Path, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn open_up(path: &Path, mode: u32) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn open_up_file(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_new_directory_is_closed_whatever_is_above_it() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("a/b");
    assert_eq!(close(&path, Use::Root).unwrap(), path.canonicalize().unwrap());
    assert_eq!(mode(&path), 0o700);
}

#[test]
fn what_an_earlier_version_left_is_mended() {
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("root");
    let data = root.join("layers/sha256-1/2/data");
    let view = root.join("views/name.erofs");
    let written = root.join("containers/one/upper/program");
    let outside = top.path().join("outside");
    for (path, bits) in [
        (&data, 0o644),
        (&view, 0o644),
        (&written, 0o4755),
        (&outside, 0o644),
        (&root.join("daemon.toml"), 0o644),
    ] {
        put(path, bits);
    }
    symlink(&outside, root.join("layers/link")).unwrap();
    for folder in ["layers/sha256-1/2", "layers", "containers/one/upper", ""] {
        open_up(&root.join(folder), 0o755);
    }
    close(&root, Use::Root).unwrap();
    for (path, expected) in [
        (root.clone(), 0o700),
        (root.join("layers"), 0o700),
        (root.join("layers/sha256-1/2"), 0o700),
        (root.join("containers"), 0o700),
        (root.join("daemon.toml"), 0o600),
        (data, 0o600),
        (view, 0o600),
        // As its image says.
        (root.join("containers/one/upper"), 0o755),
        (written, 0o4755),
        (outside, 0o644),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

#[test]
fn an_empty_directory_that_everybody_may_write_to_is_mended() {
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("root");
    fs::create_dir_all(root.join(MADE_WITH)).unwrap();
    open_up(&root, 0o1777);
    close(&root, Use::Root).unwrap();
    assert_eq!(mode(&root) & 0o777, 0o700);
}

#[test]
fn a_directory_of_others_is_refused_and_left_as_it_is() {
    let top = tempfile::tempdir().unwrap();
    let etc = top.path().join("etc");
    put(&etc.join("passwd"), 0o644);
    open_up(&etc, 0o755);
    let refused = close(&etc, Use::Root).unwrap_err().to_string();
    assert!(
        refused.contains("holds what is not Xebec's, as passwd"),
        "{refused}"
    );
    assert_eq!((mode(&etc), mode(&etc.join("passwd"))), (0o755, 0o644));
    // The same by a link.
    let link = top.path().join("link");
    symlink(&etc, &link).unwrap();
    assert!(
        matches!(close(&link, Use::Root), Err(ClosedError::Stranger { path, .. }) if path.ends_with("etc"))
    );
}

#[test]
fn what_belongs_to_another_user_is_refused_by_name() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("root");
    open_up(&root, 0o700);
    chown(&root, Some(65534), None).unwrap();
    let refused = close(&root, Use::Root).unwrap_err().to_string();
    assert!(refused.contains("root belongs to user 65534"), "{refused}");
    // Nor does Xebec obey a file that somebody put into a directory that was open.
    chown(&root, Some(0), None).unwrap();
    put(&root.join("trust.toml"), 0o644);
    chown(root.join("trust.toml"), Some(65534), None).unwrap();
    open_up(&root, 0o1777);
    let refused = close(&root, Use::Root).unwrap_err().to_string();
    assert!(refused.contains("trust.toml belongs to user 65534"), "{refused}");
}

#[test]
fn what_is_closed_but_of_others_is_refused_too() {
    let top = tempfile::tempdir().unwrap();
    for name in [".bashrc", "notes", "layers-of-mine", ".ssh"] {
        let home = top.path().join(format!("home-{name}"));
        open_up(&home.join("layers"), 0o755);
        put(&home.join(name), 0o644);
        open_up(&home, 0o700);
        let refused = close(&home, Use::Root).unwrap_err().to_string();
        assert!(refused.contains(&format!("not Xebec's, as {name}")), "{refused}");
        assert_eq!(mode(&home.join("layers")), 0o755);
    }
}

/// A user prepares these before the first command: a policy, its keys, certificates of registries.
#[test]
fn keys_and_certificates_that_the_configuration_names_may_lie_beside_it() {
    const KEYS: &str = "[[key]]\nname = \"ci\"\nfile = \"ci.pub\"\nrepositories = [\"**\"]\n\n\
                        [[key]]\nname = \"old\"\nfile = \"./keys/old.pub\"\nrepositories = [\"**\"]\n";
    for bits in [0o700, 0o755] {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        for name in ["ci.pub", "keys/old.pub", "ca.pem"] {
            put(&root.join(name), 0o644);
        }
        fs::write(root.join("trust.toml"), KEYS).unwrap();
        let certificate = root.canonicalize().unwrap().join("ca.pem");
        let registries = format!("ca_files = [{certificate:?}]\n");
        fs::write(root.join("registries.toml"), registries).unwrap();
        open_up(&root, bits);
        close(&root, Use::Root).unwrap();
        assert_eq!(mode(&root), 0o700);
        fs::read(root.join("ci.pub")).unwrap();
        // A file that nobody names counts as somebody else's, as before, and a run directory has no configuration.
        put(&root.join("notes"), 0o644);
        let refused = close(&root, Use::Root).unwrap_err().to_string();
        assert!(refused.contains("as notes"), "{refused}");
        assert!(close(&root, Use::Run).is_err());
    }
}

#[test]
fn what_others_may_have_written_is_not_obeyed() {
    for (name, bits) in [
        ("trust.toml", 0o666),
        ("trust.toml", 0o664),
        ("daemon.toml", 0o646),
        ("ci.pub", 0o666),
    ] {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        put(&root.join("ci.pub"), 0o644);
        let text = "[[key]]\nname = \"ci\"\nfile = \"ci.pub\"\nrepositories = [\"**\"]\n";
        fs::write(root.join("trust.toml"), text).unwrap();
        put(&root.join("daemon.toml"), 0o600);
        fs::set_permissions(root.join(name), Permissions::from_mode(bits)).unwrap();
        open_up(&root, 0o755);
        let refused = close(&root, Use::Root).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("{name} (mode {bits:04o})")),
            "{refused}"
        );
        assert_eq!(mode(&root), 0o755);
        fs::set_permissions(root.join(name), Permissions::from_mode(0o644)).unwrap();
        close(&root, Use::Root).unwrap();
    }
}

/// A user who may write to a directory on the way to a key can put another key there.
#[test]
fn each_part_of_the_way_to_what_the_configuration_names_is_looked_at() {
    for (file, setting) in [
        ("keys/of/ci.pub", "trust.toml"),
        ("keys/of/ca.pem", "registries.toml"),
    ] {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().join("root");
        put(&root.join(file), 0o644);
        let text = match setting {
            "trust.toml" => format!("[[key]]\nname = \"ci\"\nfile = {file:?}\nrepositories = [\"**\"]\n"),
            _ => format!("ca_files = [{:?}]\n", root.join(file)),
        };
        fs::write(root.join(setting), text).unwrap();
        open_up(&root, 0o755);
        for (part, good, bad) in [
            ("keys", 0o755, 0o775),
            ("keys/of", 0o755, 0o1777),
            (file, 0o644, 0o666),
        ] {
            open_up_file(&root.join(part), bad);
            let refused = close(&root, Use::Root).unwrap_err().to_string();
            assert!(refused.contains(&format!("{part} (mode {bad:04o})")), "{refused}");
            open_up_file(&root.join(part), good);
        }
        // The same where a link leads.
        let outside = top.path().join("outside/further");
        put(&outside.join("key"), 0o644);
        fs::remove_file(root.join(file)).unwrap();
        symlink(outside.join("key"), root.join(file)).unwrap();
        open_up(&top.path().join("outside"), 0o777);
        let refused = close(&root, Use::Root).unwrap_err().to_string();
        assert!(
            refused.contains("another file could be put in its place"),
            "{refused}"
        );
        open_up(&top.path().join("outside"), 0o755);
        open_up_file(&outside.join("key"), 0o646);
        let refused = close(&root, Use::Root).unwrap_err().to_string();
        assert!(refused.contains("(mode 0646)"), "{refused}");
        open_up_file(&outside.join("key"), 0o644);
        close(&root, Use::Root).unwrap();
        assert_eq!(mode(&root), 0o700);
    }
}

#[test]
fn a_root_is_no_run_directory_and_none_is_in_the_other() {
    let top = tempfile::tempdir().unwrap();
    let (root, run) = (top.path().join("root"), top.path().join("run"));
    put(&root.join("images.lock"), 0o600);
    put(&run.join("keeper.lock"), 0o600);
    for directory in [&root, &run] {
        open_up(directory, 0o700);
    }
    close(&root, Use::Root).unwrap();
    close(&run, Use::Run).unwrap();
    for (path, of) in [(&root, Use::Run), (&run, Use::Root)] {
        assert!(matches!(close(path, of), Err(ClosedError::Exchanged { .. })));
    }
    check_apart(&root, &run).unwrap();
    check_apart(&root, &top.path().join("root-2")).unwrap();
    let link = top.path().join("link");
    symlink(&root, &link).unwrap();
    for (one, other) in [
        (root.clone(), root.clone()),
        (root.clone(), link.clone()),
        (root.clone(), root.join("a/b")),
        (link.join("a"), root.clone()),
        (root.clone(), top.path().join("gone/../root/a")),
        (root.clone(), top.path().join("gone/../link/a")),
        (top.path().join("gone/../gone/x/../../root"), root.clone()),
        (PathBuf::from("/"), run),
    ] {
        let refused = check_apart(&one, &other);
        assert!(
            matches!(refused, Err(ClosedError::Nested { .. })),
            "{}",
            one.display()
        );
        assert!(!root.join("a").exists());
    }
}

/// A user who may rename a directory on the way may put another one there.
#[test]
fn what_others_could_replace_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root gives directories to others");
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let at = |path: &str| top.path().join(path);
    let refused = |path: &Path, above: &Path| {
        let message = close(path, Use::Root).unwrap_err().to_string();
        let begins = format!("{} is below {}, which ", path.display(), above.display());
        assert!(message.starts_with(&begins), "{message}");
    };
    for (mode, owner, is_refused) in [
        (0o755, 0, false),
        (0o1777, 0, false),
        (0o777, 0, true),
        (0o775, 0, true),
        (0o755, 65534, true),
        (0o700, 65534, true),
        (0o1777, 65534, true),
    ] {
        let above = at(&format!("{mode:o}-{owner}"));
        fs::create_dir_all(above.join("between")).unwrap();
        chown(&above, Some(owner), None).unwrap();
        open_up(&above, mode);
        for path in [above.join("root"), above.join("between/root")] {
            match is_refused {
                true => refused(&path, &above),
                false => assert!(close(&path, Use::Root).is_ok(), "{}", path.display()),
            }
            assert_eq!(path.exists(), !is_refused, "{}", path.display());
            // However the way leads there.
            let link = at("link");
            symlink(&path, &link).unwrap();
            let back = above.join("between/../root");
            if is_refused {
                refused(&link, &above);
                refused(&back, &above);
            } else {
                fs::remove_dir(&path).unwrap();
            }
            fs::remove_file(&link).unwrap();
        }
    }
    // A link that another user may lead elsewhere, to a directory in which that user may make files.
    open_up(&at("everybodys"), 0o1777);
    let link = at("everybodys/link");
    symlink(top.path(), &link).unwrap();
    assert!(close(&link.join("root"), Use::Root).is_ok());
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    refused(&link.join("root"), &link);
    symlink("two", at("one")).unwrap();
    symlink("one", at("two")).unwrap();
    assert!(close(&at("one/root"), Use::Root).is_err());
}
