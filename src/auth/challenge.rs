//! Parses `WWW-Authenticate` fields (RFC 9110, section 11.6.1). Decides nothing.

use alloc::string::String;
use alloc::vec::Vec;

/// One challenge of a server: a scheme and its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    /// The scheme, in lower case.
    pub(super) scheme: String,
    /// The parameters. Names are in lower case, values without quotes and escapes.
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The value of a parameter. `None` if it is missing or comes twice, because nobody can know which one counts.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut named = self.parameters.iter().filter(|(of, _)| of == name);
        match (named.next(), named.next()) {
            (Some((_, value)), None) => Some(value),
            (_, _) => None,
        }
    }
}

/// Parses the challenges of all fields, in order. What cannot be parsed is skipped up to the next challenge.
pub(super) fn parse<'t>(fields: impl Iterator<Item = &'t str>) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    for field in fields {
        parse_field(field, &mut challenges);
    }
    challenges
}

/// Chooses the challenge to act on: `DPoP` if this client can, else `Bearer`, else a `DPoP` that stands alone.
pub(super) fn choose(challenges: Vec<Challenge>, prefers_dpop: bool) -> Option<Challenge> {
    let (preferred, other) = if prefers_dpop {
        ("dpop", "bearer")
    } else {
        ("bearer", "dpop")
    };
    let at = |scheme| challenges.iter().position(|found| found.scheme == scheme);
    let chosen = at(preferred).or_else(|| at(other))?;
    challenges.into_iter().nth(chosen)
}

fn parse_field(field: &str, challenges: &mut Vec<Challenge>) {
    let mut rest = field;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            // Neither a scheme nor a parameter begins here: go on after the next comma.
            match rest.split_once(',') {
                Some((_, next)) => rest = next,
                None => return,
            }
            continue;
        }
        let spaced = after.trim_start_matches([' ', '\t']);
        match spaced.strip_prefix('=') {
            Some(value) if !challenges.is_empty() => {
                let (value, next) = parameter_value(value.trim_start_matches([' ', '\t']));
                if let (Some(value), Some(challenge)) = (value, challenges.last_mut()) {
                    let name = word.to_ascii_lowercase();
                    challenge.parameters.push((name, value));
                }
                rest = next;
            }
            // A value without a challenge before it.
            Some(value) => rest = parameter_value(value).1,
            None => {
                challenges.push(Challenge {
                    scheme: word.to_ascii_lowercase(),
                    parameters: Vec::new(),
                });
                rest = after;
                // A value such as `YQ==` is the only one of its challenge, and no scheme that is used here has one.
                if let Some(next) = skip_token68(spaced) {
                    rest = next;
                }
            }
        }
    }
}

/// Splits off a token (RFC 9110, section 5.6.2).
fn token(text: &str) -> (&str, &str) {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let end = text.bytes().position(|byte| !is_token(byte));
    text.split_at(end.unwrap_or(text.len()))
}

/// Splits off the value of a parameter: a token, or a quoted string. `None` if it is neither.
fn parameter_value(text: &str) -> (Option<String>, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = token(text);
        return ((!value.is_empty()).then(|| value.into()), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (Some(value), &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(char),
        }
    }
    (None, "")
}

