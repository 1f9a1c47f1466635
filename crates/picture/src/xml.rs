//! Writes elements of an SVG picture. Text from outside (names of files, words of command lines) is escaped here
//! and nowhere else.

use std::fmt::Write as _;

/// A picture that is being written.
pub(super) struct Xml(String);

impl Xml {
    /// A picture of this size, in pixels, in a serifless face, with nothing from outside of it.
    pub(super) fn new(width: f64, height: f64) -> Self {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" \
             font-size=\"12\" fill=\"#222222\">"
        );
        Self(text)
    }

    /// A rectangle with further attributes, which are not escaped.
    pub(super) fn rect(&mut self, place: [f64; 4], more: &str) {
        let [x, y, width, height] = place.map(Number);
        let _ = writeln!(
            self.0,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{more}/>"
        );
    }

    /// A line through points with further attributes, which are not escaped.
    pub(super) fn line(&mut self, points: &[(f64, f64)], more: &str) {
        let points = points.iter();
        let points: Vec<String> = points
            .map(|(x, y)| format!("{},{}", Number(*x), Number(*y)))
            .collect();
        let _ = writeln!(
            self.0,
            "<polyline fill=\"none\" points=\"{}\"{more}/>",
            points.join(" ")
        );
    }

    /// Words at a place, with further attributes, which are not escaped.
    pub(super) fn text(&mut self, at: (f64, f64), more: &str, words: &str) {
        self.text_with(at, more, words, None);
    }

    /// Words that say more when they are pointed at.
    pub(super) fn text_with(&mut self, at: (f64, f64), more: &str, words: &str, title: Option<&str>) {
        let (x, y) = (Number(at.0), Number(at.1));
        let title = title.map(|title| format!("<title>{}</title>", escaped(title)));
        let _ = writeln!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\"{more}>{}{}</text>",
            title.unwrap_or_default(),
            escaped(words)
        );
    }

    /// Begins a group with attributes, which are not escaped.
    pub(super) fn open(&mut self, attributes: &str) {
        let _ = writeln!(self.0, "<g{attributes}>");
    }

    /// Ends the group that was begun last.
    pub(super) fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// The picture's subject, for readers who do not see it.
    pub(super) fn title(&mut self, words: &str) {
        let _ = writeln!(self.0, "<title>{}</title>", escaped(words));
    }

    /// The whole picture.
    pub(super) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// A number with one decimal place at most.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round();
        match tenths % 10.0 == 0.0 {
            true => write!(f, "{}", tenths / 10.0),
            false => write!(f, "{:.1}", tenths / 10.0),
        }
    }
}

/// Text as it may stand in an element or an attribute: no markup, and no character that XML forbids.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_is_markup() {
        let hostile = "<script>&\"'\u{0}\u{1b}\u{ffff}\n]]>";
        let safe = "&lt;script&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}\u{fffd} ]]&gt;";
        assert_eq!(escaped(hostile), safe);
        let mut xml = Xml::new(10.0, 20.5);
        xml.title(hostile);
        xml.text_with((1.0, 2.0), " class=\"x\"", hostile, Some(hostile));
        let text = xml.finish();
        assert!(!text.contains("<script"), "{text}");
        assert_eq!(text.matches(safe).count(), 3, "{text}");
    }

    #[test]
    fn numbers_are_short() {
        let texts = [1.0, 1.04, 1.05, 0.26, -3.96, 1e6].map(|number| Number(number).to_string());
        assert_eq!(texts, ["1", "1", "1.1", "0.3", "-4", "1000000"]);
    }
}
