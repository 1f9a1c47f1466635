//! `/v2/NAME/tags/list` and `/v2/_catalog`: tags and repositories, page by page.

use hyper::StatusCode;
use hyper::header::LINK;
use serde::Serialize;
use xebec_store::RepositoryName;

use super::call::{Call, Outcome};
use super::failure;
use super::reply::{self, Answer};
use crate::error::{ApiError, Code};
use crate::request::{Paging, percent_encode};

#[derive(Serialize)]
struct Tags {
    name: String,
    tags: Vec<String>,
}

#[derive(Serialize)]
struct Catalog {
    repositories: Vec<String>,
}

/// The tags of a repository, in order.
pub(crate) async fn tags(call: &Call<'_>, repository: &RepositoryName) -> Outcome {
    let paging = paging(call)?;
    let page = call
        .registry
        .store
        .tags(repository, paging.count, paging.last.as_deref())
        .await;
    let page = page.map_err(|error| failure::of("listing tags", &error))?;
    let page = page.ok_or_else(|| {
        ApiError::new(
            Code::NameUnknown,
            format!("there is no repository {repository}; it comes into being with the first push"),
        )
    })?;
    let tags: Vec<String> = page.items.iter().map(|tag| tag.name.to_string()).collect();
    let last = tags.last().cloned().filter(|_| page.next);
    let answer = reply::json(&Tags {
        name: repository.to_string(),
        tags,
    });
    Ok(linked(
        answer,
        &format!("/v2/{repository}/tags/list"),
        &paging,
        last,
    ))
}

/// The repositories that the caller may pull, in order.
pub(crate) async fn catalog(call: &Call<'_>) -> Outcome {
    let (registry, paging) = (call.registry, paging(call)?);
    let shows = |name: &str| registry.guard.shows(&call.caller, name);
    let after = paging.last.as_deref().map(|place| {
        registry.guard.name_at(place).ok_or_else(|| {
            let detail =
                "\"last\" is no place in this list; follow the header Link, or begin again without it";
            ApiError::new(Code::Unsupported, detail).with_status(StatusCode::BAD_REQUEST)
        })
    });
    let after = after.transpose()?;
    let chosen = registry
        .store
        .choose_repositories(
            paging.count,
            after.as_deref(),
            registry.settings.looked_at,
            |name| shows(name.as_str()),
        )
        .await;
    let failed = |error| failure::of("listing repositories", &error);
    let chosen = chosen.map_err(failed)?;
    let last = chosen.next.map(|name| registry.place_after(&name, shows));
    let last = last.transpose().map_err(failed)?;
    let repositories = chosen.items.iter().map(RepositoryName::to_string).collect();
    let answer = reply::json(&Catalog { repositories });
    Ok(linked(answer, "/v2/_catalog", &paging, last))
}

fn paging(call: &Call<'_>) -> Result<Paging, ApiError> {
    Paging::of(&call.query).ok_or_else(|| {
        ApiError::new(
            Code::PaginationNumberInvalid,
            "\"n\" is a number of entries, as in n=100",
        )
    })
}

/// The answer with the address of the next page, if there is one.
fn linked(answer: Answer, path: &str, paging: &Paging, last: Option<String>) -> Answer {
    match last {
        Some(last) => {
            let link = format!(
                "<{path}?n={}&last={}>; rel=\"next\"",
                paging.count,
                percent_encode(&last)
            );
            reply::with(answer, LINK, link)
        }
        None => answer,
    }
}