/// Skips a `token68` value that stands where parameters could be. Returns the text after it, or `None` if there is none.
fn skip_token68(text: &str) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let length = text.bytes().position(|byte| !is_part(byte));
    let (value, rest) = text.split_at(length.unwrap_or(text.len()));
    let rest = rest.trim_start_matches('=').trim_start_matches([' ', '\t']);
    let is_whole = rest.is_empty() || rest.starts_with(',');
    (!value.is_empty() && is_whole).then_some(rest)
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec};

    use super::*;

    fn shown(fields: &[&str]) -> Vec<(String, Vec<(String, String)>)> {
        let challenges = parse(fields.iter().copied());
        let all = challenges.into_iter();
        all.map(|challenge| (challenge.scheme, challenge.parameters))
            .collect()
    }

    fn challenge(scheme: &str, parameters: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        let owned = |&(name, value): &(&str, &str)| (name.into(), value.into());
        (scheme.into(), parameters.iter().map(owned).collect())
    }

    #[test]
    fn parameters_are_read_with_quotes_escapes_and_any_case() {
        let field = r#"bEaReR Realm="a, \"b\" \\", SCOPE = "x y",error=invalid_token"#;
        let expected = challenge(
            "bearer",
            &[
                ("realm", r#"a, "b" \"#),
                ("scope", "x y"),
                ("error", "invalid_token"),
            ],
        );
        assert_eq!(shown(&[field]), [expected]);
    }

    #[test]
    fn several_challenges_are_read_from_one_line_and_from_several_lines() {
        let one_line =
            r#"Basic realm="x", , Bearer scope="a",error="b", Negotiate YQ==, DPoP algs="ES256""#;
        let expected = vec![
            challenge("basic", &[("realm", "x")]),
            challenge("bearer", &[("scope", "a"), ("error", "b")]),
            challenge("negotiate", &[]),
            challenge("dpop", &[("algs", "ES256")]),
        ];
        assert_eq!(shown(&[one_line]), expected);
        let lines = [
            r#"Basic realm="x""#,
            r#"Bearer scope="a", error="b""#,
            "Negotiate YQ==",
            r#"DPoP algs="ES256""#,
        ];
        assert_eq!(shown(&lines), expected);
    }

    #[test]
    fn a_scheme_may_stand_alone() {
        assert_eq!(shown(&["Bearer"]), [challenge("bearer", &[])]);
        assert_eq!(
            shown(&["Negotiate, Bearer"]),
            [challenge("negotiate", &[]), challenge("bearer", &[])]
        );
    }

    #[test]
    fn a_value_that_is_no_parameter_is_not_read_as_a_scheme() {
        let expected = [
            challenge("negotiate", &[]),
            challenge("bearer", &[("scope", "a")]),
        ];
        for value in ["YWJj", "YQ==", "a/b+c-d._~", "Bearer"] {
            let field = format!("Negotiate {value} , Bearer scope=a");
            assert_eq!(shown(&[&field]), expected, "{value}");
            let last = format!("Negotiate {value}");
            assert_eq!(shown(&[&last, "Bearer scope=a"]), expected, "{value}");
        }
    }

    #[test]
    fn parameters_without_commas_between_them_are_read() {
        let field = r#"Bearer realm="x" scope="a b" error=invalid_token"#;
        let parameters = [("realm", "x"), ("scope", "a b"), ("error", "invalid_token")];
        assert_eq!(shown(&[field]), [challenge("bearer", &parameters)]);
    }

    #[test]
    fn rubbish_is_skipped_and_never_panics() {
        for field in [
            "",
            "=",
            "\"",
            ",,,",
            "a=b",
            "Bearer =",
            "é",
            "Bearer a=\"é",
            "(((, Bearer",
        ] {
            let _ = shown(&[field]);
        }
        assert_eq!(shown(&["(((, Bearer"]), [challenge("bearer", &[])]);
    }

    #[test]
    fn a_parameter_that_comes_twice_does_not_count() {
        let twice = parse([r#"Bearer scope="a", scope="b""#].into_iter());
        assert_eq!(twice[0].get("scope"), None);
    }

    #[test]
    fn bearer_is_chosen_unless_the_client_prefers_dpop_or_there_is_only_dpop() {
        let both = || parse(["DPoP a=b, Bearer c=d"].into_iter());
        let scheme = |challenges, prefers| choose(challenges, prefers).map(|chosen| chosen.scheme);
        assert_eq!(scheme(both(), false).as_deref(), Some("bearer"));
        assert_eq!(scheme(both(), true).as_deref(), Some("dpop"));
        let only = parse(["DPoP a=b"].into_iter());
        assert_eq!(scheme(only, false).as_deref(), Some("dpop"));
        assert_eq!(scheme(parse(["Basic a=b"].into_iter()), false), None);
    }
}
