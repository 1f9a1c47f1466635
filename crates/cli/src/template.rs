//! `--format`: the text that is printed of each thing that a command found. The language is a part of Go's templates, which docker
//! takes: fields, `{{json .Field}}` and text. Anything else is refused with the list of the supported forms.

use std::fmt::Write as _;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;
use xebec_protocol::failure::{Failure, FailureKind};

/// The text in place of a field that is there and has no value; Go's words.
const NO_VALUE: &str = "<no value>";

/// How each thing is printed, on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// All of it as JSON.
    Json,
    /// By a template.
    Template(Vec<Part>),
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text outside of double braces.
    Text(String),
    /// `{{.A.B}}`: the names on the way.
    Field(Vec<String>),
    /// `{{json .A.B}}`.
    Json(Vec<String>),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "json" {
            return Ok(Self::Json);
        }
        // Docker's word for a table with heads.
        if text.starts_with("table ") {
            return Err(format!("table is not supported; {SUPPORTED}"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            push_text(&mut parts, before);
            let (action, after) = after
                .split_once("}}")
                .ok_or_else(|| format!("a {{{{ has no }}}}; {SUPPORTED}"))?;
            parts.push(action_of(action).ok_or_else(|| refused(action))?);
            rest = after;
        }
        push_text(&mut parts, rest);
        match parts.iter().all(|part| matches!(part, Part::Text(_))) {
            true => Err(format!("no field is named; {SUPPORTED}")),
            false => Ok(Self::Template(parts)),
        }
    }
}

const SUPPORTED: &str = "write json for all of it, or fields as {{.Name}}, {{.Outer.Inner}} or {{json .Outer}}, with any text between them";

fn refused(action: &str) -> String {
    format!("{{{{{action}}}}} is not supported; {SUPPORTED}")
}

/// A shell passes `\t` and `\n` on as they are written.
fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Text(text.replace("\\t", "\t").replace("\\n", "\n")));
    }
}

fn action_of(action: &str) -> Option<Part> {
    let words: Vec<&str> = action.split_whitespace().collect();
    match words.as_slice() {
        [field] => Some(Part::Field(names(field)?)),
        ["json", field] => Some(Part::Json(names(field)?)),
        _ => None,
    }
}

/// The names of `.A.B`; none of `.`, which is the whole thing.
fn names(field: &str) -> Option<Vec<String>> {
    let field = field.strip_prefix('.')?;
    if field.is_empty() {
        return Some(Vec::new());
    }
    let is_name = |name: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(is_word)
    };
    let names = field
        .split('.')
        .map(|name| is_name(name).then(|| name.to_owned()));
    names.collect()
}

impl Format {
    /// The line for one thing.
    ///
    /// # Errors
    /// Usage, if it has no such field.
    pub(crate) fn line(&self, thing: &impl Serialize) -> Result<String, Failure> {
        let thing = serde_json::to_value(thing).map_err(|error| Failure::new(FailureKind::Host, error))?;
        let parts = match self {
            Self::Json => return Ok(thing.to_string()),
            Self::Template(parts) => parts,
        };
        let mut line = String::new();
        for part in parts {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Field(names) => push_value(&mut line, found(&thing, names)?),
                Part::Json(names) => line.push_str(&found(&thing, names)?.to_string()),
            }
        }
        Ok(line)
    }
}

/// Prints the things that a command found: each by the format, if one is given, or else all as one list in JSON.
pub(crate) fn print_found(found: &[impl Serialize], format: Option<&Format>) -> Result<(), Failure> {
    let Some(format) = format else {
        return crate::text::print_json(&found);
    };
    for thing in found {
        outln!("{}", format.line(thing)?);
    }
    Ok(())
}

fn found<'a>(thing: &'a Value, names: &[String]) -> Result<&'a Value, Failure> {
    let mut value = thing;
    for (depth, name) in names.iter().enumerate() {
        let inner = match value {
            // A value that is not there has no parts either.
            Value::Null => return Ok(value),
            value => value.get(name),
        };
        value = inner.ok_or_else(|| no_field(value, names.get(..depth).unwrap_or_default(), name))?;
    }
    Ok(value)
}

