//! Manifests in listings: those that refer to another one, or all of a repository.

use crate::database::{DatabaseError, Row, Transaction, Value};
use crate::model::{Page, Referrer};
use crate::records::manifests::{annotations, parsed};
use xebec_objects::Digest;

const COLUMNS: &str = "digest, media_type, size, artifact_type, subject, created, pulled";
/// Of the manifests that `WHERE` chooses, those of a page.
const OF_PAGE: &str = "digest > $3 ORDER BY digest LIMIT $4";
const OF_REPOSITORY: &str = "repository = $1 AND CAST($2 AS TEXT) IS NULL AND CAST($5 AS TEXT) IS NULL";
const OF_SUBJECT: &str =
    "repository = $1 AND subject = $2 AND (CAST($5 AS TEXT) IS NULL OR artifact_type = CAST($5 AS TEXT))";
/// So many bytes of annotations are read for one page, but those of one manifest at least. A manifest may have nearly as many as it has
/// bytes, and a page a thousand manifests.
const MOST_ANNOTATIONS: usize = 3 << 20;

/// The choice of manifests for a list.
pub(crate) struct Listing<'a> {
    /// The subject of all of them; all manifests of the repository, if there is none.
    pub(crate) subject: Option<&'a Digest>,
    /// The artifact type of all of them. It counts with a subject only.
    pub(crate) artifact_type: Option<&'a str>,
    /// Whether their annotations are wanted.
    pub(crate) annotated: bool,
}

fn referrer(row: &mut Row) -> Result<Referrer, DatabaseError> {
    Ok(Referrer {
        digest: row.parsed(0)?,
        media_type: row.text(1)?,
        size: row.unsigned(2)?,
        artifact_type: row.optional_text(3)?,
        annotations: Default::default(),
        subject: row.optional_text(4)?.map(|text| parsed(&text)).transpose()?,
        created: row.unsigned(5)?,
        pulled: row.unsigned(6)?,
    })
}

/// Manifests in the order of their digests. With annotations, a page may end before it has `n`.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    repository: i64,
    listing: &Listing<'_>,
    n: usize,
    after: Option<&Digest>,
) -> Result<Page<Referrer>, DatabaseError> {
    let chosen = match listing.subject {
        Some(_) => OF_SUBJECT,
        None => OF_REPOSITORY,
    };
    let more = n.saturating_add(1);
    let values = |after: Option<&Digest>, n: usize| -> [Value; 5] {
        [
            repository.into(),
            listing.subject.into(),
            after.map(Digest::to_string).unwrap_or_default().into(),
            n.into(),
            listing.artifact_type.filter(|_| listing.subject.is_some()).into(),
        ]
    };
    // How long annotations are both engines know without reading them.
    let sql = format!(
        "SELECT {COLUMNS}, CAST(OCTET_LENGTH(annotations) AS BIGINT) FROM manifests WHERE {chosen} AND {OF_PAGE}"
    );
    let rows = tx.query(&sql, &values(after, more))?;
    let mut found = Vec::with_capacity(rows.len());
    let mut bytes = 0_usize;
    for mut row in rows {
        let length = usize::try_from(row.integer(7)?).unwrap_or(usize::MAX);
        bytes = bytes.saturating_add(length);
        if listing.annotated && bytes > MOST_ANNOTATIONS && !found.is_empty() {
            // One more than the page has says that there are more.
            return annotated(tx, chosen, &values(after, found.len()), found, true);
        }
        found.push(referrer(&mut row)?);
    }
    let page = Page::cut(found, n);
    match listing.annotated {
        true => annotated(
            tx,
            chosen,
            &values(after, page.items.len()),
            page.items,
            page.next,
        ),
        false => Ok(page),
    }
}

/// The same manifests with their annotations.
fn annotated(
    tx: &mut dyn Transaction,
    chosen: &str,
    values: &[Value],
    mut items: Vec<Referrer>,
    next: bool,
) -> Result<Page<Referrer>, DatabaseError> {
    let sql = format!("SELECT annotations FROM manifests WHERE {chosen} AND {OF_PAGE}");
    let rows = tx.query(&sql, values)?;
    for (item, mut row) in items.iter_mut().zip(rows) {
        item.annotations = annotations(&row.text(0)?)?;
    }
    Ok(Page { items, next })
}

/// The subjects of manifests of a type, those with the newest of them first.
pub(crate) fn subjects_of_type(
    tx: &mut dyn Transaction,
    repository: i64,
    artifact_type: &str,
    n: usize,
) -> Result<Vec<Digest>, DatabaseError> {
    let rows = tx.query(
        "SELECT subject, MAX(created) AS newest FROM manifests
         WHERE repository = $1 AND artifact_type = $2 AND subject IS NOT NULL
         GROUP BY subject ORDER BY newest DESC, subject LIMIT $3",
        &[repository.into(), artifact_type.into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// The subject of some manifest, by the beginning of the subject's digest.
pub(crate) fn subject_beginning(
    tx: &mut dyn Transaction,
    repository: i64,
    beginning: &str,
) -> Result<Option<Digest>, DatabaseError> {
    // No hexadecimal digit comes after 'f'.
    let row = tx.first(
        "SELECT subject FROM manifests WHERE repository = $1 AND subject >= $2 AND subject < $3 ORDER BY subject LIMIT 1",
        &[repository.into(), beginning.into(), format!("{beginning}g").into()],
    )?;
    row.map(|mut row| row.parsed(0)).transpose()
}
