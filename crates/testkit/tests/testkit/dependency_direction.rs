//! Crates are layers: what may depend on what is written down here, and anything else fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The crates that each crate of the product may use, directly.
const ALLOWED: &[(&str, &[&str])] = &[
    ("xebec-format", &[]),
    ("xebec-kernel", &[]),
    ("xebec-trust", &["xebec-format", "xebec-kernel"]),
    ("xebec-native", &["xebec-format"]),
    ("xebec-prediction", &["xebec-format"]),
    ("xebec-network", &["xebec-kernel"]),
    ("xebec-confinement", &["xebec-kernel"]),
    ("xebec-container-log", &["xebec-kernel"]),
    ("xebec-copy", &["xebec-kernel"]),
    ("xebec-commit", &["xebec-format", "xebec-kernel"]),
    ("xebec-probe", &[]),
    ("xebec-bitstream", &[]),
    ("xebec-deflate", &["xebec-bitstream"]),
    ("xebec-zstd-frames", &["xebec-bitstream"]),
    (
        "xebec-recompress",
        &["xebec-bitstream", "xebec-deflate", "xebec-zstd-frames"],
    ),
    ("xebec-recipe", &[]),
    (
        "xebec-assembly",
        &["xebec-native", "xebec-recipe", "xebec-recompress"],
    ),
    ("xebec-placement", &[]),
    ("xebec-volume", &["xebec-kernel"]),
    (
        "xebec-container",
        &[
            "xebec-kernel",
            "xebec-probe",
            "xebec-network",
            "xebec-volume",
            "xebec-container-log",
            "xebec-confinement",
        ],
    ),
    ("xebec-snapshotter", &["xebec-kernel"]),
    ("xebec-oci", &["xebec-format", "xebec-kernel", "xebec-native"]),
    ("xebec-index", &["xebec-format", "xebec-kernel"]),
    ("xebec-cache", &["xebec-format", "xebec-kernel", "xebec-index"]),
    (
        "xebec-artifact",
        &["xebec-format", "xebec-trust", "xebec-oci", "xebec-index"],
    ),
    ("xebec-settings", &["xebec-kernel"]),
    ("xebec-access", &["xebec-kernel", "xebec-settings"]),
    (
        "xebec-events",
        &["xebec-kernel", "xebec-settings", "xebec-access"],
    ),
    ("xebec-objects", &["xebec-kernel"]),
    ("xebec-names", &["xebec-kernel"]),
    ("xebec-sessions", &["xebec-names", "xebec-objects"]),
    ("xebec-requests", &["xebec-names", "xebec-objects"]),
    (
        "xebec-model",
        &["xebec-names", "xebec-objects", "xebec-placement"],
    ),
    (
        "xebec-database",
        &["xebec-names", "xebec-objects", "xebec-placement"],
    ),
    (
        "xebec-store",
        &[
            "xebec-database",
            "xebec-kernel",
            "xebec-model",
            "xebec-names",
            "xebec-objects",
            "xebec-placement",
            "xebec-sessions",
        ],
    ),
    (
        "xebec-dedup",
        &[
            "xebec-kernel",
            "xebec-placement",
            "xebec-recipe",
            "xebec-recompress",
            "xebec-store",
        ],
    ),
    (
        "xebec-policy",
        &["xebec-placement", "xebec-settings", "xebec-store"],
    ),
    (
        "xebec-replication",
        &["xebec-kernel", "xebec-placement", "xebec-policy", "xebec-store"],
    ),
    (
        "xebec-upstream",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-oci",
            "xebec-settings",
            "xebec-store",
        ],
    ),
    (
        "xebec-transfer",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-oci",
            "xebec-settings",
            "xebec-store",
            "xebec-upstream",
        ],
    ),
    (
        "xebec-indexing",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-oci",
            "xebec-index",
            "xebec-artifact",
            "xebec-events",
            "xebec-prediction",
            "xebec-store",
            "xebec-upstream",
        ],
    ),
    (
        "xebec-registry-server",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-native",
            "xebec-oci",
            "xebec-artifact",
            "xebec-assembly",
            "xebec-indexing",
            "xebec-settings",
            "xebec-access",
            "xebec-dedup",
            "xebec-events",
            "xebec-placement",
            "xebec-policy",
            "xebec-recipe",
            "xebec-replication",
            "xebec-requests",
            "xebec-store",
            "xebec-transfer",
            "xebec-upstream",
        ],
    ),
    (
        "xebec-registry",
        &[
            "xebec-kernel",
            "xebec-oci",
            "xebec-settings",
            "xebec-access",
            "xebec-events",
            "xebec-indexing",
            "xebec-placement",
            "xebec-policy",
            "xebec-replication",
            "xebec-store",
            "xebec-transfer",
            "xebec-upstream",
            "xebec-registry-server",
        ],
    ),
    (
        "xebec-protocol",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-container",
            "xebec-oci",
            "xebec-cache",
        ],
    ),
    ("xebec-keeper", &["xebec-kernel", "xebec-protocol"]),
    (
        "xebec-images",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-container",
            "xebec-native",
            "xebec-oci",
            "xebec-index",
            "xebec-cache",
            "xebec-assembly",
            "xebec-commit",
            "xebec-protocol",
            "xebec-recipe",
            "xebec-artifact",
        ],
    ),
    (
        "xebec-engines",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-snapshotter",
            "xebec-oci",
            "xebec-protocol",
            "xebec-images",
        ],
    ),
    (
        "xebec-fill",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-container",
            "xebec-cache",
            "xebec-protocol",
            "xebec-keeper",
            "xebec-images",
        ],
    ),
    (
        "xebec-views",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-container",
            "xebec-snapshotter",
            "xebec-oci",
            "xebec-cache",
            "xebec-protocol",
            "xebec-images",
            "xebec-fill",
        ],
    ),
    (
        "xebec-recordings",
        &[
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-container",
            "xebec-oci",
            "xebec-cache",
            "xebec-protocol",
            "xebec-keeper",
            "xebec-images",
            "xebec-fill",
            "xebec-views",
            "xebec-artifact",
        ],
    ),
    (
        "xebec-daemon",
        &[
            "xebec-engines",
            "xebec-format",
            "xebec-kernel",
            "xebec-trust",
            "xebec-container",
            "xebec-snapshotter",
            "xebec-oci",
            "xebec-cache",
            "xebec-protocol",
            "xebec-keeper",
            "xebec-images",
            "xebec-fill",
            "xebec-views",
            "xebec-recordings",
        ],
    ),
    (
        "xebec-install",
        &[
            "xebec-engines",
            "xebec-format",
            "xebec-kernel",
            "xebec-protocol",
            "xebec-keeper",
        ],
    ),
    (
        "xebec-picture",
        &["xebec-format", "xebec-kernel", "xebec-recordings"],
    ),
    (
        "xebec-cli",
        &[
            "xebec-engines",
            "xebec-format",
            "xebec-kernel",
            "xebec-network",
            "xebec-trust",
            "xebec-container",
            "xebec-oci",
            "xebec-protocol",
            "xebec-keeper",
            "xebec-images",
            "xebec-fill",
            "xebec-views",
            "xebec-recordings",
            "xebec-daemon",
            "xebec-install",
            "xebec-volume",
            "xebec-copy",
            "xebec-commit",
            "xebec-picture",
            "xebec-container-log",
            "xebec-confinement",
        ],
    ),
];
/// Crates for tests only; none of the product may use them, except in its own tests.
const FOR_TESTS: &[(&str, &[&str])] = &[
    ("xebec-testkit", &["xebec-format", "xebec-kernel", "xebec-cache"]),
    ("xebec-e2e", &["xebec-format", "xebec-kernel", "xebec-testkit"]),
    (
        "xebec-fuzz",
        &[
            "xebec-access",
            "xebec-artifact",
            "xebec-cache",
            "xebec-confinement",
            "xebec-container",
            "xebec-container-log",
            "xebec-copy",
            "xebec-format",
            "xebec-index",
            "xebec-kernel",
            "xebec-native",
            "xebec-network",
            "xebec-oci",
            "xebec-placement",
            "xebec-policy",
            "xebec-protocol",
            "xebec-recipe",
            "xebec-recompress",
            "xebec-registry-server",
            "xebec-settings",
            "xebec-snapshotter",
            "xebec-trust",
            "xebec-upstream",
            "xebec-volume",
            "xebec-zstd-frames",
        ],
    ),
];
/// How many lines of Rust a crate's `src` has at most, unit tests among them: a larger one has more than one purpose.
const MOST_LINES: usize = 12_000;
/// The end-to-end cases: a file each, and as many as are needed.
const MAY_BE_LARGE: &str = "xebec-e2e";
/// The one crate in which `unsafe` is allowed.
const MAY_BE_UNSAFE: &str = "xebec-kernel";

