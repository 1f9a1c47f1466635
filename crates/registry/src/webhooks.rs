//! Notifications of pushes, pulls and deletes, in the format of the CNCF registry.
