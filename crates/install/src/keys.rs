//! Single keys of a user's TOML file: set, and taken back, with comments, order and layout of the rest as they were.

use std::fmt;

use serde::{Deserialize, Serialize};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// The value that a key is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    /// This text.
    Text(String),
    /// Yes or no.
    Switch(bool),
    /// This list of texts.
    Words(Vec<String>),
    /// A list of tables that has one with these texts among others.
    Among(Vec<(String, String)>),
}

/// A key, from the top of the file.
pub(crate) type Key = Vec<String>;

/// A key that was changed, and what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// Which.
    pub key: Key,
    /// The value that the installation gave it.
    pub ours: Wanted,
    /// The value before, as TOML; absent when the key was not there. Of a list it only matters whether it was.
    pub before: Option<String>,
    /// How many of the tables that lead to it were not there.
    pub made_tables: usize,
}

impl Change {
    /// Whether it changed what an earlier one had made of the same key.
    pub(crate) fn replaces(&self, earlier: &Change) -> bool {
        let before = self.before.as_ref().and_then(|text| text.parse::<Value>().ok());
        let is_list = matches!(self.ours, Wanted::Among(_));
        !is_list
            && self.key == earlier.key
            && before.is_some_and(|before| is_so(&Item::Value(before), &earlier.ours))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", plain(self).to_string().trim())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_list = matches!(self.ours, Wanted::Among(_));
        let sign = if is_list { "+=" } else { "=" };
        write!(f, "{} {sign} {}", dotted(&self.key), self.ours)?;
        match self.before.as_ref().filter(|_| !is_list) {
            Some(before) => write!(f, " (was {before})"),
            None => Ok(()),
        }
    }
}

/// The file is not what it would have to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyError {
    /// Which key, in dots.
    pub key: String,
    /// The kind of value that stands there instead.
    pub found: &'static str,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}, which cannot hold what is to be set",
            self.key, self.found
        )
    }
}

impl std::error::Error for KeyError {}

/// Makes a key what it is to be. `None` when it is already.
///
/// # Errors
/// When something on the way is no table, or no list where one is wanted.
pub(crate) fn set(
    document: &mut DocumentMut,
    key: &[String],
    wanted: &Wanted,
) -> Result<Option<Change>, KeyError> {
    let Some((last, way)) = key.split_last() else {
        return Ok(None);
    };
    let mut made_tables = 0;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, name) in way.iter().enumerate() {
        if table.get(name).is_none_or(Item::is_none) {
            made_tables += 1;
            let mut new = Table::new();
            // Tables that only lead elsewhere get no line of their own.
            new.set_implicit(depth + 1 < way.len());
            table.insert(name, Item::Table(new));
        }
        table = table
            .get_mut(name)
            .and_then(Item::as_table_like_mut)
            .ok_or_else(|| wrong(key.get(..=depth).unwrap_or(key), "no table"))?;
    }
    let before = table.get(last).filter(|item| !item.is_none());
    if before.is_some_and(|item| is_so(item, wanted)) {
        return Ok(None);
    }
    let before_text = before.map(bare_text);
    match wanted {
        Wanted::Among(fields) => append(table, last, fields).map_err(|found| wrong(key, found))?,
        Wanted::Text(_) | Wanted::Switch(_) | Wanted::Words(_) => {
            if before.is_some_and(|item| !item.is_value()) {
                return Err(wrong(key, "a table"));
            }
            put(table, last, plain(wanted));
        }
    }
    Ok(Some(Change {
        key: key.to_vec(),
        ours: wanted.clone(),
        before: before_text,
        made_tables,
    }))
}

/// Takes a change back. False when the key is no longer what it was made, and is left alone.
pub(crate) fn undo(document: &mut DocumentMut, change: &Change) -> bool {
    let Some((last, way)) = change.key.split_last() else {
        return false;
    };
    {
        let Some(table) = walk(document, way) else {
            return false;
        };
        match &change.ours {
            Wanted::Among(fields) => {
                if !take_out(table, last, fields) {
                    return false;
                }
                if change.before.is_none() && table.get(last).is_some_and(is_empty_list) {
                    table.remove(last);
                }
            }
            ours => {
                if !table.get(last).is_some_and(|item| is_so(item, ours)) {
                    return false;
                }
                let before = change.before.as_ref().and_then(|text| text.parse::<Value>().ok());
                match before {
                    Some(value) => put(table, last, value),
                    None => {
                        table.remove(last);
                    }
                }
            }
        }
    }
    // Tables that were made for it go if nobody uses them.
    for depth in (way.len().saturating_sub(change.made_tables)..way.len()).rev() {
        let (Some(name), Some(above)) = (way.get(depth), way.get(..depth)) else {
            break;
        };
        let Some(above) = walk(document, above) else { break };
        let is_empty = above
            .get(name)
            .and_then(Item::as_table_like)
            .is_some_and(TableLike::is_empty);
        if !is_empty {
            break;
        }
        above.remove(name);
    }
    true
}

/// Whether a key is as it was before it was changed, or would have been.
pub(crate) fn is_as_before(document: &mut DocumentMut, change: &Change) -> bool {
    let Some((last, way)) = change.key.split_last() else {
        return false;
    };
    let item = walk(document, way).and_then(|table| table.get(last));
    match (item, &change.ours, &change.before) {
        (item, Wanted::Among(_), _) => !item.is_some_and(|item| is_so(item, &change.ours)),
        (None, _, before) => before.is_none(),
        (Some(item), _, Some(before)) => item.as_value().is_some_and(|value| bare(value) == before.trim()),
        (Some(_), _, None) => false,
    }
}

