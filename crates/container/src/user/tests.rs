use std::fs;
use std::os::unix::fs::symlink;

use super::*;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken line\nwww:x:33:33:www:/var/www:/bin/false\n\
    app:x:1000:100::/home/app:\n1234:x:77:78:a name of digits:/home/digits:/bin/sh\nhuge:x:4294967295:1::/:\nlast:x:5:6::relative:";
const GROUP: &str = "root:x:0:\nwww:x:33:\nusers:x:100:app\nstaff:x:50:www,app\naudio:x:29: app\naudio2:x:29:app\nbad:x:notnum:app\n";

fn view() -> tempfile::TempDir {
    let view = tempfile::tempdir().unwrap();
    fs::create_dir(view.path().join("etc")).unwrap();
    fs::write(view.path().join("etc/passwd"), PASSWD).unwrap();
    fs::write(view.path().join("etc/group"), GROUP).unwrap();
    view
}

fn identity(uid: u32, gid: u32, additional: &[u32], home: &str) -> Identity {
    Identity {
        uid,
        gid,
        additional: additional.to_vec(),
        home: home.into(),
    }
}

#[test]
fn users_are_found_by_name_and_by_number() {
    let view = view();
    for (user, expected) in [
        ("", identity(0, 0, &[], "/root")),
        ("root", identity(0, 0, &[], "/root")),
        ("www", identity(33, 33, &[50], "/var/www")),
        ("app", identity(1000, 100, &[29, 50], "/home/app")),
        ("1000", identity(1000, 100, &[29, 50], "/home/app")),
        ("app:", identity(1000, 100, &[29, 50], "/home/app")),
        ("app:staff", identity(1000, 50, &[], "/home/app")),
        ("app:4242", identity(1000, 4242, &[], "/home/app")),
        ("4242", identity(4242, 0, &[], "/")),
        ("4242:audio", identity(4242, 29, &[], "/")),
        ("1234", identity(77, 78, &[], "/home/digits")),
        (":staff", identity(0, 50, &[], "/root")),
        ("last", identity(5, 6, &[], "/")),
        ("2147483647", identity(2_147_483_647, 0, &[], "/")),
    ] {
        assert_eq!(resolve(view.path(), user).unwrap(), expected, "{user}");
    }
}

#[test]
fn unknown_names_and_numbers_too_large_are_refused() {
    let view = view();
    let error = |user: &str| resolve(view.path(), user).unwrap_err();
    assert!(matches!(error("nobody"), UserError::NoUser(name) if name == "nobody"));
    assert!(matches!(error("app:nogroup"), UserError::NoGroup(name) if name == "nogroup"));
    assert!(matches!(error("4294967295"), UserError::TooLarge(_)));
    assert!(matches!(error("2147483648"), UserError::TooLarge(_)));
    assert!(matches!(error("99999999999999999999"), UserError::TooLarge(_)));
    assert!(
        matches!(error("huge"), UserError::NoUser(_)),
        "an entry that cannot be used does not count"
    );
    assert!(matches!(error("-1"), UserError::NoUser(_)));
    assert!(matches!(error("a:b:c"), UserError::NoUser(_)));
}

#[test]
fn an_image_without_lists_still_has_numbers() {
    let view = tempfile::tempdir().unwrap();
    assert_eq!(resolve(view.path(), "").unwrap(), identity(0, 0, &[], "/"));
    assert_eq!(resolve(view.path(), "7:8").unwrap(), identity(7, 8, &[], "/"));
    assert!(matches!(
        resolve(view.path(), "www").unwrap_err(),
        UserError::NoUser(_)
    ));
}

/// A link out of the view, absolute or by `..`, with the link at any place of the path.
#[test]
fn a_link_never_leads_out_of_the_view() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("passwd"), "evil:x:666:666::/evil:\n").unwrap();
    let absolute = outside.path().join("passwd");
    let climbing = std::path::PathBuf::from(format!("{}{}", "../".repeat(40), absolute.display()));
    for target in [absolute, climbing] {
        let view = tempfile::tempdir().unwrap();
        fs::create_dir(view.path().join("etc")).unwrap();
        symlink(&target, view.path().join("etc/passwd")).unwrap();
        assert!(
            matches!(resolve(view.path(), "evil").unwrap_err(), UserError::NoUser(_)),
            "{}",
            target.display()
        );
    }
    let view = tempfile::tempdir().unwrap();
    symlink(outside.path(), view.path().join("etc")).unwrap();
    assert!(matches!(
        resolve(view.path(), "evil").unwrap_err(),
        UserError::NoUser(_)
    ));
}

#[test]
fn a_link_within_the_view_is_followed_as_the_container_would() {
    let view = view();
    fs::create_dir(view.path().join("nix")).unwrap();
    fs::rename(view.path().join("etc/passwd"), view.path().join("nix/passwd")).unwrap();
    symlink("/nix/passwd", view.path().join("etc/passwd")).unwrap();
    assert_eq!(resolve(view.path(), "www").unwrap().uid, 33);
    fs::remove_file(view.path().join("etc/passwd")).unwrap();
    symlink("../../../../nix/passwd", view.path().join("etc/passwd")).unwrap();
    assert_eq!(resolve(view.path(), "www").unwrap().uid, 33);
}

#[test]
fn other_files_are_not_opened_as_lists() {
    let view = view();
    let passwd = view.path().join("etc/passwd");
    fs::remove_file(&passwd).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &passwd, FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(
        matches!(resolve(view.path(), "www").unwrap_err(), UserError::NotAList(_)),
        "a fifo would block"
    );
    fs::remove_file(&passwd).unwrap();
    fs::create_dir(&passwd).unwrap();
    assert!(matches!(
        resolve(view.path(), "www").unwrap_err(),
        UserError::NotAList(_)
    ));
    fs::remove_dir(&passwd).unwrap();
    fs::File::create(&passwd)
        .unwrap()
        .set_len(LIST_LIMIT + 1)
        .unwrap();
    assert!(matches!(
        resolve(view.path(), "www").unwrap_err(),
        UserError::NotAList(_)
    ));
    fs::remove_file(&passwd).unwrap();
    symlink("passwd", &passwd).unwrap();
    assert!(
        matches!(resolve(view.path(), "www").unwrap_err(), UserError::NoUser(_)),
        "a link to itself"
    );
}

#[test]
fn invalid_utf8_spoils_only_its_entry() {
    let view = view();
    let mut list = b"caf\xe9:x:9:9::/:\n\xff\xff\xff\n".to_vec();
    list.extend_from_slice(PASSWD.as_bytes());
    fs::write(view.path().join("etc/passwd"), list).unwrap();
    assert_eq!(resolve(view.path(), "www").unwrap().uid, 33);
}

proptest::proptest! {
    #[test]
    fn no_list_and_no_name_panics(passwd in ".{0,200}", group in ".{0,200}", user in ".{0,20}") {
        let _ = find_user(&passwd, &user);
        let _ = find_group(&group, &user);
    }
}
