//! Tables of contents that layers carry themselves.
