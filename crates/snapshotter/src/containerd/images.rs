//! `containerd.services.images.v1.Images`: which names containerd has for images.
//!
//! Source: `api/services/images/v1/images.proto` and `api/types/descriptor.proto` in containerd, the same from 1.7 to 2.x.

use std::collections::HashMap;

use tonic::Code;

use super::{Containerd, ContainerdError};
use crate::api::{Empty, FieldMask};

/// The service's name.
pub const SERVICE: &str = "containerd.services.images.v1.Images";

/// `containerd.types.Descriptor`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Descriptor {
    /// The media type of the content.
    #[prost(string, tag = "1")]
    pub media_type: String,
    /// Its digest.
    #[prost(string, tag = "2")]
    pub digest: String,
    /// Its length in bytes.
    #[prost(int64, tag = "3")]
    pub size: i64,
    /// Its annotations.
    #[prost(map = "string, string", tag = "5")]
    pub annotations: HashMap<String, String>,
}

/// A name and what it stands for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Image {
    /// The name, unique in its namespace.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Labels that clients have set.
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    /// A manifest, or an image index.
    #[prost(message, optional, tag = "3")]
    pub target: Option<Descriptor>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct GetImageRequest {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct GetImageResponse {
    #[prost(message, optional, tag = "1")]
    image: Option<Image>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct PutImageRequest {
    #[prost(message, optional, tag = "1")]
    image: Option<Image>,
    /// The fields that change; absent when the image is made.
    #[prost(message, optional, tag = "2")]
    update_mask: Option<FieldMask>,
}

impl Containerd {
    /// Gives an image a name, which may have stood for another one.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn put_image(&self, image: Image) -> Result<(), ContainerdError> {
        loop {
            let mut asked = PutImageRequest {
                image: Some(image.clone()),
                update_mask: None,
            };
            match self.call::<_, Empty>(SERVICE, "Create", asked.clone()).await {
                Err(error) if error.code() == Some(Code::AlreadyExists) => {}
                answer => return answer.map(|_| ()),
            }
            // Its labels stay.
            let paths = vec!["target".to_owned()];
            asked.update_mask = Some(FieldMask { paths });
            match self.call::<_, Empty>(SERVICE, "Update", asked).await {
                // It was removed meanwhile.
                Err(error) if error.is_not_found() => {}
                answer => return answer.map(|_| ()),
            }
        }
    }

    /// The image of that very name, if there is one.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn image(&self, name: &str) -> Result<Option<Image>, ContainerdError> {
        let asked = GetImageRequest {
            name: name.to_owned(),
        };
        let answer: Result<GetImageResponse, _> = self.call(SERVICE, "Get", asked).await;
        match answer {
            Ok(answer) => Ok(answer.image),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
