//! `containerd.services.leases.v1.Leases`: what keeps things from garbage collection while they are put together.
//!
//! Source: `api/services/leases/v1/leases.proto` in containerd, the same from 1.7 to 2.x; the header and the label are in
//! `pkg/leases/grpc.go` and `docs/garbage-collection.md`.

use std::collections::HashMap;

use tonic::metadata::{Ascii, MetadataValue};

use super::{Containerd, ContainerdError};
use crate::api::Empty;

/// The service's name.
pub const SERVICE: &str = "containerd.services.leases.v1.Leases";
/// Says until when a lease counts, in RFC 3339, should nobody delete it.
pub const EXPIRES: &str = "containerd.io/gc.expire";

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CreateRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(map = "string, string", tag = "3")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CreateResponse {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct DeleteRequest {
    #[prost(string, tag = "1")]
    id: String,
    /// Answers when what the lease alone held is gone.
    #[prost(bool, tag = "2")]
    sync: bool,
}

impl Containerd {
    /// Makes a lease, and gives a client whose blobs and snapshots it keeps.
    ///
    /// # Errors
    /// What containerd answered; a name that cannot be a lease's.
    pub async fn leased(
        &self,
        id: &str,
        labels: HashMap<String, String>,
    ) -> Result<Containerd, ContainerdError> {
        let lease = header(id)?;
        let asked = CreateRequest {
            id: id.to_owned(),
            labels,
        };
        self.call::<_, CreateResponse>(SERVICE, "Create", asked).await?;
        Ok(Containerd {
            lease: Some(lease),
            ..self.clone()
        })
    }

    /// A client whose blobs and snapshots are kept by a lease that somebody else has made.
    ///
    /// # Errors
    /// A name that cannot be a lease's.
    pub fn under(&self, id: &str) -> Result<Containerd, ContainerdError> {
        let lease = header(id)?;
        Ok(Containerd {
            lease: Some(lease),
            ..self.clone()
        })
    }

    /// Deletes a lease, and with `sync` waits until what nothing else refers to is gone.
    ///
    /// # Errors
    /// What containerd answered.
    pub async fn unlease(&self, id: &str, sync: bool) -> Result<(), ContainerdError> {
        let asked = DeleteRequest {
            id: id.to_owned(),
            sync,
        };
        self.call::<_, Empty>(SERVICE, "Delete", asked).await.map(|_| ())
    }
}

/// A lease's name as calls carry it.
fn header(id: &str) -> Result<MetadataValue<Ascii>, ContainerdError> {
    id.parse()
        .map_err(|_| ContainerdError::Lease { lease: id.to_owned() })
}

/// A time as RFC 3339 has it, in UTC: seconds since 1970.
///
/// The date is found by counting days from 1 March of the year 0, so that a leap day ends its year and 400 years are alike.
pub fn rfc3339(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let (days, rest) = (seconds / DAY + 719_468, seconds % DAY);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + next_year,
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
