//! The contents of pages, found in the store. The cost of a page is bounded: names, tags, manifests and referrers are read up to a number.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use xebec_artifact::artifact::Artifact;
use xebec_artifact::own_table::has_table_of_contents;
use xebec_artifact::recording::{PREDICTED_FROM, RUNTIME_IMAGE_TYPE};
use xebec_oci::{Descriptor, ImageManifest, Index, Manifest};
use xebec_store::{Digest, Manifest as Stored, RepositoryName, Result, Store, TagRecord};
use xebec_trust::ARTIFACT_TYPE;

use super::platform::platform;
use super::view::{Image, Laziness, Part, Referrer, Repositories, Repository, RepositoryRow, TagRow};
use super::{MOST_TAGS, ROWS};

/// Tags that are looked at in one step of a search.
const STEP: usize = 1000;
/// Rows of a page that are gathered at the same time.
const ROWS_AT_ONCE: usize = 8;
/// Tags that one page's search looks at.
const LOOKED_AT: usize = 20_000;
/// Layers of an image, or images of an index, that are shown. No image that runs has as many layers.
const PARTS: usize = 500;
/// Images of an index that are looked at.
const IMAGES: usize = 8;
/// Artifacts with indexes that are looked at for one image.
const ARTIFACTS: usize = 16;

/// Where a repository is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The name by which the client reaches this registry.
    pub host: &'a str,
    /// The registry that its images come from, if they come through.
    pub upstream: Option<&'a str>,
}

/// The repositories after one whose names contain `search` and that `may_read` lets through, and after which name to look for more, which
/// is for the caller to tell. Of all names, `look_at` are looked at.
///
/// # Errors
/// When the records cannot be read.
pub async fn repositories(
    store: &Store,
    search: &str,
    after: Option<&str>,
    look_at: usize,
    may_read: impl Fn(&str) -> bool,
) -> Result<(Repositories, Option<RepositoryName>)> {
    let wanted = search.to_lowercase();
    let is_wanted = |name: &RepositoryName| name.as_str().contains(&wanted) && may_read(name.as_str());
    let chosen = store.choose_repositories(ROWS, after, look_at, is_wanted).await?;
    let mut view = Repositories {
        search: search.to_owned(),
        ..Repositories::default()
    };
    for name in &chosen.items {
        view.rows.push(row(store, name).await?);
    }
    Ok((view, chosen.next))
}

async fn row(store: &Store, name: &RepositoryName) -> Result<RepositoryRow> {
    let (tags, updated) = store.tag_summary(name, MOST_TAGS).await?;
    let tags = usize::try_from(tags).unwrap_or(MOST_TAGS);
    Ok(RepositoryRow {
        name: name.to_string(),
        tags,
        // Of a part of them it would be wrong.
        updated_ms: updated.filter(|_| tags < MOST_TAGS),
    })
}

/// The tags of a repository that contain `search`. `None` when there is no such repository.
///
/// # Errors
/// When the records cannot be read.
pub async fn repository(
    store: &Store,
    place: Place<'_>,
    name: &RepositoryName,
    search: &str,
    after: Option<&str>,
) -> Result<Option<Repository>> {
    let Some((tags, next)) = tags_with(store, name, search, after).await? else {
        return Ok(None);
    };
    let mut rows = Vec::with_capacity(tags.len());
    for some in tags.chunks(ROWS_AT_ONCE) {
        rows.extend(try_join_all(some.iter().map(|tag| tag_row(store, name, tag))).await?);
    }
    Ok(Some(Repository {
        host: place.host.to_owned(),
        upstream: place.upstream.map(str::to_owned),
        name: name.to_string(),
        search: search.to_owned(),
        tags: rows,
        next,
        space: store.repository_space(name).await?,
    }))
}

/// Tags that contain `search`, and the one after which to look for more.
async fn tags_with(
    store: &Store,
    name: &RepositoryName,
    search: &str,
    after: Option<&str>,
) -> Result<Option<(Vec<TagRecord>, Option<String>)>> {
    let wanted = search.to_lowercase();
    let step = if search.is_empty() { ROWS } else { STEP };
    let (mut found, mut last) = (Vec::new(), after.map(str::to_owned));
    for _ in 0..LOOKED_AT / STEP {
        let Some(page) = store.tags(name, step, last.as_deref()).await? else {
            return Ok(None);
        };
        for tag in page.items {
            let text = tag.name.to_string();
            let is_wanted = text.to_lowercase().contains(&wanted);
            if is_wanted && found.len() == ROWS {
                return Ok(Some((found, last)));
            }
            last = Some(text);
            found.extend(is_wanted.then_some(tag));
        }
        if !page.next {
            return Ok(Some((found, None)));
        }
        if found.len() == ROWS {
            break;
        }
    }
    Ok(Some((found, last)))
}