/// A value without the blanks and the comment around it.
fn bare(value: &Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    value.to_string()
}

fn walk<'a>(document: &'a mut DocumentMut, way: &[String]) -> Option<&'a mut dyn TableLike> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in way {
        table = table.get_mut(name)?.as_table_like_mut()?;
    }
    Some(table)
}

fn wrong(key: &[String], found: &'static str) -> KeyError {
    KeyError {
        key: dotted(key),
        found,
    }
}

/// A key as one writes it.
pub(crate) fn dotted(key: &[String]) -> String {
    let is_bare = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let names = key.iter().map(|name| match is_bare(name) {
        true => name.clone(),
        false => format!("{name:?}"),
    });
    names.collect::<Vec<_>>().join(".")
}

/// The value that a file gives a key, if it is another than the wanted one.
pub(crate) fn contradicts(document: &DocumentMut, key: &[String], wanted: &Wanted) -> Option<String> {
    let mut item = document.as_item();
    for name in key {
        item = item.as_table_like()?.get(name)?;
    }
    (!is_so(item, wanted)).then(|| bare_text(item))
}

fn is_so(item: &Item, wanted: &Wanted) -> bool {
    match wanted {
        Wanted::Text(text) => item.as_str() == Some(text),
        Wanted::Switch(switch) => item.as_bool() == Some(*switch),
        Wanted::Words(words) => item.as_array().is_some_and(|array| {
            array
                .iter()
                .map(Value::as_str)
                .eq(words.iter().map(|word| Some(&**word)))
        }),
        Wanted::Among(fields) => match item {
            Item::ArrayOfTables(tables) => tables.iter().any(|table| has(table, fields)),
            Item::Value(Value::Array(array)) => array
                .iter()
                .filter_map(Value::as_inline_table)
                .any(|table| has(table, fields)),
            _ => false,
        },
    }
}

fn has(table: &dyn TableLike, fields: &[(String, String)]) -> bool {
    fields
        .iter()
        .all(|(name, text)| table.get(name).and_then(Item::as_str) == Some(text))
}

/// A value or table without the spaces and comments around it.
fn bare_text(item: &Item) -> String {
    match item.as_value() {
        Some(value) => value.clone().decorated("", "").to_string(),
        None => item.to_string().trim().to_owned(),
    }
}

/// Gives a key a value. Comments and spaces around an old value stay; a new key begins where the others of its table do.
fn put(table: &mut dyn TableLike, name: &str, mut value: Value) {
    if let Some(Item::Value(old)) = table.get_mut(name) {
        *value.decor_mut() = old.decor().clone();
        *old = value;
        return;
    }
    table.insert(name, Item::Value(value));
    indent(table, name);
}

/// Has a new key begin in the column where the first key of its table does.
fn indent(table: &mut dyn TableLike, name: &str) {
    let first = table
        .iter()
        .map(|(other, _)| other.to_owned())
        .find(|other| other != name);
    let decor = first.and_then(|first| table.key(&first).map(|key| key.leaf_decor().clone()));
    let prefix = decor.and_then(|decor| {
        decor
            .prefix()
            .and_then(|prefix| prefix.as_str().map(str::to_owned))
    });
    let column = prefix.and_then(|prefix| prefix.rsplit('\n').next().map(str::to_owned));
    if let (Some(column), Some(mut key)) = (column, table.key_mut(name))
        && column.chars().all(|letter| letter == ' ' || letter == '\t')
    {
        key.leaf_decor_mut().set_prefix(column);
    }
}

fn plain(wanted: &Wanted) -> Value {
    match wanted {
        Wanted::Text(text) => text.as_str().into(),
        Wanted::Switch(switch) => (*switch).into(),
        Wanted::Words(words) => Value::Array(words.iter().map(String::as_str).collect()),
        Wanted::Among(fields) => Value::InlineTable(inline(fields)),
    }
}

fn inline(fields: &[(String, String)]) -> InlineTable {
    let mut table = InlineTable::new();
    for (name, text) in fields {
        table.insert(name, text.as_str().into());
    }
    table
}

fn append(table: &mut dyn TableLike, name: &str, fields: &[(String, String)]) -> Result<(), &'static str> {
    match table.get_mut(name) {
        None | Some(Item::None) => {
            let mut array = Array::new();
            array.push(inline(fields));
            put(table, name, Value::Array(array));
        }
        Some(Item::Value(Value::Array(array))) => array.push(inline(fields)),
        Some(Item::ArrayOfTables(tables)) => {
            let mut new = Table::new();
            for (name, text) in fields {
                new.insert(name, Item::Value(text.as_str().into()));
            }
            tables.push(new);
        }
        Some(_) => return Err("no list"),
    }
    Ok(())
}

fn take_out(table: &mut dyn TableLike, name: &str, fields: &[(String, String)]) -> bool {
    let is_ours = |table: &dyn TableLike| table.len() == fields.len() && has(table, fields);
    match table.get_mut(name) {
        Some(Item::Value(Value::Array(array))) => {
            let place = array
                .iter()
                .position(|value| value.as_inline_table().is_some_and(|table| is_ours(table)));
            place.map(|place| array.remove(place)).is_some()
        }
        Some(Item::ArrayOfTables(tables)) => {
            let place = tables.iter().position(|table| is_ours(table));
            place.map(|place| tables.remove(place)).is_some()
        }
        _ => false,
    }
}

fn is_empty_list(item: &Item) -> bool {
    match item {
        Item::Value(Value::Array(array)) => array.is_empty(),
        Item::ArrayOfTables(tables) => ArrayOfTables::is_empty(tables),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
