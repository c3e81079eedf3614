//! Matches URIs with a template (RFC 6570), and extracts the variables.
//!
//! Knows three expressions: `{name}` matches text without `/`, `{+name}` matches any text, and `{?a,b}` at the end matches a query in any
//! order. `{name}` does not match `%2F` either: a function that joins the value to a path must not get `../secret` from `..%2Fsecret`.

/// The longest URI that is matched, in bytes. The time to match one grows with the square of its length.
const MAX_URI: usize = 4 << 10;

/// A parsed template.
#[derive(Debug)]
pub(crate) struct UriTemplate(Vec<Part>);

#[derive(Debug, PartialEq)]
enum Part {
    Literal(String),
    /// A variable, and whether it may contain `/`.
    Variable(String, bool),
    /// The parameters of a query.
    Query(Vec<String>),
}

/// The reason why a template cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("the braces do not match")]
    Braces,
    #[error("`{{{0}}}` is not supported: use `{{name}}`, `{{+name}}` or `{{?a,b}}`")]
    Expression(String),
    #[error("`{{?{0}}}` must be at the end, because nothing follows the query of a URI")]
    Query(String),
}

/// The variables of a URI with their text, the last one first.
type Found<'a> = Vec<(&'a str, &'a str)>;

impl UriTemplate {
    pub(crate) fn parse(template: &str) -> Result<UriTemplate, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some(start) = rest.find(['{', '}']) {
            if rest[start..].starts_with('}') {
                return Err(TemplateError::Braces);
            }
            let (literal, expression) = (&rest[..start], &rest[start + 1..]);
            let end = expression.find('}').ok_or(TemplateError::Braces)?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(expression_part(&expression[..end])?);
            rest = &expression[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        let before_last = parts.iter().rev().skip(1);
        let mut queries = before_last.filter_map(|part| match part {
            Part::Query(names) => Some(names.join(",")),
            _ => None,
        });
        match queries.next() {
            Some(names) => Err(TemplateError::Query(names)),
            None => Ok(UriTemplate(parts)),
        }
    }

    /// Returns the variables of this URI. `None` if it does not match, or is longer than 4 KiB.
    pub(crate) fn variables(&self, uri: &str) -> Option<Vec<(String, String)>> {
        if uri.len() > MAX_URI {
            return None;
        }
        let found = self.match_with_query(uri);
        let found = found.or_else(|| Matching::find(&self.0, uri, Vec::new()))?;
        let decoded = |(name, raw): (&str, &str)| (name.to_owned(), decode(raw));
        Some(found.into_iter().rev().map(decoded).collect())
    }

    /// Matches a query from the first `?` on. A reserved variable before it takes as much as it can, so it would take the query, too.
    fn match_with_query<'a>(&'a self, uri: &'a str) -> Option<Found<'a>> {
        let (Part::Query(names), before) = self.0.split_last()? else {
            return None;
        };
        let (start, query) = uri.split_at(uri.find('?')?);
        let mut found = Vec::new();
        let is_match = match_query(names, query, &mut found);
        is_match
            .then(|| Matching::find(before, start, found))
            .flatten()
    }
}

fn expression_part(expression: &str) -> Result<Part, TemplateError> {
    let unsupported = || TemplateError::Expression(expression.to_owned());
    let is_name = |name: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        !name.is_empty() && name.chars().all(is_allowed)
    };
    let part = match expression.strip_prefix('?') {
        Some(names) => {
            let names: Vec<_> = names.split(',').map(str::to_owned).collect();
            let are_names = names.iter().all(|name| is_name(name));
            are_names.then_some(Part::Query(names))
        }
        None => {
            let reserved = expression.strip_prefix('+');
            let name = reserved.unwrap_or(expression);
            is_name(name).then(|| Part::Variable(name.to_owned(), reserved.is_some()))
        }
    };
    part.ok_or_else(unsupported)
}

/// A URI that is compared with a template.
struct Matching<'a> {
    parts: &'a [Part],
    uri: &'a str,
    /// The pairs of part and position that are known not to match.
    failed: Vec<bool>,
    found: Found<'a>,
}

