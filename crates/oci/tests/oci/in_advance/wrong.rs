//! Answers that are not what they say, or lack something.

use xebec_format::digest::Digest;
use xebec_oci::Reference;
use xebec_oci::media_type::ACCEPT_IMAGE;

use super::{acquainted, ask, log, request, setup, start};
use crate::support::{NAME, amd64, noise, repository};

/// Each lie is found out where it would be found out in a plain answer.
#[tokio::test]
async fn what_is_wrong_is_asked_for_by_itself() {
    for (kind, asked) in [
        ("manifest", vec!["GET manifests", "GET manifests"]),
        ("referrers", vec!["GET referrers"]),
        ("blob", vec!["GET blobs", "GET blobs"]),
    ] {
        let setup = setup();
        let client = acquainted(&setup).await;
        setup.registry.lie_in_advance(kind);
        let by_digest = request(&setup.manifest.to_string());
        let service = client.native_service(&repository(&setup.registry)).unwrap();
        let answered = service.ask(by_digest, None).await.unwrap();
        let exactly: Reference = format!("{}/{NAME}@{}", setup.registry.host(), setup.manifest)
            .parse()
            .unwrap();
        let resolved = answered.resolve(&exactly, &amd64()).await.unwrap();
        assert_eq!(resolved.manifest_digest, setup.manifest);
        let repository = repository(&setup.registry);
        let referrers = answered
            .referrers(&repository, &setup.manifest, None)
            .await
            .unwrap();
        assert_eq!(referrers[0].digest, setup.artifact);
        let name = setup.artifact.to_string();
        answered.manifest(&repository, &name, ACCEPT_IMAGE).await.unwrap();
        let blob = answered.blob(&repository, &setup.blob, 1 << 20).await.unwrap();
        assert_eq!(blob, noise(5000));
        assert_eq!(log(&setup), [vec!["POST start"], asked].concat(), "{kind}");
    }
}

#[tokio::test]
async fn what_is_left_out_is_asked_for_at_once() {
    let setup = setup();
    let client = acquainted(&setup).await;
    setup.registry.leave_out_in_advance("referrers");
    setup.registry.leave_out_in_advance("pieces");
    let answered = ask(&client, &setup).await.unwrap();
    start(&answered, &setup).await;
    assert_eq!(log(&setup), ["POST start", "GET referrers"]);
    let layer = Digest::of(&setup.layer);
    assert!(
        answered
            .pieces_in_advance(&repository(&setup.registry), &[layer])
            .is_none()
    );
}
