//! Parsing of the options that a user writes.

use std::path::Path;

use proptest::prelude::*;

use super::super::*;

/// A `--volume` of a user whose directory is `/home/me`, in short.
fn volume(text: &str) -> Result<String, String> {
    let volume = Volume::read(text, Path::new("/home/me")).map_err(|error| error.to_string())?;
    Ok(short(&volume))
}

fn mount(text: &str) -> Result<String, String> {
    match Mount::read(text, Path::new("/home/me")).map_err(|error| error.to_string())? {
        Mount::Volume(volume) => Ok(short(&volume)),
        Mount::Tmpfs(tmpfs) => Ok(tmpfs.to_json().to_string()),
    }
}

fn short(volume: &Volume) -> String {
    let source = match &volume.source {
        Source::Host { path, create } => format!("{}{}", path.display(), if *create { "" } else { "!" }),
        Source::Named(name) => format!("volume {name}"),
        Source::Anonymous => "anonymous".to_owned(),
    };
    let mut words = vec![source, volume.target.display().to_string()];
    if volume.read_only {
        words.push("ro".to_owned());
    }
    if volume.submounts != Submounts::Follow {
        words.push(format!("{:?}", volume.submounts));
    }
    if volume.propagation != Propagation::RPrivate {
        words.push(format!("{:?}", volume.propagation));
    }
    words.extend(volume.relabel.map(|one| format!("{one:?}")));
    if !volume.copies {
        words.push("nocopy".to_owned());
    }
    words.extend(
        volume
            .labels
            .iter()
            .map(|(name, value)| format!("{name}:{value}")),
    );
    words.join(" ")
}

/// Examples of docker's documentation (`docker run`, bind mounts, volumes), and what they mean there.
const VOLUMES: &[(&str, &str)] = &[
    ("/doesnt/exist:/foo", "/doesnt/exist /foo"),
    ("/proc:/host/proc:ro", "/proc /host/proc ro"),
    ("./target:/app", "/home/me/target /app"),
    ("../target:/app:rw", "/home/target /app"),
    (".:/app", "/home/me /app"),
    ("..:/app", "/home /app"),
    (".hidden:/app", "/home/me/.hidden /app"),
    ("myvol2:/app", "volume myvol2 /app"),
    (
        "nginx-vol:/usr/share/nginx/html:ro",
        "volume nginx-vol /usr/share/nginx/html ro",
    ),
    ("data:/data:nocopy", "volume data /data nocopy"),
    ("data:/data:ro,z", "volume data /data ro Shared"),
    ("/dbdata", "anonymous /dbdata"),
    ("/foo/bar/", "anonymous /foo/bar"),
    ("/a:/b:Z", "/a /b Private"),
    ("/a:/b:z,ro,rslave", "/a /b ro RSlave Shared"),
    ("/a:/b:shared", "/a /b Shared"),
    ("/a:/b:cached", "/a /b"),
    ("/a//b/../c:/d/./e/", "/a/c /d/e"),
];

/// Values that docker refuses, with a word of the reason.
const WRONG_VOLUMES: &[(&str, &str)] = &[
    ("", "absolute"),
    ("data", "absolute"),
    ("/", "root"),
    ("/a:/", "root"),
    ("/a:b", "absolute"),
    (":/b", "source is empty"),
    ("/a:", "absolute"),
    ("/a:ro", "no options"),
    ("/a:/b:", "empty"),
    ("/a:/b:ro,rw", "one of ro and rw"),
    ("/a:/b:z,Z", "one of z and Z"),
    ("/a:/b:shared,slave", "one propagation"),
    ("/a:/b:U", "podman"),
    ("/a:/b:bind", "not an option"),
    ("/a:/b:nocopy", "for volumes"),
    ("data:/b:rslave", "no propagation"),
    ("/a:/b:ro:x", "colon"),
    ("a/b:/c", "./a/b"),
    ("~/x:/c", "$HOME"),
    ("-x:/c", "cannot name a volume"),
    ("a b:/c", "cannot name a volume"),
    ("é:/c", "cannot name a volume"),
];