async fn tag_row(store: &Store, name: &RepositoryName, tag: &TagRecord) -> Result<TagRow> {
    let stored = store.manifest(name, &tag.digest).await?;
    let manifest = stored.as_ref().and_then(parsed);
    let (platforms, size) = match &manifest {
        Some(Manifest::Index(index)) => (index.platforms(), None),
        Some(Manifest::Image(image)) => (
            Vec::from_iter(platform(store, name, image).await?),
            Some(size(image)),
        ),
        None => (Vec::new(), None),
    };
    Ok(TagRow {
        tag: tag.name.to_string(),
        digest: tag.digest.to_string(),
        platforms,
        size,
        updated_ms: tag.updated,
        laziness: laziness(store, name, &tag.digest, manifest.as_ref()).await?,
    })
}

/// A manifest. `None` when the repository has it not.
///
/// # Errors
/// When the records cannot be read.
pub async fn image(
    store: &Store,
    place: Place<'_>,
    name: &RepositoryName,
    digest: &Digest,
) -> Result<Option<Image>> {
    let Some(stored) = store.manifest(name, digest).await? else {
        return Ok(None);
    };
    let manifest = parsed(&stored);
    let of_image = match &manifest {
        Some(Manifest::Image(image)) => platform(store, name, image).await?,
        _ => None,
    };
    let is_any_image = manifest.as_ref().is_some_and(is_image);
    let indexed = indexed_layers(store, name, digest).await?;
    let parts = match &manifest {
        Some(Manifest::Image(image)) => image
            .layers
            .iter()
            .take(PARTS)
            .map(|layer| part_of(layer, is_any_image.then_some(&indexed)))
            .collect(),
        Some(Manifest::Index(index)) => images_of(index),
        None => Vec::new(),
    };
    let more_parts = match &manifest {
        Some(Manifest::Image(image)) => image.layers.len() - parts.len(),
        Some(Manifest::Index(index)) => index.manifests.len() - parts.len(),
        None => 0,
    };
    let tags = store.tags_of(name, digest, ROWS).await?.into_iter();
    Ok(Some(Image {
        host: place.host.to_owned(),
        upstream: place.upstream.map(str::to_owned),
        repository: name.to_string(),
        digest: digest.to_string(),
        media_type: stored.media_type.clone(),
        tags: tags.map(|tag| tag.name.to_string()).collect(),
        platform: of_image,
        artifact_type: stored.artifact_type.clone().filter(|_| !is_any_image),
        subject: stored.subject.as_ref().map(ToString::to_string),
        parts,
        more_parts,
        referrers: referrers(store, name, digest).await?,
        laziness: laziness(store, name, digest, manifest.as_ref()).await?,
    }))
}

/// What refers to a manifest.
async fn referrers(store: &Store, name: &RepositoryName, digest: &Digest) -> Result<Vec<Referrer>> {
    let all = store.bare_referrers(name, digest, None, ROWS, None).await?.items;
    let recordings = store.referrers(name, digest, Some(RUNTIME_IMAGE_TYPE), ROWS, None);
    let recordings = recordings.await?.items.into_iter();
    let predicted = recordings.filter(|item| item.annotations.contains_key(PREDICTED_FROM));
    let predicted: BTreeSet<Digest> = predicted.map(|item| item.digest).collect();
    let shown = all.into_iter().map(|referrer| {
        let artifact_type = referrer.artifact_type.unwrap_or_default();
        let kind = match predicted.contains(&referrer.digest) {
            true => "recording of starts, predicted",
            false => kind(&artifact_type),
        };
        Referrer {
            digest: referrer.digest.to_string(),
            kind: kind.to_owned(),
            artifact_type,
            size: referrer.size,
        }
    });
    Ok(shown.collect())
}

/// A manifest that is an image or an index of images by digests of SHA-256.
fn parsed(stored: &Stored) -> Option<Manifest> {
    Manifest::parse(&stored.content, Some(&stored.media_type)).ok()
}

fn size(image: &ImageManifest) -> u64 {
    image
        .layers
        .iter()
        .map(|layer| layer.size)
        .fold(0, u64::saturating_add)
}

