//! Images and views, the fill service and its keeper, trust, running containers.
