//! Listings: in the order of bytes, in pages, each item once.

use xebec_store::*;

use crate::common::*;

#[tokio::test]
async fn tags_come_in_pages() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        assert_eq!(store.tags(&a, 10, None).await.unwrap(), None, "{}", test.engine);
        let tags: Vec<Tag> = ["B", "a", "_", "b1", "b10", "b2", "Z"].map(tag).into();
        store
            .put_manifest(&a, &manifest("one", Vec::new()), &tags)
            .await
            .unwrap();
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.tags(&a, 3, after.as_deref()).await.unwrap().unwrap();
            found.extend(page.items.iter().map(|tag| tag.name.as_str().to_owned()));
            after = found.last().cloned();
            if !page.next {
                break;
            }
        }
        // By bytes, as the specification has it, whatever the language of the database.
        assert_eq!(found, ["B", "Z", "_", "a", "b1", "b10", "b2"]);
        let none = store.tags(&a, 0, None).await.unwrap().unwrap();
        assert_eq!((none.items.len(), none.next), (0, true));
    }
}

#[tokio::test]
async fn repositories_with_content_come_in_pages() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        for repository in ["b", "a/b", "a"] {
            store
                .put_manifest(&name(repository), &manifest("one", Vec::new()), &[])
                .await
                .unwrap();
        }
        push(store, &name("a-b"), b"bytes").await.unwrap();
        store.begin_upload(&name("empty")).await.unwrap();
        let first = store.repositories(2, None).await.unwrap();
        assert_eq!(
            (first.items, first.next),
            (vec![name("a"), name("a-b")], true),
            "{}",
            test.engine
        );
        let rest = store.repositories(2, Some("a-b")).await.unwrap();
        assert_eq!((rest.items, rest.next), (vec![name("a/b"), name("b")], false));
    }
}

#[tokio::test]
async fn repositories_are_chosen_and_no_more_than_some_are_looked_at() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        for repository in ["a", "b1", "b2", "b3", "c", "d"] {
            let manifest = manifest("one", Vec::new());
            let put = store.put_manifest(&name(repository), &manifest, &[]).await;
            put.unwrap();
        }
        let choose = async |n, after, look_at, wanted: &str| {
            let is_wanted = |name: &RepositoryName| name.as_str().contains(|c| wanted.contains(c));
            let chosen = store
                .choose_repositories(n, after, look_at, is_wanted)
                .await
                .unwrap();
            let texts: Vec<String> = chosen.items.iter().map(ToString::to_string).collect();
            (texts.join(" "), chosen.next.map(|name| name.to_string()))
        };
        for (n, after, look_at, wanted, found, next) in [
            (9, None, 100, "ad", "a d", None),
            (1, None, 100, "ad", "a", Some("a")),
            // Names that are not wanted make no further page.
            (1, None, 100, "a", "a", None),
            (1, Some("a"), 100, "ad", "d", None),
            // Then it is not known, and names that were looked at are not looked at again.
            (1, None, 3, "ad", "a", Some("b2")),
            (9, None, 3, "d", "", Some("b2")),
            (9, Some("b2"), 3, "d", "d", None),
            (9, Some("b2"), 2, "d", "", Some("c")),
            (9, Some("d"), 3, "d", "", None),
            (0, None, 100, "ad", "", None),
            (9, None, 0, "d", "", Some("a")),
        ] {
            let chosen = choose(n, after, look_at, wanted).await;
            let expected = (found.to_owned(), next.map(str::to_owned));
            assert_eq!(
                chosen, expected,
                "{n} {after:?} {look_at} {wanted:?} {}",
                test.engine
            );
        }
    }
}

