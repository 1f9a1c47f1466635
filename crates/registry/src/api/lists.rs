//! `/v2/NAME/tags/list` and `/v2/_catalog`: tags and repositories, page by page.

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

/// All repositories, in order.
pub(crate) async fn catalog(call: &Call<'_>) -> Outcome {
    let paging = paging(call)?;
    let page = call
        .registry
        .store
        .repositories(paging.count, paging.last.as_deref())
        .await;
    let page = page.map_err(|error| failure::of("listing repositories", &error))?;
    let repositories: Vec<String> = page.items.iter().map(RepositoryName::to_string).collect();
    let last = repositories.last().cloned().filter(|_| page.next);
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