impl<'a> Matching<'a> {
    /// Matches a URI with these parts. The variables that were found after it are already known.
    fn find(parts: &'a [Part], uri: &'a str, found: Found<'a>) -> Option<Found<'a>> {
        let mut matching = Matching {
            parts,
            uri,
            failed: vec![false; parts.len() * (uri.len() + 1)],
            found,
        };
        matching.matches(0, 0).then_some(matching.found)
    }

    /// Matches the URI from this position on with the parts from this one on. A variable takes as much as it can; it gives back what later parts need.
    fn matches(&mut self, part: usize, start: usize) -> bool {
        let (parts, uri) = (self.parts, &self.uri[start..]);
        let Some(current) = parts.get(part) else {
            return uri.is_empty();
        };
        let index = part * (self.uri.len() + 1) + start;
        if self.failed[index] {
            return false;
        }
        let found = self.found.len();
        let is_match = match current {
            Part::Literal(literal) => {
                uri.starts_with(&**literal) && self.matches(part + 1, start + literal.len())
            }
            Part::Query(names) => match_query(names, uri, &mut self.found),
            Part::Variable(name, has_slashes) => {
                let longest = if *has_slashes {
                    uri.len()
                } else {
                    segment_len(uri)
                };
                // An empty value is no value.
                let ends = (1..=longest).rev().filter(|end| uri.is_char_boundary(*end));
                let end = ends
                    .into_iter()
                    .find(|end| self.matches(part + 1, start + end));
                if let Some(end) = end {
                    self.found.push((name, &uri[..end]));
                }
                end.is_some()
            }
        };
        if !is_match {
            self.failed[index] = true;
            self.found.truncate(found);
        }
        is_match
    }
}

/// Reads a query. Returns false if it has a parameter that is not among these.
fn match_query<'a>(names: &'a [String], text: &'a str, found: &mut Found<'a>) -> bool {
    let Some(pairs) = text.strip_prefix('?') else {
        return text.is_empty();
    };
    for pair in pairs.split('&').filter(|pair| !pair.is_empty()).rev() {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !names.iter().any(|known| known == name) {
            return false;
        }
        found.push((name, value));
    }
    true
}

/// The length of the text before the first `/`, `?` or `#`. An encoded `/` counts, because the value is decoded.
fn segment_len(text: &str) -> usize {
    let is_encoded_slash = |at: usize| {
        let sequence = text.get(at..at + 3);
        sequence.is_some_and(|sequence| sequence.eq_ignore_ascii_case("%2f"))
    };
    let is_end = |(at, c): &(usize, char)| matches!(c, '/' | '?' | '#') || is_encoded_slash(*at);
    let end = text.char_indices().find(is_end);
    end.map_or(text.len(), |(at, _)| at)
}

