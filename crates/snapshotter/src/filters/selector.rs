//! The conditions that a filter has for a snapshot.

use memchr::memmem;
use regex::Regex;

use crate::api::{Info, Kind};

/// A field of a snapshot, and what it must be.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    pub(super) path: Vec<String>,
    pub(super) operator: Operator,
}

impl Selector {
    pub(super) fn may_fit(&self, name: &str, stored: &[u8]) -> bool {
        let Operator::Is(wanted) = &self.operator else {
            return true;
        };
        match self.path.first().map(String::as_str) {
            Some("name") => name == wanted,
            // Texts stand there as they are.
            Some("parent" | "labels") => memmem::find(stored, wanted.as_bytes()).is_some(),
            _ => true,
        }
    }

    pub(super) fn fits(&self, info: &Info) -> bool {
        let value = self.value(info);
        match &self.operator {
            Operator::Present => value.is_some(),
            Operator::Is(wanted) => value == Some(wanted),
            // A field that is not there counts as empty.
            Operator::IsNot(unwanted) => value.unwrap_or_default() != unwanted,
            Operator::Matches(expression) => expression
                .as_ref()
                .is_some_and(|expression| expression.is_match(value.unwrap_or_default())),
        }
    }

    fn value<'a>(&self, info: &'a Info) -> Option<&'a str> {
        let (first, rest) = self.path.split_first()?;
        match first.as_str() {
            "name" => Some(&info.name),
            "parent" => Some(&info.parent),
            "kind" => match info.kind() {
                Kind::Active => Some("active"),
                Kind::View => Some("view"),
                Kind::Committed => Some("committed"),
                Kind::Unknown => None,
            },
            "labels" => info.labels.get(&rest.join(".")).map(String::as_str),
            _ => None,
        }
    }
}

/// How a field is compared.
#[derive(Clone, Debug)]
pub(super) enum Operator {
    Present,
    Is(String),
    IsNot(String),
    /// `None` is an expression that cannot be read, which nothing fits.
    Matches(Option<Regex>),
}
