//! Data files, presence, span fills and their verification.