struct Package {
    manifest: String,
    /// The crates that it uses, tests aside.
    uses: BTreeSet<String>,
}

/// The workspace's packages, as cargo itself sees them.
fn packages() -> BTreeMap<String, Package> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--locked",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        // Tests may use anything; their kind is "dev".
        let product = dependencies.filter(|dependency| dependency["kind"] != "dev");
        let uses = product
            .map(|dependency| text(&dependency["name"]))
            .filter(|name| name.starts_with("xebec"));
        let package_uses = Package {
            manifest: text(&package["manifest_path"]),
            uses: uses.collect(),
        };
        (text(&package["name"]), package_uses)
    });
    packages.collect()
}

#[test]
fn dependencies_point_one_way() {
    let packages = packages();
    let known: BTreeMap<&str, &[&str]> = ALLOWED.iter().chain(FOR_TESTS).copied().collect();
    for (name, package) in &packages {
        let allowed = known.get(name.as_str());
        let allowed = allowed.unwrap_or_else(|| panic!("{name} is new: say here what it may depend on"));
        for used in &package.uses {
            assert!(
                allowed.contains(&used.as_str()),
                "{name} must not depend on {used}"
            );
        }
    }
    for name in known.keys() {
        assert!(
            packages.contains_key(*name),
            "{name} is gone: take it out of the table"
        );
    }
}

