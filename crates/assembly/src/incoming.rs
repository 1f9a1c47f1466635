//! What of a parcel comes before the contents.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use xebec_native::push::{Bitmap, MAX_HEAD, PREFIX, ParcelHead, PushError};
use xebec_recipe::{InvalidRecipe, Limits, Recipe};

/// Memory that a recipe takes once it is read, at most. Reading takes three times as much.
pub const RECIPE: Limits = Limits { most: 48 << 20 };

/// Why a parcel is refused.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It does not come.
    #[error("{0}")]
    Body(io::Error),
    /// It is none, or beyond a limit.
    #[error("{0}")]
    Message(#[from] PushError),
    /// Its recipe is none, or beyond a limit.
    #[error("{0}")]
    Recipe(#[from] InvalidRecipe),
    /// The recipe has another number of contents than the head says.
    #[error("the recipe has another number of contents than the head says")]
    Contents,
    /// The thread that reads the recipe ended without an answer.
    #[error("the thread that reads the recipe failed")]
    Thread,
}

/// A layer that is to be put together.
#[derive(Debug)]
pub struct Order {
    /// How it is put together.
    pub recipe: Recipe,
    /// The contents that do not follow.
    pub left_out: Bitmap,
}

/// A parcel that comes in pieces.
#[derive(Debug)]
pub struct Incoming<S> {
    pieces: S,
    begun: BytesMut,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Incoming<S> {
    /// A parcel of which nothing was read yet.
    pub fn new(pieces: S) -> Self {
        Self {
            pieces,
            begun: BytesMut::new(),
        }
    }

    /// Reads its head.
    ///
    /// # Errors
    /// [`OrderError`].
    pub async fn head(&mut self) -> Result<ParcelHead, OrderError> {
        let prefix = self.exactly(PREFIX).await?;
        let prefix = <[u8; PREFIX]>::try_from(&prefix[..]).unwrap_or_default();
        let size = ParcelHead::size(prefix)?;
        let head = self.exactly(size.min(MAX_HEAD)).await?;
        Ok(ParcelHead::decode(&head)?)
    }

    /// Reads what follows the head, up to the contents. Takes the bytes of the recipe and three times [`RECIPE`] at most.
    ///
    /// # Errors
    /// [`OrderError`].
    pub async fn order(&mut self, head: &ParcelHead) -> Result<Order, OrderError> {
        // Within the limits of a head both fit.
        let of = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (recipe, contents) = (of(head.recipe), of(head.contents));
        let bytes = self.exactly(recipe).await?;
        let reading = tokio::task::spawn_blocking(move || Recipe::from_bytes(&bytes, &RECIPE));
        let recipe = reading.await.map_err(|_| OrderError::Thread)??;
        let bitmap = self.exactly(contents.div_ceil(8)).await?;
        let left_out = Bitmap::from_bytes(&bitmap, contents)?;
        let fits = recipe.chunks().len() == contents;
        match fits {
            true => Ok(Order { recipe, left_out }),
            false => Err(OrderError::Contents),
        }
    }

    /// What has come of the contents, and the pieces that follow.
    pub fn into_rest(self) -> (Bytes, S) {
        (self.begun.freeze(), self.pieces)
    }

    async fn exactly(&mut self, length: usize) -> Result<Bytes, OrderError> {
        while self.begun.len() < length {
            let piece = self.pieces.next().await;
            let piece = piece.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
            self.begun.extend_from_slice(&piece.map_err(OrderError::Body)?);
        }
        Ok(self.begun.split_to(length).freeze())
    }
}
