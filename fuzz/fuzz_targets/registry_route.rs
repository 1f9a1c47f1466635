//! A path that is accepted leads to an endpoint whose names hold nothing that could leave their directory, end a line or a header.
#![no_main]

use xebec_registry_server::route::Route;

libfuzzer_sys::fuzz_target!(|path: &str| {
    for path in [path.to_owned(), format!("/v2/{path}")] {
        let Ok(route) = Route::parse(&path) else {
            continue;
        };
        assert!(route.allows("GET") || route.allows("POST"));
        let repository = match &route {
            Route::Tags(repository)
            | Route::Manifest(repository, _)
            | Route::Blob(repository, _)
            | Route::Uploads(repository)
            | Route::Upload(repository, _)
            | Route::Referrers(repository, _) => repository.to_string(),
            _ => continue,
        };
        assert!(!repository.is_empty() && repository.len() <= 255);
        assert!(repository.split('/').all(|part| !matches!(part, "" | "." | "..")));
        assert!(
            repository
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'\\' | b':'))
        );
        if let Route::Manifest(_, reference) = &route {
            let shown = reference.to_string();
            assert!(!shown.contains('/') && !shown.starts_with('.'), "{shown}");
            assert_eq!(
                Route::parse(&format!("/v2/{repository}/manifests/{shown}")),
                Ok(route)
            );
        }
    }
});