/// Decodes percent-encoding. A sequence that is not valid UTF-8 stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, later)) = rest.split_first() {
        let digit = |at: usize| char::from(*later.get(at)?).to_digit(16);
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high * 16 + low));
                rest = &later[2..];
            }
            _ => {
                bytes.push(byte);
                rest = later;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        UriTemplate::parse(template)
            .expect("it is valid")
            .variables(uri)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Some(pairs.iter().map(owned).collect())
    }

    #[test]
    fn variable_matches_one_segment_and_is_decoded() {
        let template = "test://template/{id}/data";
        assert_eq!(
            variables(template, "test://template/a%20b/data"),
            pairs(&[("id", "a b")])
        );
        for uri in [
            "test://template//data",
            "test://template/a/b/data",
            "test://template/a",
            "test://template/a/data/",
        ] {
            assert_eq!(variables(template, uri), None, "{uri}");
        }
    }

    #[test]
    fn encoded_slash_is_only_in_the_value_of_a_reserved_variable() {
        for uri in ["file:///..%2Fsecret", "file:///..%2fsecret", "file:///%2F"] {
            assert_eq!(variables("file:///{name}", uri), None, "{uri}");
        }
        let reserved = variables("file:///{+path}", "file:///a%2Fb");
        assert_eq!(reserved, pairs(&[("path", "a/b")]));
        let queried = variables("search:{?q}", "search:?q=a%2Fb");
        assert_eq!(queried, pairs(&[("q", "a/b")]));
        // The slash is in the template, and in neither value.
        let literal = variables("x:{a}%2F{b}", "x:c%2Fd");
        assert_eq!(literal, pairs(&[("a", "c"), ("b", "d")]));
        let twice = variables("x:{a}", "x:%252F");
        assert_eq!(twice, pairs(&[("a", "%2F")]), "decoded once");
    }

    #[test]
    fn reserved_variable_matches_slashes_and_leaves_what_later_parts_need() {
        assert_eq!(
            variables("file:///{+path}", "file:///a/b.txt"),
            pairs(&[("path", "a/b.txt")])
        );
        let found = variables("x:{+path}/{name}.txt", "x:a/b/c.txt.txt");
        assert_eq!(found, pairs(&[("path", "a/b"), ("name", "c.txt")]));
    }

    #[test]
    fn query_matches_in_any_order_and_may_be_absent() {
        let template = "search://{index}{?q,limit}";
        assert_eq!(variables(template, "search://a"), pairs(&[("index", "a")]));
        let found = variables(template, "search://a?limit=3&q=x%26y");
        assert_eq!(
            found,
            pairs(&[("index", "a"), ("limit", "3"), ("q", "x&y")])
        );
        assert_eq!(variables(template, "search://a?other=1"), None);
    }

    #[test]
    fn reserved_variable_ends_where_the_query_begins() {
        let template = "file:///{+path}{?q,limit}";
        let queried = variables(template, "file:///a/b?limit=3&q=1%3F");
        let expected = pairs(&[("path", "a/b"), ("limit", "3"), ("q", "1?")]);
        assert_eq!(queried, expected);
        assert_eq!(
            variables(template, "file:///a/b"),
            pairs(&[("path", "a/b")])
        );
        assert_eq!(variables(template, "file:///a?"), pairs(&[("path", "a")]));
        // The query ends in text that also follows the variable.
        let inner = variables("x:{+path}/raw{?q}", "x:a/raw?q=/raw");
        assert_eq!(inner, pairs(&[("path", "a"), ("q", "/raw")]));
        // This is no query of the template, so it can only be part of the path.
        let other = variables(template, "file:///a?other=1");
        assert_eq!(other, pairs(&[("path", "a?other=1")]));
    }

    #[test]
    fn query_before_other_parts_is_refused_because_it_never_matches() {
        for template in ["x:a{?q,r}/b", "x:a{?q,r}{b}", "x:a{?q,r}{?s}"] {
            let error = UriTemplate::parse(template).err();
            assert_eq!(error, Some(TemplateError::Query("q,r".to_owned())));
        }
    }

    #[test]
    fn invalid_percent_sequences_stay_as_they_are() {
        assert_eq!(variables("x:{a}", "x:%zz%4"), pairs(&[("a", "%zz%4")]));
        assert_eq!(variables("x:{a}", "x:%ff"), pairs(&[("a", "%ff")]));
    }

    #[test]
    fn long_uris_match_in_bounded_time_or_not_at_all() {
        let template = "x:{+a}/{+b}/{+c}/{+d}!";
        assert_eq!(
            variables(template, &format!("x:{}", "/".repeat(4_000))),
            None
        );
        assert_eq!(
            variables("x:{+a}", &format!("x:{}", "a".repeat(5_000))),
            None
        );
    }

    #[test]
    fn unsupported_templates_are_refused_with_a_reason() {
        assert_eq!(
            UriTemplate::parse("x:{a").err(),
            Some(TemplateError::Braces)
        );
        assert_eq!(
            UriTemplate::parse("x:a}").err(),
            Some(TemplateError::Braces)
        );
        for expression in ["/a", "a*", "", "?a,", "#a"] {
            let error = UriTemplate::parse(&format!("x:{{{expression}}}")).err();
            assert_eq!(
                error,
                Some(TemplateError::Expression(expression.to_owned()))
            );
        }
    }

    #[test]
    fn longest_uri_matches_and_a_longer_one_does_not() {
        let uri = |len: usize| format!("x:{}", "a".repeat(len - 2));
        assert!(variables("x:{+a}", &uri(MAX_URI)).is_some());
        assert_eq!(variables("x:{+a}", &uri(MAX_URI + 1)), None);
    }

    #[test]
    fn query_that_does_not_fit_leaves_no_variables_behind() {
        // The last query is tried first. It has an unknown name before a known one.
        let found = variables("x:{+p}-{?q}", "x:a-?y=1-?q=b-?z=1&q=2");
        let expected = pairs(&[("p", "a-?y=1"), ("q", "b-?z=1"), ("q", "2")]);
        assert_eq!(found, expected);
    }

    #[test]
    fn variable_gives_back_what_later_variables_need() {
        let found = variables("x:{a}-{b}-{c}.{d}", "x:1-2-3-4.5.6");
        let expected = pairs(&[("a", "1-2"), ("b", "3"), ("c", "4.5"), ("d", "6")]);
        assert_eq!(found, expected);
        assert_eq!(variables("x:{a}{b}{c}", "x:12"), None);
        let found = variables("x:{a}{b}{c}", "x:é23");
        assert_eq!(found, pairs(&[("a", "é"), ("b", "2"), ("c", "3")]));
    }

    #[test]
    fn names_may_have_dots_dashes_and_underscores() {
        let found = variables("x:{a.b}/{c-d}{?e_f}", "x:1/2?e_f");
        assert_eq!(found, pairs(&[("a.b", "1"), ("c-d", "2"), ("e_f", "")]));
    }
}