/// A layer, by the indexes of an image's layers, or a part of an artifact, which has none.
fn part_of(layer: &Descriptor, indexed: Option<&BTreeSet<String>>) -> Part {
    let digest = layer.digest.to_string();
    let remark = match indexed {
        None => "",
        Some(indexed) if indexed.contains(&digest) => "indexed",
        Some(_) if has_table_of_contents(layer) => "has a table of contents",
        Some(_) => "not indexed",
    };
    Part {
        remark: remark.to_owned(),
        digest,
        media_type: layer.media_type.clone(),
        size: layer.size,
        is_manifest: false,
    }
}

fn images_of(index: &Index) -> Vec<Part> {
    let images = index.manifests.iter().take(PARTS).map(|descriptor| Part {
        digest: descriptor.digest.to_string(),
        media_type: descriptor.media_type.clone(),
        size: descriptor.size,
        remark: descriptor
            .platform
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        is_manifest: true,
    });
    images.collect()
}

/// Whether a manifest's image is lazy, or which of an index's images that are here.
async fn laziness(
    store: &Store,
    name: &RepositoryName,
    digest: &Digest,
    manifest: Option<&Manifest>,
) -> Result<Laziness> {
    let Some(Manifest::Index(index)) = manifest else {
        return image_laziness(store, name, digest, manifest).await;
    };
    let (mut lazy, mut images) = (0, 0);
    for listed in index.manifests.iter().take(IMAGES) {
        let Ok(digest) = listed.digest.to_string().parse() else {
            continue;
        };
        let stored = store.manifest(name, &digest).await?;
        let manifest = stored.as_ref().and_then(parsed);
        let found = image_laziness(store, name, &digest, manifest.as_ref()).await?;
        images += usize::from(found != Laziness::DoesNotApply);
        lazy += usize::from(found == Laziness::Lazy);
    }
    Ok(match lazy {
        _ if images == 0 => Laziness::DoesNotApply,
        lazy if lazy == images => Laziness::Lazy,
        lazy => Laziness::Some { lazy, images },
    })
}

/// Whether an image is lazy.
async fn image_laziness(
    store: &Store,
    name: &RepositoryName,
    digest: &Digest,
    manifest: Option<&Manifest>,
) -> Result<Laziness> {
    let Some(Manifest::Image(image)) = manifest.filter(|manifest| is_image(manifest)) else {
        return Ok(Laziness::DoesNotApply);
    };
    let found = indexed_layers(store, name, digest).await?;
    let is_indexed =
        |layer: &&Descriptor| found.contains(&layer.digest.to_string()) || has_table_of_contents(layer);
    let (layers, indexed) = (image.layers.len(), image.layers.iter().filter(is_indexed).count());
    Ok(match indexed {
        0 if layers > 0 => Laziness::Not,
        some if some < layers => Laziness::Partly { indexed, layers },
        _ => Laziness::Lazy,
    })
}

fn is_image(manifest: &Manifest) -> bool {
    matches!(manifest, Manifest::Image(image) if image.is_image())
}

/// The layers of an image that an artifact of indexes lists.
async fn indexed_layers(store: &Store, name: &RepositoryName, digest: &Digest) -> Result<BTreeSet<String>> {
    let mut layers = BTreeSet::new();
    let Ok(subject) = digest.to_string().parse() else {
        return Ok(layers);
    };
    let page = store
        .bare_referrers(name, digest, Some(ARTIFACT_TYPE), ARTIFACTS, None)
        .await?;
    for referrer in &page.items {
        let stored = store.manifest(name, &referrer.digest).await?;
        let artifact = stored.as_ref().and_then(parsed);
        let artifact = artifact.and_then(|manifest| Artifact::decode(manifest, subject).ok());
        layers.extend(
            artifact
                .iter()
                .flat_map(|artifact| artifact.layers.keys())
                .map(ToString::to_string),
        );
    }
    Ok(layers)
}

/// The kind of an artifact by its type, for people.
fn kind(artifact_type: &str) -> &'static str {
    match artifact_type {
        ARTIFACT_TYPE => "index of layers",
        kind if kind.starts_with("application/vnd.xebec.runtime") => "recording of starts",
        kind if kind.contains("cosign") || kind.contains("sigstore") || kind.contains("signature") => {
            "signature"
        }
        kind if kind.contains("spdx") || kind.contains("cyclonedx") => "bill of materials",
        _ => "artifact",
    }
}
