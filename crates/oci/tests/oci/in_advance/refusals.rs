//! Start requests that are refused, or would be.

use super::*;

#[tokio::test]
async fn a_registry_that_refuses_what_is_there_rests() {
    let setup = setup();
    let client = acquainted(&setup).await;
    setup
        .registry
        .inject(When::any().path("/_xebec/start/answer"), status(403, None));
    let service = client.native_service(&repository(&setup.registry)).unwrap();
    let refused = service.ask(request("v1"), None).await;
    assert_eq!(refused.unwrap_err(), NoAnswers::Refused);
    assert!(client.native_service(&repository(&setup.registry)).is_some());
    service.rest();
    assert!(client.native_service(&repository(&setup.registry)).is_none());
}

#[tokio::test]
async fn a_registry_that_wants_to_be_left_alone_is_not_asked() {
    let setup = setup();
    let client = acquainted(&setup).await;
    let service = client.native_service(&repository(&setup.registry)).unwrap();
    setup
        .registry
        .inject(When::any().path("/manifests/"), status(429, Some("15")));
    let (throttled, repository) = (client.clone(), repository(&setup.registry));
    let waiting = tokio::spawn(async move { throttled.manifest(&repository, "v1", ACCEPT_IMAGE).await });
    let polls = async {
        while client.stats().retries == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), polls)
        .await
        .unwrap();
    setup.registry.clear_log();
    let not_asked = service.ask(request("v1"), None).await;
    assert_eq!(not_asked.unwrap_err(), NoAnswers::Other);
    assert!(log(&setup).is_empty());
    waiting.abort();
}

/// As after any request to it: the registry itself is asked next.
#[tokio::test]
async fn a_mirror_that_is_not_there_rests() {
    let setup = setup();
    let memory = Arc::new(Notes::default());
    let gone = "127.0.0.1:1";
    let mut config = config();
    let mirror = Mirror {
        url: format!("http://{gone}"),
        resolve_tags: true,
    };
    config.mirrors.insert(setup.registry.host(), vec![mirror]);
    let client = Client::remembering(config, memory.clone()).unwrap();
    memory.saw_native(gone, true);
    assert!(ask(&client, &setup).await.is_none());
    memory.saw_native(&setup.registry.host(), true);
    assert!(ask(&client, &setup).await.is_some());
}
