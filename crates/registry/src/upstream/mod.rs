//! Images of other registries, fetched when they are asked for.
