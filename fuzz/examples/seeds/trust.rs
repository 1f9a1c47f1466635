//! Policies, records and signatures.

use std::path::Path;

use serde_json::{Value, json};

use crate::output::{Failure, INDEX, LAYER, OCI_MANIFEST, put, put_texts};
use xebec_trust::{BoundArtifact, Listing, Original, Policy, Record, RepositoryName, bind};

pub(crate) fn trust() -> Result<(), Failure> {
    put("trust_file", "template", Policy::template().as_bytes())?;
    put(
        "trust_file",
        "all",
        b"registry-root = \"never\"\n[[key]]\nname = \"k\"\nfile = \"k.pub\"\nrepositories = [\"a/**\"]\n\
          identity = \"any\"\n[[registry]]\nprefix = \"docker.io\"\nregistry-root = \"tag\"\n",
    )?;
    let repository = RepositoryName::from_docker_reference("registry.example.com/team/app")?;
    let mut record = Record::new(LAYER, INDEX);
    record.set_proven();
    record.add_listing(Listing::new(&repository));
    put("record", "proven-and-listed", &timeless(&record)?)?;
    record.set_disproved("wrong in span 3");
    put("record", "disproved", &timeless(&record)?)?;
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{"mediaType": OCI_MANIFEST, "digest": LAYER, "size": 5,
                       "platform": {"os": "linux", "architecture": "amd64"}}], "annotations": {"a": "b"}});
    let index = index.to_string().into_bytes();
    let artifact = BoundArtifact {
        manifest: LAYER,
        artifact: INDEX,
        artifact_size: 7,
    };
    put("bound_artifact", "unbound", &index)?;
    put(
        "bound_artifact",
        "bound",
        &bind(&Original::ImageIndex(&index), &[artifact])?,
    )?;
    for (target, name, file) in [
        ("public_key", "cosign", "cosign.pub"),
        ("payload", "cosign", "payload.json"),
        ("signature_manifest", "cosign", "signature-manifest.json"),
    ] {
        put(
            target,
            name,
            &std::fs::read(Path::new("crates/trust/tests/trust/data").join(file))?,
        )?;
    }
    put_texts(
        "repository_pattern",
        &[
            "registry.example.com:5000/team/app:tag\nregistry.example.com:5000/**\n*/team/a*p\n**/x/**/y",
            "nginx\ndocker.io/library/*\nindex.docker.io/library/nginx",
        ],
    )?;
    put_texts(
        "snapshot_filter",
        &[
            "kind==committed,labels.\"containerd.io/snapshot.ref\"==sha256:ab,parent==\"\"",
            "name~=/^k[0-9]{1,2}$/,labels.n!=\"\\x41\\102\\u00e9\\U0001f600\"",
        ],
    )?;
    Ok(())
}

/// A record as bytes, with all its times the same.
fn timeless(record: &Record) -> Result<Vec<u8>, Failure> {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    if key == "at" {
                        *value = json!(1_700_000_000);
                    }
                    walk(value);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(walk),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(record)?;
    walk(&mut value);
    Ok(serde_json::to_vec(&value)?)
}
