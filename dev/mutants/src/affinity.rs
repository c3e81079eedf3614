//! Says which tests are about a mutant by their names: a test of `cors` is likely to notice a change in `add_cors_fields`.

use std::collections::{BTreeSet, HashMap};

use crate::state::Key;

/// The words of all tests, with the tests that have each. Words that many tests have say little.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    tests: usize,
    by_word: HashMap<String, Vec<usize>>,
}

impl Affinity {
    /// Reads the names of the tests, in the order of their numbers.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Affinity {
        let mut affinity = Affinity::default();
        for (test, name) in names.enumerate() {
            for word in words(name) {
                affinity.by_word.entry(word).or_default().push(test);
            }
            affinity.tests += 1;
        }
        affinity
    }

    /// How much the name of each test has in common with the place and the text of a mutant. A test that is not named has nothing in common.
    pub(crate) fn of(&self, key: &Key) -> HashMap<usize, f64> {
        let mut shares = HashMap::new();
        let text = format!("{} {} {}", key.file, key.function, key.change);
        for word in words(&text) {
            let tests = self.by_word.get(&word).map_or(&[][..], Vec::as_slice);
            let weight = (self.tests as f64 / tests.len().max(1) as f64).ln();
            for test in tests {
                *shares.entry(*test).or_default() += weight;
            }
        }
        shares
    }
}

/// The words of a text in lower case, without a plural `s`. Short ones are left out.
fn words(text: &str) -> BTreeSet<String> {
    let mut spaced = String::new();
    for letter in text.chars() {
        if letter.is_uppercase() || !letter.is_alphabetic() {
            spaced.push(' ');
        }
        spaced.extend(
            letter
                .to_lowercase()
                .filter(|letter| letter.is_alphabetic()),
        );
    }
    let words = spaced.split_whitespace().filter(|word| word.len() > 3);
    let singular = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    words.map(singular).collect()
}

#[cfg(test)]
mod tests {
    use super::Affinity;
    use crate::state::Key;

    #[test]
    fn rare_words_in_common_count_more_than_frequent_ones() {
        let names = [
            "http::streams::stream_is_resumed",
            "http::cors::preflight_names_the_fields",
            "http::streams::stream_is_cut",
            "pipe::calls::call_is_sent",
        ];
        let affinity = Affinity::new(names.into_iter());
        let shares = affinity.of(&Key {
            file: "src/server/stream.rs".to_owned(),
            function: "HttpBinding::add_cors_fields".to_owned(),
            ..Key::default()
        });
        assert!(shares[&1] > shares[&0] && shares[&0] > 0.0);
        assert_eq!(shares.get(&3), None);
    }
}
