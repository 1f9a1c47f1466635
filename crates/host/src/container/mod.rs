//! Running a container on a mounted image view: overlay, OCI bundle, runtime, probes.