fn no_field(value: &Value, way: &[String], name: &str) -> Failure {
    let outer = format!(".{}", way.join("."));
    let field = format!("{}.{name}", outer.trim_end_matches('.'));
    let message = match value.as_object() {
        Some(object) if !object.is_empty() => {
            let names: Vec<&str> = object.keys().map(String::as_str).collect();
            format!(
                "--format: there is no field {field}; {outer} has {}",
                names.join(", ")
            )
        }
        _ => format!("--format: there is no field {field}: {outer} has no fields"),
    };
    Failure::new(FailureKind::Usage, message)
}

/// As Go writes it.
fn push_value(line: &mut String, value: &Value) {
    match value {
        Value::Null => line.push_str(NO_VALUE),
        Value::String(text) => line.push_str(text),
        Value::Bool(_) | Value::Number(_) => _ = write!(line, "{value}"),
        Value::Array(values) => {
            line.push('[');
            for (at, value) in values.iter().enumerate() {
                line.push_str(if at == 0 { "" } else { " " });
                push_value(line, value);
            }
            line.push(']');
        }
        Value::Object(object) => {
            line.push_str("map[");
            for (at, (name, value)) in object.iter().enumerate() {
                let _ = write!(line, "{}{name}:", if at == 0 { "" } else { " " });
                push_value(line, value);
            }
            line.push(']');
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(format: &str) -> Result<String, String> {
        let thing = json!({
            "Name": "web",
            "State": {"Status": "exited", "ExitCode": 3, "Running": false, "Error": null},
            "Args": ["-c", "true"],
            "Labels": {"tier": "front", "a": "b"},
        });
        let format: Format = format.parse()?;
        format.line(&thing).map_err(|failure| failure.message)
    }

    #[test]
    fn fields_json_and_text_are_written_as_docker_writes_them() {
        for (format, wanted) in [
            ("{{.Name}}", "web"),
            ("{{ .Name }} is {{.State.Status}}.", "web is exited."),
            ("{{.State.ExitCode}}\\t{{.State.Running}}", "3\tfalse"),
            ("{{json .State.Status}}", "\"exited\""),
            ("{{json .Args}} }} {", "[\"-c\",\"true\"] }} {"),
            ("{{.Args}} {{.Labels}}", "[-c true] map[a:b tier:front]"),
            ("{{.Labels.tier}}", "front"),
            ("{{.State.Error}}", "<no value>"),
            ("{{.State.Error.Code}}", "<no value>"),
            ("{{json .State.Error}}", "null"),
            ("a\\nb{{.Name}}", "a\nbweb"),
        ] {
            assert_eq!(line(format).as_deref(), Ok(wanted), "{format}");
        }
        assert!(line("json").unwrap().starts_with(r#"{"Args":["-c","true"],"#));
        assert_eq!(line("{{json .}}"), line("json"));
    }

    #[test]
    fn what_is_not_supported_is_refused_with_what_is() {
        for format in [
            "",
            "web",
            "{{}}",
            "{{range .Args}}{{.}}{{end}}",
            "{{if .State}}x{{end}}",
            "{{index .Labels \"tier\"}}",
            "{{.Name",
            "{{Name}}",
            "{{.Name | json}}",
            "{{.State..Status}}",
            "{{.State.}}",
            "{{json}}",
            "{{json Name}}",
            "{{upper .Name}}",
            "table {{.Name}}",
        ] {
            let refused = line(format).unwrap_err();
            assert!(
                refused.contains("{{.Outer.Inner}}") && refused.contains("json"),
                "{format}: {refused}"
            );
        }
        let range = line("{{range .Args}}{{.}}{{end}}").unwrap_err();
        assert!(range.starts_with("{{range .Args}} is not supported"), "{range}");
    }

    #[test]
    fn a_field_that_is_not_there_is_answered_with_those_that_are() {
        for (format, words) in [
            ("{{.Nosuch}}", &["no field .Nosuch", ". has", "Name", "State"][..]),
            (
                "{{.State.Nosuch}}",
                &["no field .State.Nosuch", ".State has", "ExitCode"],
            ),
            ("{{json .Name.First}}", &["no field .Name.First", "no fields"]),
        ] {
            let refused = line(format).unwrap_err();
            for word in words {
                assert!(refused.contains(word), "{format}: {refused}");
            }
        }
    }
}
