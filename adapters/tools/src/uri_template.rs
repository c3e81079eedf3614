//! Matches URIs with a template (RFC 6570), and extracts the variables.
//!
//! Knows three expressions: `{name}` matches text without `/`, `{+name}` matches any text, and `{?a,b}` matches a query in any order.

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
}

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
        Ok(UriTemplate(parts))
    }

    /// Returns the variables of this URI. `None` if it does not match.
    pub(crate) fn variables(&self, uri: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        matches(&self.0, uri, &mut found).then_some(found)
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

/// Matches the parts one after the other. A variable takes as much as it can; it gives back what later parts need.
fn matches(parts: &[Part], uri: &str, found: &mut Vec<(String, String)>) -> bool {
    let Some((part, later)) = parts.split_first() else {
        return uri.is_empty();
    };
    match part {
        Part::Literal(literal) => uri
            .strip_prefix(&**literal)
            .is_some_and(|rest| matches(later, rest, found)),
        Part::Query(names) => {
            let Some(variables) = query(names, uri) else {
                return false;
            };
            found.extend(variables);
            later.is_empty()
        }
        Part::Variable(name, has_slashes) => {
            let stop = |c: char| !has_slashes && matches!(c, '/' | '?' | '#');
            let longest = uri.find(stop).unwrap_or(uri.len());
            let mut ends: Vec<_> = uri[..longest].char_indices().map(|(at, _)| at).collect();
            ends.push(longest);
            // An empty value is no value.
            for end in ends.into_iter().filter(|end| *end > 0).rev() {
                let len = found.len();
                found.push((name.clone(), decode(&uri[..end])));
                if matches(later, &uri[end..], found) {
                    return true;
                }
                found.truncate(len);
            }
            false
        }
    }
}

/// Reads a query. `None` if it has a parameter that is not among these.
fn query(names: &[String], text: &str) -> Option<Vec<(String, String)>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let pairs = text
        .strip_prefix('?')?
        .split('&')
        .filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        names
            .iter()
            .any(|known| known == name)
            .then(|| (name.to_owned(), decode(value)))
    });
    pairs.collect()
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
    fn invalid_percent_sequences_stay_as_they_are() {
        assert_eq!(variables("x:{a}", "x:%zz%4"), pairs(&[("a", "%zz%4")]));
        assert_eq!(variables("x:{a}", "x:%ff"), pairs(&[("a", "%ff")]));
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
}
