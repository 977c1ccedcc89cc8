//! The TOML file that the loader brings as first module: one flat table with the same keys as the command line.
//!
//! The parser is an event parser, so that every setting knows its line, and that what follows a mistake is read
//! all the same: it may say what the stop should do.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, ValidateWhitespace, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError, Source, Span};

use super::{Key, MAX_MODULE, Place, Refusal, Setting, Settings};

/// The settings of `text`, and the refusal of the first line that is none.
pub(super) fn settings(text: &[u8]) -> Settings {
    let text = without_padding(text);
    if text.len() > MAX_MODULE {
        let wrong = format!("{} bytes are too many", text.len());
        return (Vec::new(), Some(refusal("", 1, "length", wrong, format!("{MAX_MODULE} bytes"))));
    }
    let text = match core::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return (Vec::new(), Some(refuse_encoding(text, error.valid_up_to()))),
    };
    let source = Source::new(text);
    let mut reader = Reader { text, source, settings: Vec::new(), key: None, table: None };
    let mut mistake: Option<ParseError> = None;
    let tokens = source.lex().into_vec();
    parse_document(&tokens, &mut ValidateWhitespace::new(&mut reader, source), &mut mistake);
    let bad = mistake.map(|mistake| refuse_syntax(text, &mistake)).or(reader.table);
    (reader.settings, bad)
}

/// Some loaders pad a module with zeros.
fn without_padding(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &text[..end]
}

/// Collects the settings from the parser's events.
struct Reader<'s> {
    text: &'s str,
    source: Source<'s>,
    settings: Vec<Setting>,
    /// The key whose value comes next, and where it begins; dots stay in it.
    key: Option<(String, usize)>,
    /// The first table header. What stands under it is not read.
    table: Option<Refusal>,
}

impl Reader<'_> {
    fn set(&mut self, value: Cow<'_, str>) {
        let Some((key, at)) = self.key.take().filter(|_| self.table.is_none()) else { return };
        let (line, text) = line_at(self.text, at);
        self.settings.push(Setting {
            key,
            value: value.into_owned(),
            place: Place::Module { line },
            line: text.to_string(),
        });
    }

    fn refuse_table(&mut self, span: Span) {
        let (line, text) = line_at(self.text, span.start());
        let refuse = || refusal(text, line, text.trim(), "a table".to_string(), Key::list());
        self.table.get_or_insert_with(refuse);
    }
}

impl EventReceiver for Reader<'_> {
    fn std_table_open(&mut self, span: Span, _error: &mut dyn ErrorSink) {
        self.refuse_table(span);
    }

    fn array_table_open(&mut self, span: Span, _error: &mut dyn ErrorSink) {
        self.refuse_table(span);
    }

    fn inline_table_open(&mut self, _span: Span, _error: &mut dyn ErrorSink) -> bool {
        self.set(Cow::Borrowed("{…}"));
        false
    }

    fn array_open(&mut self, _span: Span, _error: &mut dyn ErrorSink) -> bool {
        self.set(Cow::Borrowed("[…]"));
        false
    }

    fn simple_key(&mut self, span: Span, encoding: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.source.get(span) else { return };
        let raw = toml_parser::Raw::new_unchecked(raw.as_str(), encoding, span);
        let mut part = String::new();
        raw.decode_key(&mut part, error);
        self.key = Some(match self.key.take() {
            Some((before, at)) => (format!("{before}.{part}"), at),
            None => (part, span.start()),
        });
    }

    fn scalar(&mut self, span: Span, encoding: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.source.get(span) else { return };
        let raw = toml_parser::Raw::new_unchecked(raw.as_str(), encoding, span);
        let mut value = Cow::Borrowed("");
        // Whatever kind of scalar it is, its text is what the key judges.
        let _kind = raw.decode_scalar(&mut value, error);
        self.set(value);
    }

    fn newline(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.key = None;
    }
}

fn refuse_syntax(text: &str, mistake: &ParseError) -> Refusal {
    let at = mistake.unexpected().or(mistake.context()).map_or(0, |span| span.start());
    let (line, shown) = line_at(text, at);
    let expected = mistake.expected().unwrap_or(&[]).iter().map(|expected| match expected {
        Expected::Literal(literal) => format!("{literal:?}"),
        Expected::Description(description) => description.to_string(),
        _ => "something else".to_string(),
    });
    let allowed = match expected.collect::<Vec<_>>() {
        expected if expected.is_empty() => "TOML lines, key = value".to_string(),
        expected => expected.join(", "),
    };
    refusal(shown, line, "syntax", mistake.description().to_string(), allowed)
}

fn refuse_encoding(text: &[u8], valid: usize) -> Refusal {
    // The line is shown up to the byte in question.
    let before = core::str::from_utf8(&text[..valid]).unwrap_or_default();
    let (line, shown) = line_at(before, before.len());
    refusal(shown, line, "encoding", format!("byte 0x{:02x} is not UTF-8", text[valid]), "UTF-8".to_string())
}

fn refusal(shown: &str, line: usize, key: &str, wrong: String, allowed: String) -> Refusal {
    Refusal { place: Place::Module { line }, key: key.to_string(), wrong, allowed, line: shown.to_string() }
}

/// The number, from 1, and the text of the line around byte `at`.
fn line_at(text: &str, at: usize) -> (usize, &str) {
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').map_or(text.len(), |newline| at + newline);
    (before.matches('\n').count() + 1, text[start..end].trim_end())
}
