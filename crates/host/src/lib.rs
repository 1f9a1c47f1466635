//! Images and views, the fill service and its keeper, trust, running containers.

pub mod container;
pub mod events;
pub mod keeper;
pub mod trust;