#[tokio::test]
async fn referrers_are_filtered_and_paged() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let subject = digest(b"a subject that is not here yet");
        for number in 0..5 {
            let kind = if number % 2 == 0 { "even" } else { "odd" };
            let new = referring(&number.to_string(), &subject, kind);
            store.put_manifest(&a, &new, &[]).await.unwrap();
            store.put_manifest(&name("b"), &new, &[]).await.unwrap();
        }
        store
            .put_manifest(&a, &referring("other", &digest(b"other"), "even"), &[])
            .await
            .unwrap();
        let all = store.referrers(&a, &subject, None, 10, None).await.unwrap();
        assert_eq!((all.items.len(), all.next), (5, false), "{}", test.engine);
        assert!(all.items.is_sorted_by(|one, other| one.digest < other.digest));
        let even = store
            .referrers(&a, &subject, Some("even"), 10, None)
            .await
            .unwrap();
        assert_eq!(even.items.len(), 3);
        assert_eq!(even.items[0].annotations.len(), 1);
        let first = store.referrers(&a, &subject, None, 3, None).await.unwrap();
        let last = &first.items[2].digest;
        let rest = store.referrers(&a, &subject, None, 3, Some(last)).await.unwrap();
        assert_eq!([first.items, rest.items].concat(), all.items);
        assert_eq!(store.manifests(&a, 10, None).await.unwrap().items.len(), 6);
    }
}

/// Annotations may be nearly as long as a manifest: a page of them must not take a thousand times that.
#[tokio::test]
async fn a_page_of_referrers_ends_where_their_annotations_are_long() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let subject = digest(b"a subject");
        for number in 0..12 {
            let mut new = referring(&number.to_string(), &subject, "long");
            let length = if number == 5 { 3_900_000 } else { 700_000 };
            new.annotations.insert("long".to_owned(), "x".repeat(length));
            store.put_manifest(&a, &new, &[]).await.unwrap();
        }
        let bare = store.bare_referrers(&a, &subject, None, 11, None).await.unwrap();
        assert_eq!((bare.items.len(), bare.next), (11, true), "{}", test.engine);
        assert!(bare.items.iter().all(|item| item.annotations.is_empty()));
        let (mut seen, mut last) = (Vec::new(), None);
        loop {
            let page = store.referrers(&a, &subject, Some("long"), 100, last.as_ref());
            let page = page.await.unwrap();
            let lengths = page.items.iter().map(|item| item.annotations["long"].len());
            let bytes: usize = lengths.sum();
            assert!(bytes < 3 << 20 || page.items.len() == 1, "{bytes}");
            seen.extend(page.items.iter().map(|item| item.digest.clone()));
            last = page.items.last().map(|item| item.digest.clone());
            if !page.next {
                break;
            }
        }
        let all = store.bare_referrers(&a, &subject, None, 100, None).await.unwrap();
        let all: Vec<_> = all.items.into_iter().map(|item| item.digest).collect();
        assert_eq!((seen.len(), seen), (12, all));
    }
}

#[tokio::test]
async fn usage_counts_what_is_shared_once() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        for repository in ["team", "team/one", "team/two", "teamwork"] {
            let repository = name(repository);
            push(store, &repository, b"shared").await.unwrap();
            push(store, &repository, repository.as_str().as_bytes())
                .await
                .unwrap();
            store
                .put_manifest(&repository, &manifest("m", vec![layer(b"shared")]), &[])
                .await
                .unwrap();
        }
        let team = store.usage("team").await.unwrap();
        assert_eq!(
            (team.bytes, team.blobs, team.manifests),
            (6 + 4 + 8 + 8 + 1, 4, 1),
            "{}",
            test.engine
        );
        assert_eq!(store.usage("team/").await.unwrap(), team);
        assert_eq!(store.usage("team/one").await.unwrap().bytes, 6 + 8 + 1);
        assert_eq!(store.usage("").await.unwrap().bytes, 6 + 4 + 8 + 8 + 8 + 1);
        assert_eq!(store.usage("nobody").await.unwrap(), Usage::default());
        // An upload that nobody has finished counts beside it, by the bytes that have come.
        let one = name("team/one");
        let upload = store.begin_upload(&one).await.unwrap();
        store
            .append(&one, &upload, None, body(&[b"12345"]))
            .await
            .unwrap();
        let begun = Usage { uploads: 5, ..team };
        assert_eq!(store.usage("team").await.unwrap(), begun, "{}", test.engine);
        assert!(store.cancel_upload(&one, &upload).await.unwrap());
        assert_eq!(store.usage("team").await.unwrap(), team);
    }
}