/// Examples of docker's documentation, and what they mean there.
const MOUNTS: &[(&str, &str)] = &[
    ("type=bind,source=/target,target=/app", "/target! /app nothing"),
    (
        "type=bind,src=./target,dst=/app,readonly",
        "/home/me/target! /app ro",
    ),
    ("type=bind,source=/t,destination=/app,ro=false", "/t! /app"),
    ("TYPE=bind,Source=/t,target=/app,readonly=1", "/t! /app ro"),
    (
        "type=bind,source=/t,target=/app,bind-propagation=rslave",
        "/t! /app RSlave",
    ),
    (
        "type=bind,source=/t,target=/app,readonly,bind-recursive=writable",
        "/t! /app ro Writable",
    ),
    (
        "type=bind,source=/t,target=/app,bind-nonrecursive",
        "/t! /app Hidden",
    ),
    ("type=bind,source=/t,target=/app,bind-create-src", "/t /app"),
    ("type=bind,source=/t,target=/app,consistency=cached", "/t! /app"),
    ("source=myvol2,target=/app", "volume myvol2 /app"),
    (
        "type=volume,src=myvolume,dst=/data,ro",
        "volume myvolume /data ro",
    ),
    ("type=volume,target=/icanwrite", "anonymous /icanwrite"),
    ("type=volume,src=v,dst=/d,volume-nocopy", "volume v /d nocopy"),
    ("type=volume,src=v,dst=/d,volume-driver=local", "volume v /d"),
    (
        "type=volume,src=v,dst=/d,volume-label=a=b,volume-label=c",
        "volume v /d a:b c:",
    ),
    (r#"type=bind,"source=/a,b",target=/app"#, "/a,b! /app"),
    (
        r#"type=bind,"source=/say ""hi""",target=/app"#,
        r#"/say "hi"! /app"#,
    ),
    ("type=bind,source=/a:b,target=/c:d", "/a:b! /c:d"),
];

/// Values that docker refuses, with the key that is wrong and a word of the reason.
const WRONG_MOUNTS: &[(&str, &str, &str)] = &[
    ("", "", "empty"),
    ("type=bind,target=/a", "source", "needs it"),
    ("type=bind,source=/a", "target", "missing"),
    ("type=bind,source=a,target=/a", "source", "./"),
    ("type=bind,source=/a,target=a", "target", "absolute"),
    ("type=bind,source=/a,target=/", "target", "root"),
    ("type=bind,source=,target=/a", "source", "needs a value"),
    ("type=bind,source,target=/a", "source", "needs a value"),
    (
        "type=bind,source=/a,target=/a,readonly=maybe",
        "readonly",
        "true or false",
    ),
    (
        "type=bind,source=/a,target=/a,volume-nocopy",
        "volume-nocopy",
        "type=volume",
    ),
    (
        "type=bind,source=/a,target=/a,bind-propagation=x",
        "bind-propagation",
        "rslave",
    ),
    (
        "type=bind,source=/a,target=/a,bind-recursive=x",
        "bind-recursive",
        "writable",
    ),
    ("source=/a,target=/b", "source", "type=bind"),
    ("source=a b,target=/b", "source", "cannot name"),
    ("type=tmpfs,source=/a,target=/b", "source", "has none"),
    ("type=tmpfs,target=/b,tmpfs-size=x", "tmpfs", "size"),
    (
        "type=tmpfs,target=/b,bind-recursive=enabled",
        "bind-recursive",
        "type=bind",
    ),
    ("type=image,source=debian,target=/b", "type", "xebec mount"),
    ("type=npipe,source=a,target=/b", "type", "bind, volume or tmpfs"),
    (
        "source=a,target=/b,volume-driver=nfs",
        "volume-driver",
        "type=bind",
    ),
    ("source=a,target=/b,volume-opt=o=bind", "volume-opt", "type=bind"),
    (
        "source=a,target=/b,volume-subpath=x",
        "volume-subpath",
        "another volume",
    ),
    ("source=a,target=/b,color=red", "color", "no such key"),
    (r#"source="a,target=/b"#, "quotes", "quote"),
];

#[test]
fn volumes_are_read_as_docker_reads_them() {
    for (text, expected) in VOLUMES {
        assert_eq!(volume(text).as_deref(), Ok(*expected), "{text}");
    }
    for (text, word) in WRONG_VOLUMES {
        let error = volume(text).expect_err(text);
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn mounts_are_read_as_docker_reads_them() {
    for (text, expected) in MOUNTS {
        let expected = expected.trim_end_matches(" nothing");
        assert_eq!(mount(text).as_deref(), Ok(expected), "{text}");
    }
    let tmpfs = mount("type=tmpfs,destination=/app,tmpfs-mode=1770,tmpfs-size=64m,readonly").unwrap();
    assert_eq!(
        tmpfs,
        r#"{"destination":"/app","options":["noexec","nosuid","nodev","mode=1770","size=64m","ro"],"source":"tmpfs","type":"tmpfs"}"#
    );
    for (text, key, word) in WRONG_MOUNTS {
        let error = mount(text).expect_err(text);
        assert!(
            error.contains(&format!(": {key}: ")) && error.contains(word),
            "{text}: {error}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = volume(&text);
        let _ = mount(&text);
    }

    #[test]
    fn a_target_never_leads_up(source in "[a-z./]{0,12}", target in "[a-z./]{0,12}", options in "[a-zA-Z,]{0,8}") {
        for text in [format!("{source}:{target}"), format!("{source}:{target}:{options}"), target] {
            let Ok(volume) = Volume::read(&text, Path::new("/home/me")) else { continue };
            let is_plain = |path: &Path| path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..");
            prop_assert!(is_plain(&volume.target) && volume.target != Path::new("/"));
            if let Source::Host { path, .. } = &volume.source {
                prop_assert!(is_plain(path));
            }
        }
    }
}
