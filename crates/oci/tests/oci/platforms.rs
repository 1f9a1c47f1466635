//! Which of an index's images fits a host.

use xebec_oci::Platform;

fn platform(text: &str) -> Platform {
    text.parse().unwrap()
}

#[test]
fn order_of_preference_is_containerds() {
    let names = |text: &str| {
        platform(text)
            .runs()
            .iter()
            .map(Platform::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(names("linux/amd64"), ["linux/amd64", "linux/386"]);
    assert_eq!(
        names("linux/amd64/v3"),
        ["linux/amd64/v3", "linux/amd64/v2", "linux/amd64", "linux/386"]
    );
    assert_eq!(
        names("linux/arm/v7"),
        ["linux/arm/v7", "linux/arm/v6", "linux/arm/v5"]
    );
    assert_eq!(
        names("linux/arm64/v8"),
        [
            "linux/arm64",
            "linux/arm/v8",
            "linux/arm/v7",
            "linux/arm/v6",
            "linux/arm/v5"
        ]
    );
    assert_eq!(names("linux/s390x"), ["linux/s390x"]);
}

#[test]
fn spellings_of_one_platform_match() {
    for (host, offered, rank) in [
        ("linux/amd64", "linux/x86_64", Some(0)),
        ("linux/amd64", "linux/amd64/v1", Some(0)),
        ("linux/amd64", "linux/amd64/v3", None),
        ("linux/arm64", "linux/arm64/v8", Some(0)),
        ("linux/arm64", "linux/aarch64", Some(0)),
        ("linux/arm/v7", "linux/arm", Some(0)),
        ("linux/arm/v6", "linux/arm/v7", None),
        ("linux/amd64", "windows/amd64", None),
        ("linux/amd64", "unknown/unknown", None),
    ] {
        assert_eq!(platform(host).rank(&platform(offered)), rank, "{host} {offered}");
    }
}

#[test]
fn refuses_what_is_no_platform() {
    for text in [
        "",
        "linux",
        "linux/",
        "/amd64",
        "a/b/c/d",
        "linux/a b",
        "linux//v7",
    ] {
        assert!(text.parse::<Platform>().is_err(), "{text}");
    }
    assert_eq!(platform("linux/arm/v7").to_string(), "linux/arm/v7");
    assert!(Platform::host().rank(&Platform::host()) == Some(0));
}
