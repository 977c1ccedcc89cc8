//! The image's metrics, read back from their OpenMetrics text.

use anyhow::{Context, Result, ensure};

/// The last line of an exposition (OpenMetrics 1.0, "Overall Structure").
pub const END: &str = "# EOF";

/// The samples of one exposition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    samples: Vec<Sample>,
}

/// One line of an exposition: a name, its labels and a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric's full name, with a suffix such as `_total`.
    pub name: String,
    /// Label names and values in the order of the text.
    pub labels: Vec<(String, String)>,
    /// The value; counters of the image are whole numbers.
    pub value: f64,
}

impl Metrics {
    /// Reads an exposition that ends with `# EOF`.
    ///
    /// # Errors
    /// When a line is no sample and no comment, or when the end is missing.
    pub fn parse(text: &str) -> Result<Self> {
        let mut samples = Vec::new();
        for line in text.lines().map(str::trim_end) {
            if line == END {
                return Ok(Self { samples });
            }
            if !line.starts_with('#') {
                samples
                    .push(parse_sample(line).with_context(|| format!("not a line of OpenMetrics: {line}"))?);
            }
        }
        anyhow::bail!("the metrics end without \"{END}\"")
    }

    /// Every sample, in the order of the text.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The value of the one sample with this name and exactly these labels, in any order.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.matching(name, labels)
            .find(|sample| sample.labels.len() == labels.len())
            .map(|sample| sample.value)
    }

    /// The sum of all samples with this name that carry at least these labels; 0 when there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// [`Self::sum`] of a counter, as the whole number it is.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.sum(name, labels) as u64
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| {
            let has = |(key, value): &(&str, &str)| sample.labels.iter().any(|(k, v)| k == key && v == value);
            sample.name == name && labels.iter().all(has)
        })
    }
}

/// `name{label="value",…} value [timestamp]`
fn parse_sample(line: &str) -> Result<Sample> {
    let name_end = line.find(['{', ' ']).context("no value")?;
    let (name, rest) = line.split_at(name_end);
    ensure!(!name.is_empty(), "no name");
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => parse_labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next().context("no value")?;
    Ok(Sample { name: name.into(), labels, value: value.parse().context("the value is not a number")? })
}

/// The labels up to the closing brace, and what follows it.
fn parse_labels(mut rest: &str) -> Result<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (key, after) = rest.split_once("=\"").context("a label has no value")?;
        let (value, after) = parse_quoted(after)?;
        labels.push((key.into(), value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// A label's value up to its closing quote, with `\\`, `\"` and `\n` resolved, and what follows it.
fn parse_quoted(text: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            _ => value.push(character),
        }
    }
    anyhow::bail!("a label's value does not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE sluice_verdicts counter\n\
        # HELP sluice_verdicts Verdicts by port.\n\
        sluice_verdicts_total{port=\"0\",verdict=\"tx\"} 7\n\
        sluice_verdicts_total{port=\"1\",verdict=\"tx\"} 5\r\n\
        sluice_verdicts_total{port=\"1\",verdict=\"drop\"} 2 1700000000\n\
        sluice_pool_free_packets 4096\n\
        odd{text=\"a\\\"b\\\\,}\"} 1.5\n\
        # EOF\n";

    #[test]
    fn a_sample_is_found_by_its_labels_in_any_order() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.get("sluice_verdicts_total", &[("verdict", "tx"), ("port", "0")]), Some(7.0));
        assert_eq!(metrics.get("sluice_pool_free_packets", &[]), Some(4096.0));
        assert_eq!(metrics.get("odd", &[("text", "a\"b\\,}")]), Some(1.5));
        assert_eq!(metrics.get("sluice_verdicts_total", &[("port", "0")]), None);
    }

    #[test]
    fn a_sum_takes_every_sample_that_carries_the_labels() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.count("sluice_verdicts_total", &[]), 14);
        assert_eq!(metrics.count("sluice_verdicts_total", &[("port", "1")]), 7);
        assert_eq!(metrics.count("sluice_verdicts_total", &[("verdict", "pass")]), 0);
    }

    #[test]
    fn text_that_is_cut_or_garbled_is_refused() {
        for text in
            ["a 1\n", "a{b=\"c\n# EOF\n", "a\n# EOF\n", "a x\n# EOF\n", "a{b} 1\n# EOF\n", " 1\n# EOF"]
        {
            assert!(Metrics::parse(text).is_err(), "{text:?}");
        }
    }
}