#[test]
fn the_table_itself_has_no_circles() {
    let mut below = BTreeSet::new();
    for (name, uses) in ALLOWED.iter().chain(FOR_TESTS) {
        for used in *uses {
            assert!(
                below.contains(used),
                "{name} stands above {used}, which comes later in the table"
            );
        }
        below.insert(*name);
    }
}

#[test]
fn unsafe_code_is_allowed_in_one_crate_only() {
    for (name, package) in packages() {
        let manifest = std::fs::read_to_string(&package.manifest).unwrap();
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert_eq!(
            inherits,
            name != MAY_BE_UNSAFE,
            "{name}: lints of the workspace forbid unsafe code"
        );
    }
}

fn lines_below(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap();
    let lines = entries.map(|entry| {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => lines_below(&path),
            Some(extension) if extension == "rs" => fs::read_to_string(&path).unwrap().lines().count(),
            _ => 0,
        }
    });
    lines.sum()
}

#[test]
fn no_crate_is_too_large_for_one_purpose() {
    let mut too_large = Vec::new();
    for (name, package) in packages() {
        let lines = lines_below(&Path::new(&package.manifest).with_file_name("src"));
        assert!(lines > 0, "the sources of {name} are not where they were");
        if lines > MOST_LINES && name != MAY_BE_LARGE {
            too_large.push(format!("{name} has {lines} lines"));
        }
    }
    assert!(
        too_large.is_empty(),
        "{too_large:?}, and a crate has {MOST_LINES} at most: cut it by purpose"
    );
}
