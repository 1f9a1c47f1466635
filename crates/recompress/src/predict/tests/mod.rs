//! Tests of writer and reader together.
