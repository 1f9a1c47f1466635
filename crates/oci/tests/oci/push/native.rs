//! What a registry of Xebec says instead of putting a layer together.

use super::*;
use crate::support::status;

#[tokio::test]
async fn a_registry_may_be_busy() {
    let registry = FaultyRegistry::with(Options {
        native: true,
        ..Options::default()
    })
    .unwrap();
    let client = client();
    push_empty(&client, &repository(&registry)).await;
    let service = client.native_push(&repository(&registry)).unwrap();
    for (code, is_busy) in [(429, true), (503, true), (409, false), (500, false)] {
        registry.inject(When::any().path("/_xebec/push/"), status(code, Some("2")));
        let refused = service.which(Vec::new(), 1).await.unwrap_err();
        assert_eq!(refused.is_busy(), is_busy, "{refused}");
        registry.clear_faults();
    }
}
